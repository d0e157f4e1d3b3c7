/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: one cell, one exec after the other, on the threads of the callers. An idle
 * session costs no thread: its time is the supervisor's affair (namespace/session.h).
 *
 * Lock: session.lock guards the turns, end, expiry and changed_ns; the one whose turn it is has
 * the cell for itself, but for its link for callers' files. session_interrupt and session_used
 * send a packet, and need no lock but for the cell to be there.
 */
#include "session.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/parse.h"
#include "engine.h"
#include "file_call.h"
#include "request.h"
#include "run_files.h"

#include <stdlib.h>
#include <string.h>

#define START_NS (900 * NS_PER_SECOND)
#define PREPARE_NS (120 * NS_PER_SECOND) /* an exec's waits, but for its turn and its files */
#define OPTIONS_SIZE_FIRST offsetof(struct hutch_session_options, cancel)
#define LOSS_NS (2 * NS_PER_SECOND) /* for the word of what became of a cell */

/* ---- the state of a session --------------------------------------------- */

int session_end(struct hutch_session *session, const struct hutch_error *err)
{
    pthread_mutex_lock(&session->lock);
    err_set(&session->end, HUTCH_ERR_EXPIRED, "the session is over: %.200s", err->message);
    pthread_mutex_unlock(&session->lock);
    return err->code;
}

static uint64_t idle_ns(const struct hutch_session *session)
{
    return (uint64_t)(session->idle_seconds * (double)NS_PER_SECOND);
}

void session_touch(struct hutch_session *session, uint64_t hold_ns)
{
    session->ops->session_used(session->cell, hold_ns);
    pthread_mutex_lock(&session->lock);
    session->idle_from_ns = clock_now_ns();
    pthread_mutex_unlock(&session->lock);
}

void session_hold(struct hutch_session *session, uint64_t hold_ns)
{
    pthread_mutex_lock(&session->lock);
    uint64_t end_ns = session->idle_from_ns + idle_ns(session);
    pthread_mutex_unlock(&session->lock);
    if (end_ns <= clock_after_ns(hold_ns))
        session_touch(session, hold_ns);
}

void session_note_change(struct hutch_session *session)
{
    pthread_mutex_lock(&session->lock);
    session->changed_ns = file_clock_ns();
    pthread_mutex_unlock(&session->lock);
}

/* ---- a loss --------------------------------------------------------------------- */

/* Called with the lock. Nobody runs an exec, who would see to it. */
static void look_at_cell(struct hutch_session *session)
{
    struct session_waiter me = {.token = -1};
    struct hutch_error why;

    session->execs.first = &me;
    pthread_mutex_unlock(&session->lock);
    if (session_take_between(session, clock_after_ns(LOSS_NS), &why) < 0)
        session_end(session, &why);
    session_leave(session, &session->execs, &me);
    pthread_mutex_lock(&session->lock);
}

bool session_explain_loss(struct hutch_session *session, struct hutch_error *err)
{
    uint64_t deadline_ns = clock_after_ns(LOSS_NS);

    pthread_mutex_lock(&session->lock);
    while (session->end.code == 0 && clock_now_ns() < deadline_ns) {
        if (session->execs.first)
            session_wait_slice(session);
        else
            look_at_cell(session);
    }
    bool is_over = session->end.code != 0;
    if (is_over)
        *err = session->end;
    pthread_mutex_unlock(&session->lock);
    return is_over;
}

/* ---- the calls ------------------------------------------------------------------- */

static int check_exec(const struct hutch_session *session, const struct hutch_request *request,
                      struct hutch_error *err)
{
    if (request_validate(request, err) < 0)
        return err->code;
    if (request->language != session->language)
        return err_set(err, HUTCH_ERR_INVALID, "language: '%s'; allowed is the session's, '%s'",
                       language_name(request->language), language_name(session->language));
    return 0;
}

/* An exec that has been called for is no idleness, however long its begin takes. */
static uint64_t time_to_begin_ns(const struct hutch_session *session,
                                 const struct hutch_request *request,
                                 const struct hutch_run_options *options)
{
    double queue_seconds = session->engine->scheduler.queue_timeout_seconds;

    return PREPARE_NS + (uint64_t)(queue_seconds * (double)NS_PER_SECOND) +
           (run_files_place_any(request, options) ? START_NS : 0);
}

int hutch_session_exec(hutch_session *session, const struct hutch_request *request,
                       const struct hutch_run_options *run_options, hutch_result **ret_result,
                       struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;
    struct hutch_run_options options;
    struct hutch_request known;
    struct session_waiter me = {.token = -1};
    uint64_t called_ns = clock_now_ns();

    if (run_options_load(run_options, &options, err) < 0 || check_exec(session, request, err) < 0)
        return err->code;
    me.token = cancel_fd(options.cancel);
    if (session_enter(session, &session->execs, &me, err) < 0)
        return err->code;
    request_load(request, &known);
    session_hold(session, time_to_begin_ns(session, &known, &options));
    int code = scheduler_resume(&session->engine->scheduler, &session->ticket, me.token, err);
    if (code == 0) {
        code = session_exec(session, &known, &options, called_ns, ret_result, err);
        scheduler_pause(&session->engine->scheduler, &session->ticket);
    }
    if (code < 0) /* without a begin or an end of an exec, from which idle time counts */
        session_touch(session, 0);
    session_leave(session, &session->execs, &me);
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
    if (request_check_size("session_options", given, given->size, OPTIONS_SIZE_FIRST,
                           sizeof(*given), err) < 0)
        return err->code;
    if (given->size >= sizeof(*given))
        ret_options->cancel = given->cancel;
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
    session->execs.what = "execs";
    session->files.what = "calls for files";
    session->ops = engine->backend->ops;
    session->language = request->language;
    session->checkpoints = options->checkpoints && request->language == HUTCH_PYTHON;
    session->idle_seconds = options->idle_timeout_seconds;
    session->lifetime_seconds = options->lifetime_seconds;
    session->limits = (struct session_limits){.memory_mb = request->memory_mb,
                                              .max_processes = request->max_processes,
                                              .disk_mb = request->disk_mb,
                                              .cpus = request->cpus};
    /* Files are memory, of which the programs need some. */
    session->disk_bytes =
        MIB(request->disk_mb < request->memory_mb / 4 * 3 ? request->disk_mb
                                                          : request->memory_mb / 4 * 3);
    capture_init(&session->late, LIMIT_LATE_BYTES);
    pthread_mutex_init(&session->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&session->turn_ended, &attributes);
    pthread_condattr_destroy(&attributes);
    return session;
}

static int start_cell(struct hutch_session *session, const struct hutch_request *request, int token,
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

    if (scheduler_enter(&engine->scheduler, request, token, &session->ticket, err) < 0)
        return err->code;
    if (session->ops->cell_start(engine->backend, &spec, &session->cell, err) < 0 ||
        session->ops->cell_next_event(session->cell, deadline_ns, token, &event, err) < 0)
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
    if (session->ops->session_open(session->cell, session->checkpoints, err) < 0)
        return err->code;
    scheduler_pause(&engine->scheduler, &session->ticket);
    return 0;
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
    struct hutch_session *session = session_new(engine, &like, &options);
    if (!session)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    if (random_id(session->id, err) < 0 ||
        start_cell(session, &like, cancel_fd(options.cancel), err) < 0) {
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
    uint64_t from_ns = session->execs.first ? now_ns : session->idle_from_ns;
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
