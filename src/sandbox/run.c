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
#include "capture.h"
#include "engine.h"
#include "gate.h"
#include "outcome.h"
#include "report.h"
#include "request.h"
#include "result.h"
#include "tidy.h"

#include <poll.h>
#include <string.h>
#include <sys/random.h>

/* How long a supervisor that says nothing is waited for before it counts as
 * broken: until the start, which may include the first building of a file
 * tree, and beyond the time limit, for ending the cell. */
#define START_NS (900 * NS_PER_SECOND)
#define GRACE_NS (60 * NS_PER_SECOND)

struct run {
    struct hutch_request request; /* as this version knows it */
    const struct hutch_run_options *options;
    const struct backend_ops *ops;
    struct ticket ticket;
    struct cell *cell;
    struct capture out, err;
    struct reports reports;
    struct buf env, gate, code; /* payloads of frames, borrowed by the cell */
    struct cell_exit exit;
    uint32_t layers;
    bool stopped;
    uint64_t begin_ns, start_ns; /* of the call; of the interpreter */
};

static void run_done(struct run *run)
{
    if (run->cell)
        run->ops->cell_free(run->cell);
    capture_done(&run->out);
    capture_done(&run->err);
    reports_done(&run->reports);
    buf_done(&run->env);
    buf_done(&run->gate);
    buf_done(&run->code);
}

static int send_frame(struct run *run, enum wire_type type, uint16_t flags,
                      const struct buf *payload, struct hutch_error *err)
{
    if (buf_check(payload, err) < 0)
        return err->code;
    return run->ops->cell_send(run->cell, type, flags, payload->data, payload->length, err);
}

static int send_env(struct run *run, struct hutch_error *err)
{
    const struct hutch_request *request = &run->request;

    if (request->env_count == 0)
        return 0;
    for (size_t i = 0; i < request->env_count; i++) {
        buf_appendf(&run->env, "%s=%s", request->env[i].name, request->env[i].value);
        buf_append(&run->env, "", 1);
    }
    return send_frame(run, WIRE_ENV, 0, &run->env, err);
}

static int send_gate(struct run *run, struct hutch_error *err)
{
    if (!run->request.gate)
        return 0;
    uint16_t flags = gate_append(run->request.gate, &run->gate);
    return send_frame(run, WIRE_GATE, flags, &run->gate, err);
}

static int send_code(struct run *run, struct hutch_error *err)
{
    const struct hutch_request *request = &run->request;

    if (request->tidy) {
        tidy_code(request->code, request->code_length, language_name(request->language),
                  &run->code);
        return send_frame(run, WIRE_RUN, WIRE_RUN_TIDY, &run->code, err);
    }
    return run->ops->cell_send(run->cell, WIRE_RUN, 0, request->code, request->code_length, err);
}

static int take_output(struct run *run, struct capture *capture, enum hutch_stream stream,
                       const struct cell_event *event, struct hutch_error *err)
{
    if (run->options && run->options->on_output)
        run->options->on_output(run->options->user, stream, event->data, event->length);
    if (capture_add(capture, event->data, event->length, err) < 0)
        return err->code;
    if (capture->total > LIMIT_OUTPUT_HARD_BYTES && !run->stopped) {
        run->stopped = true;
        run->ops->cell_stop(run->cell);
    }
    return 0;
}

/* Every failure in here leaves the outcome unknown, but one: CELL_FAILED. */
static int take_events(struct run *run, struct hutch_error *err)
{
    uint64_t limit_ns = (uint64_t)(run->request.timeout_seconds * (double)NS_PER_SECOND);
    uint64_t deadline_ns = clock_after_ns(START_NS);
    int cancel = cancel_fd(run->options ? run->options->cancel : NULL);

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
            code = take_output(run, &run->out, HUTCH_STDOUT, &event, err);
            break;
        case CELL_STDERR:
            code = take_output(run, &run->err, HUTCH_STDERR, &event, err);
            break;
        case CELL_REPORT:
            code = reports_add(&run->reports, &event.report, err);
            break;
        case CELL_EXITED:
            run->exit = event.exit;
            break;
        case CELL_END:
            return 0;
        }
        if (code < 0) {
            err_mark_maybe_ran(err);
            return code;
        }
    }
}

static int set_run_id(struct hutch_result *result, struct hutch_error *err)
{
    unsigned char random[16];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make a run id");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(result->run_id + 2 * i, 3, "%02x", random[i]);
    return 0;
}

/* What the cell said about itself: judged, checked in form, shown. */
static int fill_claims(struct run *run, struct hutch_result *result, struct hutch_error *err)
{
    struct reports *reports = &run->reports;
    struct outcome_facts facts = {
        .exit = &run->exit,
        .request = &run->request,
        .claim = reports->claim.present ? &reports->claim : NULL,
        .refusal = reports->refusal.present ? &reports->refusal : NULL,
        .stderr_text = &result->stderr_text,
    };

    if (outcome_judge(&facts, result, err) < 0)
        return err->code;
    result_take_rich(result, &reports->rich);
    return result_set_value(result, reports->value.data, reports->value.length, err);
}

static int fill_result(struct run *run, struct hutch_result *result, struct hutch_error *err)
{
    bool out_truncated, err_truncated;

    result->stdout_bytes = run->out.total;
    result->stderr_bytes = run->err.total;
    if (capture_finish(&run->out, run->request.output_encoding, &result->stdout_text,
                       &out_truncated, err) < 0 ||
        capture_finish(&run->err, run->request.output_encoding, &result->stderr_text,
                       &err_truncated, err) < 0)
        return err->code;
    result->truncated = out_truncated || err_truncated;
    result->layers = run->layers;
    result->duration_ms = (double)run->exit.duration_ns / (double)NS_PER_MS;
    result->cpu_ms = (double)run->exit.cpu_ns / (double)NS_PER_MS;
    result->queue_ms = (double)(run->start_ns - run->begin_ns) / (double)NS_PER_MS;
    result->peak_memory_bytes = run->exit.peak_memory_bytes;
    return fill_claims(run, result, err);
}

static int run_cell(struct run *run, struct hutch_result *result, struct hutch_error *err)
{
    if (send_env(run, err) < 0 || send_gate(run, err) < 0 || send_code(run, err) < 0 ||
        take_events(run, err) < 0)
        return err->code;
    if (fill_result(run, result, err) < 0) {
        err_mark_maybe_ran(err);
        return err->code;
    }
    return 0;
}

static int run_request(struct hutch_engine *engine, const struct hutch_request *request,
                       struct run *run, struct hutch_result **ret, struct hutch_error *err)
{
    struct cell_spec spec = {.request = &run->request};

    if (run->options && run->options->size < sizeof(*run->options))
        return err_set(err, HUTCH_ERR_INVALID, "run_options.size: %zu is not %zu",
                       run->options->size, sizeof(*run->options));
    if (request_validate(request, err) < 0)
        return err->code;
    request_load(request, &run->request);
    int cancel = cancel_fd(run->options ? run->options->cancel : NULL);
    if (cancel >= 0 && fd_wait(cancel, POLLIN, 0) != 0)
        return err_set(err, HUTCH_ERR_CANCELLED, "cancelled by the caller before the start");
    capture_init(&run->out, request->max_output_bytes);
    capture_init(&run->err, request->max_output_bytes);
    reports_init(&run->reports, run->request.gate != NULL);
    if (scheduler_enter(&engine->scheduler, &run->request, cancel, &run->ticket, err) < 0 ||
        engine->backend->ops->cell_start(engine->backend, &spec, &run->cell, err) < 0)
        return err->code;
    struct hutch_result *result = NULL;
    if (result_new(&run->request, run->ops->name, &result, err) < 0)
        return err->code;
    if (set_run_id(result, err) < 0 || run_cell(run, result, err) < 0) {
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
        .options = run_options,
        .ops = engine->backend->ops,
        .env = BUF_MAX(WIRE_MAX_ENV),
        .gate = BUF_MAX(WIRE_MAX_GATE),
        .code = BUF_MAX(LIMIT_CODE_BYTES),
        .begin_ns = clock_now_ns(),
    };

    int code = run_request(engine, request, &run, ret_result, err);
    run_done(&run);
    scheduler_leave(&engine->scheduler, &run.ticket, run.exit.peak_memory_bytes);
    return code;
}
