/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign text for a terminal: what is left of it, however it is cut into pieces. */
#include "cli/safe_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct row {
    const char *name, *given, *expected;
} rows[] = {
    {"plain text", "a\tb\nc", "a\tb\nc"},
    {"an escape sequence", "\033[2Jx", "\xef\xbf\xbd[2Jx"},
    {"a title", "\033]0;t\007", "\xef\xbf\xbd]0;t\xef\xbf\xbd"},
    {"the one-byte CSI, as a character", "\xc2\x9b\x32J", "\xef\xbf\xbd\x32J"},
    {"the one-byte CSI, as a byte", "\x9b\x32J", "\xef\xbf\xbd\x32J"},
    {"backspace and delete", "a\b\177", "a\xef\xbf\xbd\xef\xbf\xbd"},
    {"line ends of other systems", "a\r\nb\rc\r\n", "a\nb\nc\n"},
    {"an empty line between", "a\r\n\r\nb\n\nc", "a\n\nb\n\nc"},
    {"characters of two, three and four bytes", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xb0",
     "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xb0"},
    {"half of a character at the end", "a\xe2\x82", "a\xef\xbf\xbd"},
    {"half of a character before another", "\xe2\x82x", "\xef\xbf\xbdx"},
};

/* Gives it in pieces of so many bytes. */
static void check(const struct row *row, size_t step)
{
    struct safe_text safe = {.after_return = false};
    auto_buf struct buf out = BUF_MAX(1024);
    size_t length = strlen(row->given);

    for (size_t at = 0; at < length; at += step)
        safe_text_append(&out, &safe, row->given + at, length - at < step ? length - at : step);
    safe_text_end(&out, &safe);
    if (strcmp(buf_text(&out), row->expected) != 0)
        fail_msg("%s, in pieces of %zu: '%s'", row->name, step, buf_text(&out));
}

static void test_every_way_to_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t step = 1; step <= strlen(rows[i].given); step++)
            check(&rows[i], step);
    }
}

static void test_nul_is_no_end(void **state)
{
    struct safe_text safe = {.after_return = false};
    auto_buf struct buf out = BUF_MAX(1024);

    (void)state;
    safe_text_append(&out, &safe, "a\0b", 3);
    assert_string_equal(buf_text(&out), "a\xef\xbf\xbd"
                                        "b");
}

static void test_no_room(void **state)
{
    struct safe_text safe = {.after_return = false};
    auto_buf struct buf out = BUF_MAX(4);

    (void)state;
    safe_text_append(&out, &safe, "too long", 8);
    assert_int_equal(out.failure, BUF_TOO_LONG);
}

static void test_rest(void **state)
{
    struct text_rest rest = {.length = 0};
    auto_buf struct buf out = BUF_MAX(64);

    (void)state;
    text_rest_append(&out, &rest, "\033\xe2\x82", 3);
    assert_string_equal(buf_text(&out), "\033");
    text_rest_append(&out, &rest, "\xac", 1);
    assert_string_equal(buf_text(&out), "\033\xe2\x82\xac");
    text_rest_append(&out, &rest, "\xf0\x9f", 2);
    text_rest_end(&out, &rest);
    assert_string_equal(buf_text(&out), "\033\xe2\x82\xac\xef\xbf\xbd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_way_to_cut),
        cmocka_unit_test(test_nul_is_no_end),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_rest),
    };
    return cmocka_run_group_tests_name("safe_text", tests, NULL, NULL);
}
