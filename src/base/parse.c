/* SPDX-License-Identifier: Apache-2.0 */
/* See parse.h. The one file that may use strtol and its kin. */
#define PARSE_C

#include "parse.h"

#include "quote.h"

#include <inttypes.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The "C" locale; a static object of libc, so nothing is allocated or freed. */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t digits(const char *text)
{
    size_t count = 0;
    while (is_digit(text[count]))
        count++;
    return count;
}

/* False unless all of text is a number that fits 64 bits. */
static bool read_u64(const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;

    if (text[0] == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (!is_digit(*text) || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return false;
    }
    *ret_value = value;
    return true;
}

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value,
              struct hutch_error *err)
{
    uint64_t value;

    if (!read_u64(text, &value) || value < min || value > max)
        return err_set(err, HUTCH_ERR_INVALID,
                       "%s is not a whole number from %" PRIu64 " to %" PRIu64,
                       quote_text(text).text, min, max);
    *ret_value = value;
    return 0;
}

/* Whether text has the form [-]digits[.digits][e[+-]digits], with a digit
 * before or after the point. */
static bool is_real(const char *text)
{
    if (*text == '-')
        text++;
    size_t whole = digits(text);
    text += whole;
    size_t fraction = 0;
    if (*text == '.') {
        fraction = digits(text + 1);
        text += 1 + fraction;
    }
    if (whole + fraction == 0)
        return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        if (*text == '+' || *text == '-')
            text++;
        size_t exponent = digits(text);
        if (exponent == 0)
            return false;
        text += exponent;
    }
    return *text == '\0';
}

int parse_double(const char *text, double min, double max, double *ret_value,
                 struct hutch_error *err)
{
    if (is_real(text)) {
        double value = strtod_l(text, NULL, c_locale());
        if (value >= min && value <= max) {
            *ret_value = value;
            return 0;
        }
    }
    return err_set(err, HUTCH_ERR_INVALID, "%s is not a number from %s to %s",
                   quote_text(text).text, number_text(min).text, number_text(max).text);
}

uint64_t parse_leading(const char *text)
{
    const uint64_t enough = UINT64_C(1) << 40;
    uint64_t number = 0;

    while (*text == ' ')
        text++;
    for (; *text >= '0' && *text <= '9' && number < enough; text++)
        number = number * 10 + (uint64_t)(*text - '0');
    return number < enough ? number : enough;
}

struct number_text number_text(double value)
{
    struct number_text number;
    locale_t of_thread = uselocale(c_locale());

    snprintf(number.text, sizeof(number.text), "%.6g", value);
    uselocale(of_thread);
    return number;
}

struct number_text number_exact(double value)
{
    struct number_text number;
    locale_t of_thread = uselocale(c_locale());

    for (int precision = 15; precision <= 17; precision++) {
        snprintf(number.text, sizeof(number.text) - 2, "%.*g", precision, value);
        if (memcmp(&(double){strtod_l(number.text, NULL, c_locale())}, &value, sizeof(value)) == 0)
            break;
    }
    uselocale(of_thread);
    if (!strpbrk(number.text, ".e"))
        memcpy(number.text + strlen(number.text), ".0", sizeof(".0"));
    return number;
}
