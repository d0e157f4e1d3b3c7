/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of a model's server for tests: chat_door OPTIONS, where OPTIONS is a JSON object
 * with the members of struct client_options, reads a JSON object a line, with the members of
 * struct chat_request ("messages" for the conversation), and
 *
 *     "limit_ms"   for the whole call
 *     "cancel_fd"  a descriptor that it was started with
 *     "quiet"      no callbacks
 *
 * and answers each by a line
 *
 *     {"deltas": ["…"], "reasoning": ["…"], "reply": {"message": …, "finish": "stop", …}}
 *     {"deltas": …, "error": {"kind": "…", "message": "…", …}, "reply": what was shown}
 *
 * Ends with status 0 at the end of its input, 2 when the options are bad.
 */
#include "agent/client.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

struct pieces {
    json_t *text, *reasoning;
};

static void on_text(void *user, const char *data, size_t length)
{
    struct pieces *pieces = user;
    json_array_append_new(pieces->text, json_stringn(data, length));
}

static void on_reasoning(void *user, const char *data, size_t length)
{
    struct pieces *pieces = user;
    json_array_append_new(pieces->reasoning, json_stringn(data, length));
}

/* ---- the client ---- */

static unsigned number_of(const json_t *object, const char *name, unsigned otherwise)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) ? (unsigned)json_integer_value(value) : otherwise;
}

static int make_client(const json_t *values, struct client **ret_client, struct hutch_error *err)
{
    struct client_options options;
    const char *headers[LIMIT_HEADERS + 2] = {NULL};
    const json_t *list = json_object_get(values, "headers");
    const char *key = json_string_value(json_object_get(values, "key"));
    auto_secret struct secret secret = SECRET_NONE;

    client_options_init(&options);
    options.base_url = json_string_value(json_object_get(values, "base_url"));
    options.ca_file = json_string_value(json_object_get(values, "ca_file"));
    options.connect_ms = number_of(values, "connect_ms", options.connect_ms);
    options.first_byte_ms = number_of(values, "first_byte_ms", options.first_byte_ms);
    options.idle_ms = number_of(values, "idle_ms", options.idle_ms);
    options.after_finish_ms = number_of(values, "after_finish_ms", options.after_finish_ms);
    options.retry_ms = number_of(values, "retry_ms", options.retry_ms);
    options.retries = number_of(values, "retries", options.retries);
    if (json_object_get(values, "max_reply_bytes"))
        options.max_reply_bytes = number_of(values, "max_reply_bytes", 0);
    for (size_t i = 0; i < json_array_size(list) && i <= LIMIT_HEADERS; i++)
        headers[i] = json_string_value(json_array_get(list, i));
    options.headers = headers;
    if (key && secret_from_text(key, &secret, err) < 0)
        return err->code;
    options.key = &secret;
    return client_new(&options, ret_client, err);
}

/* ---- telling ---- */

static void append_list(struct buf *out, const char *name, const json_t *list)
{
    json_append_text(out, name);
    buf_append_text(out, ":");
    json_append_value(out, list);
    buf_append_text(out, ",");
}

static void append_reply(struct buf *out, struct reply *reply)
{
    struct conversation one = {.messages = &reply->message, .count = 1, .capacity = 1};
    const struct tool_call *calls = reply->message.calls;

    buf_append_text(out, "\"reply\":{\"message\":");
    conversation_append_stored(out, &one);
    buf_appendf(out, ",\"finish\":\"%s\",\"calls\":%zu,\"first_fault\":%d,\"usage\":",
                reply_finish_name(reply->finish), reply->message.call_count,
                calls ? (int)calls[0].fault : 0);
    json_append_value(out, reply->usage ? reply->usage : json_null());
    buf_append_text(out, ",\"model\":");
    json_append_text(out, reply->model);
    buf_append_text(out, "}");
}

static void append_error(struct buf *out, const struct model_error *error)
{
    buf_append_text(out, "\"error\":{\"kind\":");
    json_append_text(out, model_error_name(error->kind));
    buf_append_text(out, ",\"message\":");
    json_append_text(out, error->message);
    buf_append_text(out, ",\"request_id\":");
    json_append_text(out, error->request_id);
    buf_appendf(out, ",\"status\":%d,\"retry_safe\":%s,\"text_shown\":%s,\"attempts\":%u},",
                error->http_status, error->retry_safe ? "true" : "false",
                error->text_shown ? "true" : "false", error->attempts);
}

/* ---- a request ---- */

static void read_request(const json_t *values, struct chat_request *request)
{
    const json_t *temperature = json_object_get(values, "temperature");

    *request = CHAT_REQUEST_EMPTY;
    request->model = json_string_value(json_object_get(values, "model"));
    request->tools = json_object_get(values, "tools");
    if (temperature)
        request->temperature = json_number_value(temperature);
    request->max_tokens = number_of(values, "max_tokens", 0);
    request->tool_choice = json_object_get(values, "tool_choice");
    request->response_format = json_object_get(values, "response_format");
    request->extra = json_object_get(values, "extra");
    request->stream = json_is_true(json_object_get(values, "stream"));
}

static void read_call(const json_t *values, struct pieces *pieces, struct client_call *call)
{
    const json_t *limit = json_object_get(values, "limit_ms");
    const json_t *cancel = json_object_get(values, "cancel_fd");

    *call = CLIENT_CALL_NONE;
    call->user = pieces;
    if (!json_is_true(json_object_get(values, "quiet"))) {
        call->on_text = on_text;
        call->on_reasoning = on_reasoning;
    }
    if (limit)
        call->deadline_ns = clock_after_ns((uint64_t)json_integer_value(limit) * NS_PER_MS);
    if (cancel)
        call->cancel_fd = (int)json_integer_value(cancel);
}

static int answer(struct client *client, const json_t *values, struct buf *out,
                  struct hutch_error *err)
{
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;
    auto_json json_t *text = json_array();
    auto_json json_t *reasoning = json_array();
    auto_reply struct reply reply = {.finish = REPLY_STOP};
    struct pieces pieces = {text, reasoning};
    struct chat_request request;
    struct client_call call;
    struct model_error error;

    read_request(values, &request);
    read_call(values, &pieces, &call);
    if (conversation_read(json_object_get(values, "messages"), &conversation, err) < 0)
        return err->code;
    request.conversation = &conversation;
    int code = client_chat(client, &request, &call, &reply, &error);
    buf_append_text(out, "{");
    append_list(out, "deltas", text);
    append_list(out, "reasoning", reasoning);
    if (code < 0)
        append_error(out, &error);
    append_reply(out, &reply);
    buf_append_text(out, "}\n");
    return buf_check(out, err);
}

static int serve(struct client *client)
{
    struct hutch_error err;
    size_t capacity = 0;
    auto_free char *line = NULL;

    for (ssize_t length; (length = getline(&line, &capacity, stdin)) > 0;) {
        auto_json json_t *values = NULL;
        auto_buf struct buf out = BUF_MAX(MIB(256));
        if (json_read(line, (size_t)length, MIB(64), &values, &err) < 0 ||
            answer(client, values, &out, &err) < 0) {
            fprintf(stderr, "chat_door: %s\n", err.message);
            return 1;
        }
        fwrite(out.data, 1, out.length, stdout);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    auto_json json_t *values = NULL;
    struct client *client = NULL;
    struct hutch_error err;

    if (argc != 2) {
        fprintf(stderr, "usage: chat_door OPTIONS\n");
        return 2;
    }
    if (json_read(argv[1], strlen(argv[1]), MIB(1), &values, &err) < 0 ||
        make_client(values, &client, &err) < 0) {
        fprintf(stderr, "chat_door: %s\n", err.message);
        return 2;
    }
    int status = serve(client);
    client_free(client);
    return status;
}
