/* SPDX-License-Identifier: Apache-2.0 */
/* See quote.h. */
#include "quote.h"

#include "utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Room for the longest form of one character: 4 bytes, or "\xNN\xNN". */
#define SHOWN_BYTES 9

/* Writes how one character of length bytes is shown; returns the bytes. */
static size_t show(const char *data, size_t length, bool valid, char shown[SHOWN_BYTES])
{
    int count;

    if (!valid)
        count = snprintf(shown, SHOWN_BYTES, "%s", UTF8_REPLACEMENT);
    else if (*data == '\n')
        count = snprintf(shown, SHOWN_BYTES, "\\n");
    else if (utf8_is_control(data, length) && length == 2)
        count = snprintf(shown, SHOWN_BYTES, "\\x%02x\\x%02x", (unsigned char)data[0],
                         (unsigned char)data[1]);
    else if (utf8_is_control(data, length))
        count = snprintf(shown, SHOWN_BYTES, "\\x%02x", (unsigned char)data[0]);
    else
        count = snprintf(shown, SHOWN_BYTES, "%.*s", (int)length, data);
    return (size_t)count;
}

static struct quote quote_within(const char *data, size_t length, size_t max)
{
    struct quote quote = {.text = "'"};
    size_t used = 1;
    const char *end = "'";

    for (size_t at = 0; at < length;) {
        bool valid;
        char shown[SHOWN_BYTES];
        size_t unit = utf8_unit(data + at, length - at, &valid);
        size_t count = show(data + at, unit, valid, shown);
        if (used - 1 + count > max) {
            end = "...'";
            break;
        }
        memcpy(quote.text + used, shown, count);
        used += count;
        at += unit;
    }
    memcpy(quote.text + used, end, strlen(end) + 1);
    return quote;
}

struct quote quote_bytes(const char *data, size_t length)
{
    return quote_within(data, length, QUOTE_TEXT_BYTES);
}

struct quote quote_text(const char *text)
{
    if (!text)
        return (struct quote){.text = "none"};
    return quote_bytes(text, strlen(text));
}

struct quote quote_short(const char *text)
{
    return quote_within(text, strlen(text), QUOTE_SHORT_BYTES);
}
