/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child that becomes the interpreter, from clone to exec. The supervisor
 * cloned it into the cell's pid namespace, so that it is the supervisor's own
 * child: its wait status is the kernel's word about the program, and signals
 * to it mean what they mean outside, which they would not to PID 1.
 *
 * It prepares itself while setup_child builds the cell, enters the cell, confines
 * itself, and becomes the interpreter once PID 1 has given its powers up. Only async-signal-safe
 * calls.
 */
#include "cgroup.h"
#include "guest/script.h"
#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A cell dies before anything else when the host's memory runs out. */
static void offer_to_oom_killer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        IGNORE_RESULT(write(fd, "500", 3) == 3 ? 0 : -1);
        close(fd);
    }
}

/* Waits for the next word of setup_child. */
static void wait_for_setup(const struct cell_plan *plan)
{
    char word;
    ssize_t count;

    do
        count = read(plan->ready_fds[0], &word, 1);
    while (count < 0 && errno == EINTR);
    if (count != 1)
        child_fail(plan, CHILD_WAIT_READY, count < 0 ? errno : EPIPE);
}

/* What does not need the finished cell, while setup_child builds it. The
 * resource limits come first: raising one takes a power outside of the cell. */
static void prepare(const struct cell_plan *plan)
{
    close(plan->ready_fds[1]);
    offer_to_oom_killer();
    int error = cgroup_join(plan->join_fds, plan->join_count);
    if (error < 0)
        child_fail(plan, CHILD_JOIN_CGROUP, -error);
    for (size_t i = 0; i < PLAN_RLIMITS; i++) {
        const struct plan_rlimit *entry = &plan->rlimits[i];
        if (syscall(SYS_prlimit64, 0, entry->resource, &entry->limit, NULL) < 0)
            child_fail(plan, CHILD_RLIMIT, errno);
    }
    if (setsid() < 0)
        child_fail(plan, CHILD_SESSION, errno);
    /* The pid namespace was entered by clone. The mount namespace has to wait:
     * entering it takes its root as it is then. */
    if (setns(plan->init_pidfd, (int)plan->namespaces & ~(CLONE_NEWPID | CLONE_NEWNS)) < 0)
        child_fail(plan, CHILD_ENTER, errno);
    child_enter_cgroup_ns(plan);
}

static void enter_cell(const struct cell_plan *plan)
{
    if (setns(plan->mount_ns_fd, CLONE_NEWNS) < 0)
        child_fail(plan, CHILD_ENTER, errno);
    child_set_ids(plan);
    if (chroot("/root") < 0 || chdir(CELL_HOME) < 0)
        child_fail(plan, CHILD_CHROOT, errno);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        child_fail(plan, CHILD_DEATH_SIGNAL, errno);
}

/* Only what the program may have, the channel, which the runner keeps from its
 * children, and the two pipes to the
 * others, which the exec closes: nothing of the supervisor's stays open in the cell. */
static void place_descriptors(struct cell_plan *plan)
{
    const int report_fd = WIRE_CHANNEL_FD + 1;
    const int ready_fd = WIRE_CHANNEL_FD + 2;
    int input = plan->stdin_fd;
    if (input < 0)
        input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (input < 0 || dup2(input, 0) < 0 || dup2(plan->stdout_fd, 1) < 0 ||
        dup2(plan->stderr_fd, 2) < 0 || dup2(plan->channel_fd, WIRE_CHANNEL_FD) < 0 ||
        dup3(plan->report_fd, report_fd, O_CLOEXEC) < 0 ||
        dup3(plan->ready_fds[0], ready_fd, O_CLOEXEC) < 0)
        child_fail(plan, CHILD_DESCRIPTORS, errno);
    plan->report_fd = report_fd;
    plan->ready_fds[0] = ready_fd;
    if (close_range(3, WIRE_CHANNEL_FD - 1, 0) < 0 || close_range(ready_fd + 1, ~0U, 0) < 0)
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
        struct child_report report = {.step = CHILD_REQUIRE, .layers = missing};
        IGNORE_RESULT(write(plan->report_fd, &report, sizeof(report)) == sizeof(report) ? 0 : -1);
        _exit(127);
    }
    return layers;
}

static void report_ready(const struct cell_plan *plan, uint32_t layers)
{
    struct child_report report = {.step = CHILD_READY, .layers = layers};
    if (write(plan->report_fd, &report, sizeof(report)) != sizeof(report))
        _exit(127);
}

void launch_child(struct cell_plan *plan)
{
    prepare(plan);
    wait_for_setup(plan); /* the cell is built */
    enter_cell(plan);
    place_descriptors(plan);
    child_confine(plan, plan->landlock_abi);
    uint32_t layers = check_layers(plan);

    if (plan->kind == PROTO_PROBE) {
        report_ready(plan, verify_layers(plan, layers));
        _exit(0);
    }
    const char *const *argv = plan->argv;
    const char *const *envp = plan->envp;
    if (plan->language == PROTO_SHELL) {
        int error = script_receive(WIRE_CHANNEL_FD, CELL_SCRIPT, &argv, &envp);
        if (error < 0)
            child_fail(plan, CHILD_SCRIPT, -error);
        close(WIRE_CHANNEL_FD);
    }
    wait_for_setup(plan); /* PID 1 has given its powers up */
    /* Last, or the two children would share a processor while others idle. */
    if (sched_setaffinity(0, sizeof(plan->cpus), &plan->cpus) < 0)
        child_fail(plan, CHILD_AFFINITY, errno);
    report_ready(plan, layers);
    execve(argv[0], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)envp);
    child_fail(plan, CHILD_EXEC, errno);
}
