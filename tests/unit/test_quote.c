/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign text in messages: one line, bounded, valid. */
#include "base/quote.h"

#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void quotes_and_escapes(void **state)
{
    (void)state;
    assert_string_equal(quote_text("abc").text, "'abc'");
    assert_string_equal(quote_text("").text, "''");
    assert_string_equal(quote_text(NULL).text, "none");
    assert_string_equal(quote_text("é漢🐍").text, "'é漢🐍'");
    assert_string_equal(quote_text("a\nb\x1b[0m\x7f").text, "'a\\nb\\x1b[0m\\x7f'");
    assert_string_equal(quote_text("\xc2\x9b").text, "'\\xc2\\x9b'");
    assert_string_equal(quote_text("\xff").text, "'" UTF8_REPLACEMENT "'");
    assert_string_equal(quote_bytes("a\0b", 3).text, "'a\\x00b'");
}

static void is_bounded_and_breaks_no_character(void **state)
{
    (void)state;
    static const char *const pieces[] = {"x", "é", "漢", "🐍", "\n", "\xc2\x9b", "\xff"};

    for (size_t piece = 0; piece < sizeof(pieces) / sizeof(pieces[0]); piece++) {
        for (size_t shift = 0; shift < 5; shift++) {
            char text[400];
            memset(text, 'a', shift);
            size_t length = shift;
            while (length + 5 < sizeof(text)) {
                memcpy(text + length, pieces[piece], strlen(pieces[piece]));
                length += strlen(pieces[piece]);
                text[length] = '\0';
                struct quote quote = quote_text(text);
                size_t shown = strlen(quote.text);
                assert_true(shown < sizeof(quote.text));
                assert_true(utf8_valid(quote.text, shown));
                assert_null(strchr(quote.text, '\n'));
                assert_int_equal(quote.text[shown - 1], '\'');
            }
            assert_string_equal(strstr(quote_text(text).text, "..."), "...'");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotes_and_escapes),
        cmocka_unit_test(is_bounded_and_breaks_no_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
