/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 against a reference written from the standard's definitions rather than
 * from its table: a character is well-formed when its code point says so, and
 * bytes are a beginning when some ending makes them a character.
 */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- the reference ---- */

static bool well_formed(const unsigned char *byte, size_t length)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    static const unsigned char mark[] = {0, 0, 0xc0, 0xe0, 0xf0}, mask[] = {0, 0, 0xe0, 0xf0, 0xf8};

    if (length == 1)
        return byte[0] < 0x80;
    if ((byte[0] & mask[length]) != mark[length])
        return false;
    uint32_t point = byte[0] & (uint32_t)(0xff & ~mask[length]);
    for (size_t i = 1; i < length; i++) {
        if (byte[i] >> 6 != 2)
            return false;
        point = point << 6 | (byte[i] & 0x3fu);
    }
    return point >= least[length] && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
}

static bool is_beginning(const unsigned char *byte, size_t length)
{
    for (size_t whole = length + 1; whole <= 4; whole++) {
        for (int fill = 0x80; fill <= 0xbf; fill += 0x3f) {
            unsigned char tried[4];
            memcpy(tried, byte, length);
            memset(tried + length, fill, whole - length);
            if (well_formed(tried, whole))
                return true;
        }
    }
    return false;
}

static size_t reference_unit(const char *data, size_t length, bool *ret_valid)
{
    const unsigned char *byte = (const unsigned char *)data;

    for (size_t count = 1; count <= 4 && count <= length; count++) {
        if (well_formed(byte, count)) {
            *ret_valid = true;
            return count;
        }
    }
    *ret_valid = false;
    for (size_t count = 3; count > 1; count--) {
        if (count <= length && is_beginning(byte, count))
            return count;
    }
    return 1;
}

static size_t reference_repair(const char *data, size_t length, char *out)
{
    size_t used = 0;

    for (size_t at = 0; at < length;) {
        bool valid;
        size_t unit = reference_unit(data + at, length - at, &valid);
        const char *from = valid ? data + at : UTF8_REPLACEMENT;
        size_t count = valid ? unit : 3;
        memcpy(out + used, from, count);
        used += count;
        at += unit;
    }
    return used;
}

/* One byte of each kind that the standard tells apart. */
static const unsigned char kinds[] = {'a',  0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2,
                                      0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5};
#define KINDS (sizeof(kinds))
#define LONGEST 5

/* Every sequence of up to longest bytes of the kinds. */
static bool next_sequence(size_t longest, size_t digits[LONGEST], size_t *length, char *data)
{
    size_t i = 0;

    while (i < *length && ++digits[i] == KINDS)
        digits[i++] = 0;
    if (i == *length) {
        if (++*length > longest)
            return false;
        memset(digits, 0, LONGEST * sizeof(*digits));
    }
    for (i = 0; i < *length; i++)
        data[i] = (char)kinds[digits[i]];
    return true;
}

static void every_sequence_agrees_with_the_reference(void **state)
{
    (void)state;
    size_t digits[LONGEST] = {0}, length = 0, wrong = 0;
    char data[LONGEST], expected[3 * LONGEST];
    auto_buf struct buf repaired = BUF_MAX(sizeof(expected));

    while (next_sequence(4, digits, &length, data)) {
        bool valid, reference_valid;
        size_t unit = utf8_unit(data, length, &valid);
        size_t used = reference_repair(data, length, expected);
        wrong += unit != reference_unit(data, length, &reference_valid) || valid != reference_valid;
        buf_clear(&repaired);
        utf8_repair(&repaired, data, length);
        wrong += repaired.length != used || memcmp(repaired.data, expected, used) != 0;
        wrong += !utf8_valid(repaired.data, repaired.length);
        wrong += utf8_valid(data, length) != (used == length && memcmp(data, expected, used) == 0);
    }
    assert_int_equal(wrong, 0);
}

static void repairs_as_python_does(void **state)
{
    (void)state;
    /* the right column: bytes.decode("utf-8", "replace") of CPython 3.11 */
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"caf\xe9", "caf\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf0\x9f\x90", "\xef\xbf\xbd"},
        {"\xf0\x9f\x90\x8d", "\xf0\x9f\x90\x8d"},
        {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"a\xf1\x80\x80\xe1\x80\xc2"
         "b\x80"
         "c\x80\xbf"
         "d",
         "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
         "b\xef\xbf\xbd"
         "c\xef\xbf\xbd\xef\xbf\xbd"
         "d"},
        {"\xc0\xaf\xff", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xef\xbf\xbe", "\xef\xbf\xbe"},
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        auto_buf struct buf out = BUF_MAX(100);
        utf8_repair(&out, cases[i].bytes, strlen(cases[i].bytes));
        assert_string_equal(buf_text(&out), cases[i].text);
    }
}

static void the_first_bad_byte_is_found_behind_any_run_of_good_ones(void **state)
{
    (void)state;
    char data[64];

    for (size_t at = 0; at < sizeof(data); at++) {
        memset(data, 'x', sizeof(data));
        assert_int_equal(utf8_bad_at(data, at), at);
        data[at] = (char)0xff;
        assert_int_equal(utf8_bad_at(data, sizeof(data)), at);
        assert_false(utf8_valid(data, sizeof(data)));
        assert_true(utf8_valid(data, at));
    }
}

static void nul_is_a_character(void **state)
{
    (void)state;
    auto_buf struct buf out = BUF_MAX(10);

    assert_true(utf8_valid("a\0b", 3));
    utf8_repair(&out, "a\0\xff", 3);
    assert_int_equal(out.length, 5);
    assert_memory_equal(out.data, "a\0\xef\xbf\xbd", 5);
}

/* In every piece of every sequence, the boundaries are those of the units of
 * the whole sequence, as far as the piece shows them. */
static void boundaries_fit_the_units_of_the_stream(void **state)
{
    (void)state;
    size_t digits[LONGEST] = {0}, length = 0, wrong = 0;
    char data[LONGEST];

    while (next_sequence(LONGEST, digits, &length, data)) {
        bool begins[LONGEST + 1] = {false}, valid;
        for (size_t at = 0; at < length; at += utf8_unit(data + at, length - at, &valid))
            begins[at] = true;
        for (size_t offset = 0; offset < length; offset++) {
            size_t before = offset, after = offset;
            while (before > 0 && !begins[before])
                before--;
            while (after < length && !begins[after])
                after++;
            /* at the beginning of a piece, continuation bytes may be the rest of
             * an earlier character */
            size_t rest = 0;
            while (rest < 3 && rest < length && (data[rest] & 0xc0) == 0x80)
                rest++;
            if (offset < rest) {
                before = 0;
                after = rest;
            }
            wrong += utf8_boundary_before(data, length, offset) != before;
            wrong += utf8_boundary_after(data, length, offset) != after;
        }
    }
    assert_int_equal(wrong, 0);
}

static void no_cut_breaks_a_character(void **state)
{
    (void)state;
    static const char text[] = "aé漢🐍ü🐍漢éa";
    size_t length = strlen(text);

    for (size_t cut = 0; cut <= length; cut++) {
        /* the two sides of a cut see only their own side */
        size_t head = utf8_boundary_before(text, cut, cut);
        size_t tail = cut + utf8_boundary_after(text + cut, length - cut, 0);
        assert_true(utf8_valid(text, head));
        assert_true(utf8_valid(text + tail, length - tail));
        assert_true(cut - head <= 3 && tail - cut <= 3);
        /* and move no further than the character that they would break */
        assert_int_equal(head, utf8_boundary_before(text, length, cut));
        assert_int_equal(tail, utf8_boundary_after(text, length, cut));
        if (head == cut)
            assert_int_equal(tail, cut);
        else
            assert_true(utf8_valid(text + head, tail - head));
    }
}

static void control_characters(void **state)
{
    (void)state;
    assert_true(utf8_is_control("\n", 1));
    assert_true(utf8_is_control("\0", 1));
    assert_true(utf8_is_control("\x7f", 1));
    assert_true(utf8_is_control("\xc2\x80", 2));
    assert_true(utf8_is_control("\xc2\x9f", 2));
    assert_false(utf8_is_control("\xc2\xa0", 2));
    assert_false(utf8_is_control("\xc3\x85", 2));
    assert_false(utf8_is_control(" ", 1));
    assert_false(utf8_is_control("\xe2\x80\xa8", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sequence_agrees_with_the_reference),
        cmocka_unit_test(repairs_as_python_does),
        cmocka_unit_test(the_first_bad_byte_is_found_behind_any_run_of_good_ones),
        cmocka_unit_test(nul_is_a_character),
        cmocka_unit_test(boundaries_fit_the_units_of_the_stream),
        cmocka_unit_test(no_cut_breaks_a_character),
        cmocka_unit_test(control_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
