/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp_rules.def as a table. For programs that run while hutch is built or
 * tested; what is installed includes seccomp.h only.
 */
#pragma once

#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sockios.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#ifdef __x86_64__
#include <asm/prctl.h>
#endif
#ifdef __s390__
#error "clone has its flags in argument 1 here: see seccomp_rules.def"
#endif

/* Linux 5.16 */
#if defined(__x86_64__) && !defined(ARCH_GET_XCOMP_SUPP)
#define ARCH_GET_XCOMP_SUPP 0x1021
#define ARCH_GET_XCOMP_PERM 0x1022
#define ARCH_REQ_XCOMP_PERM 0x1023
#endif

#define SECCOMP_MAX_CONDITIONS 3

/* The argument, masked, is the value. */
struct seccomp_condition {
    unsigned argument;
    uint64_t mask;
    uint64_t value;
};

struct seccomp_rule {
    const char *name;
    int call;
    uint32_t action; /* SCMP_ACT_*, which are the kernel's SECCOMP_RET_* */
    unsigned condition_count;
    struct seccomp_condition conditions[SECCOMP_MAX_CONDITIONS];
};

/* clang-format off */
#define CLOSED_CLONE_FLAGS \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
     CLONE_NEWPID | CLONE_NEWNET | CLONE_PARENT)

#define BITS(n, mask, value) {n, (uint32_t)(mask), (uint32_t)(value)}
#define IS(n, value) BITS(n, UINT32_MAX, value)
#define NULL_PTR(n) {n, UINT64_MAX, 0}
#define SOCK(type) BITS(1, 0xf, type) /* without SOCK_CLOEXEC and SOCK_NONBLOCK */

#define RULE(call_, action_) {.name = #call_, .call = SCMP_SYS(call_), .action = action_},
#define RULE_IF(call_, action_, ...)                                                          \
    {.name = #call_, .call = SCMP_SYS(call_), .action = action_, .conditions = {__VA_ARGS__}, \
     .condition_count = sizeof((struct seccomp_condition[]){__VA_ARGS__}) /                   \
                        sizeof(struct seccomp_condition)},
#define ALLOW(call) RULE(call, SCMP_ACT_ALLOW)
#define ALLOW_IF(call, ...) RULE_IF(call, SCMP_ACT_ALLOW, __VA_ARGS__)
#define ANSWER(error, call) RULE(call, SCMP_ACT_ERRNO(error))
#define ANSWER_IF(error, call, ...) RULE_IF(call, SCMP_ACT_ERRNO(error), __VA_ARGS__)

static const struct seccomp_rule seccomp_rules[] = {
#include "seccomp_rules.def"
};

static const struct seccomp_rule seccomp_zygote_rules[] = {
#include "seccomp_zygote.def"
};
/* clang-format on */

#define SECCOMP_RULES (sizeof(seccomp_rules) / sizeof(seccomp_rules[0]))
#define SECCOMP_ZYGOTE_RULES (sizeof(seccomp_zygote_rules) / sizeof(seccomp_zygote_rules[0]))

/* What everything without a row gets. */
#define SECCOMP_DEFAULT SCMP_ACT_ERRNO(ENOSYS)
