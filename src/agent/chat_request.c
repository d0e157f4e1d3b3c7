/* SPDX-License-Identifier: Apache-2.0 */
/* See chat_request.h. */
#include "chat_request.h"

#include "base/parse.h"
#include "base/quote.h"
#include "tool.h"

#include <inttypes.h>
#include <string.h>

#define TEMPERATURE_MAX 2.0

/* ---- checking ---- */

static bool is_tool_name(const json_t *value)
{
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    size_t length = json_is_string(value) ? json_string_length(value) : 0;

    return length >= 1 && length <= TOOL_NAME_BYTES && strspn(name, TOOL_NAME_CHARACTERS) == length;
}

static int check_tool(const json_t *tool, size_t number, struct hutch_error *err)
{
    const json_t *parameters = json_object_get(tool, "parameters");

    if (!is_tool_name(json_object_get(tool, "name")))
        return err_set(err, HUTCH_ERR_INVALID,
                       "tools[%zu].name: 1 to %d of a-z A-Z 0-9 _ - expected", number,
                       TOOL_NAME_BYTES);
    if (!json_is_string(json_object_get(tool, "description")))
        return err_set(err, HUTCH_ERR_INVALID, "tools[%zu].description: a string expected", number);
    if (!json_is_object(parameters))
        return err_set(err, HUTCH_ERR_INVALID, "tools[%zu].parameters: an object expected", number);
    return 0;
}

static int check_tools(const json_t *tools, struct hutch_error *err)
{
    size_t count = json_array_size(tools);

    if (tools && !json_is_array(tools))
        return err_set(err, HUTCH_ERR_INVALID, "tools: an array expected, not %s",
                       json_kind(tools));
    if (count > LIMIT_TOOLS)
        return err_set(err, HUTCH_ERR_INVALID, "tools: at most %d are allowed, not %zu",
                       LIMIT_TOOLS, count);
    for (size_t i = 0; i < count; i++) {
        if (check_tool(json_array_get(tools, i), i, err) < 0)
            return err->code;
        const char *name = json_string_value(json_object_get(json_array_get(tools, i), "name"));
        for (size_t k = 0; k < i; k++) {
            const json_t *other = json_object_get(json_array_get(tools, k), "name");
            if (strcmp(name, json_string_value(other)) == 0)
                return err_set(err, HUTCH_ERR_INVALID, "tools[%zu].name: %s is there twice", i,
                               quote_text(name).text);
        }
    }
    return 0;
}

static int check_extra(const json_t *extra, struct hutch_error *err)
{
    static const char *const own[] = {"model",       "messages",    "stream",
                                      "tools",       "tool_choice", "response_format",
                                      "temperature", "max_tokens",  "max_completion_tokens"};

    if (extra && !json_is_object(extra))
        return err_set(err, HUTCH_ERR_INVALID, "extra: an object expected, not %s",
                       json_kind(extra));
    for (size_t i = 0; i < ARRAY_LENGTH(own); i++) {
        if (json_object_get(extra, own[i]))
            return err_set(err, HUTCH_ERR_INVALID, "extra.%s: is a field of its own", own[i]);
    }
    if (json_object_get(extra, "n"))
        return err_set(err, HUTCH_ERR_INVALID, "extra.n: only one choice is asked for");
    return 0;
}

int chat_request_check(const struct chat_request *request, struct hutch_error *err)
{
    if (!request->model || !*request->model)
        return err_set(err, HUTCH_ERR_INVALID, "model: there is no name");
    if (!request->conversation || request->conversation->count == 0)
        return err_set(err, HUTCH_ERR_INVALID, "messages: there is none");
    if (!(request->temperature <= TEMPERATURE_MAX))
        return err_set(err, HUTCH_ERR_INVALID, "temperature: %s is not from 0 to 2",
                       number_text(request->temperature).text);
    if (request->max_tokens > INT64_MAX)
        return err_set(err, HUTCH_ERR_INVALID, "max_tokens: over 64 bits");
    if (check_tools(request->tools, err) < 0)
        return err->code;
    return check_extra(request->extra, err);
}

/* ---- writing ---- */

bool chat_request_streams(const struct chat_request *request, const struct chat_quirks *quirks)
{
    return request->stream || quirks->only_streams;
}

static void append_value(struct buf *out, const char *name, const json_t *value)
{
    if (!value || json_is_null(value))
        return;
    buf_append_text(out, ",");
    json_append_text(out, name);
    buf_append_text(out, ":");
    json_append_value(out, value);
}

static void append_tools(struct buf *out, const json_t *tools)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        buf_append_text(out, i == 0 ? ",\"tools\":[" : ",");
        buf_append_text(out, "{\"type\":\"function\",\"function\":{\"name\":");
        json_append_value(out, json_object_get(tool, "name"));
        append_value(out, "description", json_object_get(tool, "description"));
        append_value(out, "parameters", json_object_get(tool, "parameters"));
        if (json_is_true(json_object_get(tool, "strict")))
            buf_append_text(out, ",\"strict\":true");
        buf_append_text(out, "}}");
    }
    buf_append_text(out, json_array_size(tools) > 0 ? "]" : "");
}

static void append_extra(struct buf *out, const json_t *extra, bool without_stream_options)
{
    json_t *members = (json_t *)extra; /* is not changed by being walked through */

    for (void *at = json_object_iter(members); at; at = json_object_iter_next(members, at)) {
        const char *name = json_object_iter_key(at);
        if (!without_stream_options || strcmp(name, "stream_options") != 0)
            append_value(out, name, json_object_iter_value(at));
    }
}

int chat_request_write(const struct chat_request *request, const struct chat_quirks *quirks,
                       const char *origin, struct buf *out, struct hutch_error *err)
{
    bool stream = chat_request_streams(request, quirks);
    bool other_name = request->max_completion_tokens || quirks->max_completion_tokens;

    buf_append_text(out, "{\"model\":");
    json_append_text(out, request->model);
    buf_append_text(out, ",\"messages\":");
    conversation_append_wire(out, request->system, request->conversation, origin,
                             quirks->empty_content);
    buf_appendf(out, ",\"stream\":%s", stream ? "true" : "false");
    if (stream && !quirks->no_stream_options && !json_object_get(request->extra, "stream_options"))
        buf_append_text(out, ",\"stream_options\":{\"include_usage\":true}");
    append_tools(out, request->tools);
    if (json_array_size(request->tools) > 0)
        append_value(out, "tool_choice", request->tool_choice);
    if (request->temperature >= 0)
        buf_appendf(out, ",\"temperature\":%s", number_exact(request->temperature).text);
    if (request->max_tokens > 0)
        buf_appendf(out, ",\"%s\":%" PRIu64, other_name ? "max_completion_tokens" : "max_tokens",
                    request->max_tokens);
    append_value(out, "response_format", request->response_format);
    append_extra(out, request->extra, quirks->no_stream_options || !stream);
    buf_append_text(out, "}");
    return buf_check(out, err) < 0 ? err_context(err, "the request to the model") : 0;
}

void chat_request_tools(const struct chat_request *request, const char *ret_names[LIMIT_TOOLS + 1])
{
    size_t count = json_array_size(request->tools);

    for (size_t i = 0; i < count; i++)
        ret_names[i] =
            json_string_value(json_object_get(json_array_get(request->tools, i), "name"));
    ret_names[count] = NULL;
}
