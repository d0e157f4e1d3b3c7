/* SPDX-License-Identifier: Apache-2.0 */
/* What the host has to give, and the names of signals. */
#include "base/host.h"
#include "base/signals.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

static void cpus_are_those_allowed(void **state)
{
    (void)state;
    cpu_set_t before, one;

    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(host_cpus(), CPU_COUNT(&before));
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    uint32_t cpus = host_cpus();
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(cpus, 1);
}

static void memory_is_the_machine_s(void **state)
{
    (void)state;
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(host_memory_mb(), bytes >> 20);
}

static void signals_have_their_names(void **state)
{
    (void)state;
    assert_string_equal(signal_name(SIGKILL), "SIGKILL");
    assert_string_equal(signal_name(SIGSEGV), "SIGSEGV");
    assert_string_equal(signal_name(SIGXCPU), "SIGXCPU");
    assert_string_equal(signal_name(SIGSYS), "SIGSYS");
    assert_string_equal(signal_name(32), "SIG32");
    assert_string_equal(signal_name(34), "SIGRTMIN");
    assert_string_equal(signal_name(64), "SIGRTMIN+30");
    assert_string_equal(signal_name(0), "SIG?");
    assert_string_equal(signal_name(-1), "SIG?");
    assert_string_equal(signal_name(65), "SIG?");
    for (int number = 1; number <= 64; number++) {
        assert_non_null(signal_name(number));
        for (int other = 1; other < number; other++)
            assert_string_not_equal(signal_name(number), signal_name(other));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpus_are_those_allowed),
        cmocka_unit_test(memory_is_the_machine_s),
        cmocka_unit_test(signals_have_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
