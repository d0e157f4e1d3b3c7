/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run, from the request to the result, on the caller's thread: wait for its
 * turn, start a cell, queue the code, take events until the cell has ended, judge
 * what happened.
 *
 * What is true (wait status, times, memory, layers) comes with CELL_EXITED
 * from the supervisor. What is claimed (value, results, error) comes with CELL_REPORT
 * from inside the cell and is only shown, never believed: see outcome.h. The
 * gate's verdict, as the first report of all, is the runner's own.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "engine.h"
#include "program.h"
#include "request.h"
#include "result.h"
#include "run_files.h"

#include <poll.h>
#include <stddef.h>
#include <string.h>

/* How long a supervisor that says nothing is waited for before it counts as
 * broken: until the start, which may include the first building of a file
 * tree, and beyond the time limit, for ending the cell. */
#define START_NS (900 * NS_PER_SECOND)
#define GRACE_NS (60 * NS_PER_SECOND)

struct run {
    struct hutch_request request; /* as this version knows it, as are the options */
    struct hutch_run_options options;
    const struct backend_ops *ops;
    struct ticket ticket;
    struct cell *cell;
    struct program program;
    uint32_t layers;
    bool has_code; /* it is on its way */
    struct run_files files;
    uint64_t begin_ns, start_ns; /* of the call; of the interpreter */
};

static void run_done(struct run *run)
{
    if (run->cell)
        run->ops->cell_free(run->cell);
    program_done(&run->program);
}

/* Every failure in here leaves the outcome unknown, but one: CELL_FAILED. */
static int take_events(struct run *run, struct hutch_error *err)
{
    uint64_t limit_ns = (uint64_t)(run->request.timeout_seconds * (double)NS_PER_SECOND);
    uint64_t deadline_ns = clock_after_ns(START_NS);
    int cancel = cancel_fd(run->options.cancel);

    for (;;) {
        struct cell_event event;
        int code = run->ops->cell_next_event(run->cell, deadline_ns, cancel, &event, err);
        if (code < 0) {
            err_mark_maybe_ran(err);
            return code;
        }
        switch (event.type) {
        case CELL_STARTED:
            run->layers = event.layers;
            run->start_ns = event.begin_ns;
            deadline_ns = clock_after_ns(limit_ns + GRACE_NS);
            break;
        case CELL_FAILED:
            *err = event.error;
            return err->code;
        case CELL_STDOUT:
        case CELL_STDERR:
            code = program_take_output(&run->program, &event, err);
            break;
        case CELL_REPORT:
            code = reports_add(&run->program.reports, &event.report, err);
            break;
        case CELL_EXITED:
            run->program.exit = event.exit;
            break;
        case CELL_END:
            return 0;
        case CELL_TIME_UP: /* of sessions */
        case CELL_RESTED:
        case CELL_QUIET:
        case CELL_LATE:
        case CELL_PIPES:
            break;
        }
        if (code < 0) {
            err_mark_maybe_ran(err);
            return code;
        }
    }
}

static int fill_result(struct run *run, struct hutch_result *result, struct hutch_error *err)
{
    result->layers = run->layers;
    result->queue_ms = (double)(run->start_ns - run->begin_ns) / (double)NS_PER_MS;
    return program_fill_result(&run->program, result, err);
}

/* Files go in before the code does, for which the interpreter waits. */
static int place_files(struct run *run, struct hutch_error *err)
{
    run->files = (struct run_files){
        .request = &run->request,
        .options = &run->options,
        .ops = run->ops,
        .cell = run->cell,
        .deadline_ns = clock_after_ns(START_NS),
        .cancel_fd = cancel_fd(run->options.cancel),
    };
    return run_files_place_any(&run->request, &run->options) ? run_files_place(&run->files, err)
                                                             : 0;
}

static int send_program(struct run *run, struct hutch_error *err)
{
    if (program_send_head(&run->program, err) < 0 || program_send_code(&run->program, 0, err) < 0)
        return err->code;
    run->has_code = true;
    return 0;
}

/* A cell that was lost while it got its files: how it ended says more, if it was by a limit
 * or a failure. Nothing of the program has run. */
static int explain_loss(struct run *run, struct hutch_error *err)
{
    struct hutch_error cause;

    if (take_events(run, &cause) < 0)
        *err = cause;
    else if (run->program.exit.end != CELL_END_EXIT)
        return 0;
    return err->code;
}

static int run_program(struct run *run, struct hutch_error *err)
{
    int code = place_files(run, err);
    if (code < 0 && run->files.is_lost)
        code = explain_loss(run, err);
    else if (code == 0 && send_program(run, err) == 0)
        code = take_events(run, err);
    else
        code = err->code;
    if (code < 0 && !run->has_code)
        err->maybe_ran = 0;
    return code;
}

static int run_cell(struct run *run, struct hutch_result *result, struct hutch_error *err)
{
    if (run_program(run, err) < 0)
        return err->code;
    if (run_files_collect(&run->files, &run->program.exit, result, err) < 0 ||
        fill_result(run, result, err) < 0) {
        err_mark_maybe_ran(err);
        return err->code;
    }
    return 0;
}

static int run_request(struct hutch_engine *engine, const struct hutch_request *request,
                       const struct hutch_run_options *options, struct run *run,
                       struct hutch_result **ret, struct hutch_error *err)
{
    struct cell_spec spec = {.request = &run->request};

    if (run_options_load(options, &run->options, err) < 0 || request_validate(request, err) < 0)
        return err->code;
    request_load(request, &run->request);
    spec.has_files = run_files_place_any(&run->request, &run->options);
    int cancel = cancel_fd(run->options.cancel);
    if (cancel >= 0 && fd_wait(cancel, POLLIN, 0) != 0)
        return err_set(err, HUTCH_ERR_CANCELLED, "cancelled by the caller before the start");
    program_init(&run->program, &run->request, &run->options, run->ops);
    if (scheduler_enter(&engine->scheduler, &run->request, cancel, &run->ticket, err) < 0 ||
        engine->backend->ops->cell_start(engine->backend, &spec, &run->cell, err) < 0)
        return err->code;
    run->program.cell = run->cell;
    struct hutch_result *result = NULL;
    if (result_new(&run->request, run->ops->name, &result, err) < 0)
        return err->code;
    if (random_id(result->run_id, err) < 0 || run_cell(run, result, err) < 0) {
        hutch_result_free(result);
        return err->code;
    }
    *ret = result;
    return 0;
}

int hutch_run(hutch_engine *engine, const struct hutch_request *request,
              const struct hutch_run_options *run_options, hutch_result **ret_result,
              struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;
    struct run run = {
        .ops = engine->backend->ops,
        .begin_ns = clock_now_ns(),
    };

    int code = run_request(engine, request, run_options, &run, ret_result, err);
    run_done(&run);
    scheduler_leave(&engine->scheduler, &run.ticket, run.program.exit.peak_memory_bytes);
    return code;
}
