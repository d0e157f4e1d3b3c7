/* SPDX-License-Identifier: Apache-2.0 */
/* Growing bytes: the maximum, the first failure, reading files. */
#include "base/buf.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void appends_and_terminates(void **state)
{
    (void)state;
    auto_buf struct buf buf = BUF_MAX(10000);
    struct hutch_error err;

    assert_string_equal(buf_text(&buf), "");
    for (int i = 0; i < 1000; i++)
        buf_appendf(&buf, "%d,", i % 10);
    assert_int_equal(buf_check(&buf, &err), 0);
    assert_int_equal(buf.length, 2000);
    assert_int_equal(buf.data[2000], '\0');
}

static void the_maximum_holds_and_is_remembered(void **state)
{
    (void)state;
    auto_buf struct buf buf = BUF_MAX(4);
    struct hutch_error err;

    buf_append_text(&buf, "abcd");
    assert_int_equal(buf_check(&buf, &err), 0);
    buf_append_text(&buf, "e");
    buf_append(&buf, "", 0);
    assert_int_equal(buf_check(&buf, &err), HUTCH_ERR_INVALID);
    assert_string_equal(buf_text(&buf), "abcd");
    buf_clear(&buf);
    assert_int_equal(buf_check(&buf, &err), 0);
}

static void take_leaves_an_empty_one(void **state)
{
    (void)state;
    auto_buf struct buf buf = BUF_MAX(100);

    buf_append_text(&buf, "x");
    auto_buf struct buf taken = TAKE_BUF(buf);
    assert_string_equal(buf_text(&taken), "x");
    assert_null(buf.data);
    buf_append_text(&buf, "y");
    assert_string_equal(buf_text(&buf), "y");
}

static void reads_files_within_the_maximum(void **state)
{
    (void)state;
    auto_buf struct buf small = BUF_MAX(100);
    auto_buf struct buf large = BUF_MAX(1 << 20);
    struct hutch_error err;

    assert_int_equal(buf_read_file(&large, AT_FDCWD, "/proc/self/status", &err), 0);
    assert_non_null(strstr(large.data, "Pid:"));
    assert_int_equal(buf_read_file(&small, AT_FDCWD, "/proc/self/status", &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "'/proc/self/status': longer than 100 bytes");
    assert_int_equal(buf_read_file(&large, AT_FDCWD, "/no/such", &err), HUTCH_ERR_SYSTEM);
    assert_int_equal(err.sys_errno, ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_and_terminates),
        cmocka_unit_test(the_maximum_holds_and_is_remembered),
        cmocka_unit_test(take_leaves_an_empty_one),
        cmocka_unit_test(reads_files_within_the_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
