/* SPDX-License-Identifier: Apache-2.0 */
/* Whether one more run fits, on hosts that are made up. */
#include "fake_load.h"

#include "base/attrs.h"
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define READING_NS (20 * NS_PER_MS)
#define MANY 1000 /* active runs of an owner that pressure and cpu hold back */

struct host {
    struct fake_load fake;
    struct admission admission;
    struct memory_claim claims[600];
    size_t begun;
};

static void make_host(struct host *host, uint64_t total_mb, uint64_t available_mb)
{
    host->begun = 0;
    fake_load_init(&host->fake);
    host->fake.total_bytes = MIB(total_mb);
    host->fake.available_bytes = MIB(available_mb);
    const struct load_source source = fake_source(&host->fake);
    admission_init(&host->admission, &source, 600);
}

static void begin(struct host *host, uint64_t memory_mb)
{
    admission_begin(&host->admission, memory_mb, &host->claims[host->begun++]);
}

static void end_last(struct host *host, uint64_t peak_mb)
{
    admission_end(&host->admission, &host->claims[--host->begun], MIB(peak_mb));
}

static enum admission_term hold(struct host *host, uint64_t memory_mb)
{
    return admission_hold(&host->admission, MANY, memory_mb);
}

static void pass_time(struct host *host, uint64_t ns)
{
    host->fake.now_ns += ns;
}

static void cells_are_counted(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 24 << 10, 23 << 10);
    host.admission.max_cells = 2;

    assert_int_equal(hold(&host, 512), TERM_NONE);
    begin(&host, 512);
    assert_int_equal(hold(&host, 512), TERM_NONE);
    begin(&host, 512);
    assert_int_equal(hold(&host, 512), TERM_CELLS);
    end_last(&host, 10);
    assert_int_equal(hold(&host, 512), TERM_NONE);
}

static void the_reserve_suits_the_place(void **state)
{
    (void)state;
    assert_int_equal(load_reserve(MIB(24 << 10)), MIB(24 << 10) / 20);
    assert_int_equal(load_reserve(MIB(4 << 10)), MIB(256));
    assert_int_equal(load_reserve(MIB(1 << 10)), MIB(128));
    assert_int_equal(load_reserve(MIB(512)), MIB(64));
    assert_int_equal(load_reserve(0), 0);
    assert_true(load_reserve(LOAD_UNKNOWN) < LOAD_UNKNOWN / 2);
}

/* available >= reserve + claims + the new one's */
static void memory_is_counted_to_the_byte(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 4 << 10, 256 + 3 * 64);

    begin(&host, 512);
    begin(&host, 512);
    assert_int_equal(hold(&host, 512), TERM_NONE);
    begin(&host, 512);
    assert_int_equal(host.admission.claimed_bytes, MIB(3 * 64));
    assert_int_equal(hold(&host, 16), TERM_MEMORY);
    pass_time(&host, READING_NS);
    host.fake.available_bytes += MIB(64) - 1;
    assert_int_equal(hold(&host, 512), TERM_MEMORY);
    assert_int_equal(hold(&host, 32), TERM_NONE);
    pass_time(&host, READING_NS);
    host.fake.available_bytes += 1;
    assert_int_equal(hold(&host, 512), TERM_NONE);
}

static void a_claim_stands_until_a_reading_shows_the_run(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 24 << 10, 23 << 10);

    assert_int_equal(hold(&host, 512), TERM_NONE);
    begin(&host, 512);
    pass_time(&host, NS_PER_SECOND / 2);
    begin(&host, 48);
    assert_int_equal(host.admission.claimed_bytes, MIB(64 + 48));
    pass_time(&host, NS_PER_SECOND / 2 - 1);
    admission_read(&host.admission);
    assert_int_equal(host.admission.claimed_bytes, MIB(64 + 48));
    pass_time(&host, 1);
    assert_int_equal(host.admission.claimed_bytes, MIB(64 + 48));
    admission_read(&host.admission);
    assert_int_equal(host.admission.claimed_bytes, MIB(48));
    end_last(&host, 5); /* one that is young still */
    assert_int_equal(host.admission.claimed_bytes, 0);
    end_last(&host, 5);
    assert_int_equal(host.admission.active, 0);
}

static void what_is_expected_is_learnt(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 24 << 10, 23 << 10);
    admission_read(&host.admission);

    assert_int_equal(admission_expected(&host.admission, 512), MIB(64));
    assert_int_equal(admission_expected(&host.admission, 16), MIB(16));
    begin(&host, 512);
    end_last(&host, 400);
    assert_int_equal(admission_expected(&host.admission, 512), MIB(400));
    assert_int_equal(admission_expected(&host.admission, 100), MIB(100));
    begin(&host, 512);
    end_last(&host, 80);
    assert_int_equal(admission_expected(&host.admission, 512), MIB(380));
    begin(&host, 512);
    end_last(&host, 0); /* nobody knows */
    assert_int_equal(admission_expected(&host.admission, 512), MIB(380));
    for (int i = 0; i < 200; i++) {
        begin(&host, 512);
        end_last(&host, 5);
    }
    assert_int_equal(admission_expected(&host.admission, 512), MIB(32));
}

/* Each turns out to use 12 MiB; their limits are 250 GiB together. */
static void five_hundred_idle_cells_fit_on_24_gib(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 24 << 10, 23 << 10);

    while (host.begun < 500 && host.fake.now_ns < 3 * NS_PER_SECOND) {
        if (hold(&host, 512) == TERM_NONE) {
            begin(&host, 512);
            host.fake.available_bytes -= MIB(12);
        } else {
            pass_time(&host, READING_NS);
            host.admission.active_then = host.begun; /* as a reading of the pace would */
        }
    }
    assert_int_equal(host.begun, 500);
    assert_true(host.fake.now_ns <= 2 * NS_PER_SECOND);
}

/* A hundred cells of 64 MB that use 50 each: never more than a group of 1 GiB takes,
 * also when none of it shows in a reading. */
static void a_small_group_is_not_overdrawn(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 1 << 10, (1 << 10) - 20);
    host.fake.processors = 64;

    while (hold(&host, 64) == TERM_NONE)
        begin(&host, 64);
    assert_in_range(host.begun, 10, 14);
    assert_true(20 + host.begun * 50 < (1 << 10));
}

static void a_small_host_works(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 480, 300);

    assert_int_equal(hold(&host, 512), TERM_NONE);
    begin(&host, 512);
    assert_int_equal(hold(&host, 512), TERM_NONE);
    end_last(&host, 450); /* a run that took nearly all */
    assert_int_equal(hold(&host, 512), TERM_NONE);
    begin(&host, 512);
    assert_int_equal(hold(&host, 512), TERM_MEMORY);
    end_last(&host, 450);
    pass_time(&host, NS_PER_SECOND);
    host.fake.available_bytes = MIB(100);
    assert_int_equal(hold(&host, 512), TERM_MEMORY);
}

static void a_group_of_64_mib_runs_one_at_a_time(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 64, 55);

    assert_int_equal(hold(&host, 512), TERM_NONE);
    begin(&host, 512);
    assert_int_equal(hold(&host, 512), TERM_MEMORY);
    end_last(&host, 60);
    assert_int_equal(hold(&host, 512), TERM_NONE);
}

static void runnable_threads_and_new_runs_are_counted(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 24 << 10, 23 << 10);
    host.fake.runnable = 14;

    assert_int_equal(hold(&host, 512), TERM_NONE);
    begin(&host, 512);
    assert_int_equal(hold(&host, 512), TERM_NONE); /* 14, with the one that is active */
    begin(&host, 512);
    assert_int_equal(hold(&host, 512), TERM_NONE);
    begin(&host, 512);
    assert_int_equal(hold(&host, 512), TERM_CPU);
    assert_int_equal(admission_runnable_limit(&host.admission), 16);
    end_last(&host, 10); /* one less */
    assert_int_equal(hold(&host, 512), TERM_NONE);
    begin(&host, 512);
    pass_time(&host, READING_NS - 1);
    host.fake.runnable = 2;
    assert_int_equal(hold(&host, 512), TERM_CPU);
    pass_time(&host, 1);
    assert_int_equal(hold(&host, 512), TERM_NONE);
}

static void pressure_counts_where_memory_is_not_plenty(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 24 << 10, 5 << 10);
    host.fake.pressure = 2000;

    assert_int_equal(hold(&host, 512), TERM_NONE);
    begin(&host, 512);
    assert_int_equal(hold(&host, 512), TERM_PRESSURE);
    pass_time(&host, READING_NS);
    host.fake.pressure = 1999;
    assert_int_equal(hold(&host, 512), TERM_NONE);
    pass_time(&host, READING_NS);
    host.fake.pressure = 10000;
    assert_int_equal(hold(&host, 512), TERM_PRESSURE);
    pass_time(&host, READING_NS);
    host.fake.available_bytes = MIB(6 << 10);
    assert_int_equal(hold(&host, 512), TERM_NONE);
}

static void another_programs_load_starves_nobody(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 24 << 10, 5 << 10);
    host.fake.runnable = 1000;
    host.fake.pressure = 9000;

    for (int i = 0; i < 3; i++) { /* alone, always */
        assert_int_equal(hold(&host, 512), TERM_NONE);
        begin(&host, 512);
        end_last(&host, 10);
    }
    begin(&host, 512);
    pass_time(&host, READING_NS);
    /* an owner with less than the processors: one a reading */
    assert_int_equal(admission_hold(&host.admission, 0, 512), TERM_NONE);
    begin(&host, 512);
    assert_int_equal(admission_hold(&host.admission, 0, 512), TERM_PRESSURE);
    pass_time(&host, READING_NS);
    assert_int_equal(admission_hold(&host.admission, 2, 512), TERM_PRESSURE);
    assert_int_equal(admission_hold(&host.admission, 1, 512), TERM_NONE);
    host.fake.available_bytes = MIB(1 << 10);
    pass_time(&host, READING_NS);
    assert_int_equal(admission_hold(&host.admission, 0, 512), TERM_MEMORY);
}

static void readings_are_few(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 24 << 10, 23 << 10);

    for (int i = 0; i < 100; i++) { /* one after the other, a millisecond each */
        assert_int_equal(hold(&host, 512), TERM_NONE);
        begin(&host, 512);
        pass_time(&host, NS_PER_MS);
        end_last(&host, 10);
    }
    assert_int_equal(host.fake.memory_reads, 1);
    assert_int_equal(host.fake.pace_reads, 0);
    begin(&host, 512);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(hold(&host, 512), TERM_NONE);
        pass_time(&host, NS_PER_MS);
    }
    assert_int_equal(host.fake.pace_reads, 5);
    make_host(&host, 24 << 10, 1 << 10); /* short of memory */
    for (int i = 0; i < 100; i++) {
        assert_int_equal(hold(&host, 512), TERM_MEMORY);
        pass_time(&host, NS_PER_MS);
    }
    assert_int_equal(host.fake.memory_reads, 5);
}

static void pause_last(struct host *host)
{
    admission_pause(&host->admission, &host->claims[host->begun - 1]);
}

/* 500 sessions on 24 GiB that run programs now and then, and are idle in between. */
static void five_hundred_idle_sessions_fit_on_24_gib(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 24 << 10, 23 << 10);

    for (int i = 0; i < 500; i++) {
        assert_int_equal(hold(&host, 512), TERM_NONE);
        begin(&host, 512);
        pass_time(&host, 10 * NS_PER_MS);
        pause_last(&host);
        host.fake.available_bytes -= MIB(8);
    }
    assert_int_equal(host.admission.active, 0);
    assert_int_equal(host.admission.cells, 500);
    assert_int_equal(hold(&host, 512), TERM_NONE);
    for (size_t i = 0; i < 500; i++) { /* 200 programs a second */
        assert_int_equal(admission_hold_idle(&host.admission, 0, 512), TERM_NONE);
        admission_resume(&host.admission, 512, &host.claims[i]);
        assert_int_equal(host.admission.active, 1);
        pass_time(&host, 5 * NS_PER_MS);
        admission_pause(&host.admission, &host.claims[i]);
    }
    for (size_t i = 0; i < 500; i++)
        admission_end_idle(&host.admission, &host.claims[i]);
    assert_int_equal(host.admission.cells, 0);
    assert_int_equal(host.admission.claimed_bytes, 0);
}

static void a_claim_of_an_idle_session_ends_with_the_next_reading(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 24 << 10, 23 << 10);
    pass_time(&host, NS_PER_SECOND);

    begin(&host, 48);
    begin(&host, 512);
    pause_last(&host);
    assert_int_equal(host.admission.claimed_bytes, MIB(48 + 64));
    pass_time(&host, 1);
    admission_read(&host.admission);
    assert_int_equal(host.admission.claimed_bytes, MIB(48)); /* of the one that is active */
    admission_resume(&host.admission, 512, &host.claims[1]);
    assert_int_equal(host.admission.claimed_bytes, MIB(48 + 64));
}

/* A session's program needs no place, but memory and pace as others do. */
static void an_idle_session_needs_no_place(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 4 << 10, 256 + 2 * 64);
    host.admission.max_cells = 2;

    begin(&host, 512);
    pause_last(&host);
    begin(&host, 512);
    assert_int_equal(hold(&host, 512), TERM_CELLS);
    assert_int_equal(admission_hold_idle(&host.admission, MANY, 512), TERM_MEMORY);
    host.fake.available_bytes = MIB(256 + 3 * 64);
    pass_time(&host, READING_NS);
    assert_int_equal(admission_hold_idle(&host.admission, MANY, 512), TERM_NONE);
    host.fake.runnable = 100;
    pass_time(&host, READING_NS);
    assert_int_equal(admission_hold_idle(&host.admission, MANY, 512), TERM_CPU);
    assert_int_equal(hold(&host, 512), TERM_CELLS);
}

static void an_unknown_host_holds_nothing_back(void **state)
{
    (void)state;
    static struct host host;
    make_host(&host, 24 << 10, 23 << 10);
    host.fake.total_bytes = host.fake.available_bytes = LOAD_UNKNOWN;
    host.fake.runnable = 0;

    for (int i = 0; i < 16; i++) {
        assert_int_equal(hold(&host, 512), TERM_NONE);
        begin(&host, 512);
    }
    assert_int_equal(admission_expected(&host.admission, 512), MIB(64));
}

static void messages_have_the_numbers(void **state)
{
    (void)state;
    static struct host host;
    struct hutch_error err;
    make_host(&host, 6 << 10, 400);
    host.fake.runnable = 20;
    host.fake.pressure = 3520;
    begin(&host, 48);
    admission_read(&host.admission);
    const struct {
        enum admission_term term;
        const char *message;
    } rows[] = {
        {TERM_CELLS, "waited 60 s for a cell: 1 are active, 0 are idle sessions, max_cells is 600"},
        {TERM_MEMORY, "waited 60 s for memory: 400 MiB available on the host, needed are "
                      "307 MiB reserve + 48 MiB for runs that just began + 64 MiB for this one"},
        {TERM_PRESSURE,
         "waited 60 s for memory pressure to fall: some avg10 is 35.2, the limit 20"},
        {TERM_CPU, "waited 60 s for the processors: 20 threads are runnable, the limit is 16 on "
                   "2 processors"},
        {TERM_NONE, "waited 60 s behind others: 1 runs are active"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        assert_int_equal(admission_explain(&host.admission, rows[i].term, 60, 512, &err),
                         HUTCH_ERR_BUSY);
        assert_string_equal(err.message, rows[i].message);
        assert_true(hutch_error_retry_safe(&err));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_counted),
        cmocka_unit_test(the_reserve_suits_the_place),
        cmocka_unit_test(memory_is_counted_to_the_byte),
        cmocka_unit_test(a_claim_stands_until_a_reading_shows_the_run),
        cmocka_unit_test(what_is_expected_is_learnt),
        cmocka_unit_test(five_hundred_idle_cells_fit_on_24_gib),
        cmocka_unit_test(a_small_group_is_not_overdrawn),
        cmocka_unit_test(a_small_host_works),
        cmocka_unit_test(a_group_of_64_mib_runs_one_at_a_time),
        cmocka_unit_test(runnable_threads_and_new_runs_are_counted),
        cmocka_unit_test(pressure_counts_where_memory_is_not_plenty),
        cmocka_unit_test(another_programs_load_starves_nobody),
        cmocka_unit_test(readings_are_few),
        cmocka_unit_test(five_hundred_idle_sessions_fit_on_24_gib),
        cmocka_unit_test(a_claim_of_an_idle_session_ends_with_the_next_reading),
        cmocka_unit_test(an_idle_session_needs_no_place),
        cmocka_unit_test(an_unknown_host_holds_nothing_back),
        cmocka_unit_test(messages_have_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
