/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entering a cell: what a process goes through from clone to where it may
 * become the interpreter. The supervisor's child does so before its exec
 * (launch.c), a zygote's before it waits for a request (zygote_module.c).
 *
 * It prepares itself while setup_child builds the cell, enters the cell and
 * gives its powers up. Only async-signal-safe calls.
 */
#include "cgroup.h"
#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REPORT_FD (WIRE_CHANNEL_FD + 1)
#define READY_FD (WIRE_CHANNEL_FD + 2)

/* A cell dies before anything else when the host's memory runs out. */
static void offer_to_oom_killer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        IGNORE_RESULT(write(fd, "500", 3) == 3 ? 0 : -1);
        close(fd);
    }
}

/* Waits until the cell is built: setup_child says so. */
static void wait_until_built(const struct cell_plan *plan)
{
    child_wait(plan, plan->ready_fds[0], CHILD_WAIT_READY);
}

/* Waits until PID 1 has given its powers up and is hutch-init: its exec closes
 * the pipe. Had it failed instead, its end would be this process's as well. */
void child_wait_for_init(const struct cell_plan *plan)
{
    char word;
    ssize_t count;

    do
        count = read(plan->ready_fds[0], &word, 1);
    while (count < 0 && errno == EINTR);
    if (count != 0)
        child_fail(plan, CHILD_WAIT_READY, count < 0 ? errno : EPROTO);
}

/* Moves what the program gets, and the two pipes to the others, out of the way
 * of the places that they go to: a supervisor with many cells has descriptors
 * everywhere. */
static void move_descriptors(struct cell_plan *plan)
{
    int *const fds[] = {&plan->stdin_fd,   &plan->stdout_fd, &plan->stderr_fd,
                        &plan->channel_fd, &plan->report_fd, &plan->ready_fds[0]};

    for (size_t i = 0; i < ARRAY_LENGTH(fds); i++) {
        if (*fds[i] < 0)
            continue;
        int moved = fcntl(*fds[i], F_DUPFD_CLOEXEC, READY_FD + 1);
        if (moved < 0)
            child_fail(plan, CHILD_DESCRIPTORS, errno);
        *fds[i] = moved;
    }
}

/* What does not need the finished cell, while setup_child builds it. The
 * resource limits come first: raising one takes a power outside of the cell. */
static void prepare(struct cell_plan *plan)
{
    move_descriptors(plan);
    offer_to_oom_killer();
    int error = cgroup_join(plan->join_fds, plan->join_count);
    if (error < 0)
        child_fail(plan, CHILD_JOIN_CGROUP, -error);
    for (size_t i = 0; i < plan->rlimit_count; i++) {
        const struct plan_rlimit *entry = &plan->rlimits[i];
        if (syscall(SYS_prlimit64, 0, entry->resource, &entry->limit, NULL) < 0)
            child_fail(plan, CHILD_RLIMIT, errno);
    }
    if (setsid() < 0)
        child_fail(plan, CHILD_SESSION, errno);
    /* The pid namespace was entered by clone. The mount namespace has to wait:
     * entering it takes its root as it is then. */
    for (size_t i = 0; i < PLAN_NS_MOUNT; i++) {
        if (plan->ns_fds[i] >= 0 && setns(plan->ns_fds[i], 0) < 0)
            child_fail(plan, CHILD_ENTER, errno);
    }
    child_enter_cgroup_ns(plan);
}

static void enter_cell(const struct cell_plan *plan)
{
    if (setns(plan->ns_fds[PLAN_NS_MOUNT], CLONE_NEWNS) < 0)
        child_fail(plan, CHILD_ENTER, errno);
    child_set_ids(plan);
    /* Of a zygote's mount namespace it is the root already: setup.c. */
    if ((plan->kind != PROTO_ZYGOTE && chroot("/root") < 0) || chdir(CELL_HOME) < 0)
        child_fail(plan, CHILD_CHROOT, errno);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        child_fail(plan, CHILD_DEATH_SIGNAL, errno);
}

/* The descriptor moves to number, where it outlives an exec; -1 is /dev/null. */
static void place(const struct cell_plan *plan, int fd, int number, int mode)
{
    int source = fd >= 0 ? fd : open("/dev/null", mode | O_CLOEXEC);
    if (source < 0 || (source != number && dup2(source, number) < 0) ||
        fcntl(number, F_SETFD, 0) < 0)
        child_fail(plan, CHILD_DESCRIPTORS, errno);
}

/* Only what the program may have, the channel, which the runner keeps from its
 * children, and the two pipes, which the exec closes: nothing of the
 * supervisor's stays open in the cell. */
static void place_descriptors(struct cell_plan *plan)
{
    const int channel_fd =
        plan->language == PROTO_JAVASCRIPT ? WIRE_CHANNEL_FD_NODE : WIRE_CHANNEL_FD;
    close_range(0, READY_FD, 0);
    place(plan, plan->stdin_fd, 0, O_RDONLY);
    place(plan, plan->stdout_fd, 1, O_WRONLY);
    place(plan, plan->stderr_fd, 2, O_WRONLY);
    if (dup2(plan->channel_fd, channel_fd) < 0 || dup3(plan->report_fd, REPORT_FD, O_CLOEXEC) < 0 ||
        dup3(plan->ready_fds[0], READY_FD, O_CLOEXEC) < 0)
        child_fail(plan, CHILD_DESCRIPTORS, errno);
    plan->report_fd = REPORT_FD;
    plan->ready_fds[0] = READY_FD;
    if (close_range(READY_FD + 1, ~0U, 0) < 0)
        child_fail(plan, CHILD_DESCRIPTORS, errno);
}

/* Refuses to go on without what the request asked for. */
static uint32_t check_layers(const struct cell_plan *plan)
{
    uint32_t layers = plan->layers | HUTCH_LAYER_NO_CAPS | HUTCH_LAYER_NO_NEW_PRIVS |
                      HUTCH_LAYER_SECCOMP | HUTCH_LAYER_RLIMITS | HUTCH_LAYER_PRIVATE_ROOT;
    if (plan->landlock_abi > 0)
        layers |= HUTCH_LAYER_LANDLOCK;
    uint32_t missing = plan->require & ~layers;
    if (missing != 0) {
        child_report(plan, &(struct child_report){.step = CHILD_REQUIRE, .layers = missing});
        _exit(127);
    }
    return layers;
}

uint32_t child_enter(struct cell_plan *plan)
{
    prepare(plan);
    wait_until_built(plan);
    enter_cell(plan);
    place_descriptors(plan);
    child_confine(plan, plan->kind == PROTO_ZYGOTE ? CONFINE_ZYGOTE
                        : plan->forked             ? CONFINE_FORKED
                                                   : CONFINE_PROGRAM);
    return check_layers(plan);
}
