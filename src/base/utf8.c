/* SPDX-License-Identifier: Apache-2.0 */
/* See utf8.h. The table of lead bytes is table 3-7 of the Unicode standard. */
#include "utf8.h"

#include <stdint.h>
#include <string.h>

struct lead {
    size_t length;      /* of the whole character; 0: no character begins so */
    unsigned char low;  /* range of the second byte */
    unsigned char high; /* later ones: 0x80 to 0xbf */
};

static struct lead lead_of(unsigned char byte)
{
    if (byte < 0x80)
        return (struct lead){1, 0, 0};
    if (byte < 0xc2)
        return (struct lead){0, 0, 0};
    if (byte < 0xe0)
        return (struct lead){2, 0x80, 0xbf};
    if (byte < 0xf0)
        return (struct lead){3, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
    if (byte < 0xf5)
        return (struct lead){4, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
    return (struct lead){0, 0, 0};
}

static bool is_continuation(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* How many bytes at data fit a character that begins as lead says. */
static size_t matching(const char *data, size_t length, struct lead lead)
{
    size_t count = 1;
    while (count < lead.length && count < length) {
        unsigned char byte = (unsigned char)data[count];
        if (byte < (count == 1 ? lead.low : 0x80) || byte > (count == 1 ? lead.high : 0xbf))
            break;
        count++;
    }
    return count;
}

size_t utf8_unit(const char *data, size_t length, bool *ret_valid)
{
    struct lead lead = lead_of((unsigned char)data[0]);
    size_t count = matching(data, length, lead);

    *ret_valid = count == lead.length;
    return count;
}

/* How many bytes at data are ASCII, in whole words. */
static size_t ascii_words(const char *data, size_t length)
{
    size_t count = 0;
    uint64_t word;

    while (length - count >= sizeof(word)) {
        memcpy(&word, data + count, sizeof(word));
        if (word & 0x8080808080808080u)
            break;
        count += sizeof(word);
    }
    return count;
}

size_t utf8_bad_at(const char *data, size_t length)
{
    size_t at = 0;

    while (at < length) {
        at += ascii_words(data + at, length - at);
        bool valid;
        if (at == length)
            break;
        size_t unit = utf8_unit(data + at, length - at, &valid);
        if (!valid)
            return at;
        at += unit;
    }
    return length;
}

bool utf8_valid(const char *data, size_t length)
{
    return utf8_bad_at(data, length) == length;
}

void utf8_repair(struct buf *out, const char *data, size_t length)
{
    while (length > 0) {
        size_t good = utf8_bad_at(data, length);
        buf_append(out, data, good);
        data += good;
        length -= good;
        if (length == 0)
            break;
        bool valid;
        size_t bad = utf8_unit(data, length, &valid);
        buf_append_text(out, UTF8_REPLACEMENT);
        data += bad;
        length -= bad;
    }
}

/* The span [from, to) of the unit that has offset in its inside; empty, at
 * offset, where a unit begins there. */
struct span {
    size_t from, to;
};

static struct span unit_around(const char *data, size_t length, size_t offset)
{
    struct span none = {offset, offset};
    size_t back = 0;

    if (offset < length && !is_continuation(data[offset]))
        return none;
    do {
        if (back == offset) { /* the beginning: the rest of an earlier character? */
            size_t to = 0;
            while (to < 3 && to < length && is_continuation(data[to]))
                to++;
            return offset < to ? (struct span){0, to} : none;
        }
        back++;
    } while (back < 3 && is_continuation(data[offset - back]));

    size_t from = offset - back;
    struct lead lead = lead_of((unsigned char)data[from]);
    size_t unit = matching(data + from, length - from, lead);
    if (from + unit == length && unit < lead.length) /* goes on after the end */
        return offset > from ? (struct span){from, length} : none;
    return from + unit > offset ? (struct span){from, from + unit} : none;
}

size_t utf8_boundary_before(const char *data, size_t length, size_t offset)
{
    return unit_around(data, length, offset).from;
}

size_t utf8_boundary_after(const char *data, size_t length, size_t offset)
{
    return unit_around(data, length, offset).to;
}

bool utf8_is_control(const char *data, size_t length)
{
    unsigned char first = (unsigned char)data[0];

    if (length == 1)
        return first < 0x20 || first == 0x7f;
    return length == 2 && first == 0xc2 && (unsigned char)data[1] < 0xa0;
}
