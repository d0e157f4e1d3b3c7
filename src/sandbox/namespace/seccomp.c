/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See seccomp.h. seccomp_filter.h comes from seccomp_gen.
 *
 * No flags: SPEC_ALLOW would give mitigations up, LOG would let a cell write
 * into the host's log, TSYNC is for programs with threads.
 */
#include "seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct sock_filter instructions[] = {
#include "seccomp_filter.h"
};

/* The kernel reads through the pointer only; its header has no const. */
static const struct sock_fprog program = {
    .len = ARRAY_LENGTH(instructions),
    .filter = (struct sock_filter *)instructions,
};

_Static_assert(ARRAY_LENGTH(instructions) <= BPF_MAXINSNS, "more than the kernel takes");

int seccomp_install(void)
{
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return -errno;
    return 0;
}

const struct sock_fprog *seccomp_filter(void)
{
    return &program;
}
