/* SPDX-License-Identifier: Apache-2.0 */
/* check_result() of fuzz.h. */
#include "fuzz.h"

#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <string.h>

static bool is(const char *text, const char *other)
{
    return text && strcmp(text, other) == 0;
}

static void check_fields(const struct hutch_result *result)
{
    assert((result->error_type == NULL) == (result->exit_code == 0));
    assert(result->timed_out == is(result->error_type, "timeout"));
    assert(result->timed_out == (result->exit_code == -1));
    assert((result->exit_code == -2) == is(result->error_type, "validation_error"));
    assert(result->exit_code >= -2 && result->exit_code <= 255);
    assert(!result->exit_signal || result->exit_code > 128);
    assert(result->exit_code != 0 || (!result->error_class && !result->error_message));
    if (result->error_class)
        assert(utf8_valid(result->error_class, strlen(result->error_class)));
    if (result->error_message)
        assert(utf8_valid(result->error_message, strlen(result->error_message)));
    if (result->value.data)
        assert(utf8_valid(result->value.data, result->value.length));
    for (size_t i = 0; i < result->result_count; i++) {
        const struct hutch_rich *rich = &result->results[i];
        assert(is(rich->mime, "image/png") || utf8_valid(rich->data, rich->length));
        assert(rich->data[rich->length] == '\0');
    }
}

/* A string of the length that JSON says, or null for NULL. */
static void check_string(const json_t *value, const char *data, size_t length)
{
    assert(value);
    if (!data) {
        assert(json_is_null(value));
        return;
    }
    assert(json_is_string(value) && json_string_length(value) == length);
    assert(memcmp(json_string_value(value), data, length) == 0);
}

static void check_text(const json_t *value, const char *text)
{
    check_string(value, text, text ? strlen(text) : 0);
}

static void check_output(const json_t *value, const struct hutch_text *text,
                         enum hutch_encoding encoding)
{
    if (encoding == HUTCH_TEXT) {
        check_string(value, text->data, text->length);
        return;
    }
    assert(json_is_string(value));
    check_base64(json_string_value(value), json_string_length(value), text->data, text->length);
}

static void check_json_error(const json_t *error, const struct hutch_result *result)
{
    if (!result->error_class && !result->error_message) {
        assert(json_is_null(error));
        return;
    }
    check_text(json_object_get(error, "type"), result->error_class);
    check_text(json_object_get(error, "message"), result->error_message);
    const json_t *line = json_object_get(error, "line");
    assert(result->error_line == 0 ? json_is_null(line)
                                   : json_integer_value(line) == result->error_line);
}

static void check_json_rich(const json_t *results, const struct hutch_result *result)
{
    assert(json_is_array(results) && json_array_size(results) == result->result_count);
    for (size_t i = 0; i < result->result_count; i++) {
        const struct hutch_rich *rich = &result->results[i];
        const json_t *entry = json_array_get(results, i);
        const json_t *data = json_object_get(entry, "data");
        check_text(json_object_get(entry, "mime"), rich->mime);
        if (is(rich->mime, "image/png"))
            check_base64(json_string_value(data), json_string_length(data), rich->data,
                         rich->length);
        else
            check_string(data, rich->data, rich->length);
    }
}

static void check_members(const json_t *root, const struct hutch_result *result)
{
    check_output(json_object_get(root, "stdout"), &result->stdout_text, result->output_encoding);
    check_output(json_object_get(root, "stderr"), &result->stderr_text, result->output_encoding);
    check_string(json_object_get(root, "value"), result->value.data, result->value.length);
    check_json_rich(json_object_get(root, "results"), result);
    assert(json_integer_value(json_object_get(root, "results_dropped")) == result->results_dropped);
    assert(json_integer_value(json_object_get(root, "exit_code")) == result->exit_code);
    check_text(json_object_get(root, "signal"), result->exit_signal);
    assert(json_is_true(json_object_get(root, "timed_out")) == result->timed_out);
    check_text(json_object_get(root, "error_type"), result->error_type);
    check_json_error(json_object_get(root, "error"), result);
    assert(json_is_true(json_object_get(root, "truncated")) == result->truncated);
    assert(json_number_value(json_object_get(root, "duration_ms")) >= 0);
    assert(json_is_array(json_object_get(root, "layers")));
}

/* One line of plain text: nothing in it can end a line or command a terminal. */
static void check_line(const char *json)
{
    size_t length = strlen(json);

    assert(utf8_valid(json, length));
    for (size_t at = 0; at < length;) {
        bool valid;
        size_t unit = utf8_unit(json + at, length - at, &valid);
        assert(!utf8_is_control(json + at, unit));
        assert(unit != 3 || (memcmp(json + at, "\xe2\x80\xa8", unit) != 0 &&
                             memcmp(json + at, "\xe2\x80\xa9", unit) != 0));
        at += unit;
    }
}

void check_result(const struct hutch_result *result)
{
    struct hutch_error err;
    auto_free char *json = NULL;
    auto_json json_t *ours = NULL;

    check_fields(result);
    int code = hutch_result_to_json(result, &json, &err);
    assert(code == 0);
    check_line(json);
    code = json_read(json, strlen(json), LIMIT_RESULT_JSON_BYTES, &ours, &err);
    assert(code == 0);
    auto_json json_t *theirs = json_loads(json, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    assert(theirs && json_equal(ours, theirs));
    check_members(ours, result);
}
