/* SPDX-License-Identifier: Apache-2.0 */
/* See reply.h. */
#include "reply.h"

#include "base/error.h"

#include <string.h>

#define TAKE (JSON_TAKE_TWICE | JSON_TAKE_BIG | JSON_TAKE_CONTROLS)
#define END_MARK "[DONE]"

static const char *const finish_names[] = {
    [REPLY_STOP] = "stop",
    [REPLY_LENGTH] = "length",
    [REPLY_CONTENT_FILTER] = "content_filter",
    [REPLY_TOOL_CALLS] = "tool_calls",
};

const char *reply_finish_name(enum reply_finish finish)
{
    return finish_names[finish];
}

void reply_done(struct reply *reply)
{
    message_done(&reply->message);
    free(reply->reasoning.data);
    json_decref(reply->usage);
    free(reply->model);
    *reply = (struct reply){.finish = REPLY_STOP};
}

void reply_builder_init(struct reply_builder *builder, const struct reply_options *options)
{
    *builder = (struct reply_builder){
        .options = *options,
        .text = BUF_MAX(LIMIT_REPLY_TEXT_BYTES),
        .refusal = BUF_MAX(LIMIT_REPLY_TEXT_BYTES),
        .reasoning = BUF_MAX(LIMIT_REPLY_TEXT_BYTES),
        .reasoning_content = BUF_MAX(LIMIT_REPLY_TEXT_BYTES),
        .reasoning_plain = BUF_MAX(LIMIT_REPLY_TEXT_BYTES),
        .calls = CALLS_OF(options->tools),
    };
}

void reply_builder_done(struct reply_builder *builder)
{
    buf_done(&builder->text);
    buf_done(&builder->refusal);
    buf_done(&builder->reasoning);
    buf_done(&builder->reasoning_content);
    buf_done(&builder->reasoning_plain);
    calls_done(&builder->calls);
    json_decref(builder->extra.members);
    json_decref(builder->usage);
    free(builder->model);
    *builder = (struct reply_builder){.finish = REPLY_STOP};
}

static int no_memory(struct model_error *error)
{
    return model_error_set(error, MODEL_NO_MEMORY, "out of memory");
}

/* ---- text ---- */

static int check_text(const struct reply_builder *builder, struct model_error *error)
{
    const struct buf *const texts[] = {&builder->text, &builder->refusal, &builder->reasoning,
                                       &builder->reasoning_content, &builder->reasoning_plain};

    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        if (texts[i]->failure == BUF_OK)
            continue;
        if (texts[i]->failure == BUF_NO_MEMORY)
            return no_memory(error);
        model_error_set(error, MODEL_TOO_LARGE,
                        "the reply is longer than %llu bytes; ask for fewer tokens (max_tokens), "
                        "or another model",
                        (unsigned long long)LIMIT_REPLY_TEXT_BYTES);
        error->text_shown = builder->shown;
        return -1;
    }
    return 0;
}

/* Gives the caller what came behind the first bytes of text. */
static void show(struct reply_builder *builder, reply_text_fn fn, const struct buf *text,
                 size_t from)
{
    if (!fn || text->length == from)
        return;
    builder->shown = true;
    fn(builder->options.user, text->data + from, text->length - from);
}

static bool take_string(const json_t *value, struct buf *out)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return false;
    buf_append(out, json_string_value(value), json_string_length(value));
    return true;
}

/* Text is a string, or a list of parts, which are strings or objects that hold one. */
static void take_content(const json_t *content, struct buf *out)
{
    if (take_string(content, out))
        return;
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        if (!take_string(part, out))
            take_string(json_object_get(part, "text"), out);
    }
}

/* The text of a delta, which goes to the caller at once. */
static int take_text(struct reply_builder *builder, const json_t *delta, struct model_error *error)
{
    struct buf *text = &builder->text;
    size_t had = text->length, had_refusal = builder->refusal.length;

    take_content(json_object_get(delta, "content"), text);
    take_string(json_object_get(delta, "refusal"), &builder->refusal);
    if (check_text(builder, error) < 0)
        return -1;
    show(builder, builder->options.on_text, text, had);
    show(builder, builder->options.on_text, &builder->refusal, had_refusal);
    return 0;
}

static int take_reasoning(struct reply_builder *builder, const json_t *delta,
                          struct model_error *error)
{
    struct buf *all = &builder->reasoning;
    const json_t *content = json_object_get(delta, "reasoning_content");
    const json_t *plain = json_object_get(delta, "reasoning");
    size_t had = all->length;

    bool took = take_string(content, &builder->reasoning_content);
    take_string(plain, &builder->reasoning_plain);
    take_string(took ? content : plain, all);
    if (check_text(builder, error) < 0)
        return -1;
    show(builder, builder->options.on_reasoning, all, had);
    return 0;
}

/* ---- what only the server knows ---- */

static bool is_known(const char *name, const json_t *value)
{
    static const char *const known[] = {"role",    "content",     "tool_calls", "function_call",
                                        "refusal", "annotations", "audio"};

    for (size_t i = 0; i < ARRAY_LENGTH(known); i++) {
        if (strcmp(known[i], name) == 0)
            return true;
    }
    /* their text is gathered */
    return json_is_string(value) &&
           (strcmp(name, "reasoning") == 0 || strcmp(name, "reasoning_content") == 0);
}

static int take_extra(struct reply_builder *builder, const json_t *delta, struct model_error *error)
{
    json_t *members = (json_t *)delta; /* is not changed by being walked through */
    struct hutch_error err;

    for (void *at = json_object_iter(members); at; at = json_object_iter_next(members, at)) {
        json_t *value = json_object_iter_value(at);
        const char *name = json_object_iter_key(at);
        if (json_is_null(value) || is_known(name, value))
            continue;
        if (extra_put(&builder->extra, name, value, true, &err) < 0)
            return model_error_from(error, MODEL_TOO_LARGE, &err);
    }
    return 0;
}

/* ---- calls ---- */

static int call_failed(struct model_error *error, const struct hutch_error *err)
{
    return model_error_from(error, MODEL_TOO_LARGE, err);
}

static int take_calls(struct reply_builder *builder, const json_t *delta, bool whole,
                      struct model_error *error)
{
    const json_t *entries = json_object_get(delta, "tool_calls");
    struct hutch_error err;

    for (size_t i = 0; i < json_array_size(entries); i++) {
        if (calls_take(&builder->calls, json_array_get(entries, i), whole, &err) < 0)
            return call_failed(error, &err);
    }
    if (calls_take_legacy(&builder->calls, json_object_get(delta, "function_call"), &err) < 0)
        return call_failed(error, &err);
    return 0;
}

/* ---- errors in an answer ---- */

static bool is_truthy(const json_t *value)
{
    if (json_is_string(value))
        return json_string_length(value) > 0;
    if (json_is_object(value))
        return json_object_size(value) > 0;
    if (json_is_integer(value))
        return json_integer_value(value) != 0;
    return json_is_true(value) || json_array_size(value) > 0 || json_is_real(value);
}

/* The server says that it failed; where is the object with code and type. */
static int server_failed(struct reply_builder *builder, const json_t *value, const json_t *where,
                         struct model_error *error)
{
    char words[MODEL_ERROR_BYTES / 2];
    int status = json_is_object(where) ? model_status_of(where) : model_status_of(value);

    if (!model_words_of(value, builder->options.hidden, words, sizeof(words)))
        memcpy(words, "no reason given", sizeof("no reason given"));
    model_error_set(error, model_error_kind_of(status),
                    "the server gave an error instead of %s: %s",
                    builder->shown ? "the rest of the reply" : "a reply", words);
    error->retry_safe = !builder->shown && model_status_retried(status);
    error->text_shown = builder->shown;
    return -1;
}

/* ---- a chunk, or a completion ---- */

static int take_finish(struct reply_builder *builder, const json_t *value, const json_t *choice,
                       struct model_error *error)
{
    const json_t *reason = json_object_get(choice, "finish_reason");
    const char *name = json_is_string(reason) ? json_string_value(reason) : "";

    if (*name == '\0')
        return 0;
    if (strcmp(name, "error") == 0)
        return server_failed(builder, value, value, error);
    builder->finished = true;
    builder->finish = REPLY_STOP;
    for (size_t i = 0; i < ARRAY_LENGTH(finish_names); i++) {
        if (strcmp(name, finish_names[i]) == 0)
            builder->finish = (enum reply_finish)i;
    }
    if (strcmp(name, "function_call") == 0)
        builder->finish = REPLY_TOOL_CALLS;
    return 0;
}

/* The choice with the number 0, or without a number. */
static const json_t *first_choice(const json_t *value)
{
    const json_t *choices = json_object_get(value, "choices");

    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *choice = json_array_get(choices, i);
        const json_t *index = json_object_get(choice, "index");
        if (!json_is_integer(index) || json_integer_value(index) == 0)
            return choice;
    }
    return NULL;
}

static int take_choice(struct reply_builder *builder, const json_t *value, const json_t *choice,
                       bool whole, struct model_error *error)
{
    const json_t *delta = json_object_get(choice, whole ? "message" : "delta");

    if (!json_is_object(delta))
        delta = json_object_get(choice, whole ? "delta" : "message");
    if (take_reasoning(builder, delta, error) < 0 || take_text(builder, delta, error) < 0 ||
        take_extra(builder, delta, error) < 0 || take_calls(builder, delta, whole, error) < 0)
        return -1;
    return take_finish(builder, value, choice, error);
}

/* What a chunk says besides of its choices. */
static int take_facts(struct reply_builder *builder, const json_t *value, struct model_error *error)
{
    json_t *usage = json_object_get(value, "usage");
    const json_t *model = json_object_get(value, "model");

    if (json_is_object(usage)) {
        json_incref(usage);
        json_decref(builder->usage);
        builder->usage = usage;
    }
    if (!builder->model && json_is_string(model) && json_string_length(model) > 0) {
        builder->model = message_copy_name(json_string_value(model), json_string_length(model));
        if (!builder->model)
            return no_memory(error);
    }
    return 0;
}

static bool is_error_object(const json_t *value)
{
    const json_t *object = json_object_get(value, "object");
    return json_is_string(object) && strcmp(json_string_value(object), "error") == 0;
}

static int take_value(struct reply_builder *builder, const json_t *value, bool whole,
                      struct model_error *error)
{
    const json_t *one = json_is_array(value) ? json_array_get(value, 0) : value;
    const json_t *failure = json_object_get(one, "error");

    if (!json_is_object(one))
        return model_error_set(error, MODEL_MALFORMED,
                               "the server answered with %s, where an object is expected",
                               json_kind(value));
    if (is_truthy(failure))
        return server_failed(builder, one, failure, error);
    if (is_error_object(one))
        return server_failed(builder, one, one, error);
    if (take_facts(builder, one, error) < 0)
        return -1;
    const json_t *choice = first_choice(one);
    if (choice)
        return take_choice(builder, one, choice, whole, error);
    if (whole)
        return model_error_set(error, MODEL_MALFORMED,
                               "the server's answer has no choices; is the base URL that of an "
                               "OpenAI-compatible API?");
    return 0;
}

/* ---- events ---- */

static bool begins_with(const char *data, size_t length, const char *word)
{
    return length >= strlen(word) && memcmp(data, word, strlen(word)) == 0;
}

/* What stands between two values in an event: blanks, and the name of a field. */
static size_t skip_between(const char *data, size_t length)
{
    size_t at = 0;

    for (;;) {
        while (at < length && strchr(" \t\r\n", data[at]) && data[at] != '\0')
            at++;
        if (!begins_with(data + at, length - at, "data:"))
            return at;
        at += strlen("data:");
    }
}

static int malformed(const struct reply_builder *builder, const char *what, const char *data,
                     size_t length, const struct hutch_error *err, struct model_error *error)
{
    char words[MODEL_ERROR_BYTES / 2];

    if (err->code == HUTCH_ERR_NO_MEMORY)
        return no_memory(error);
    model_one_line(data, length, builder->options.hidden, words, sizeof(words));
    return model_error_set(
        error, MODEL_MALFORMED,
        "%s is not JSON (%s): %s; is the base URL that of an OpenAI-compatible API?", what,
        err->message, words);
}

static int failed_event(struct reply_builder *builder, const char *data, size_t length,
                        struct model_error *error)
{
    char words[MODEL_ERROR_BYTES / 2];

    model_server_words(data, length, builder->options.hidden, words, sizeof(words));
    model_error_set(error, MODEL_SERVER, "the server gave an error instead of a reply: %s", words);
    error->retry_safe = !builder->shown;
    error->text_shown = builder->shown;
    return -1;
}

static int take_json(struct reply_builder *builder, const struct sse_event *event, size_t *at,
                     struct model_error *error)
{
    const char *data = event->data + *at;
    size_t length = event->length - *at, used;
    auto_json json_t *value = NULL;
    struct hutch_error err;

    if (json_read_prefix(data, length, TAKE, &used, &value, &err) < 0) {
        if (event->unfinished && err.code != HUTCH_ERR_NO_MEMORY) {
            *at = event->length; /* what it would have been is not known */
            return 0;
        }
        if (strcmp(event->name, "error") == 0)
            return failed_event(builder, data, length, error);
        return malformed(builder, "an event of the stream", data, length, &err, error);
    }
    *at += used;
    if (strcmp(event->name, "error") == 0 && !json_object_get(value, "choices") &&
        !json_object_get(value, "error"))
        return server_failed(builder, value, value, error);
    return take_value(builder, value, false, error);
}

int reply_take_event(struct reply_builder *builder, const struct sse_event *event,
                     struct model_error *error)
{
    size_t at = skip_between(event->data, event->length);

    while (at < event->length && event->data[at] != ':') {
        if (begins_with(event->data + at, event->length - at, END_MARK)) {
            builder->done = true;
            return 1;
        }
        if (take_json(builder, event, &at, error) < 0)
            return -1;
        at += skip_between(event->data + at, event->length - at);
    }
    return 0;
}

int reply_take_whole(struct reply_builder *builder, const char *data, size_t length,
                     struct model_error *error)
{
    struct hutch_error err;
    auto_json json_t *value = NULL;
    size_t at;

    if (json_read_prefix(data, length, TAKE, &at, &value, &err) < 0)
        return malformed(builder, "the server's answer", data, length, &err, error);
    if (take_value(builder, value, true, error) < 0)
        return -1;
    builder->done = true;
    return 0;
}

bool reply_is_complete(const struct reply_builder *builder)
{
    return builder->done || builder->finished;
}

/* ---- the end ---- */

static int set_member(struct reply_builder *builder, const char *name, const struct buf *text)
{
    if (text->length == 0)
        return 0;
    if (!builder->extra.members)
        builder->extra.members = json_object();
    return json_object_set_new_nocheck(builder->extra.members, name,
                                       json_stringn_nocheck(text->data, text->length));
}

static struct hutch_text take_buffer(struct buf *buf)
{
    struct buf taken = buf_take(buf);

    if (taken.length == 0)
        buf_done(&taken);
    return (struct hutch_text){taken.data, taken.length};
}

static int broken(const struct reply_builder *builder, struct model_error *error,
                  enum model_error_kind kind, const char *message)
{
    model_error_set(error, kind, "%s", message);
    error->retry_safe = !builder->shown;
    error->text_shown = builder->shown;
    return -1;
}

static int check_empty(const struct reply_builder *builder, const struct reply *reply,
                       struct model_error *error)
{
    bool stopped = reply->finish == REPLY_STOP || reply->finish == REPLY_TOOL_CALLS;

    if (!stopped || reply->message.text.length > 0 || reply->message.call_count > 0)
        return 0;
    return broken(builder, error, MODEL_EMPTY, "the model's reply holds neither text nor calls");
}

static int make(struct reply_builder *builder, struct reply *reply, struct model_error *error)
{
    struct hutch_error err;

    if (calls_finish(&builder->calls, builder->finished && builder->finish == REPLY_LENGTH,
                     builder->options.conversation, &reply->message.calls,
                     &reply->message.call_count, &err) < 0)
        return call_failed(error, &err);
    reply->finish = builder->finish;
    if (!builder->finished)
        reply->finish = reply->message.call_count > 0 ? REPLY_TOOL_CALLS : REPLY_STOP;
    if (check_text(builder, error) < 0)
        return -1;
    if (set_member(builder, "reasoning_content", &builder->reasoning_content) < 0 ||
        set_member(builder, "reasoning", &builder->reasoning_plain) < 0)
        return no_memory(error);
    reply->refused = builder->text.length == 0 && builder->refusal.length > 0;
    reply->message.role = MESSAGE_ASSISTANT;
    reply->message.text = take_buffer(reply->refused ? &builder->refusal : &builder->text);
    reply->message.extra = TAKE_POINTER(builder->extra.members);
    reply->reasoning = take_buffer(&builder->reasoning);
    reply->model = TAKE_POINTER(builder->model);
    if (check_empty(builder, reply, error) < 0)
        return -1; /* what it took is still the builder's */
    reply->usage = TAKE_POINTER(builder->usage);
    return 0;
}

int reply_finish(struct reply_builder *builder, struct reply *ret_reply, struct model_error *error)
{
    auto_reply struct reply reply = {.finish = REPLY_STOP};

    if (!reply_is_complete(builder))
        return broken(builder, error, MODEL_TRUNCATED,
                      "stream truncated: the server closed it before the reply was finished");
    if (make(builder, &reply, error) < 0)
        return -1;
    *ret_reply = reply;
    reply = (struct reply){.finish = REPLY_STOP};
    return 0;
}

void reply_take_partial(struct reply_builder *builder, struct reply *ret_reply)
{
    bool refused = builder->text.length == 0;

    *ret_reply = (struct reply){
        .message = {.role = MESSAGE_ASSISTANT,
                    .text = take_buffer(refused ? &builder->refusal : &builder->text)},
        .reasoning = take_buffer(&builder->reasoning),
        .usage = TAKE_POINTER(builder->usage),
        .model = TAKE_POINTER(builder->model),
    };
}
