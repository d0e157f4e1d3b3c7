/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look at the layers from inside a finished cell, for hutch doctor: each is
 * tried, not asked for. Runs in launch_child after everything is in place, so
 * only system calls here too.
 */
#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    uint32_t layer;
    const char *path;
} namespaces[PLAN_NAMESPACES] = {
    {HUTCH_LAYER_USER_NS, "/proc/self/ns/user"},     {HUTCH_LAYER_PID_NS, "/proc/self/ns/pid"},
    {HUTCH_LAYER_MOUNT_NS, "/proc/self/ns/mnt"},     {HUTCH_LAYER_NET_NS, "/proc/self/ns/net"},
    {HUTCH_LAYER_IPC_NS, "/proc/self/ns/ipc"},       {HUTCH_LAYER_UTS_NS, "/proc/self/ns/uts"},
    {HUTCH_LAYER_CGROUP_NS, "/proc/self/ns/cgroup"},
};

void plan_note_namespaces(struct cell_plan *plan)
{
    for (size_t i = 0; i < PLAN_NAMESPACES; i++) {
        struct stat info;
        plan->own_namespaces[i] = stat(namespaces[i].path, &info) == 0 ? info.st_ino : 0;
    }
    struct stat root;
    plan->own_root = stat("/", &root) == 0 ? root.st_ino : 0;
}

/* Another namespace than the supervisor's. */
static uint32_t namespaces_differ(const struct cell_plan *plan)
{
    uint32_t layers = 0;

    for (size_t i = 0; i < PLAN_NAMESPACES; i++) {
        struct stat info;
        if (stat(namespaces[i].path, &info) == 0 && info.st_ino != plan->own_namespaces[i])
            layers |= namespaces[i].layer;
    }
    return layers;
}

static bool has_no_capability(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {{0}};

    if (syscall(SYS_capget, &header, sets) < 0)
        return false;
    for (size_t i = 0; i < 2; i++) {
        if (sets[i].effective != 0 || sets[i].permitted != 0 || sets[i].inheritable != 0)
            return false;
    }
    for (unsigned long capability = 0; capability < 64; capability++) {
        if (prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1)
            return false;
    }
    return true;
}

/* A number that no kernel has, and a call that every kernel has. */
static bool filter_answers(void)
{
    bool unknown = syscall(1999) < 0 && errno == ENOSYS;
    bool closed = syscall(SYS_bpf, 0, NULL, 0) < 0 && errno == ENOSYS;
    return unknown && closed;
}

/* From ABI 6 on, signals end at the Landlock domain, which PID 1 is not in;
 * by uid alone the signal 0 would be allowed. Older ones show in nothing that
 * another layer does not refuse as well: there the kernel's word for having
 * applied the rules has to do. */
static bool landlock_denies(const struct cell_plan *plan)
{
    return plan->landlock_abi > 0 && (plan->landlock_abi < 6 || (kill(1, 0) < 0 && errno == EPERM));
}

static bool limits_hold(void)
{
    struct rlimit core;
    return getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 1;
}

static bool root_is_private(const struct cell_plan *plan)
{
    struct stat root;

    return stat("/", &root) == 0 && root.st_ino != plan->own_root &&
           open("/etc/hutch-probe", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0;
}

uint32_t verify_layers(const struct cell_plan *plan, uint32_t mask)
{
    /* What shows only from outside: the parent has put these in force. */
    uint32_t confirmed = HUTCH_LAYER_DISTINCT_UID | HUTCH_LAYER_CGROUP_MEMORY |
                         HUTCH_LAYER_CGROUP_PIDS | HUTCH_LAYER_CGROUP_CPU;

    confirmed |= namespaces_differ(plan);
    if (has_no_capability())
        confirmed |= HUTCH_LAYER_NO_CAPS;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        confirmed |= HUTCH_LAYER_NO_NEW_PRIVS;
    if (filter_answers())
        confirmed |= HUTCH_LAYER_SECCOMP;
    if (landlock_denies(plan))
        confirmed |= HUTCH_LAYER_LANDLOCK;
    if (limits_hold())
        confirmed |= HUTCH_LAYER_RLIMITS;
    if (root_is_private(plan))
        confirmed |= HUTCH_LAYER_PRIVATE_ROOT;
    return confirmed & mask;
}
