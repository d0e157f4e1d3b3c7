/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One exec of a session, on the thread of the caller whose turn it is.
 *
 * It ends with the runner's DONE, which is a claim of what runs in the cell, or with
 * the end of the interpreter, which is the kernel's word. Then the pipes are read empty,
 * without waiting for their end: what an exec leaves running may hold them open.
 */
#include "session.h"

#include "base/base64.h"
#include "base/clock.h"
#include "base/limits.h"
#include "engine.h"
#include "file_call.h"
#include "program.h"
#include "request.h"
#include "result.h"
#include "run_files.h"
#include "tidy.h"

#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

/* How long something that is due is waited for before it counts as broken. */
#define START_NS (900 * NS_PER_SECOND)
#define GRACE_NS (60 * NS_PER_SECOND)
#define MARK_ROUNDS 200        /* of a millisecond; a clock that was set back is not waited for */
#define READY_NS NS_PER_SECOND /* for a copy to take over */
#define BEGINS_MAX 10          /* of an exec whose interpreter is dead each time */
#define INTERRUPT_NS (250 * NS_PER_MS) /* between interrupt and kill, of a cancelled exec */

/* One exec on its way. */
struct exec {
    struct hutch_session *session;
    struct hutch_request request;
    const struct hutch_run_options *options;
    struct run_files files;
    struct program program;
    struct process_list background;
    bool has_begun, has_ended, timed_out, cancelled;
    bool restored, state_lost; /* told by its result */
    uint64_t called_ns, begin_ns, drained_bytes;
    uint64_t cpu_ns; /* of the interpreter, at the begin */
};

static uint64_t process_time_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec now;

    if (pid <= 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) < 0)
        return 0;
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

/* Since a look at the same clock; a process that is gone has none. */
static uint64_t time_since_ns(pid_t pid, uint64_t before_ns)
{
    uint64_t now_ns = process_time_ns(pid);

    return now_ns > before_ns ? now_ns - before_ns : 0;
}

/* ---- events -------------------------------------------------------------- */

static int next_event(struct hutch_session *session, uint64_t deadline_ns, int cancel,
                      struct cell_event *ret_event, struct hutch_error *err)
{
    int code = session->ops->cell_next_event(session->cell, deadline_ns, cancel, ret_event, err);

    if (code == 0 && ret_event->type == CELL_RESTED) {
        session->owes_rest = false;
        session->signalled = ret_event->signalled;
    }
    return code;
}

static int take_report(struct exec *exec, const struct report *report, struct hutch_error *err)
{
    struct wire_done done;

    if (report->type == WIRE_READY)
        return 0;
    if (report->type != WIRE_DONE)
        return reports_add(&exec->program.reports, report, err);
    if (report->length != sizeof(done))
        return 0;
    memcpy(&done, report->data, sizeof(done));
    exec->session->done_id = exec->session->exec_id;
    exec->has_ended = true;
    exec->program.exit = (struct cell_exit){
        .wait_status = W_EXITCODE(done.exit_code & 0xff, 0),
        .duration_ns = clock_now_ns() - exec->begin_ns,
    };
    return 0;
}

static bool is_text(const struct cell_event *event)
{
    return event->type == CELL_STDOUT || event->type == CELL_STDERR || event->type == CELL_LATE;
}

static int take_late(struct hutch_session *session, const struct cell_event *event,
                     struct hutch_error *err)
{
    if (session->late.total >= LIMIT_OUTPUT_HARD_BYTES)
        return 0;
    return capture_add(&session->late, event->data, event->length, err);
}

/* Waits until the session goes on after an interpreter's death. 1: this one is dead, too. */
static int await_start(struct hutch_session *session, bool resumed, struct hutch_error *err)
{
    uint64_t deadline_ns = clock_after_ns(resumed ? READY_NS : START_NS);
    bool started = false, ready = !resumed;

    while (!started || !ready) {
        struct cell_event event;
        if (next_event(session, deadline_ns, -1, &event, err) < 0)
            return err->code;
        if (event.type == CELL_QUIET)
            return err_set(err, HUTCH_ERR_HELPER, "the interpreter did not take over in time");
        if (event.type == CELL_EXITED)
            return 1;
        if (is_text(&event) && take_late(session, &event, err) < 0)
            return err->code;
        if (event.type == CELL_STARTED) {
            pthread_mutex_lock(&session->lock);
            session->layers = event.layers;
            pthread_mutex_unlock(&session->lock);
            session->pid = event.pid;
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
        if (next_event(session, deadline_ns, -1, &event, err) < 0)
            return err->code;
        if (event.type == CELL_QUIET)
            return err_set(err, HUTCH_ERR_HELPER, "the session's interpreter does not end");
    }
    return 0;
}

/* The interpreter is dead: goes on with the copy, else with a new one. A copy is made after
 * the exec has been answered: whoever dies in that moment leaves one that lacks it. */
static int go_on(struct hutch_session *session, const struct cell_exit *exit,
                 struct hutch_error *err)
{
    const struct backend_ops *ops = session->ops;
    bool has_copy = exit->has_copy && exit->copy_of >= session->done_id;
    struct hutch_error late;

    session->done_id = 0; /* what comes next is told by itself */
    session->told_cpu_ns = 0;
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

/* Something between two execs. */
static int take_between(struct hutch_session *session, const struct cell_event *event,
                        struct hutch_error *err)
{
    if (event->type == CELL_EXITED)
        return go_on(session, &event->exit, err);
    return is_text(event) ? take_late(session, event, err) : 0;
}

int session_take_between(struct hutch_session *session, uint64_t deadline_ns,
                         struct hutch_error *err)
{
    struct cell_event event = {.type = CELL_PIPES};

    while (event.type != CELL_QUIET && clock_now_ns() < deadline_ns) {
        if (next_event(session, deadline_ns, -1, &event, err) < 0 ||
            take_between(session, &event, err) < 0)
            return err->code;
    }
    return 0;
}

/* What has come since the exec before, without waiting; of what is printed without an end
 * no more than pipes hold. Then waits for what the exec needs, which is there but on a busy
 * host: its pipes, and the word that no signal meant for the exec before will hit it. */
static int prepare(struct hutch_session *session, struct hutch_error *err)
{
    uint64_t deadline_ns = clock_after_ns(GRACE_NS);
    size_t received = 0;
    struct cell_event event = {.type = CELL_PIPES};
    bool is_broken = false;

    for (;;) {
        bool was_broken = is_broken;
        is_broken = session->ops->session_is_broken(session->cell);
        if (is_broken && !was_broken)
            session->ops->cell_stop(session->cell);
        bool is_ready = session->ops->session_prepare(session->cell, session->exec_id + 1) &&
                        !session->owes_rest && !is_broken;
        bool waits = event.type == CELL_QUIET;
        if (next_event(session, waits ? deadline_ns : 0, -1, &event, err) < 0 ||
            take_between(session, &event, err) < 0)
            return err->code;
        received += is_text(&event) ? event.length : 0;
        if (is_ready && (event.type == CELL_QUIET || received >= LIMIT_PIPE_BYTES))
            return 0;
        if (clock_now_ns() >= deadline_ns)
            return err_set(err, HUTCH_ERR_HELPER,
                           is_broken ? "the session's interpreter does not end"
                           : session->owes_rest
                               ? "hutch-supervisor does not let go of the exec before"
                               : "hutch-init has made no pipes for the exec");
    }
}

/* ---- the frames of an exec ------------------------------------------------ */

/* For bash, in texts that end in NUL: see wire.h. */
static int send_to_shell(struct exec *exec, struct hutch_error *err)
{
    const struct hutch_request *request = &exec->request;

    buf_appendf(&exec->program.env, "%" PRIu32, exec->session->exec_id);
    buf_append(&exec->program.env, "", 1);
    buf_appendf(&exec->program.env, "%zu", request->env_count);
    buf_append(&exec->program.env, "", 1);
    program_append_env(&exec->program, &exec->program.env);
    base64_append(&exec->program.env, request->stdin_data, request->stdin_length);
    buf_append(&exec->program.env, "", 1);
    if (request->tidy)
        tidy_code(request->code, request->code_length, language_name(request->language),
                  &exec->program.code);
    else
        buf_append(&exec->program.code, request->code, request->code_length);
    buf_append(&exec->program.code, "", 1);
    if (program_send_frame(&exec->program, WIRE_TEXT, 0, &exec->program.env, err) < 0)
        return err->code;
    return program_send_frame(&exec->program, WIRE_TEXT, 0, &exec->program.code, err);
}

static int send_frames(struct exec *exec, struct hutch_error *err)
{
    const struct hutch_request *request = &exec->request;
    struct hutch_session *session = exec->session;
    uint16_t flags = session->signalled ? WIRE_RUN_AFTER_INTERRUPT : 0;

    if (program_send_head(&exec->program, err) < 0)
        return err->code;
    if (request->stdin_length > 0 &&
        session->ops->cell_send(session->cell, WIRE_STDIN, 0, request->stdin_data,
                                request->stdin_length, err) < 0)
        return err->code;
    session->signalled = false;
    return program_send_code(&exec->program, flags, err);
}

/* ---- an exec --------------------------------------------------------------- */

/* One event; *ret_quiet says that none came until the deadline. */
static int take_event(struct exec *exec, uint64_t deadline_ns, int cancel, bool *ret_quiet,
                      struct hutch_error *err)
{
    struct hutch_session *session = exec->session;
    struct cell_event event;

    *ret_quiet = false;
    if (next_event(session, deadline_ns, cancel, &event, err) < 0)
        return err->code;
    switch (event.type) {
    case CELL_STDOUT:
    case CELL_STDERR:
        exec->drained_bytes += event.length;
        return program_take_output(&exec->program, &event, err);
    case CELL_LATE:
        exec->drained_bytes += event.length;
        return take_late(session, &event, err);
    case CELL_REPORT:
        return take_report(exec, &event.report, err);
    case CELL_TIME_UP:
        exec->timed_out = true;
        return 0;
    case CELL_QUIET:
        *ret_quiet = true;
        return 0;
    case CELL_EXITED:
        exec->program.exit = event.exit;
        exec->program.exit.duration_ns = clock_now_ns() - exec->begin_ns;
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
    int token = cancel_fd(exec->options->cancel);
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

/* What is in the pipes already, and what the supervisor has said before the end. What the
 * exec has left running may print without an end: what that has not printed by now is late.
 * 1: the interpreter has died as well. */
static int drain(struct exec *exec, struct hutch_error *err)
{
    struct cell_exit exit = exec->program.exit;
    bool is_quiet = false;
    int dead = 0;

    exec->drained_bytes = 0;
    exec->program.stopped = true; /* no kill for what it has printed: it could hit the next one */
    while (!is_quiet && exec->drained_bytes < LIMIT_PIPE_BYTES) {
        int code = take_event(exec, 0, -1, &is_quiet, err);
        if (code < 0)
            return code;
        dead |= code;
    }
    if (dead) {
        exit.has_copy = exec->program.exit.has_copy;
        exit.copy_of = exec->program.exit.copy_of;
    }
    exec->program.exit = exit;
    return dead;
}

/* What became of the state since the last result. */
static void take_fate(struct exec *exec)
{
    struct hutch_session *session = exec->session;

    exec->restored = session->restored;
    exec->state_lost = session->state_lost;
    session->restored = session->state_lost = false;
}

/* ---- files ------------------------------------------------------------------ */

/* The time after which changes are the exec's. Those before it, in the same tick of the coarse
 * clock that files are stamped with, would be taken for its own: a tick is waited for, if
 * there were any. */
static int64_t mark_time_ns(struct hutch_session *session)
{
    const struct timespec pause = {.tv_nsec = NS_PER_MS};

    pthread_mutex_lock(&session->lock);
    int64_t changed_ns = session->changed_ns;
    pthread_mutex_unlock(&session->lock);
    int64_t now_ns = file_clock_coarse_ns();
    for (int i = 0; i < MARK_ROUNDS && now_ns <= changed_ns; i++) {
        nanosleep(&pause, NULL);
        now_ns = file_clock_coarse_ns();
    }
    return now_ns - 1;
}

/* Where the cell was lost, what ended it says more. */
static int place_files(struct exec *exec, struct hutch_error *err)
{
    struct hutch_session *session = exec->session;
    struct hutch_error cause;

    exec->files = (struct run_files){
        .request = &exec->request,
        .options = exec->options,
        .ops = session->ops,
        .cell = session->cell,
        .deadline_ns = clock_after_ns(START_NS),
        .cancel_fd = cancel_fd(exec->options->cancel),
        .in_session = true,
    };
    if (run_files_place_any(&exec->request, exec->options)) {
        int code = run_files_place(&exec->files, err);
        session_note_change(session);
        if (code < 0 && exec->files.is_lost &&
            session_take_between(session, clock_after_ns(READY_NS), &cause) < 0) {
            *err = cause;
            return session_end(session, err);
        }
        if (code < 0)
            return code;
    }
    exec->files.after_ns = mark_time_ns(session);
    return 0;
}

/* What it changed is of this exec, and no later one's. */
static int collect_files(struct exec *exec, struct hutch_result *result, struct hutch_error *err)
{
    const struct cell_exit exit = {.has_files = true};

    if (exec->cancelled)
        return 0;
    if (exec->request.return_file_count > 0 || exec->options->download_count > 0)
        session_hold(exec->session, START_NS);
    int code = run_files_collect(&exec->files, &exit, result, err);
    if (result->file_count > 0 || result->files_truncated)
        session_note_change(exec->session);
    return code;
}

/* Begins the exec and waits for its end. 1: the interpreter is dead. */
static int begin(struct exec *exec, struct hutch_error *err)
{
    struct hutch_session *session = exec->session;
    uint64_t limit_ns = (uint64_t)(exec->request.timeout_seconds * (double)NS_PER_SECOND);

    program_forget_frames(&exec->program);
    exec->has_ended = false;
    exec->cpu_ns = process_time_ns(session->pid);
    exec->begin_ns = clock_now_ns();
    if (session->ops->session_begin(session->cell, ++session->exec_id, limit_ns, err) < 0)
        return err->code;
    exec->has_begun = true;
    int code = session->language == HUTCH_SHELL ? send_to_shell(exec, err) : send_frames(exec, err);
    return code == 0 ? await_done(exec, err) : code;
}

/* The interpreter may have died before the begin, which is known only now: then nothing of the
 * exec has run, and it begins anew. */
static int begin_with_life(struct exec *exec, struct hutch_error *err)
{
    struct hutch_session *session = exec->session;

    for (int i = 0; i < BEGINS_MAX; i++) {
        int dead = begin(exec, err);
        if (dead <= 0 || exec->program.exit.exec_id == session->exec_id || exec->cancelled)
            return dead;
        exec->has_begun = false;
        if (go_on(session, &exec->program.exit, err) < 0 || prepare(session, err) < 0)
            return err->code;
    }
    return err_set(err, HUTCH_ERR_HELPER, "the session's interpreter dies again and again");
}

static int run_exec(struct exec *exec, struct hutch_error *err)
{
    struct hutch_session *session = exec->session;

    if (prepare(session, err) < 0)
        return session_end(session, err);
    if (place_files(exec, err) < 0)
        return err->code;
    if (run_files_place_any(&exec->request, exec->options) && prepare(session, err) < 0)
        return session_end(session, err); /* it took its time */
    int dead = begin_with_life(exec, err);
    bool by_report = dead == 0;
    if (by_report) {
        session->owes_rest = true;
        if (!exec->cancelled)
            run_files_ask(&exec->files);
        if (session->ops->session_done(session->cell, err) < 0)
            dead = err->code;
    }
    if (by_report)
        exec->program.exit.cpu_ns = time_since_ns(session->pid, exec->cpu_ns);
    else if (dead > 0) /* what the supervisor tells is of all execs of the interpreter */
        exec->program.exit.cpu_ns -=
            session->told_cpu_ns < exec->program.exit.cpu_ns ? session->told_cpu_ns : 0;
    session->told_cpu_ns = by_report ? session->told_cpu_ns + exec->program.exit.cpu_ns : 0;
    int drained = dead >= 0 ? drain(exec, err) : dead;
    if (by_report) /* a death that comes now is the next one's */
        take_fate(exec);
    if (drained >= 0 && (dead > 0 || drained > 0))
        drained = go_on(session, &exec->program.exit, err);
    if (!by_report)
        take_fate(exec);
    if (drained >= 0 && session->ops->session_background(session->cell, &exec->background, err) < 0)
        drained = err->code;
    if (drained < 0) {
        if (exec->has_begun)
            err_mark_maybe_ran(err);
        return session_end(session, err);
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

static int fill_result(struct exec *exec, struct hutch_result *result, struct hutch_error *err)
{
    struct hutch_session *session = exec->session;

    result->in_session = true;
    if (exec->restored)
        result_set_restored(result);
    result_take_background(result, &exec->background);
    result->state_lost = exec->state_lost;
    result->layers = session->layers;
    result->queue_ms = (double)(exec->begin_ns - exec->called_ns) / (double)NS_PER_MS;
    if (exec->timed_out)
        exec->program.exit.end = CELL_END_TIMEOUT;
    if (take_late_text(session, result, err) < 0)
        return err->code;
    return program_fill_result(&exec->program, result, err);
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
    if (code == 0 && (collect_files(exec, result, err) < 0 || fill_result(exec, result, err) < 0)) {
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

static void exec_done(struct exec *exec)
{
    program_done(&exec->program);
    process_list_done(&exec->background);
}

int session_exec(struct hutch_session *session, const struct hutch_request *request,
                 const struct hutch_run_options *options, uint64_t called_ns,
                 hutch_result **ret_result, struct hutch_error *err)
{
    struct exec exec = {
        .session = session,
        .request = *request,
        .options = options,
        .called_ns = called_ns,
    };

    /* The session's own limits, for what is said of them. */
    exec.request.memory_mb = session->limits.memory_mb;
    exec.request.cpus = session->limits.cpus;
    exec.request.max_processes = session->limits.max_processes;
    exec.request.disk_mb = session->limits.disk_mb;
    program_init(&exec.program, &exec.request, options, session->ops);
    exec.program.cell = session->cell;
    if (session->language == HUTCH_SHELL) { /* texts: with stdin, and with an end */
        exec.program.env = BUF_MAX(WIRE_MAX_ENV + WIRE_MAX_STDIN * 2);
        exec.program.code = BUF_MAX(LIMIT_CODE_BYTES + 1);
    }
    int code = exec_to_result(&exec, ret_result, err);
    exec_done(&exec);
    return code;
}
