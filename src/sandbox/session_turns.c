/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The turns of a session (session.h): one line for execs and one for calls for files. Those
 * who wait stand in it on their own stacks, guarded by session.lock; the first has the turn.
 * Who gives up steps out, wherever it stands.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/parse.h"
#include "session.h"

#include <poll.h>
#include <time.h>

#define SLICE_NS (20 * NS_PER_MS) /* between two looks at token, time and end of who waits */

void session_wait_slice(struct hutch_session *session)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + SLICE_NS;
    until.tv_sec += (time_t)(ns / NS_PER_SECOND);
    until.tv_nsec = (long)(ns % NS_PER_SECOND);
    pthread_cond_timedwait(&session->turn_ended, &session->lock, &until);
}

/* Called with the lock. */
static void step_out(struct hutch_session *session, struct session_line *line,
                     const struct session_waiter *me)
{
    struct session_waiter **place = &line->first;

    while (*place != me)
        place = &(*place)->next;
    *place = me->next;
    pthread_cond_broadcast(&session->turn_ended);
}

static int wait_for_turn(struct hutch_session *session, const struct session_line *line,
                         const struct session_waiter *me, struct hutch_error *err)
{
    for (;;) {
        if (me->token >= 0 && fd_wait(me->token, POLLIN, 0) != 0)
            return err_set(err, HUTCH_ERR_CANCELLED, "cancelled by the caller before the start");
        if (session->end.code != 0) {
            *err = session->end;
            return err->code;
        }
        if (line->first == me)
            return 0;
        if (me->seconds > 0 && clock_now_ns() >= me->deadline_ns)
            return err_set(err, HUTCH_ERR_BUSY,
                           "other %s of this session took the %s s that this one has", line->what,
                           number_text(me->seconds).text);
        session_wait_slice(session);
    }
}

int session_enter(struct hutch_session *session, struct session_line *line,
                  struct session_waiter *me, struct hutch_error *err)
{
    struct session_waiter **last = &line->first;
    size_t count = 0;
    int code;

    pthread_mutex_lock(&session->lock);
    for (; *last; last = &(*last)->next)
        count++;
    if (count > LIMIT_SESSION_QUEUE) {
        code = err_set(err, HUTCH_ERR_BUSY, "%d %s of this session wait already",
                       LIMIT_SESSION_QUEUE, line->what);
    } else {
        *last = me;
        code = wait_for_turn(session, line, me, err);
        if (code < 0)
            step_out(session, line, me);
    }
    pthread_mutex_unlock(&session->lock);
    return code;
}

void session_leave(struct hutch_session *session, struct session_line *line,
                   const struct session_waiter *me)
{
    pthread_mutex_lock(&session->lock);
    if (line == &session->execs)
        session->idle_from_ns = clock_now_ns();
    step_out(session, line, me);
    pthread_mutex_unlock(&session->lock);
}
