/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child that becomes the interpreter, from clone to exec. The supervisor
 * cloned it into the cell's pid namespace, so that it is the supervisor's own
 * child: its wait status is the kernel's word about the program, and signals
 * to it mean what they mean outside, which they would not to PID 1.
 *
 * It enters the cell (enter.c) and becomes the interpreter once PID 1 has given
 * its powers up. Only async-signal-safe calls.
 */
#include "guest/script.h"
#include "plan.h"

#include <errno.h>
#include <unistd.h>

static void report_ready(const struct cell_plan *plan, uint32_t layers)
{
    child_report(plan, &(struct child_report){.step = CHILD_READY, .layers = layers});
}

void launch_child(struct cell_plan *plan)
{
    close(plan->ready_fds[1]);
    uint32_t layers = child_enter(plan);

    if (plan->kind == PROTO_PROBE) {
        report_ready(plan, verify_layers(plan, layers));
        _exit(0);
    }
    const char *const *argv = plan->argv;
    const char *const *envp = plan->envp;
    if (plan->language == PROTO_SHELL && !plan->session) {
        int error = script_receive(WIRE_CHANNEL_FD, argv[0], WIRE_SHELL_FILE, &argv, &envp);
        if (error < 0)
            child_fail(plan, CHILD_SCRIPT, -error);
        close(WIRE_CHANNEL_FD);
    }
    child_wait_for_init(plan);
    /* Last, or the two children would share a processor while others idle. */
    if (sched_setaffinity(0, sizeof(plan->cpus), &plan->cpus) < 0)
        child_fail(plan, CHILD_AFFINITY, errno);
    report_ready(plan, layers);
    execve(argv[0], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)envp);
    child_fail(plan, CHILD_EXEC, errno);
}
