/* SPDX-License-Identifier: Apache-2.0 */
/* See answer.h. */
#include "answer.h"

#include "base/error.h"
#include "base/json.h"
#include "base/limits.h"
#include "schema.h"

#include <string.h>

/* ---- asking ---- */

int answer_format(const json_t *schema, bool strict, json_t **ret_format, struct hutch_error *err)
{
    auto_json json_t *wanted = NULL;

    int loose = strict ? schema_strict(schema, &wanted, err) : 1;
    if (loose < 0)
        return loose;
    if (loose)
        wanted = json_incref((json_t *)schema); /* is not changed */
    json_t *format = json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name",
                               "answer", "schema", wanted);
    json_t *inner = json_object_get(format, "json_schema");
    if (!inner || (!loose && json_object_set_new(inner, "strict", json_true()) < 0)) {
        json_decref(format);
        return err_no_memory(err);
    }
    *ret_format = format;
    return 0;
}

void answer_append_repair(struct buf *out, const json_t *schema, const struct hutch_error *problem)
{
    buf_appendf(out,
                "Your answer does not follow the schema: %s. Give the whole answer again, as JSON "
                "alone, without any text or code fence around it. It has to follow this JSON "
                "Schema:\n",
                problem->message);
    json_append_value(out, schema);
}

/* ---- reading ---- */

static size_t count_blanks(const char *text, size_t length)
{
    size_t count = 0;

    while (count < length && memchr(" \t\r\n", text[count], 4))
        count++;
    return count;
}

/* Reads a text that is one JSON value. *ret_text becomes the value's own part of it. */
static int read_whole(struct hutch_text text, json_t **ret_value, struct hutch_text *ret_text,
                      struct hutch_error *err)
{
    size_t begin = count_blanks(text.data, text.length), at = 0;
    json_t *value = NULL;

    if (json_read_prefix(text.data, text.length, JSON_TAKE_BIG | JSON_TAKE_CONTROLS, &at, &value,
                         err) < 0)
        return err_context(err, "it is not JSON");
    if (at + count_blanks(text.data + at, text.length - at) < text.length) {
        json_decref(value);
        return err_set(err, HUTCH_ERR_INVALID, "it is not JSON alone");
    }
    *ret_value = value;
    *ret_text = (struct hutch_text){text.data + begin, at - begin};
    return 0;
}

/* The inside of the next fence from *at on, which moves behind it; false if there is none. */
static bool next_fence(struct hutch_text text, size_t *at, struct hutch_text *ret_inside)
{
    static const char fence[] = "```";
    const char *end = text.data + text.length;
    const char *open = memmem(text.data + *at, text.length - *at, fence, strlen(fence));
    const char *line = open ? memchr(open, '\n', (size_t)(end - open)) : NULL;
    const char *close = line ? memmem(line, (size_t)(end - line), fence, strlen(fence)) : NULL;

    if (!close)
        return false;
    *ret_inside = (struct hutch_text){(char *)line, (size_t)(close - line)};
    *at = (size_t)(close - text.data) + strlen(fence);
    return true;
}

static int read_text(const struct hutch_text *text, json_t **ret_value, struct hutch_text *ret_text,
                     struct hutch_error *err)
{
    struct hutch_error of_fence;
    struct hutch_text inside;
    size_t at = 0;

    int code = read_whole(*text, ret_value, ret_text, err);
    while (code == HUTCH_ERR_INVALID && next_fence(*text, &at, &inside)) {
        if (read_whole(inside, ret_value, ret_text, &of_fence) == 0)
            return 0;
    }
    return code;
}

/* A value that follows the schema; where it does not as it is, without nulls that stand for what
 * was left out. */
static int check(const json_t *schema, json_t **value, bool *ret_changed, struct hutch_error *err)
{
    auto_json json_t *without = NULL;
    struct hutch_error second;

    *ret_changed = false;
    if (schema_check(schema, *value, err) == 0)
        return 0;
    if (err->code != HUTCH_ERR_INVALID ||
        schema_drop_nulls(schema, *value, &without, &second) < 0 ||
        schema_check(schema, without, &second) < 0)
        return err->code;
    json_decref(*value);
    *value = TAKE_POINTER(without);
    *ret_changed = true;
    return 0;
}

int answer_read(const json_t *schema, const struct hutch_text *text, struct buf *out,
                struct hutch_error *err)
{
    static char nothing[] = "";
    const struct hutch_text whole = {text->data ? text->data : nothing, text->length};
    auto_json json_t *value = NULL;
    struct hutch_text written;
    bool changed;

    if (read_text(&whole, &value, &written, err) < 0 || check(schema, &value, &changed, err) < 0)
        return err->code;
    /* What is written may have more digits than what is read. */
    if (!changed && json_valid(written.data, written.length))
        buf_append(out, written.data, written.length);
    else
        json_append_value(out, value);
    return buf_check(out, err);
}
