/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what the kernel writes about processes. */
#include "sandbox/namespace/proc_text.h"

#include "base/attrs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void memory_is_read(void **state)
{
    (void)state;
    assert_int_equal(proc_text_pss("55d0-7ffe ---p 00000000 00:00 0    [rollup]\n"
                                   "Rss:            3456 kB\n"
                                   "Pss:            1234 kB\n"
                                   "Pss_Dirty:       300 kB\n"),
                     1234 << 10);
    assert_int_equal(proc_text_private_dirty("x\nShared_Dirty: 9 kB\nPrivate_Clean: 8 kB\n"
                                             "Private_Dirty:        56 kB\nReferenced: 7 kB\n"),
                     56 << 10);
    assert_int_equal(proc_text_private_dirty("x\nShared_Dirty: 9 kB\n"), 0);
    assert_int_equal(proc_text_pss(""), 0);
    assert_int_equal(proc_text_pss("x\nSwapPss: 7 kB\n"), 0);
    assert_int_equal(proc_text_pss("x\nPss:"), 0);
    assert_int_equal(proc_text_pss("x\nPss: 99999999999999999999 kB"), UINT64_C(1) << 50);
    assert_int_equal(proc_text_resident_pages("1234 567 89 1 0 99 0\n"), 567);
    assert_int_equal(proc_text_resident_pages("1234"), 0);
    assert_int_equal(proc_text_resident_pages("1 99999999999999999999"), UINT64_C(1) << 40);
}

static void a_silent_end_is_known(void **state)
{
    (void)state;
#define STAT(exit_signal)                                                                          \
    "7 (a) 3) S 1 7 7 0 -1 4 12 0 0 0 1 2 3 4 20 0 1 0 99 1000 50 1 2 3 4 5 6 0 0 0 0 0 0 "        \
    "0 " exit_signal " 1 0 0 0 0 0"

    assert_true(proc_text_ends_silently(STAT("0")));
    assert_false(proc_text_ends_silently(STAT("17")));
    assert_false(proc_text_ends_silently("7 (a) S 1 0"));
    assert_false(proc_text_ends_silently(""));
}

static void a_dying_process_is_known_whatever_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool expected;
    } rows[] = {
        {"7 (hutch-init) S 1 7 7 0 -1 4194560 12 0 0 0", false},
        {"7 (hutch-init) S 1 7 7 0 -1 4194564 12 0 0 0", true},
        {"7 (a) Z 1 7 7 0 -1 4 b) S 1 7 7 0 -1 0 1 0", false},
        {"7 () R 0 0 0 0 -1 4 0) S 1 7 7 0 -1 4 1 0", true},
        {"7 (a\n b) S 1 7 7 0 -1 4 1 0", true},
        {"7 (a) S 1 7", true}, /* says nothing */
        {"", true},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++)
        assert_int_equal(proc_text_is_exiting(rows[i].text), rows[i].expected);
}

static void root_of_the_host_is_known(void **state)
{
    (void)state;
    assert_true(proc_text_uid_0_is_root("         0          0 4294967295\n"));
    assert_true(proc_text_uid_0_is_root("0 0 1\n"));
    assert_false(proc_text_uid_0_is_root("         0       1000          1\n"));
    assert_false(proc_text_uid_0_is_root("      1000          0          1\n"));
    assert_false(proc_text_uid_0_is_root("0 00 1\n"));
    assert_false(proc_text_uid_0_is_root("0"));
    assert_false(proc_text_uid_0_is_root(""));
}

static void a_pidfd_tells_its_pid(void **state)
{
    (void)state;
    assert_int_equal(
        proc_text_pid("pos:\t0\nflags:\t02000002\nmnt_id:\t15\nPid:\t4711\nNSpid:\t4711\n"), 4711);
    assert_int_equal(proc_text_pid("pos:\t0\nPid:\t-1\n"), 0); /* dead and reaped */
    assert_int_equal(proc_text_pid("Pid:\t7\n"), 0);
    assert_int_equal(proc_text_pid("\nPid:\t99999999999\n"), 0);
    assert_int_equal(proc_text_pid(""), 0);
}

static void what_a_signal_does_is_known(void **state)
{
    (void)state;
    static const char text[] = "Name:\tnode\nSigBlk:\t0000000000000002\n"
                               "SigIgn:\t0000000000001000\nSigCgt:\t0000000180004002\n";

    assert_false(proc_text_has_default(text, 2));
    assert_true(proc_text_has_default(text, 1));
    assert_true(proc_text_has_default(text, 3));
    assert_false(proc_text_has_default(text, 13));
    assert_false(proc_text_has_default(text, 15));
    assert_true(proc_text_has_default(text, 14));
    assert_false(proc_text_has_default(text, 33));
    assert_true(proc_text_has_default(text, 64));
    assert_false(proc_text_has_default("x\nSigCgt:\tf", 4));
    assert_true(proc_text_has_default("x\nSigCgt:\tf", 5));
    assert_true(proc_text_has_default("x\nSigCgt:\t\nSigIgn:\txyz", 2));
    assert_true(proc_text_has_default("", 2));
}

#define SOCKSTAT(used, inuse, tw, udp, frag)                                                       \
    "sockets: used " used "\nTCP: inuse " inuse " orphan 3 tw " tw " alloc 9 mem 5\n"              \
    "UDP: inuse " udp " mem 7\nUDPLITE: inuse 4\nRAW: inuse 0\nFRAG: inuse " frag " memory 0\n"

static void what_a_network_namespace_holds_is_seen(void **state)
{
    (void)state;
    assert_true(proc_text_has_no_socket(SOCKSTAT("0", "0", "0", "0", "0")));
    assert_false(proc_text_has_no_socket(SOCKSTAT("1", "0", "0", "0", "0")));
    assert_false(proc_text_has_no_socket(SOCKSTAT("01", "0", "0", "0", "0")));
    assert_false(proc_text_has_no_socket(SOCKSTAT("0", "2", "0", "0", "0")));
    assert_false(proc_text_has_no_socket(SOCKSTAT("0", "0", "1", "0", "0"))); /* TIME_WAIT */
    assert_false(proc_text_has_no_socket(SOCKSTAT("0", "0", "0", "1", "0")));
    assert_false(proc_text_has_no_socket(SOCKSTAT("0", "0", "0", "0", "1")));
    assert_false(proc_text_has_no_socket("sockets: used 0\n"));
    assert_false(proc_text_has_no_socket(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_read),
        cmocka_unit_test(a_silent_end_is_known),
        cmocka_unit_test(a_dying_process_is_known_whatever_its_name),
        cmocka_unit_test(root_of_the_host_is_known),
        cmocka_unit_test(a_pidfd_tells_its_pid),
        cmocka_unit_test(what_a_signal_does_is_known),
        cmocka_unit_test(what_a_network_namespace_holds_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
