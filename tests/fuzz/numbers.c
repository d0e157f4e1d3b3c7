/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers as text: one that is taken is in its range and the same after it was
 * written and read again.
 *
 * Input: the text.
 */
#include "fuzz.h"

#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST 3
#define MOST 4096

static void check_whole(const char *text)
{
    struct hutch_error err;
    char shown[32];
    uint64_t value = 7, narrow = 7;

    int code = parse_u64(text, 0, UINT64_MAX, &value, &err);
    int narrow_code = parse_u64(text, LEAST, MOST, &narrow, &err);
    assert((narrow_code == 0) == (code == 0 && value >= LEAST && value <= MOST));
    if (narrow_code < 0)
        check_error(narrow_code, &err);
    assert(narrow == (narrow_code == 0 ? value : 7));
    if (code < 0)
        return;
    snprintf(shown, sizeof(shown), "%" PRIu64, value);
    assert(strcmp(value == 0 ? "" : shown, text + strspn(text, "0")) == 0);
}

static void check_real(const char *text)
{
    struct hutch_error err;
    char shown[64];
    double value = 7, again = 7;

    int code = parse_double(text, -1e300, 1e300, &value, &err);
    if (code < 0) {
        check_error(code, &err);
        assert(value == 7);
        return;
    }
    assert(value >= -1e300 && value <= 1e300);
    assert(strspn(text, "0123456789.eE+-") == strlen(text));
    snprintf(shown, sizeof(shown), "%.17g", value);
    code = parse_double(shown, -1e300, 1e300, &again, &err);
    assert(code == 0 && again == value);
    assert(strlen(number_text(value).text) < 16);
}

/* A number with whatever behind it. */
static void check_leading(const char *text)
{
    const uint64_t most = UINT64_C(1) << 40;
    struct hutch_error err;
    uint64_t value = 0;
    const char *start = text + strspn(text, " ");
    auto_free char *digits = strndup(start, strspn(start, "0123456789"));

    assert(digits);
    if (digits[0] != '\0' && parse_u64(digits, 0, UINT64_MAX, &value, &err) < 0)
        value = most;
    assert(parse_leading(text) == (value < most ? value : most));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    auto_free char *text = input_text(&input);

    check_whole(text);
    check_real(text);
    check_leading(text);
    return 0;
}
