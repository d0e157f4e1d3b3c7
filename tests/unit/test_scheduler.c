/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a turn, with threads, on a host that is made up. What a test waits for
 * is a state of the scheduler, which is looked at until it is there.
 */
#include "fake_load.h"
#include "sandbox/scheduler.h"

#include "base/attrs.h"
#include "base/clock.h"

#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>

#include <cmocka.h>

#define CALLERS 16
#define PATIENCE_NS (20 * NS_PER_SECOND)

/* A thread that wants to run. */
struct caller {
    struct scheduler *scheduler;
    const char *owner;
    pthread_t thread;
    int cancel_fd;
    bool stays;    /* leaves when the test says so */
    bool has_cell; /* resumes, and pauses */
    struct ticket ticket;
    struct hutch_error err;
    int code;
    int turn; /* which one it was, from 1 */
};

static struct fake_load fake;
static struct scheduler scheduler;
static struct caller callers[CALLERS];
static atomic_int turns;

static int make(uint32_t max_cells, uint32_t queue_size, double timeout_seconds,
                struct hutch_error *err)
{
    const struct load_source source = fake_source(&fake);
    const struct hutch_engine_options options = {.size = sizeof(options),
                                                 .max_cells = max_cells,
                                                 .queue_size = queue_size,
                                                 .queue_timeout_seconds = timeout_seconds};
    fake_load_init(&fake);
    turns = 0;
    return scheduler_init(&scheduler, &options, 100, &source, err);
}

static void make_well(uint32_t max_cells, uint32_t queue_size, double timeout_seconds)
{
    struct hutch_error err;
    assert_int_equal(make(max_cells, queue_size, timeout_seconds, &err), 0);
}

static void *call(void *user)
{
    struct caller *caller = user;
    struct hutch_request request;

    if (caller->has_cell) {
        caller->code =
            scheduler_resume(caller->scheduler, &caller->ticket, caller->cancel_fd, &caller->err);
        if (caller->code == 0) {
            caller->turn = ++turns;
            scheduler_pause(caller->scheduler, &caller->ticket);
        }
        return NULL;
    }
    hutch_request_init(&request);
    request.owner = caller->owner;
    caller->code = scheduler_enter(caller->scheduler, &request, caller->cancel_fd, &caller->ticket,
                                   &caller->err);
    if (caller->code == 0) {
        caller->turn = ++turns;
        if (!caller->stays)
            scheduler_leave(caller->scheduler, &caller->ticket, MIB(10));
    }
    return NULL;
}

static void start(size_t index, const char *owner, bool stays)
{
    struct caller *caller = &callers[index];

    *caller =
        (struct caller){.scheduler = &scheduler, .owner = owner, .stays = stays, .cancel_fd = -1};
    caller->cancel_fd = eventfd(0, EFD_CLOEXEC);
    assert_true(caller->cancel_fd >= 0);
    assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
}

/* A program of a session that start_idle() has made. */
static void start_program(size_t index)
{
    struct caller *caller = &callers[index];

    caller->has_cell = true;
    caller->cancel_fd = eventfd(0, EFD_CLOEXEC);
    assert_true(caller->cancel_fd >= 0);
    assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
}

static void cancel(size_t index)
{
    uint64_t one = 1;
    assert_int_equal(write(callers[index].cancel_fd, &one, sizeof(one)), sizeof(one));
}

static struct caller *join(size_t index)
{
    assert_int_equal(pthread_join(callers[index].thread, NULL), 0);
    close(callers[index].cancel_fd);
    return &callers[index];
}

static void leave(size_t index)
{
    scheduler_leave(&scheduler, &callers[index].ticket, MIB(10));
}

static void count(size_t *ret_active, size_t *ret_waiting)
{
    pthread_mutex_lock(&scheduler.lock);
    *ret_active = scheduler.admission.active;
    *ret_waiting = scheduler.fair.waiting;
    pthread_mutex_unlock(&scheduler.lock);
}

static void wait_for(size_t active, size_t waiting)
{
    uint64_t end_ns = clock_after_ns(PATIENCE_NS);
    size_t now_active, now_waiting;

    do {
        sched_yield();
        count(&now_active, &now_waiting);
        assert_true(clock_now_ns() < end_ns);
    } while (now_active != active || now_waiting != waiting);
}

/* Starts one, and waits until it is in the queue behind the others. */
static void start_waiting(size_t index, const char *owner)
{
    size_t active, waiting;

    count(&active, &waiting);
    start(index, owner, false);
    wait_for(active, waiting + 1);
}

static void start_active(size_t index, const char *owner)
{
    size_t active, waiting;

    count(&active, &waiting);
    start(index, owner, true);
    wait_for(active + 1, waiting);
    join(index);
}

static void start_idle(size_t index, const char *owner)
{
    start_active(index, owner);
    scheduler_pause(&scheduler, &callers[index].ticket);
}

static void finish(void)
{
    size_t active, waiting;

    count(&active, &waiting);
    assert_int_equal(active, 0);
    assert_int_equal(waiting, 0);
    assert_int_equal(scheduler.admission.cells, 0);
    assert_int_equal(scheduler.admission.claimed_bytes, 0);
    assert_null(scheduler.watcher);
    scheduler_done(&scheduler);
}

/* ---- options ----------------------------------------------------------- */

static void options_are_checked(void **state)
{
    (void)state;
    static const struct {
        uint32_t max_cells, queue_size;
        double timeout_seconds;
        const char *message; /* NULL: allowed */
    } rows[] = {
        {0, 0, 0, NULL},
        {1, 1, 0.1, NULL},
        {1024, 10000, 3600, NULL},
        {1025, 0, 0, "max_cells: 1025 is not 1 to 1024"},
        {0, 10001, 0, "queue_size: 10001 is not 1 to 10000"},
        {0, 0, 0.05, "queue_timeout_seconds: 0.05 is not 0.1 to 3600"},
        {0, 0, 3601, "queue_timeout_seconds: 3601 is not 0.1 to 3600"},
        {0, 0, -1, "queue_timeout_seconds: -1 is not 0.1 to 3600"},
        {0, 0, NAN, "queue_timeout_seconds: nan is not 0.1 to 3600"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct hutch_error err = {.message = ""};
        int code = make(rows[i].max_cells, rows[i].queue_size, rows[i].timeout_seconds, &err);
        assert_int_equal(code, rows[i].message ? HUTCH_ERR_INVALID : 0);
        assert_string_equal(err.message, rows[i].message ? rows[i].message : "");
        if (code == 0)
            scheduler_done(&scheduler);
    }
}

static void defaults_are_filled_in(void **state)
{
    (void)state;
    struct hutch_error err;
    const struct load_source source = fake_source(&fake);

    assert_int_equal(scheduler_init(&scheduler, NULL, 77, &source, &err), 0);
    assert_int_equal(scheduler.admission.max_cells, 77);
    assert_in_range(scheduler.queue_size, 1, 1000);
    assert_true(scheduler.queue_timeout_seconds == 60);
    scheduler_done(&scheduler);
    make_well(101, 0, 0); /* more than the backend holds */
    assert_int_equal(scheduler.admission.max_cells, 100);
    scheduler_done(&scheduler);
}

/* ---- turns ------------------------------------------------------------- */

static void a_free_place_is_taken_at_once(void **state)
{
    (void)state;
    make_well(2, 10, 20);

    start_active(0, "a");
    start_active(1, NULL);
    leave(0);
    leave(1);
    finish();
}

static void owners_take_turns(void **state)
{
    (void)state;
    static const char *const owners[] = {"a", "a", "a", "b", "b", "c"};
    static const int turn[] = {2, 5, 7, 3, 6, 4};
    make_well(1, 10, 20);

    start_active(9, "a");
    for (size_t i = 0; i < ARRAY_LENGTH(owners); i++)
        start_waiting(i, owners[i]);
    leave(9);
    for (size_t i = 0; i < ARRAY_LENGTH(owners); i++) {
        const struct caller *caller = join(i);
        assert_int_equal(caller->code, 0);
        assert_int_equal(caller->turn, turn[i]);
    }
    finish();
}

static void a_newcomer_does_not_overtake(void **state)
{
    (void)state;
    make_well(100, 10, 20);
    fake.available_bytes = MIB(1300); /* the reserve and the first one */

    start_active(9, "a");
    start_waiting(0, "a"); /* 64 MiB do not fit, */
    fake.available_bytes = MIB(1228 + 64 + 40);
    fake.now_ns += NS_PER_SECOND / 2;
    start_waiting(1, "a"); /* nor does what comes later */
    leave(9);
    assert_int_equal(join(0)->turn, 2);
    assert_int_equal(join(1)->turn, 3);
    finish();
}

/* The host becomes free without a run that ends. */
static void somebody_watches_the_host(void **state)
{
    (void)state;
    make_well(100, 10, 20);

    start_active(9, "a");
    fake.available_bytes = MIB(1000);
    fake.now_ns += NS_PER_SECOND;
    start_waiting(0, "a");
    start_waiting(1, "b");
    start_waiting(2, "a");
    cancel(0); /* it watches, being the first one */
    assert_int_equal(join(0)->code, HUTCH_ERR_CANCELLED);
    fake.available_bytes = MIB(20 << 10);
    fake.now_ns += NS_PER_SECOND;
    assert_int_equal(join(1)->code, 0);
    assert_int_equal(join(2)->code, 0);
    leave(9);
    finish();
}

/* ---- refusals ---------------------------------------------------------- */

static void a_full_queue_is_fair_too(void **state)
{
    (void)state;
    make_well(1, 4, 20);

    start_active(9, "flood");
    for (size_t i = 0; i < 4; i++)
        start_waiting(i, "flood");
    start(4, "flood", false);
    assert_int_equal(join(4)->code, HUTCH_ERR_BUSY);
    assert_string_equal(callers[4].err.message, "the queue is full: 4 runs wait, queue_size is 4");
    assert_true(hutch_error_retry_safe(&callers[4].err));
    start(5, "one", false);
    assert_int_equal(join(3)->code, HUTCH_ERR_BUSY); /* the newest of the flood */
    assert_string_equal(callers[3].err.message,
                        "the queue is full (queue_size is 4), and most that wait are of this "
                        "owner: the place went to another");
    start(6, "two", false);
    assert_int_equal(join(2)->code, HUTCH_ERR_BUSY);
    start(7, "three", false);
    assert_int_equal(join(1)->code, HUTCH_ERR_BUSY);
    start(8, "four", false); /* one waits of each, so that it would only be another's loss */
    assert_int_equal(join(8)->code, HUTCH_ERR_BUSY);
    wait_for(1, 4);
    leave(9);
    static const size_t good[] = {0, 5, 6, 7};
    for (size_t i = 0; i < ARRAY_LENGTH(good); i++)
        assert_int_equal(join(good[i])->code, 0);
    finish();
}

static void a_wait_ends_and_says_what_for(void **state)
{
    (void)state;
    make_well(100, 10, 0.1);

    fake.available_bytes = MIB(1300);
    start_active(9, "a");
    start(0, "b", false);
    assert_int_equal(join(0)->code, HUTCH_ERR_BUSY);
    assert_string_equal(callers[0].err.message,
                        "waited 0.1 s for memory: 1300 MiB available on the host, needed are "
                        "1228 MiB reserve + 64 MiB for runs that just began + 64 MiB for this "
                        "one");
    assert_true(hutch_error_retry_safe(&callers[0].err));
    leave(9);
    finish();
}

static void a_wait_is_cancelled(void **state)
{
    (void)state;
    make_well(1, 10, 20);

    start_active(9, "a");
    for (size_t i = 0; i < 3; i++)
        start_waiting(i, "b");
    cancel(1);
    assert_int_equal(join(1)->code, HUTCH_ERR_CANCELLED);
    assert_string_equal(callers[1].err.message, "cancelled by the caller before the start");
    assert_true(hutch_error_retry_safe(&callers[1].err));
    wait_for(1, 2);
    leave(9);
    assert_int_equal(join(0)->turn, 2);
    assert_int_equal(join(2)->turn, 3);
    finish();
}

/* ---- sessions ---------------------------------------------------------- */

static void idle_sessions_take_places_and_no_turns(void **state)
{
    (void)state;
    make_well(2, 10, 0.1);

    start_idle(0, "a");
    start_idle(1, "a");
    start(2, "b", false);
    assert_int_equal(join(2)->code, HUTCH_ERR_BUSY);
    assert_string_equal(callers[2].err.message,
                        "waited 0.1 s for a cell: 0 are active, 2 are idle sessions, max_cells is "
                        "2");
    assert_true(hutch_error_retry_safe(&callers[2].err));
    start_program(0);
    assert_int_equal(join(0)->code, 0);
    leave(0);
    start_active(3, "b");
    leave(3);
    leave(1);
    finish();
}

/* Who waits for a place that a session keeps does not keep the session from its turn. */
static void a_program_passes_who_waits_for_a_place(void **state)
{
    (void)state;
    make_well(2, 10, 20);

    start_idle(0, "a");
    start_active(1, "b");
    start_waiting(2, "b");
    start_program(0);
    assert_int_equal(join(0)->code, 0);
    leave(1);
    assert_int_equal(join(2)->code, 0);
    leave(0);
    finish();
}

/* Where there are places, it waits as others do, in the order they came. */
static void a_program_waits_for_its_turn(void **state)
{
    (void)state;
    make_well(100, 10, 20);

    start_idle(0, "a");
    start_active(9, "b");
    fake.available_bytes = MIB(1000);
    fake.now_ns += NS_PER_SECOND;
    start_waiting(1, "c");
    start_program(0);
    wait_for(1, 2);
    start_waiting(2, "d");
    fake.available_bytes = MIB(1228 + 64 + 40); /* for one at a time */
    fake.now_ns += NS_PER_SECOND;
    assert_int_equal(join(1)->turn, 3);
    assert_int_equal(join(0)->turn, 4);
    fake.now_ns += NS_PER_SECOND; /* until there is a reading, what it took counts */
    assert_int_equal(join(2)->turn, 5);
    assert_int_equal(callers[0].code, 0);
    leave(9);
    leave(0);
    finish();
}

static void a_program_that_waits_is_cancelled_and_the_session_stays(void **state)
{
    (void)state;
    make_well(100, 10, 20);

    start_idle(0, "a");
    start_active(9, "b");
    fake.available_bytes = MIB(1000);
    fake.now_ns += NS_PER_SECOND;
    start_program(0);
    wait_for(1, 1);
    cancel(0);
    assert_int_equal(join(0)->code, HUTCH_ERR_CANCELLED);
    assert_true(hutch_error_retry_safe(&callers[0].err));
    assert_true(callers[0].ticket.is_idle);
    fake.available_bytes = MIB(20 << 10);
    fake.now_ns += NS_PER_SECOND;
    start_program(0);
    assert_int_equal(join(0)->code, 0);
    leave(9);
    leave(0);
    finish();
}

/* ---- the report -------------------------------------------------------- */

static void the_report_has_the_terms(void **state)
{
    (void)state;
    auto_buf struct buf out = BUF_MAX(KIB(4));
    make_well(2, 10, 20);
    fake.pressure = 1205;

    start_active(0, "a");
    start_idle(1, "a");
    start_waiting(2, "a");
    scheduler_append_report(&scheduler, &out);
    assert_string_equal(
        buf_text(&out),
        "{\"active\":1,\"idle_sessions\":1,\"waiting\":1,\"max_cells\":2,\"queue_size\":10,"
        "\"memory_available_bytes\":24696061952,\"memory_reserve_bytes\":1288490188,"
        "\"memory_claimed_bytes\":134217728,\"expected_bytes\":67108864,"
        "\"memory_pressure\":12.05,\"runnable\":1,\"runnable_limit\":16,"
        "\"held_back_by\":\"cells\"}");
    leave(0);
    leave(1);
    join(2);
    fake.total_bytes = fake.available_bytes = LOAD_UNKNOWN;
    buf_clear(&out);
    scheduler_append_report(&scheduler, &out);
    assert_non_null(strstr(buf_text(&out), "\"memory_available_bytes\":null,"
                                           "\"memory_reserve_bytes\":null,"));
    assert_non_null(strstr(buf_text(&out), "\"held_back_by\":null}"));
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(defaults_are_filled_in),
        cmocka_unit_test(a_free_place_is_taken_at_once),
        cmocka_unit_test(owners_take_turns),
        cmocka_unit_test(a_newcomer_does_not_overtake),
        cmocka_unit_test(somebody_watches_the_host),
        cmocka_unit_test(a_full_queue_is_fair_too),
        cmocka_unit_test(a_wait_ends_and_says_what_for),
        cmocka_unit_test(a_wait_is_cancelled),
        cmocka_unit_test(idle_sessions_take_places_and_no_turns),
        cmocka_unit_test(a_program_passes_who_waits_for_a_place),
        cmocka_unit_test(a_program_waits_for_its_turn),
        cmocka_unit_test(a_program_that_waits_is_cancelled_and_the_session_stays),
        cmocka_unit_test(the_report_has_the_terms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
