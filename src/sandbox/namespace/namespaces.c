/* SPDX-License-Identifier: Apache-2.0 */
/* See namespaces.h. */
#include "namespaces.h"

#include <sched.h>
#include <sys/wait.h>

#define NEEDED (CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET)

static const unsigned optional[] = {CLONE_NEWIPC, CLONE_NEWUTS};

void namespaces_assume(struct supervisor *supervisor)
{
    supervisor->namespaces = NEEDED | CLONE_NEWUSER | CLONE_NEWIPC | CLONE_NEWUTS;
    supervisor->cgroup_ns = access("/proc/self/ns/cgroup", F_OK) == 0;
}

static bool can_unshare(unsigned flags)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare((int)flags) < 0);
    int status = 1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

int namespaces_probe(struct supervisor *supervisor, struct hutch_error *err)
{
    supervisor->namespaces = NEEDED | CLONE_NEWUSER;
    if (!can_unshare(supervisor->namespaces)) {
        supervisor->namespaces = NEEDED;
        /* Without a user namespace only a uid of its own keeps a cell from the
         * files and the processes of the host. */
        if (slots_count(supervisor->slots) == 0 || !can_unshare(NEEDED))
            return err_set(err, HUTCH_ERR_ISOLATION,
                           "this host refuses user, pid, mount or network namespaces");
    }
    for (size_t i = 0; i < ARRAY_LENGTH(optional); i++) {
        if (can_unshare(supervisor->namespaces | optional[i]))
            supervisor->namespaces |= optional[i];
    }
    supervisor->cgroup_ns = can_unshare((supervisor->namespaces & CLONE_NEWUSER) | CLONE_NEWCGROUP);
    return 0;
}

uint32_t namespaces_layers(const struct supervisor *supervisor)
{
    static const struct {
        unsigned flag;
        uint32_t layer;
    } table[] = {
        {CLONE_NEWUSER, HUTCH_LAYER_USER_NS}, {CLONE_NEWPID, HUTCH_LAYER_PID_NS},
        {CLONE_NEWNS, HUTCH_LAYER_MOUNT_NS},  {CLONE_NEWNET, HUTCH_LAYER_NET_NS},
        {CLONE_NEWIPC, HUTCH_LAYER_IPC_NS},   {CLONE_NEWUTS, HUTCH_LAYER_UTS_NS},
    };
    uint32_t layers = supervisor->cgroup_ns ? HUTCH_LAYER_CGROUP_NS : 0;

    for (size_t i = 0; i < ARRAY_LENGTH(table); i++)
        layers |= supervisor->namespaces & table[i].flag ? table[i].layer : 0;
    return layers;
}

void namespaces_return(int ns_fd, int kind)
{
    int saved = errno;
    if (setns(ns_fd, kind) < 0)
        _exit(1);
    errno = saved;
}
