/* SPDX-License-Identifier: Apache-2.0 */
/* See arguments.h. */
#include "arguments.h"

#include "base/error.h"

#include <string.h>

#define STRINGS_MAX 3  /* in each other, around an object */
#define ESCAPE_BYTES 6 /* of \uXXXX */
#define TAKE (JSON_TAKE_TWICE | JSON_TAKE_BIG | JSON_TAKE_CONTROLS)

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t blanks(const char *data, size_t length)
{
    size_t count = 0;
    while (count < length && is_blank(data[count]))
        count++;
    return count;
}

/* ---- pieces ---- */

static void open_bracket(struct arguments_scan *scan, bool object)
{
    if (scan->depth == JSON_DEPTH_MAX)
        scan->broken = true;
    else
        scan->depth++;
    scan->objects = scan->objects << 1 | object;
    scan->whole = false;
}

static void close_bracket(struct arguments_scan *scan, bool object)
{
    if (scan->depth == 0 || (scan->objects & 1) != object) {
        scan->broken = true;
        return;
    }
    scan->depth--;
    scan->objects >>= 1;
    scan->whole = scan->depth == 0 && object && !scan->broken;
}

static void scan_in_string(struct arguments_scan *scan, char c)
{
    if (scan->escaped)
        scan->escaped = false;
    else if (c == '\\')
        scan->escaped = true;
    else if (c == '"')
        scan->in_string = false;
}

void arguments_scan(struct arguments_scan *scan, const char *data, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char c = data[i];
        if (scan->in_string)
            scan_in_string(scan, c);
        else if (c == '{' || c == '[')
            open_bracket(scan, c == '{');
        else if (c == '}' || c == ']')
            close_bracket(scan, c == '}');
        else if (c == '"')
            scan->in_string = true;
        else if (scan->depth == 0 && !is_blank(c))
            scan->broken = true;
    }
    if (scan->broken || scan->in_string)
        scan->whole = false;
}

bool arguments_begin_object(const char *data, size_t length)
{
    size_t at = blanks(data, length);
    return at < length && data[at] == '{';
}

bool arguments_are_empty(const char *data, size_t length)
{
    size_t at = blanks(data, length);

    if (at == length || data[at++] != '{')
        return false;
    at += blanks(data + at, length - at);
    if (at == length || data[at++] != '}')
        return false;
    return at + blanks(data + at, length - at) == length;
}

/* ---- the end ---- */

/* Whether what a reader stopped at may be the beginning of something good. */
static bool is_unfinished(const char *rest, size_t length)
{
    static const char *const words[] = {"true", "false", "null"};

    if (length == 0 || (*rest == '\\' && length < ESCAPE_BYTES))
        return true;
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
        if (length < strlen(words[i]) && memcmp(rest, words[i], length) == 0)
            return true;
    }
    return false;
}

static int judge(const char *text, size_t length, size_t at, const struct hutch_error *err)
{
    if (err->code == HUTCH_ERR_NO_MEMORY)
        return err->code;
    return is_unfinished(text + at, length - at) ? ARGUMENTS_CUT_OFF : ARGUMENTS_MALFORMED;
}

/* The object in a string in a string …; *value becomes it. */
static int unpack(json_t **value, struct hutch_error *err)
{
    for (int i = 0; i < STRINGS_MAX && json_is_string(*value); i++) {
        const char *text = json_string_value(*value);
        size_t length = json_string_length(*value), at;
        json_t *inner = NULL;
        if (json_read_prefix(text, length, TAKE, &at, &inner, err) < 0)
            return judge(text, length, at, err);
        bool all = at + blanks(text + at, length - at) == length;
        json_decref(*value);
        *value = inner;
        if (!all) {
            err_set(err, HUTCH_ERR_INVALID, "more than one value in a string");
            return ARGUMENTS_MALFORMED;
        }
    }
    return ARGUMENTS_OBJECT;
}

int arguments_read(const char *text, size_t length, size_t *ret_at, json_t **ret_object,
                   struct hutch_error *err)
{
    auto_json json_t *value = NULL;
    size_t at;

    if (json_read_prefix(text, length, TAKE, &at, &value, err) < 0)
        return judge(text, length, at, err);
    int end = unpack(&value, err);
    if (end != ARGUMENTS_OBJECT)
        return end;
    if (!json_is_object(value)) {
        err_set(err, HUTCH_ERR_INVALID, "an object expected, not %s", json_kind(value));
        return ARGUMENTS_MALFORMED;
    }
    *ret_at = at + blanks(text + at, length - at);
    *ret_object = TAKE_POINTER(value);
    return ARGUMENTS_OBJECT;
}
