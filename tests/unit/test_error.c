/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: text, context, the table. */
#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void context_goes_in_front(void **state)
{
    (void)state;
    struct hutch_error err;

    assert_int_equal(err_errno(&err, HUTCH_ERR_SYSTEM, ENOENT, "open '%s'", "x"), HUTCH_ERR_SYSTEM);
    assert_int_equal(err_context(&err, "starting %s cell", "python"), HUTCH_ERR_SYSTEM);
    assert_string_equal(err.message, "starting python cell: open 'x': No such file or directory");
    assert_int_equal(err.sys_errno, ENOENT);
    assert_true(hutch_error_retry_safe(&err));
    err_mark_maybe_ran(&err);
    assert_false(hutch_error_retry_safe(&err));
}

static void long_context_gives_way_to_the_cause(void **state)
{
    (void)state;
    struct hutch_error err;
    char text[600];

    memset(text, 'c', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    err_set(&err, HUTCH_ERR_INVALID, "the cause");
    err_context(&err, "%s", text);
    assert_string_equal(err.message + strlen(err.message) - strlen(": the cause"), ": the cause");
    err_context(&err, "more");
    assert_string_equal(err.message + strlen(err.message) - strlen(": the cause"), ": the cause");
}

static void every_code_has_a_row(void **state)
{
    (void)state;
    for (int code = -1; code >= HUTCH_ERR_CANCELLED; code--) {
        const struct error_info *row = error_info(code);
        assert_int_equal(row->code, code);
        assert_true(row->exit_status == 2 || row->exit_status == 125);
        assert_true(row->http_status >= 400 && row->http_status < 600);
    }
    assert_string_equal(hutch_error_name(HUTCH_ERR_LAYER), "layer_missing");
    assert_string_equal(hutch_error_name(7), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_goes_in_front),
        cmocka_unit_test(long_context_gives_way_to_the_cause),
        cmocka_unit_test(every_code_has_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
