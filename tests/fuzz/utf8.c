/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 by what the standard says of it, one character at a time; repairing gives
 * the same in pieces as of the whole, where the pieces end between characters; and
 * what is built on it: quoting for messages, base64.
 *
 * Input: two bytes with the place of a cut, the text.
 */
#include "fuzz.h"

#include "base/base64.h"
#include "base/quote.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* The code point of a unit by its bits alone. */
static uint32_t point_of(const unsigned char *byte, size_t length)
{
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t point = byte[0] & masks[length];

    for (size_t i = 1; i < length; i++)
        point = point << 6 | (byte[i] & 0x3fu);
    return point;
}

static void check_character(const unsigned char *byte, size_t length)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t point = point_of(byte, length);

    assert(length == 1
               ? byte[0] < 0x80
               : (byte[0] & (0xff00u >> (length + 1))) == (unsigned char)(0xff00u >> length));
    for (size_t i = 1; i < length; i++)
        assert((byte[i] & 0xc0) == 0x80);
    assert(point >= least[length] && point <= 0x10ffff);
    assert(point < 0xd800 || point > 0xdfff);
}

/* Whether some character begins with these bytes and goes on. */
static bool is_beginning(const char *data, size_t length)
{
    static const char fills[] = {'\x80', '\x90', '\xa0', '\xbf'};
    char text[4];

    if (length >= sizeof(text))
        return false;
    memcpy(text, data, length);
    for (size_t fill = 0; fill < sizeof(fills); fill++) {
        for (size_t whole = length + 1; whole <= sizeof(text); whole++) {
            bool valid;
            memset(text + length, fills[fill], sizeof(text) - length);
            if (utf8_unit(text, whole, &valid) == whole && valid)
                return true;
        }
    }
    return false;
}

static void check_units(const struct hutch_text *text)
{
    size_t first_bad = text->length;

    for (size_t at = 0; at < text->length;) {
        bool valid;
        size_t left = text->length - at;
        size_t unit = utf8_unit(text->data + at, left, &valid);
        assert(unit >= 1 && unit <= 4 && unit <= left);
        if (valid) {
            check_character((const unsigned char *)text->data + at, unit);
        } else {
            assert(unit == 1 || is_beginning(text->data + at, unit));
            assert(unit == left || !is_beginning(text->data + at, unit + 1));
            first_bad = at < first_bad ? at : first_bad;
        }
        at += unit;
    }
    assert(utf8_bad_at(text->data, text->length) == first_bad);
    assert(utf8_valid(text->data, text->length) == (first_bad == text->length));
}

static void check_repair(const struct hutch_text *text, size_t cut)
{
    auto_buf struct buf whole = BUF_MAX(3 * text->length);
    auto_buf struct buf again = BUF_MAX(3 * text->length);
    size_t before = utf8_boundary_before(text->data, text->length, cut);
    size_t after = utf8_boundary_after(text->data, text->length, cut);
    const size_t cuts[] = {before, after};

    assert(before <= cut && cut - before <= 3);
    assert(after >= cut && after - cut <= 3 && after <= text->length);
    utf8_repair(&whole, text->data, text->length);
    assert(whole.failure == BUF_OK && utf8_valid(whole.data, whole.length));
    utf8_repair(&again, whole.data, whole.length);
    check_bytes(&again, whole.data, whole.length);
    for (size_t i = 0; i < ARRAY_LENGTH(cuts); i++) {
        auto_buf struct buf pieces = BUF_MAX(3 * text->length);
        utf8_repair(&pieces, text->data, cuts[i]);
        utf8_repair(&pieces, text->data + cuts[i], text->length - cuts[i]);
        check_bytes(&pieces, whole.data, whole.length);
    }
}

static void check_quote(const struct quote *quote, size_t most)
{
    size_t length = strnlen(quote->text, sizeof(quote->text));

    assert(length >= 2 && length <= most + strlen("'...'"));
    assert(quote->text[0] == '\'' && quote->text[length - 1] == '\'');
    assert(utf8_valid(quote->text, length));
    for (size_t at = 0; at < length;) {
        bool valid;
        size_t unit = utf8_unit(quote->text + at, length - at, &valid);
        assert(!utf8_is_control(quote->text + at, unit));
        at += unit;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    size_t cut = (size_t)input_number(&input, 2);
    struct hutch_text text = input_bytes(&input, SIZE_MAX);
    auto_buf struct buf encoded = BUF_MAX(2 * text.length + 4);

    check_units(&text);
    check_repair(&text, cut % (text.length + 1));
    struct quote quote = quote_bytes(text.data, text.length);
    check_quote(&quote, QUOTE_TEXT_BYTES);
    base64_append(&encoded, text.data, text.length);
    assert(encoded.failure == BUF_OK);
    check_base64(buf_text(&encoded), encoded.length, text.data, text.length);
    free(text.data);
    return 0;
}
