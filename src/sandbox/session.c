/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: one cell, one exec after the other, on the threads of the callers. An idle
 * session costs no thread: its time is the supervisor's affair (namespace/session.h).
 *
 * An exec ends with the runner's DONE, which is a claim of what runs in the cell, or with
 * the end of the interpreter, which is the kernel's word. Then the pipes are read empty,
 * without waiting for their end: what an exec leaves running may hold them open.
 *
 * Lock: session.lock guards the turn, end and expiry; the one whose turn it is has
 * the cell for itself. session_interrupt sends a packet, and needs no lock but for the cell
 * to be there.
 */
#include "base/base64.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/parse.h"
#include "capture.h"
#include "engine.h"
#include "gate.h"
#include "outcome.h"
#include "report.h"
#include "request.h"
#include "result.h"
#include "tidy.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

/* How long something that is due is waited for before it counts as broken. */
#define START_NS (900 * NS_PER_SECOND)
#define GRACE_NS (60 * NS_PER_SECOND)
#define READY_NS NS_PER_SECOND         /* for a copy to take over */
#define INTERRUPT_NS NS_PER_SECOND     /* between interrupt and kill, of a cancelled exec */
#define TURN_SLICE_NS (20 * NS_PER_MS) /* between two looks at the token of who waits */

struct hutch_session {
    struct hutch_engine *engine;
    const struct backend_ops *ops;
    struct cell *cell;
    struct ticket ticket;
    enum hutch_language language;
    bool checkpoints;
    double idle_seconds, lifetime_seconds;
    char id[33];
    pthread_mutex_t lock;
    pthread_cond_t turn_ended;
    uint64_t next_turn, turn; /* given to who comes; whose it is */
    uint64_t idle_from_ns, end_ns;
    bool executing;
    struct hutch_error end; /* code != 0: it is over */
    /* Of who has the turn: */
    uint32_t exec_id, layers;
    pid_t pid;
    uint64_t told_cpu_ns;      /* of execs of this interpreter, in results */
    bool restored, state_lost; /* since the last result */
    struct capture late;
};

/* One exec on its way. */
struct exec {
    struct hutch_session *session;
    struct hutch_request request;
    const struct hutch_run_options *options;
    struct capture out, err;
    struct reports reports;
    struct buf env, gate, code; /* payloads of frames */
    struct cell_exit exit;
    bool has_ended, interrupted, timed_out, stopped, cancelled;
    uint64_t called_ns, begin_ns;
};

/* ---- the state of a session --------------------------------------------- */

static int is_over(struct hutch_session *session, struct hutch_error *err)
{
    pthread_mutex_lock(&session->lock);
    struct hutch_error end = session->end;
    pthread_mutex_unlock(&session->lock);
    if (end.code == 0)
        return 0;
    *err = end;
    return err->code;
}

/* An error after which there is no session any more. What comes later is not started. */
static int end_session(struct hutch_session *session, const struct hutch_error *err)
{
    pthread_mutex_lock(&session->lock);
    err_set(&session->end, HUTCH_ERR_EXPIRED, "the session is over: %.200s", err->message);
    pthread_mutex_unlock(&session->lock);
    return err->code;
}

static uint64_t process_time_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec now;

    if (pid <= 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) < 0)
        return 0;
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

/* ---- events -------------------------------------------------------------- */

static int take_output(struct exec *exec, struct capture *capture, enum hutch_stream stream,
                       const struct cell_event *event, struct hutch_error *err)
{
    if (exec->options && exec->options->on_output)
        exec->options->on_output(exec->options->user, stream, event->data, event->length);
    if (capture_add(capture, event->data, event->length, err) < 0)
        return err->code;
    if (capture->total > LIMIT_OUTPUT_HARD_BYTES && !exec->stopped) {
        exec->stopped = true;
        exec->session->ops->cell_stop(exec->session->cell);
    }
    return 0;
}

static int take_report(struct exec *exec, const struct report *report, struct hutch_error *err)
{
    struct wire_done done;

    if (report->type == WIRE_READY)
        return 0;
    if (report->type != WIRE_DONE)
        return reports_add(&exec->reports, report, err);
    if (report->length != sizeof(done))
        return 0;
    memcpy(&done, report->data, sizeof(done));
    exec->has_ended = true;
    exec->interrupted = done.interrupted != 0;
    exec->exit = (struct cell_exit){
        .wait_status = W_EXITCODE(done.exit_code & 0xff, 0),
        .duration_ns = clock_now_ns() - exec->begin_ns,
    };
    return 0;
}

/* Waits until the session goes on after an interpreter's death. 1: this one is dead, too. */
static int await_start(struct hutch_session *session, bool resumed, struct hutch_error *err)
{
    uint64_t deadline_ns = clock_after_ns(resumed ? READY_NS : START_NS);
    bool started = false, ready = !resumed;

    while (!started || !ready) {
        struct cell_event event;
        if (session->ops->cell_next_event(session->cell, deadline_ns, -1, &event, err) < 0)
            return err->code;
        if (event.type == CELL_QUIET)
            return err_set(err, HUTCH_ERR_HELPER, "the interpreter did not take over in time");
        if (event.type == CELL_EXITED)
            return 1;
        if (event.type == CELL_STARTED) {
            session->pid = event.pid;
            session->layers = event.layers;
            started = true;
        } else if (event.type == CELL_REPORT && event.report.type == WIRE_READY) {
            ready = true;
        }
    }
    return 0;
}

/* A copy that does not take over is killed. */
static int await_end(struct hutch_session *session, struct hutch_error *err)
{
    uint64_t deadline_ns = clock_after_ns(GRACE_NS);
    struct cell_event event = {.type = CELL_QUIET};

    session->ops->cell_stop(session->cell);
    while (event.type != CELL_EXITED) {
        if (session->ops->cell_next_event(session->cell, deadline_ns, -1, &event, err) < 0)
            return err->code;
        if (event.type == CELL_QUIET)
            return err_set(err, HUTCH_ERR_HELPER, "the session's interpreter does not end");
    }
    return 0;
}

/* The interpreter is dead: goes on with the copy, else with a new one. */
static int go_on(struct hutch_session *session, bool has_copy, struct hutch_error *err)
{
    const struct backend_ops *ops = session->ops;
    struct hutch_error late;

    if (has_copy && ops->session_resume(session->cell, err) == 0) {
        int started = await_start(session, true, &late);
        if (started == 0) {
            session->restored = true;
            return 0;
        }
        if (started < 0 && await_end(session, err) < 0)
            return err->code;
    }
    session->restored = false;
    session->state_lost = true;
    if (ops->session_relaunch(session->cell, session->checkpoints, err) < 0)
        return err->code;
    int started = await_start(session, false, err);
    return started > 0 ? err_set(err, HUTCH_ERR_HELPER, "the new interpreter ended at once")
                       : started;
}

/* What has come since the exec before, without waiting. */
static int take_late(struct hutch_session *session, struct hutch_error *err)
{
    struct cell_event event;

    for (;;) {
        if (session->ops->cell_next_event(session->cell, 0, -1, &event, err) < 0)
            return err->code;
        switch (event.type) {
        case CELL_QUIET:
            return 0;
        case CELL_STDOUT:
        case CELL_STDERR:
            if (session->late.total < LIMIT_OUTPUT_HARD_BYTES &&
                capture_add(&session->late, event.data, event.length, err) < 0)
                return err->code;
            break;
        case CELL_EXITED:
            if (go_on(session, event.exit.has_copy, err) < 0)
                return err->code;
            break;
        default:
            break;
        }
    }
}

/* ---- the frames of an exec ------------------------------------------------ */

static int send_frame(struct exec *exec, enum wire_type type, uint16_t flags,
                      const struct buf *payload, struct hutch_error *err)
{
    struct hutch_session *session = exec->session;

    if (buf_check(payload, err) < 0)
        return err->code;
    return session->ops->cell_send(session->cell, type, flags, payload->data, payload->length, err);
}

static void append_env(struct exec *exec, struct buf *text)
{
    for (size_t i = 0; i < exec->request.env_count; i++) {
        buf_appendf(text, "%s=%s", exec->request.env[i].name, exec->request.env[i].value);
        buf_append(text, "", 1);
    }
}

/* For bash, in texts that end in NUL: see wire.h. */
static int send_to_shell(struct exec *exec, struct hutch_error *err)
{
    const struct hutch_request *request = &exec->request;

    buf_appendf(&exec->env, "%" PRIu32, exec->session->exec_id);
    buf_append(&exec->env, "", 1);
    buf_appendf(&exec->env, "%zu", request->env_count);
    buf_append(&exec->env, "", 1);
    append_env(exec, &exec->env);
    base64_append(&exec->env, request->stdin_data, request->stdin_length);
    buf_append(&exec->env, "", 1);
    if (request->tidy)
        tidy_code(request->code, request->code_length, language_name(request->language),
                  &exec->code);
    else
        buf_append(&exec->code, request->code, request->code_length);
    buf_append(&exec->code, "", 1);
    if (send_frame(exec, WIRE_TEXT, 0, &exec->env, err) < 0)
        return err->code;
    return send_frame(exec, WIRE_TEXT, 0, &exec->code, err);
}

static int send_code(struct exec *exec, struct hutch_error *err)
{
    const struct hutch_request *request = &exec->request;
    struct hutch_session *session = exec->session;

    if (!request->tidy)
        return session->ops->cell_send(session->cell, WIRE_RUN, 0, request->code,
                                       request->code_length, err);
    tidy_code(request->code, request->code_length, language_name(request->language), &exec->code);
    return send_frame(exec, WIRE_RUN, WIRE_RUN_TIDY, &exec->code, err);
}

static int send_frames(struct exec *exec, struct hutch_error *err)
{
    const struct hutch_request *request = &exec->request;
    struct hutch_session *session = exec->session;

    append_env(exec, &exec->env);
    if (request->env_count > 0 && send_frame(exec, WIRE_ENV, 0, &exec->env, err) < 0)
        return err->code;
    if (request->gate) {
        uint16_t flags = gate_append(request->gate, &exec->gate);
        if (send_frame(exec, WIRE_GATE, flags, &exec->gate, err) < 0)
            return err->code;
    }
    if (request->stdin_length > 0 &&
        session->ops->cell_send(session->cell, WIRE_STDIN, 0, request->stdin_data,
                                request->stdin_length, err) < 0)
        return err->code;
    return send_code(exec, err);
}

/* ---- an exec --------------------------------------------------------------- */

/* One event; *ret_quiet says that none came until the deadline. */
static int take_event(struct exec *exec, uint64_t deadline_ns, int cancel, bool *ret_quiet,
                      struct hutch_error *err)
{
    struct hutch_session *session = exec->session;
    struct cell_event event;

    *ret_quiet = false;
    if (session->ops->cell_next_event(session->cell, deadline_ns, cancel, &event, err) < 0)
        return err->code;
    switch (event.type) {
    case CELL_STDOUT:
        return take_output(exec, &exec->out, HUTCH_STDOUT, &event, err);
    case CELL_STDERR:
        return take_output(exec, &exec->err, HUTCH_STDERR, &event, err);
    case CELL_REPORT:
        return take_report(exec, &event.report, err);
    case CELL_TIME_UP:
        exec->timed_out = true;
        return 0;
    case CELL_QUIET:
        *ret_quiet = true;
        return 0;
    case CELL_EXITED:
        exec->exit = event.exit;
        exec->exit.duration_ns = clock_now_ns() - exec->begin_ns;
        exec->has_ended = true;
        return 1;
    default:
        return 0;
    }
}

/* A cancelled exec is interrupted, and then killed; deadline_ns is for the next of it. */
static int cancel(struct exec *exec, uint64_t *deadline_ns)
{
    struct hutch_session *session = exec->session;

    if (exec->cancelled)
        session->ops->cell_stop(session->cell);
    else
        session->ops->session_interrupt(session->cell);
    *deadline_ns = clock_after_ns(exec->cancelled ? GRACE_NS : INTERRUPT_NS);
    exec->cancelled = true;
    return 0;
}

/* Until the exec has ended. 1: its interpreter is dead. */
static int await_done(struct exec *exec, struct hutch_error *err)
{
    uint64_t limit_ns = (uint64_t)(exec->request.timeout_seconds * (double)NS_PER_SECOND);
    uint64_t deadline_ns = clock_after_ns(limit_ns + GRACE_NS);
    int token = cancel_fd(exec->options ? exec->options->cancel : NULL);
    bool is_quiet, is_killed = false;

    while (!exec->has_ended) {
        int code = take_event(exec, deadline_ns, exec->cancelled ? -1 : token, &is_quiet, err);
        if (code == HUTCH_ERR_CANCELLED || (is_quiet && exec->cancelled && !is_killed)) {
            is_killed = exec->cancelled;
            cancel(exec, &deadline_ns);
        } else if (code < 0) {
            return code;
        } else if (is_quiet) {
            return err_set(err, HUTCH_ERR_HELPER, "hutch-supervisor let the deadline pass");
        } else if (code > 0) {
            return 1;
        }
    }
    return 0;
}

/* What is in the pipes already, and what the supervisor has said before the end. 1: the
 * interpreter has died as well. */
static int drain(struct exec *exec, struct hutch_error *err)
{
    struct cell_exit exit = exec->exit;
    bool is_quiet = false;
    int dead = 0;

    while (!is_quiet) {
        int code = take_event(exec, 0, -1, &is_quiet, err);
        if (code < 0)
            return code;
        dead |= code;
    }
    if (dead)
        exit.has_copy = exec->exit.has_copy;
    exec->exit = exit;
    return dead;
}

static int run_exec(struct exec *exec, struct hutch_error *err)
{
    struct hutch_session *session = exec->session;
    uint64_t limit_ns = (uint64_t)(exec->request.timeout_seconds * (double)NS_PER_SECOND);

    if (take_late(session, err) < 0)
        return end_session(session, err);
    uint64_t cpu_ns = process_time_ns(session->pid);
    exec->begin_ns = clock_now_ns();
    if (session->ops->session_begin(session->cell, ++session->exec_id, limit_ns, err) < 0)
        return end_session(session, err);
    int code = session->language == HUTCH_SHELL ? send_to_shell(exec, err) : send_frames(exec, err);
    int dead = code == 0 ? await_done(exec, err) : code;
    bool by_report = dead == 0;
    if (by_report && session->ops->session_done(session->cell, err) < 0)
        dead = err->code;
    if (by_report)
        exec->exit.cpu_ns = process_time_ns(session->pid) - cpu_ns;
    else if (dead > 0) /* what the supervisor tells is of all execs of the interpreter */
        exec->exit.cpu_ns -= session->told_cpu_ns < exec->exit.cpu_ns ? session->told_cpu_ns : 0;
    session->told_cpu_ns = by_report ? session->told_cpu_ns + exec->exit.cpu_ns : 0;
    int drained = dead >= 0 ? drain(exec, err) : dead;
    if (drained >= 0 && (dead > 0 || drained > 0))
        drained = go_on(session, exec->exit.has_copy, err);
    if (drained < 0) {
        err_mark_maybe_ran(err);
        return end_session(session, err);
    }
    return 0;
}

/* ---- the result -------------------------------------------------------------- */

static int take_late_text(struct hutch_session *session, struct hutch_result *result,
                          struct hutch_error *err)
{
    bool truncated;

    if (session->late.total == 0)
        return 0;
    if (capture_finish(&session->late, HUTCH_TEXT, &result->late_text, &truncated, err) < 0)
        return err->code;
    capture_init(&session->late, LIMIT_LATE_BYTES);
    return 0;
}

static int judge(struct exec *exec, struct hutch_result *result, struct hutch_error *err)
{
    struct reports *reports = &exec->reports;
    struct outcome_facts facts = {
        .exit = &exec->exit,
        .request = &exec->request,
        .claim = reports->claim.present ? &reports->claim : NULL,
        .refusal = reports->refusal.present ? &reports->refusal : NULL,
        .stderr_text = &result->stderr_text,
    };

    if (exec->timed_out)
        exec->exit.end = CELL_END_TIMEOUT;
    if (outcome_judge(&facts, result, err) < 0)
        return err->code;
    result_take_rich(result, &exec->reports.rich);
    return result_set_value(result, reports->value.data, reports->value.length, err);
}

static int fill_result(struct exec *exec, struct hutch_result *result, struct hutch_error *err)
{
    struct hutch_session *session = exec->session;
    bool out_truncated, err_truncated;

    result->in_session = true;
    result->restored = session->restored;
    result->state_lost = session->state_lost;
    session->restored = session->state_lost = false;
    result->stdout_bytes = exec->out.total;
    result->stderr_bytes = exec->err.total;
    if (capture_finish(&exec->out, exec->request.output_encoding, &result->stdout_text,
                       &out_truncated, err) < 0 ||
        capture_finish(&exec->err, exec->request.output_encoding, &result->stderr_text,
                       &err_truncated, err) < 0 ||
        take_late_text(session, result, err) < 0)
        return err->code;
    result->truncated = out_truncated || err_truncated;
    result->layers = session->layers;
    result->duration_ms = (double)exec->exit.duration_ns / (double)NS_PER_MS;
    result->cpu_ms = (double)exec->exit.cpu_ns / (double)NS_PER_MS;
    result->queue_ms = (double)(exec->begin_ns - exec->called_ns) / (double)NS_PER_MS;
    result->peak_memory_bytes = exec->exit.peak_memory_bytes;
    return judge(exec, result, err);
}

static int exec_to_result(struct exec *exec, hutch_result **ret_result, struct hutch_error *err)
{
    struct hutch_session *session = exec->session;
    struct hutch_result *result = NULL;

    if (result_new(&exec->request, session->ops->name, &result, err) < 0)
        return err->code;
    int code = random_id(result->run_id, err);
    if (code == 0)
        code = run_exec(exec, err);
    if (code == 0 && fill_result(exec, result, err) < 0) {
        err_mark_maybe_ran(err);
        code = err->code;
    }
    if (code == 0 && exec->cancelled) {
        code = err_set(err, HUTCH_ERR_CANCELLED, "cancelled by the caller%s",
                       result->state_lost ? "; the session's state is lost"
                       : result->restored ? "; the session went on from its checkpoint"
                                          : "");
        err_mark_maybe_ran(err);
    }
    if (code < 0) {
        hutch_result_free(result);
        return code;
    }
    *ret_result = result;
    return 0;
}

/* ---- turns --------------------------------------------------------------------- */

static void add_ns(struct timespec *time, uint64_t ns)
{
    ns += (uint64_t)time->tv_nsec;
    time->tv_sec += (time_t)(ns / NS_PER_SECOND);
    time->tv_nsec = (long)(ns % NS_PER_SECOND);
}

/* First come, first served. Called with the lock. */
static int wait_for_turn(struct hutch_session *session, int token, struct hutch_error *err)
{
    uint64_t mine = session->next_turn;

    if (mine - session->turn > LIMIT_SESSION_QUEUE)
        return err_set(err, HUTCH_ERR_BUSY, "%d execs of this session wait already",
                       LIMIT_SESSION_QUEUE);
    session->next_turn++;
    while (session->turn != mine) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        add_ns(&until, TURN_SLICE_NS);
        pthread_cond_timedwait(&session->turn_ended, &session->lock, &until);
        if (token < 0 || fd_wait(token, POLLIN, 0) == 0)
            continue;
        /* Those behind keep their places: the turn comes, and is passed on. */
        while (session->turn != mine)
            pthread_cond_wait(&session->turn_ended, &session->lock);
        session->turn++;
        pthread_cond_broadcast(&session->turn_ended);
        return err_set(err, HUTCH_ERR_CANCELLED, "cancelled by the caller before the start");
    }
    session->executing = true;
    return 0;
}

static void end_turn(struct hutch_session *session)
{
    pthread_mutex_lock(&session->lock);
    session->executing = false;
    session->idle_from_ns = clock_now_ns();
    session->turn++;
    pthread_cond_broadcast(&session->turn_ended);
    pthread_mutex_unlock(&session->lock);
}

static int take_turn(struct exec *exec, struct hutch_error *err)
{
    struct hutch_session *session = exec->session;
    int token = cancel_fd(exec->options ? exec->options->cancel : NULL);

    if (is_over(session, err) < 0)
        return err->code;
    pthread_mutex_lock(&session->lock);
    int code = wait_for_turn(session, token, err);
    pthread_mutex_unlock(&session->lock);
    if (code < 0)
        return code;
    if (is_over(session, err) < 0) {
        end_turn(session);
        return err->code;
    }
    return 0;
}

/* ---- the calls ------------------------------------------------------------------- */

static int check_exec(const struct hutch_session *session, const struct hutch_request *request,
                      const struct hutch_run_options *options, struct hutch_error *err)
{
    if (options && options->size < sizeof(*options))
        return err_set(err, HUTCH_ERR_INVALID, "run_options.size: %zu is not %zu", options->size,
                       sizeof(*options));
    if (request_validate(request, err) < 0)
        return err->code;
    if (request->language != session->language)
        return err_set(err, HUTCH_ERR_INVALID, "language: '%s'; allowed is the session's, '%s'",
                       language_name(request->language), language_name(session->language));
    return 0;
}

static void exec_done(struct exec *exec)
{
    capture_done(&exec->out);
    capture_done(&exec->err);
    reports_done(&exec->reports);
    buf_done(&exec->env);
    buf_done(&exec->gate);
    buf_done(&exec->code);
}

int hutch_session_exec(hutch_session *session, const struct hutch_request *request,
                       const struct hutch_run_options *run_options, hutch_result **ret_result,
                       struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;
    struct exec exec = {
        .session = session,
        .options = run_options,
        .env = BUF_MAX(WIRE_MAX_ENV + WIRE_MAX_STDIN * 2),
        .gate = BUF_MAX(WIRE_MAX_GATE),
        .code = BUF_MAX(LIMIT_CODE_BYTES + 1),
        .called_ns = clock_now_ns(),
    };

    if (check_exec(session, request, run_options, err) < 0 || take_turn(&exec, err) < 0)
        return err->code;
    request_load(request, &exec.request);
    capture_init(&exec.out, exec.request.max_output_bytes);
    capture_init(&exec.err, exec.request.max_output_bytes);
    reports_init(&exec.reports, exec.request.gate != NULL);
    int code = exec_to_result(&exec, ret_result, err);
    exec_done(&exec);
    end_turn(session);
    return code;
}

void hutch_session_interrupt(hutch_session *session)
{
    session->ops->session_interrupt(session->cell);
}

void hutch_session_options_init(struct hutch_session_options *options)
{
    *options = (struct hutch_session_options){.size = sizeof(*options),
                                              .idle_timeout_seconds = 300,
                                              .lifetime_seconds = 86400,
                                              .checkpoints = true};
}

static int check_seconds(const char *field, double value, double max, struct hutch_error *err)
{
    if (value >= 1 && value <= max)
        return 0;
    return err_set(err, HUTCH_ERR_INVALID, "%s: %s; allowed is 1 to %s", field,
                   number_text(value).text, number_text(max).text);
}

static int load_options(const struct hutch_session_options *given,
                        struct hutch_session_options *ret_options, struct hutch_error *err)
{
    hutch_session_options_init(ret_options);
    if (!given)
        return 0;
    if (request_check_size("session_options", given, given->size, sizeof(*given), sizeof(*given),
                           err) < 0)
        return err->code;
    ret_options->checkpoints = given->checkpoints;
    if (given->idle_timeout_seconds != 0)
        ret_options->idle_timeout_seconds = given->idle_timeout_seconds;
    if (given->lifetime_seconds != 0)
        ret_options->lifetime_seconds = given->lifetime_seconds;
    if (check_seconds("idle_timeout_seconds", ret_options->idle_timeout_seconds,
                      LIMIT_IDLE_SECONDS_MAX, err) < 0 ||
        check_seconds("lifetime_seconds", ret_options->lifetime_seconds, LIMIT_LIFETIME_SECONDS_MAX,
                      err) < 0)
        return err->code;
    return 0;
}

/* ---- opening and closing ----------------------------------------------------------- */

static struct hutch_session *session_new(struct hutch_engine *engine,
                                         const struct hutch_request *request,
                                         const struct hutch_session_options *options)
{
    struct hutch_session *session = calloc(1, sizeof(*session));
    pthread_condattr_t attributes;

    if (!session)
        return NULL;
    session->engine = engine;
    session->ops = engine->backend->ops;
    session->language = request->language;
    session->checkpoints = options->checkpoints && request->language == HUTCH_PYTHON;
    session->idle_seconds = options->idle_timeout_seconds;
    session->lifetime_seconds = options->lifetime_seconds;
    capture_init(&session->late, LIMIT_LATE_BYTES);
    pthread_mutex_init(&session->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&session->turn_ended, &attributes);
    pthread_condattr_destroy(&attributes);
    return session;
}

static int start_cell(struct hutch_session *session, const struct hutch_request *request,
                      struct hutch_error *err)
{
    struct hutch_engine *engine = session->engine;
    uint64_t deadline_ns = clock_after_ns(START_NS);
    struct cell_event event = {.type = CELL_QUIET};
    const struct cell_spec spec = {
        .request = request,
        .session = true,
        .idle_ns = (uint64_t)(session->idle_seconds * (double)NS_PER_SECOND),
        .life_ns = (uint64_t)(session->lifetime_seconds * (double)NS_PER_SECOND),
    };

    if (scheduler_enter(&engine->scheduler, request, -1, &session->ticket, err) < 0)
        return err->code;
    if (session->ops->cell_start(engine->backend, &spec, &session->cell, err) < 0 ||
        session->ops->cell_next_event(session->cell, deadline_ns, -1, &event, err) < 0)
        return err->code;
    if (event.type == CELL_FAILED) {
        *err = event.error;
        return err->code;
    }
    if (event.type != CELL_STARTED)
        return err_set(err, HUTCH_ERR_HELPER, "the session did not start in time");
    session->layers = event.layers;
    session->pid = event.pid;
    session->idle_from_ns = clock_now_ns();
    session->end_ns = clock_after_ns(spec.life_ns);
    return session->ops->session_open(session->cell, session->checkpoints, err);
}

int hutch_session_open(hutch_engine *engine, const struct hutch_request *request,
                       const struct hutch_session_options *given, hutch_session **ret_session,
                       struct hutch_error *err)
{
    struct hutch_session_options options;
    struct hutch_request like;
    struct hutch_error local;
    err = err ? err : &local;

    if (load_options(given, &options, err) < 0)
        return err->code;
    hutch_request_init(&like);
    if (request_check_size("request", request, request->size, sizeof(size_t), sizeof(*request),
                           err) < 0)
        return err->code;
    request_load(request, &like);
    like.code = " "; /* of which a session has none yet */
    like.code_length = 1;
    like.gate = NULL;
    if (request_validate(&like, err) < 0)
        return err->code;
    if (like.language == HUTCH_JAVASCRIPT)
        return err_set(err, HUTCH_ERR_INVALID,
                       "language: 'javascript' has no sessions in this version; allowed are python "
                       "and shell");
    struct hutch_session *session = session_new(engine, &like, &options);
    if (!session)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    if (random_id(session->id, err) < 0 || start_cell(session, &like, err) < 0) {
        hutch_session_close(session);
        return err->code;
    }
    *ret_session = session;
    return 0;
}

void hutch_session_get_info(hutch_session *session, struct hutch_session_info *ret_info)
{
    pthread_mutex_lock(&session->lock);
    uint64_t now_ns = clock_now_ns();
    uint64_t from_ns = session->executing ? now_ns : session->idle_from_ns;
    uint64_t idle_end_ns = from_ns + (uint64_t)(session->idle_seconds * (double)NS_PER_SECOND);
    uint64_t end_ns = clock_sooner_ns(idle_end_ns, session->end_ns);
    bool is_over = session->end.code != 0 || end_ns <= now_ns;
    *ret_info = (struct hutch_session_info){
        .language = language_name(session->language),
        .idle_timeout_seconds = session->idle_seconds,
        .lifetime_seconds = session->lifetime_seconds,
        .expires_in_seconds = is_over ? 0 : (double)(end_ns - now_ns) / (double)NS_PER_SECOND,
        .layers = session->layers,
    };
    memcpy(ret_info->session_id, session->id, sizeof(session->id));
    pthread_mutex_unlock(&session->lock);
}

void hutch_session_close(hutch_session *session)
{
    if (!session)
        return;
    if (session->cell)
        session->ops->cell_free(session->cell);
    scheduler_leave(&session->engine->scheduler, &session->ticket, 0);
    capture_done(&session->late);
    pthread_cond_destroy(&session->turn_ended);
    pthread_mutex_destroy(&session->lock);
    free(session);
}
