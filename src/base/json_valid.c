/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_valid(), see json.h: one pass over the text, with the kinds of the open arrays and
 * objects as bits of a number.
 */
#include "json.h"

#include <stdint.h>
#include <string.h>

_Static_assert(JSON_DEPTH_MAX <= 64, "a bit for each level");

struct scan {
    const char *at, *end;
};

static bool take(struct scan *scan, char c)
{
    if (scan->at == scan->end || *scan->at != c)
        return false;
    scan->at++;
    return true;
}

static bool take_word(struct scan *scan, const char *word)
{
    size_t length = strlen(word);

    if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0)
        return false;
    scan->at += length;
    return true;
}

static void skip_space(struct scan *scan)
{
    while (take(scan, ' ') || take(scan, '\n') || take(scan, '\t') || take(scan, '\r')) {
    }
}

/* ---- what does not nest ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool take_digits(struct scan *scan)
{
    const char *start = scan->at;

    while (scan->at < scan->end && is_digit(*scan->at))
        scan->at++;
    return scan->at > start;
}

static bool take_number(struct scan *scan)
{
    take(scan, '-');
    if (!take(scan, '0') && !take_digits(scan))
        return false;
    if (take(scan, '.') && !take_digits(scan))
        return false;
    if (take(scan, 'e') || take(scan, 'E')) {
        if (!take(scan, '+'))
            take(scan, '-');
        return take_digits(scan);
    }
    return true;
}

/* What follows a backslash. */
static bool take_escape(struct scan *scan)
{
    if (scan->at == scan->end)
        return false;
    char c = *scan->at++;
    if (c != 'u')
        return c != '\0' && strchr("\"\\/bfnrt", c) != NULL;
    for (int i = 0; i < 4; i++, scan->at++) {
        if (scan->at == scan->end || !is_hex(*scan->at))
            return false;
    }
    return true;
}

static bool take_string(struct scan *scan)
{
    if (!take(scan, '"'))
        return false;
    while (scan->at < scan->end) {
        char c = *scan->at++;
        if (c == '"')
            return true;
        if ((unsigned char)c < 0x20 || (c == '\\' && !take_escape(scan)))
            return false;
    }
    return false;
}

static bool take_scalar(struct scan *scan)
{
    if (scan->at < scan->end && *scan->at == '"')
        return take_string(scan);
    return take_word(scan, "null") || take_word(scan, "true") || take_word(scan, "false") ||
           take_number(scan);
}

/* ---- what does ---- */

/* The name of an object's member, and its colon. */
static bool take_name(struct scan *scan)
{
    skip_space(scan);
    if (!take_string(scan))
        return false;
    skip_space(scan);
    return take(scan, ':');
}

bool json_valid(const char *text, size_t length)
{
    struct scan scan = {text, text + length};
    uint64_t objects = 0; /* the innermost is the lowest bit; else it is an array */
    size_t depth = 0;

    for (;;) {
        /* A value begins here. */
        skip_space(&scan);
        bool object = take(&scan, '{');
        if (object || take(&scan, '[')) {
            if (depth++ == JSON_DEPTH_MAX)
                return false;
            objects = objects << 1 | object;
            skip_space(&scan);
            if (!take(&scan, object ? '}' : ']')) {
                if (object && !take_name(&scan))
                    return false;
                continue;
            }
            depth--;
            objects >>= 1;
        } else if (!take_scalar(&scan)) {
            return false;
        }
        /* And here it has ended, with all that ends together with it. */
        skip_space(&scan);
        while (depth > 0 && take(&scan, objects & 1 ? '}' : ']')) {
            depth--;
            objects >>= 1;
            skip_space(&scan);
        }
        if (depth == 0)
            return scan.at == scan.end;
        if (!take(&scan, ',') || ((objects & 1) && !take_name(&scan)))
            return false;
    }
}
