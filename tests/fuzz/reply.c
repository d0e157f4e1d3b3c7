/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer of a model's server: the same reply from a stream in any pieces; what the
 * reply says is text, and what a request says of it is JSON that is read again, whose
 * calls have ids of their own and an object for arguments.
 *
 * Input: a byte for the size of the pieces, one that says whether it is a whole answer,
 * the answer.
 */
#include "fuzz.h"

#include "agent/reply.h"
#include "base/json.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char *const tools[] = {"run", "run_all", NULL};

/* What came of an answer. */
struct outcome {
    int code;
    struct reply reply;
    struct model_error error;
    struct buf shown;
    struct reply_builder builder;
};

static void on_text(void *user, const char *data, size_t length)
{
    struct outcome *outcome = user;

    assert(length > 0 && utf8_valid(data, length));
    buf_append(&outcome->shown, data, length);
}

static int on_event(void *user, const struct sse_event *event)
{
    struct outcome *outcome = user;

    assert(event->length > 0 && event->data[event->length] == '\0');
    int code = reply_take_event(&outcome->builder, event, &outcome->error);
    if (code < 0)
        outcome->code = code;
    return code;
}

static void take_stream(struct outcome *outcome, const struct hutch_text *text, size_t size)
{
    struct hutch_error err;
    struct sse sse;
    int code = 0;

    sse_init(&sse, on_event, outcome);
    for (size_t at = 0; at < text->length && code == 0; at += size)
        code = sse_feed(&sse, text->data + at, text->length - at < size ? text->length - at : size,
                        &err);
    if (code == 0)
        code = sse_end(&sse, &err);
    assert(code == outcome->code || code == 1);
    sse_done(&sse);
}

static void take(struct outcome *outcome, const struct hutch_text *text, size_t size, bool whole)
{
    const struct reply_options options = {.tools = tools, .on_text = on_text, .user = outcome};

    *outcome = (struct outcome){.shown = BUF_MAX(LIMIT_REPLY_BYTES)};
    reply_builder_init(&outcome->builder, &options);
    if (whole)
        outcome->code =
            reply_take_whole(&outcome->builder, text->data, text->length, &outcome->error);
    else
        take_stream(outcome, text, size);
    if (outcome->code == 0)
        outcome->code = reply_finish(&outcome->builder, &outcome->reply, &outcome->error);
    reply_builder_done(&outcome->builder);
}

static void done(struct outcome *outcome)
{
    reply_done(&outcome->reply);
    buf_done(&outcome->shown);
}

static void check_failure(const struct outcome *outcome)
{
    const char *message = outcome->error.message;

    assert(outcome->error.kind != MODEL_OK && outcome->error.kind != MODEL_NO_MEMORY);
    assert(*message && utf8_valid(message, strlen(message)) && !strchr(message, '\n'));
    assert(!outcome->error.text_shown || !outcome->error.retry_safe);
}

static void check_calls(const struct message *message)
{
    for (size_t i = 0; i < message->call_count; i++) {
        const struct tool_call *call = &message->calls[i];
        size_t length = strlen(call->name);
        assert(*call->id && length >= 1 && length <= 64);
        assert(strspn(call->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_-") == length);
        assert(json_valid(call->text, strlen(call->text)) &&
               call->text[strspn(call->text, " \n\t\r")] == '{');
        assert((call->fault == CALL_GOOD) == json_is_object(call->arguments));
        assert((call->fault == CALL_GOOD) == (call->problem == NULL));
        assert(!call->problem || utf8_valid(call->problem, strlen(call->problem)));
        for (size_t k = 0; k < i; k++)
            assert(strcmp(call->id, message->calls[k].id) != 0);
    }
}

/* A transcript that holds the reply is read, and written alike. */
static void check_stored(struct message *message)
{
    struct conversation one = {.messages = message, .count = 1, .capacity = 1};
    auto_conversation struct conversation again = CONVERSATION_EMPTY;
    auto_buf struct buf stored = BUF_MAX(MIB(16)), twice = BUF_MAX(MIB(16)),
                        wire = BUF_MAX(MIB(16));
    auto_json json_t *value = NULL;
    struct hutch_error err;

    conversation_append_stored(&stored, &one);
    if (stored.failure != BUF_OK)
        return; /* what only the server knows was too deep with more around it */
    int code = json_read(stored.data, stored.length, MIB(16), &value, &err);
    if (code < 0) {
        assert(strstr(err.message, "nested deeper"));
        return;
    }
    code = conversation_read(value, &again, &err);
    assert(code == 0);
    conversation_append_stored(&twice, &again);
    check_bytes(&twice, stored.data, stored.length);
    conversation_append_wire(&wire, NULL, &one, NULL, false);
    assert(wire.failure == BUF_OK && utf8_valid(wire.data, wire.length) &&
           json_valid(wire.data, wire.length));
}

static void check_reply(struct outcome *outcome)
{
    struct message *message = &outcome->reply.message;

    check_bytes(&outcome->shown, message->text.data ? message->text.data : "",
                message->text.length);
    assert(message->text.length > 0 || message->call_count > 0 ||
           outcome->reply.finish == REPLY_LENGTH || outcome->reply.finish == REPLY_CONTENT_FILTER);
    check_calls(message);
    check_stored(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    size_t piece = input_number(&input, 1) + 1;
    bool whole = input_number(&input, 1) & 1;
    struct hutch_text text = input_bytes(&input, SIZE_MAX);
    struct outcome one, other;

    take(&one, &text, text.length + 1, whole);
    take(&other, &text, piece, whole);
    assert(one.code == other.code && one.error.kind == other.error.kind);
    assert(strcmp(one.error.message, other.error.message) == 0);
    check_bytes(&one.shown, buf_text(&other.shown), other.shown.length);
    assert(one.reply.message.call_count == other.reply.message.call_count);
    if (one.code < 0)
        check_failure(&one);
    else
        check_reply(&one);
    done(&one);
    done(&other);
    free(text.data);
    return 0;
}
