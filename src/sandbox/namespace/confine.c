/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving power up, for both children of plan.h: capabilities, no_new_privs,
 * Landlock, the system call filter, in this order, each looked at.
 */
#include "kernel.h"
#include "landlock.h"
#include "plan.h"
#include "seccomp.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* All but those in keep, a mask, which an exec does not take away either. */
static int drop_capabilities(uint64_t keep)
{
    /* The kernel answers EINVAL from its first unknown capability on. */
    for (unsigned long capability = 0; capability < 64; capability++) {
        if (!(keep >> capability & 1) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0) {
            if (errno == EINVAL)
                break;
            return -errno;
        }
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -errno;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    for (unsigned i = 0; i < 2; i++) {
        uint32_t mask = (uint32_t)(keep >> (32 * i));
        sets[i] = (struct __user_cap_data_struct){mask, mask, mask};
    }
    if (syscall(SYS_capset, &header, sets) < 0)
        return -errno;
    for (unsigned long capability = 0; capability < 64; capability++) {
        if ((keep >> capability & 1) &&
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) < 0)
            return -errno;
    }
    return 0;
}

void child_confine(const struct cell_plan *plan, enum confinement how)
{
    int error = drop_capabilities(how == CONFINE_ZYGOTE ? 1ull << CAP_SYS_ADMIN : 0);
    if (error < 0)
        child_fail(plan, CHILD_DROP_CAPS, -error);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        child_fail(plan, CHILD_NO_NEW_PRIVS, errno);
    bool program = how == CONFINE_PROGRAM || how == CONFINE_FORKED;
    if (program && plan->landlock_abi > 0) {
        error = landlock_confine_cell(plan->landlock_abi);
        if (error < 0)
            child_fail(plan, CHILD_LANDLOCK, -error);
    }
    error = seccomp_install(how == CONFINE_ZYGOTE   ? SECCOMP_ZYGOTE
                            : how == CONFINE_FORKED ? SECCOMP_FORKED
                                                    : SECCOMP_CELL);
    if (error < 0)
        child_fail(plan, CHILD_SECCOMP, -error);
}
