/* SPDX-License-Identifier: Apache-2.0 */
/* Turns in a session: first come, first served, and who gives up steps out at once. */
#include "base/clock.h"
#include "base/limits.h"
#include "sandbox/session.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

static void make(struct hutch_session *session)
{
    *session = (struct hutch_session){.execs.what = "execs", .files.what = "calls for files"};
    pthread_mutex_init(&session->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&session->turn_ended, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void unmake(struct hutch_session *session)
{
    assert_null(session->execs.first);
    assert_null(session->files.first);
    pthread_cond_destroy(&session->turn_ended);
    pthread_mutex_destroy(&session->lock);
}

/* One that waits on a thread of its own. */
struct other {
    struct hutch_session *session;
    struct session_waiter waiter;
    struct hutch_error err;
    pthread_t thread;
    int code, place;
};

static int places; /* given by those whose turn it was */

static void *wait_and_leave(void *argument)
{
    struct other *other = argument;

    other->code =
        session_enter(other->session, &other->session->execs, &other->waiter, &other->err);
    if (other->code == 0) {
        other->place = __atomic_add_fetch(&places, 1, __ATOMIC_SEQ_CST);
        session_leave(other->session, &other->session->execs, &other->waiter);
    }
    return NULL;
}

static bool stands(struct hutch_session *session, const struct session_waiter *waiter)
{
    const struct session_waiter *at;

    pthread_mutex_lock(&session->lock);
    for (at = session->execs.first; at && at != waiter; at = at->next) {
    }
    pthread_mutex_unlock(&session->lock);
    return at != NULL;
}

/* Starts one, and sees it in the line. */
static void start(struct hutch_session *session, struct other *other, int token, double seconds)
{
    *other = (struct other){
        .session = session,
        .waiter = {.token = token,
                   .seconds = seconds,
                   .deadline_ns = clock_after_ns((uint64_t)(seconds * (double)NS_PER_SECOND))}};
    assert_int_equal(pthread_create(&other->thread, NULL, wait_and_leave, other), 0);
    while (!stands(session, &other->waiter))
        sched_yield();
}

static void who_comes_first_is_served_first(void **state)
{
    (void)state;
    struct hutch_session session;
    struct session_waiter me = {.token = -1}, file = {.token = -1};
    struct hutch_error err;
    struct other others[4];

    make(&session);
    places = 0;
    assert_int_equal(session_enter(&session, &session.execs, &me, &err), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        start(&session, &others[i], -1, 0);
    /* The other line does not wait for this one. */
    assert_int_equal(session_enter(&session, &session.files, &file, &err), 0);
    session_leave(&session, &session.files, &file);
    session_leave(&session, &session.execs, &me);
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++) {
        pthread_join(others[i].thread, NULL);
        assert_int_equal(others[i].code, 0);
        assert_int_equal(others[i].place, i + 1);
    }
    unmake(&session);
}

static void who_is_cancelled_does_not_wait_for_those_before_it(void **state)
{
    (void)state;
    struct hutch_session session;
    struct session_waiter me = {.token = -1};
    struct hutch_error err;
    struct other gone[2], stays;
    const uint64_t one = 1;
    int token = eventfd(0, EFD_CLOEXEC);

    make(&session);
    places = 0;
    assert_int_equal(session_enter(&session, &session.execs, &me, &err), 0);
    start(&session, &gone[0], token, 0);
    start(&session, &stays, -1, 0);
    start(&session, &gone[1], token, 0);
    assert_int_equal(write(token, &one, sizeof(one)), sizeof(one));
    for (size_t i = 0; i < ARRAY_LENGTH(gone); i++) {
        pthread_join(gone[i].thread, NULL);
        assert_int_equal(gone[i].code, HUTCH_ERR_CANCELLED);
    }
    assert_ptr_equal(me.next, &stays.waiter);
    session_leave(&session, &session.execs, &me);
    pthread_join(stays.thread, NULL);
    assert_int_equal(stays.place, 1);
    close(token);
    unmake(&session);
}

static void patience_and_the_session_end(void **state)
{
    (void)state;
    struct hutch_session session;
    struct session_waiter me = {.token = -1}, late = {.token = -1};
    struct hutch_error err;
    struct other impatient, patient;

    make(&session);
    assert_int_equal(session_enter(&session, &session.execs, &me, &err), 0);
    start(&session, &impatient, -1, 0.05);
    pthread_join(impatient.thread, NULL);
    assert_int_equal(impatient.code, HUTCH_ERR_BUSY);
    assert_non_null(strstr(impatient.err.message, "other execs of this session took the 0.05 s"));
    start(&session, &patient, -1, 0);
    pthread_mutex_lock(&session.lock);
    session.end = (struct hutch_error){.code = HUTCH_ERR_EXPIRED, .message = "over"};
    pthread_mutex_unlock(&session.lock);
    pthread_join(patient.thread, NULL);
    assert_int_equal(patient.code, HUTCH_ERR_EXPIRED);
    session_leave(&session, &session.execs, &me);
    assert_int_equal(session_enter(&session, &session.execs, &late, &err), HUTCH_ERR_EXPIRED);
    unmake(&session);
}

static void no_more_wait_than_may(void **state)
{
    (void)state;
    struct hutch_session session;
    struct session_waiter waiters[LIMIT_SESSION_QUEUE + 1] = {{.token = -1}}, more = {.token = -1};
    struct hutch_error err;

    make(&session);
    for (size_t i = 0; i + 1 < ARRAY_LENGTH(waiters); i++)
        waiters[i].next = &waiters[i + 1];
    session.execs.first = waiters;
    assert_int_equal(session_enter(&session, &session.execs, &more, &err), HUTCH_ERR_BUSY);
    assert_non_null(strstr(err.message, "64 execs of this session wait already"));
    session.execs.first = NULL;
    unmake(&session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_comes_first_is_served_first),
        cmocka_unit_test(who_is_cancelled_does_not_wait_for_those_before_it),
        cmocka_unit_test(patience_and_the_session_end),
        cmocka_unit_test(no_more_wait_than_may),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
