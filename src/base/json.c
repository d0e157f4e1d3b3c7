/* SPDX-License-Identifier: Apache-2.0 */
/* See json.h; the reader is json_read.c. */
#include "json.h"

#include "parse.h"
#include "utf8.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>

#define ESCAPE_BYTES 6 /* of \uXXXX */

const char *json_kind(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "a whole number";
    case JSON_REAL:
        return "a real number";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        break;
    }
    return "null";
}

/* The code point of a valid unit of up to three bytes. */
static unsigned int code_point(const char *data, size_t length)
{
    const unsigned char *byte = (const unsigned char *)data;

    if (length == 1)
        return byte[0];
    if (length == 2)
        return (byte[0] & 0x1fu) << 6 | (byte[1] & 0x3fu);
    return (byte[0] & 0x0fu) << 12 | (byte[1] & 0x3fu) << 6 | (byte[2] & 0x3fu);
}

/* How many bytes at data can stand in a JSON string as they are. */
static size_t plain(const char *data, size_t length)
{
    size_t count = 0;
    while (count < length) {
        unsigned char c = (unsigned char)data[count];
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
            break;
        count++;
    }
    return count;
}

/* Without printf: output may consist of nothing else. */
static void append_escape(struct buf *out, unsigned int point)
{
    static const char digits[] = "0123456789abcdef";
    char escape[ESCAPE_BYTES] = {'\\', 'u'};

    for (size_t i = 2; i < ESCAPE_BYTES; i++)
        escape[i] = digits[point >> (4 * (ESCAPE_BYTES - 1 - i)) & 15];
    buf_append(out, escape, ESCAPE_BYTES);
}

static void append_unit(struct buf *out, const char *data, size_t length)
{
    if (*data == '"')
        buf_append(out, "\\\"", 2);
    else if (*data == '\\')
        buf_append(out, "\\\\", 2);
    else if (*data == '\n')
        buf_append(out, "\\n", 2);
    else if (utf8_is_control(data, length) ||
             (length == 3 && (code_point(data, length) | 1) == 0x2029))
        append_escape(out, code_point(data, length));
    else
        buf_append(out, data, length);
}

void json_append_string(struct buf *out, const char *data, size_t length)
{
    buf_append_text(out, "\"");
    while (length > 0) {
        size_t count = plain(data, length);
        buf_append(out, data, count);
        data += count;
        length -= count;
        if (length == 0)
            break;
        bool valid;
        size_t unit = utf8_unit(data, length, &valid);
        if (valid)
            append_unit(out, data, unit);
        else
            buf_append_text(out, UTF8_REPLACEMENT);
        data += unit;
        length -= unit;
    }
    buf_append_text(out, "\"");
}

void json_append_text(struct buf *out, const char *text)
{
    if (text)
        json_append_string(out, text, strlen(text));
    else
        buf_append_text(out, "null");
}

static void append_value(struct buf *out, const json_t *value, size_t depth);

static void append_array(struct buf *out, const json_t *array, size_t depth)
{
    buf_append_text(out, "[");
    for (size_t i = 0; i < json_array_size(array) && out->failure == BUF_OK; i++) {
        buf_append_text(out, i > 0 ? "," : "");
        append_value(out, json_array_get(array, i), depth);
    }
    buf_append_text(out, "]");
}

static void append_object(struct buf *out, const json_t *object, size_t depth)
{
    json_t *members = (json_t *)object; /* is not changed by being walked through */
    const char *comma = "";

    buf_append_text(out, "{");
    for (void *at = json_object_iter(members); at && out->failure == BUF_OK;
         at = json_object_iter_next(members, at)) {
        buf_append_text(out, comma);
        json_append_text(out, json_object_iter_key(at));
        buf_append_text(out, ":");
        append_value(out, json_object_iter_value(at), depth);
        comma = ",";
    }
    buf_append_text(out, "}");
}

static void append_value(struct buf *out, const json_t *value, size_t depth)
{
    if (depth == JSON_DEPTH_MAX && (json_is_object(value) || json_is_array(value)))
        out->failure = BUF_TOO_LONG;
    else if (json_is_object(value))
        append_object(out, value, depth + 1);
    else if (json_is_array(value))
        append_array(out, value, depth + 1);
    else if (json_is_string(value))
        json_append_string(out, json_string_value(value), json_string_length(value));
    else if (json_is_integer(value))
        buf_appendf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        buf_append_text(out, number_exact(json_real_value(value)).text);
    else
        buf_append_text(out, json_is_true(value)    ? "true"
                             : json_is_false(value) ? "false"
                                                    : "null");
}

void json_append_value(struct buf *out, const json_t *value)
{
    append_value(out, value, 0);
}

void json_append_ms(struct buf *out, double ms)
{
    uint64_t us = 0;

    if (ms > 0 && ms < 1e15) /* not for NaN */
        us = (uint64_t)(ms * 1000 + 0.5);
    buf_appendf(out, "%" PRIu64 ".%03" PRIu64, us / 1000, us % 1000);
}
