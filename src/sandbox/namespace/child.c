/* SPDX-License-Identifier: Apache-2.0 */
/* What the children of plan.h have in common: reports, waiting, ids. */
#include "kernel.h"
#include "plan.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

void child_report(const struct cell_plan *plan, const struct child_report *report)
{
    /* without its reader, which is the supervisor, the child has nothing to do */
    if (write(plan->report_fd, report, sizeof(*report)) != (ssize_t)sizeof(*report))
        _exit(127);
}

void child_fail(const struct cell_plan *plan, enum child_step step, int error)
{
    child_report(plan, &(struct child_report){.step = step, .error = error});
    _exit(127);
}

void child_set_ids(const struct cell_plan *plan)
{
    if (plan->clear_groups && syscall(SYS_setgroups, 0, NULL) < 0)
        child_fail(plan, CHILD_SET_IDS, errno);
    if (syscall(SYS_setresgid, plan->gid, plan->gid, plan->gid) < 0 ||
        syscall(SYS_setresuid, plan->uid, plan->uid, plan->uid) < 0)
        child_fail(plan, CHILD_SET_IDS, errno);
}

void child_wait(const struct cell_plan *plan, int fd, enum child_step step)
{
    char byte;
    ssize_t count;

    do
        count = read(fd, &byte, 1);
    while (count < 0 && errno == EINTR);
    if (count != 1)
        child_fail(plan, step, count < 0 ? errno : EPIPE);
}

void child_enter_cgroup_ns(const struct cell_plan *plan)
{
    /* Only after joining: the namespace's root is the group of its maker. */
    if (plan->cgroup_ns && unshare(CLONE_NEWCGROUP) < 0)
        child_fail(plan, CHILD_CGROUP_NS, errno);
}

size_t plan_passed(struct cell_plan *plan, int *ret_places[PLAN_PASSED_MAX])
{
    size_t count = 0;

    ret_places[count++] = &plan->report_fd;
    ret_places[count++] = &plan->ready_fds[0];
    ret_places[count++] = &plan->channel_fd;
    for (size_t i = 0; i < PLAN_NS_COUNT; i++) {
        if (plan->ns_fds[i] >= 0)
            ret_places[count++] = &plan->ns_fds[i];
    }
    for (size_t i = 0; i < plan->join_count && i < PLAN_JOIN_FDS; i++)
        ret_places[count++] = &plan->join_fds[i];
    return count;
}
