/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as text: the whole string, the range, every locale. */
#include "base/parse.h"

#include "comma_locale.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void whole_numbers(void **state)
{
    (void)state;
    struct hutch_error err;
    uint64_t value;

    assert_int_equal(parse_u64("0", 0, 9, &value, &err), 0);
    assert_int_equal(value, 0);
    assert_int_equal(parse_u64("007", 0, 9, &value, &err), 0);
    assert_int_equal(value, 7);
    assert_int_equal(parse_u64("18446744073709551615", 0, UINT64_MAX, &value, &err), 0);
    assert_true(value == UINT64_MAX);
}

static void what_is_no_whole_number_is_refused(void **state)
{
    (void)state;
    const char *const texts[] = {"",
                                 " 1",
                                 "1 ",
                                 "1\n",
                                 "+1",
                                 "-1",
                                 "0x10",
                                 "1.0",
                                 "1e3",
                                 "1,0",
                                 "12x",
                                 "x",
                                 "--1",
                                 "1_0",
                                 "٣",
                                 "11",
                                 "18446744073709551616",
                                 "99999999999999999999999"};
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        struct hutch_error err;
        uint64_t value = 4711;
        assert_int_equal(parse_u64(texts[i], 0, 10, &value, &err), HUTCH_ERR_INVALID);
        assert_true(value == 4711);
    }
    for (size_t i = 16; i < ARRAY_LENGTH(texts); i++) { /* beyond 64 bits never wraps */
        struct hutch_error err;
        uint64_t value;
        assert_int_equal(parse_u64(texts[i], 0, UINT64_MAX, &value, &err), HUTCH_ERR_INVALID);
    }
}

static void whole_numbers_agree_with_printf(void **state)
{
    (void)state;
    struct hutch_error err;
    uint64_t number = 1;

    for (int i = 0; i < 2000; i++) {
        char text[32];
        uint64_t value;
        number = number * 6364136223846793005u + 1442695040888963407u;
        uint64_t expected = number >> (i % 64);
        snprintf(text, sizeof(text), "%" PRIu64, expected);
        assert_int_equal(parse_u64(text, 0, UINT64_MAX, &value, &err), 0);
        assert_true(value == expected);
        assert_int_equal(parse_u64(text, expected, expected, &value, &err), 0);
        if (expected < UINT64_MAX)
            assert_int_equal(parse_u64(text, expected + 1, UINT64_MAX, &value, &err),
                             HUTCH_ERR_INVALID);
        if (expected > 0)
            assert_int_equal(parse_u64(text, 0, expected - 1, &value, &err), HUTCH_ERR_INVALID);
    }
}

static void messages_name_value_and_range(void **state)
{
    (void)state;
    struct hutch_error err;
    uint64_t whole;
    double real;

    assert_int_equal(parse_u64("12x", 1, 4096, &whole, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "'12x' is not a whole number from 1 to 4096");
    assert_int_equal(parse_u64("1\n2", 1, 2, &whole, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "'1\\n2' is not a whole number from 1 to 2");
    assert_int_equal(parse_double("301", 0.1, 300, &real, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "'301' is not a number from 0.1 to 300");
}

static void real_numbers(void **state)
{
    (void)state;
    const struct {
        const char *text;
        double value;
    } cases[] = {{"0.5", 0.5},  {".5", 0.5},    {"5.", 5},        {"1e2", 100},
                 {"1E+2", 100}, {"25e-1", 2.5}, {"-3.25", -3.25}, {"300", 300},
                 {"00.1", 0.1}, {"0.1", 0.1},   {"1e-400", 0},    {"-0", -0.0}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct hutch_error err;
        double value;
        assert_int_equal(parse_double(cases[i].text, -1000, 1000, &value, &err), 0);
        assert_true(value == cases[i].value);
    }
}

static void what_is_no_real_number_is_refused(void **state)
{
    (void)state;
    const char *const texts[] = {"",      ".",   "-",   "-.",    "e1",       "1e",    "1e+",
                                 "1.2.3", "nan", "inf", "-inf",  "infinity", "0x1p3", "1 ",
                                 " 1",    "+1",  "1,5", "1e400", "1s",       "1e1.5"};
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        struct hutch_error err;
        double value = 4711;
        assert_int_equal(parse_double(texts[i], -HUGE_VAL, 1e308, &value, &err), HUTCH_ERR_INVALID);
        assert_true(value == 4711);
    }
}

static void both_directions_keep_the_point_in_any_locale(void **state)
{
    (void)state;
    struct hutch_error err;
    double value = 0, refused = 0;
    char shown[16];

    assert_true(enter_comma_locale());
    snprintf(shown, sizeof(shown), "%g", 0.5); /* the locale is really in force */
    int point = parse_double("0.25", 0, 1, &value, &err);
    int comma = parse_double("0,25", 0, 1, &refused, &err);
    struct number_text text = number_text(1234.5);
    char still[16];
    snprintf(still, sizeof(still), "%g", 0.5);
    leave_comma_locale();

    assert_string_equal(shown, "0,5");
    assert_int_equal(point, 0);
    assert_true(value == 0.25);
    assert_int_equal(comma, HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "'0,25' is not a number from 0 to 1");
    assert_string_equal(text.text, "1234.5");
    assert_string_equal(still, "0,5");
}

static void numbers_for_messages(void **state)
{
    (void)state;
    assert_string_equal(number_text(0.1).text, "0.1");
    assert_string_equal(number_text(300).text, "300");
    assert_string_equal(number_text((double)NAN).text, "nan");
    assert_string_equal(number_text(-(double)INFINITY).text, "-inf");
}

static void a_leading_number_ends_where_its_digits_end(void **state)
{
    (void)state;
    assert_int_equal(parse_leading("12"), 12);
    assert_int_equal(parse_leading("   34 kB\n"), 34);
    assert_int_equal(parse_leading("1099511627776"), UINT64_C(1) << 40);
    assert_int_equal(parse_leading("99999999999999999999999"), UINT64_C(1) << 40);
    assert_int_equal(parse_leading(""), 0);
    assert_int_equal(parse_leading("x1"), 0);
    assert_int_equal(parse_leading("-1"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leading_number_ends_where_its_digits_end),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(what_is_no_whole_number_is_refused),
        cmocka_unit_test(whole_numbers_agree_with_printf),
        cmocka_unit_test(messages_name_value_and_range),
        cmocka_unit_test(real_numbers),
        cmocka_unit_test(what_is_no_real_number_is_refused),
        cmocka_unit_test(both_directions_keep_the_point_in_any_locale),
        cmocka_unit_test(numbers_for_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
