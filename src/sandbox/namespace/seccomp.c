/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See seccomp.h. The programs come from seccomp_gen.
 *
 * No flags: SPEC_ALLOW would give mitigations up, LOG would let a cell write
 * into the host's log, TSYNC is for programs with threads.
 */
#include "seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct sock_filter cell[] = {
#include "seccomp_cell.h"
};
static const struct sock_filter zygote[] = {
#include "seccomp_zygote.h"
};
static const struct sock_filter forked[] = {
#include "seccomp_forked.h"
};

/* The kernel reads through the pointer only; its header has no const. */
#define PROGRAM(instructions)                                                                      \
    {                                                                                              \
        .len = ARRAY_LENGTH(instructions), .filter = (struct sock_filter *)(instructions)          \
    }
static const struct sock_fprog programs[SECCOMP_STAGES] = {
    [SECCOMP_CELL] = PROGRAM(cell),
    [SECCOMP_ZYGOTE] = PROGRAM(zygote),
    [SECCOMP_FORKED] = PROGRAM(forked),
};

_Static_assert(ARRAY_LENGTH(zygote) <= BPF_MAXINSNS, "more than the kernel takes");

int seccomp_install(enum seccomp_stage stage)
{
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &programs[stage]) < 0)
        return -errno;
    return 0;
}

const struct sock_fprog *seccomp_filter(enum seccomp_stage stage)
{
    return &programs[stage];
}
