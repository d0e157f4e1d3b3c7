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

static int drop_capabilities(void)
{
    /* The kernel answers EINVAL from its first unknown capability on. */
    for (unsigned long capability = 0; capability < 64; capability++) {
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0) {
            if (errno == EINVAL)
                break;
            return -errno;
        }
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -errno;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    if (syscall(SYS_capset, &header, none) < 0)
        return -errno;
    return 0;
}

void child_confine(const struct cell_plan *plan, int landlock_abi)
{
    int error = drop_capabilities();
    if (error < 0)
        child_fail(plan, CHILD_DROP_CAPS, -error);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        child_fail(plan, CHILD_NO_NEW_PRIVS, errno);
    if (landlock_abi > 0) {
        error = landlock_confine_cell(landlock_abi);
        if (error < 0)
            child_fail(plan, CHILD_LANDLOCK, -error);
    }
    error = seccomp_install();
    if (error < 0)
        child_fail(plan, CHILD_SECCOMP, -error);
}
