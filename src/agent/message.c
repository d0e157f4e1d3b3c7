/* SPDX-License-Identifier: Apache-2.0 */
/* See message.h. */
#include "message.h"

#include "base/limits.h"
#include "base/quote.h"
#include "base/utf8.h"

#include <string.h>

static const char *const roles[] = {
    [MESSAGE_SYSTEM] = "system",
    [MESSAGE_USER] = "user",
    [MESSAGE_ASSISTANT] = "assistant",
    [MESSAGE_TOOL] = "tool",
};
#define LAST_WORDS_BYTES KIB(1)

static const char *const faults[] = {
    [CALL_GOOD] = "none",
    [CALL_CUT_OFF] = "cut_off",
    [CALL_MALFORMED] = "malformed",
    [CALL_UNKNOWN_TOOL] = "unknown_tool",
};

/* ---- memory ---- */

void tool_call_done(struct tool_call *call)
{
    free(call->id);
    free(call->name);
    free(call->text);
    free(call->problem);
    json_decref(call->arguments);
    json_decref(call->extra);
    *call = (struct tool_call){.id = NULL};
}

void message_done(struct message *message)
{
    for (size_t i = 0; i < message->call_count; i++)
        tool_call_done(&message->calls[i]);
    free(message->calls);
    free(message->text.data);
    free(message->call_id);
    free(message->origin);
    json_decref(message->extra);
    *message = (struct message){.role = MESSAGE_SYSTEM};
}
#define auto_message __attribute__((cleanup(message_done)))

void conversation_done(struct conversation *conversation)
{
    for (size_t i = 0; i < conversation->count; i++)
        message_done(&conversation->messages[i]);
    free(conversation->messages);
    *conversation = CONVERSATION_EMPTY;
}

int message_copy_text(const char *text, size_t length, struct hutch_text *ret_text,
                      struct hutch_error *err)
{
    auto_buf struct buf copy = BUF_MAX(SIZE_MAX / 4);

    utf8_repair(&copy, text, length);
    buf_append(&copy, "", 0);
    if (buf_check(&copy, err) < 0)
        return err->code;
    *ret_text = (struct hutch_text){copy.data, copy.length};
    copy = BUF_MAX(0);
    return 0;
}

char *message_copy_name(const char *text, size_t length)
{
    auto_buf struct buf copy = BUF_MAX(SIZE_MAX / 4);

    buf_append(&copy, "", 0);
    while (length > 0) {
        size_t count = strnlen(text, length);
        utf8_repair(&copy, text, count);
        if (count < length) {
            buf_append_text(&copy, UTF8_REPLACEMENT);
            count++;
        }
        text += count;
        length -= count;
    }
    return copy.failure == BUF_OK ? TAKE_BUF(copy).data : NULL;
}

/* ---- adding ---- */

static size_t stored_bytes(const struct message *message);

/* Sets message->bytes. */
static int check_room(const struct conversation *conversation, struct message *message,
                      struct hutch_error *err)
{
    bool is_short =
        message->text.length <= LAST_WORDS_BYTES && message->call_count == 0 && !message->extra;
    size_t room = LIMIT_CONVERSATION_BYTES - (is_short ? 0 : LIMIT_CONVERSATION_END);

    if (conversation->count == LIMIT_MESSAGES)
        return err_set(err, HUTCH_ERR_INVALID, "messages: more than %d", LIMIT_MESSAGES);
    message->bytes = stored_bytes(message);
    if (conversation->bytes >= room || message->bytes > room - conversation->bytes)
        return err_set(err, HUTCH_ERR_INVALID,
                       "messages: more than %llu bytes; begin another conversation",
                       (unsigned long long)room);
    return 0;
}

bool conversation_is_full(const struct conversation *conversation)
{
    return conversation->bytes >= LIMIT_CONVERSATION_BYTES - LIMIT_CONVERSATION_END;
}

int conversation_add(struct conversation *conversation, struct message *message,
                     struct hutch_error *err)
{
    if (check_room(conversation, message, err) < 0)
        return err->code;
    if (conversation->count == conversation->capacity) {
        size_t capacity = conversation->capacity ? 2 * conversation->capacity : 16;
        struct message *messages =
            realloc(conversation->messages, capacity * sizeof(*conversation->messages));
        if (!messages)
            return err_no_memory(err);
        conversation->messages = messages;
        conversation->capacity = capacity;
    }
    conversation->bytes += message->bytes;
    conversation->messages[conversation->count++] = *message;
    *message = (struct message){.role = MESSAGE_SYSTEM};
    return 0;
}

int conversation_add_text(struct conversation *conversation, enum message_role role,
                          const char *text, size_t length, struct hutch_error *err)
{
    auto_message struct message message = {.role = role};

    if (message_copy_text(text, length, &message.text, err) < 0)
        return err->code;
    return conversation_add(conversation, &message, err);
}

int conversation_add_tool(struct conversation *conversation, const char *call_id, const char *text,
                          size_t length, struct hutch_error *err)
{
    static const char no_room[] =
        "Error: the answer is too long for what is left of the conversation.";
    auto_message struct message message = {.role = MESSAGE_TOOL};

    if (!conversation_has_call(conversation, call_id))
        return err_set(err, HUTCH_ERR_INVALID, "tool_call_id: no call before has the id %s",
                       quote_text(call_id).text);
    message.call_id = message_copy_name(call_id, strlen(call_id));
    if (!message.call_id)
        return err_no_memory(err);
    if (message_copy_text(text, length, &message.text, err) < 0)
        return err->code;
    if (conversation_add(conversation, &message, err) == 0)
        return 0;
    if (err->code != HUTCH_ERR_INVALID)
        return err->code;
    free(message.text.data);
    message.text = (struct hutch_text){NULL, 0};
    if (message_copy_text(no_room, strlen(no_room), &message.text, err) < 0)
        return err->code;
    return conversation_add(conversation, &message, err);
}

void conversation_cut(struct conversation *conversation, size_t count)
{
    while (conversation->count > count) {
        struct message *last = &conversation->messages[--conversation->count];
        conversation->bytes -= last->bytes;
        message_done(last);
    }
}

bool conversation_has_call(const struct conversation *conversation, const char *id)
{
    for (size_t i = 0; conversation && i < conversation->count; i++) {
        const struct message *message = &conversation->messages[i];
        for (size_t k = 0; k < message->call_count; k++) {
            if (strcmp(message->calls[k].id, id) == 0)
                return true;
        }
    }
    return false;
}

size_t conversation_calls(const struct conversation *conversation)
{
    size_t count = 0;
    for (size_t i = 0; conversation && i < conversation->count; i++)
        count += conversation->messages[i].call_count;
    return count;
}

/* ---- writing ---- */

/* Who the JSON is for: a server, or a transcript. */
struct writer {
    struct buf *out;
    bool stored;
    const char *origin; /* of the server */
    bool empty_content; /* see message.h */
};

/* Members that a server knows, behind others. */
static void append_members(struct buf *out, const json_t *object)
{
    json_t *members = (json_t *)object; /* is not changed by being walked through */

    for (void *at = json_object_iter(members); at; at = json_object_iter_next(members, at)) {
        buf_append_text(out, ",");
        json_append_text(out, json_object_iter_key(at));
        buf_append_text(out, ":");
        json_append_value(out, json_object_iter_value(at));
    }
}

static void append_extra(const struct writer *writer, const json_t *extra, bool from_here)
{
    if (!extra)
        return;
    if (writer->stored) {
        buf_append_text(writer->out, ",\"extra\":");
        json_append_value(writer->out, extra);
    } else if (from_here) {
        append_members(writer->out, extra);
    }
}

static void append_call(const struct writer *writer, const struct tool_call *call, bool from_here)
{
    struct buf *out = writer->out;

    buf_append_text(out, "{\"id\":");
    json_append_text(out, call->id);
    buf_append_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
    json_append_text(out, call->name);
    buf_append_text(out, ",\"arguments\":");
    json_append_text(out, call->text);
    buf_append_text(out, "}");
    append_extra(writer, call->extra, from_here);
    if (writer->stored && call->fault != CALL_GOOD) {
        buf_append_text(out, ",\"fault\":");
        json_append_text(out, faults[call->fault]);
        buf_append_text(out, ",\"problem\":");
        json_append_text(out, call->problem);
    }
    buf_append_text(out, "}");
}

static void append_message(const struct writer *writer, const struct message *message)
{
    struct buf *out = writer->out;
    bool from_here =
        message->origin && writer->origin && strcmp(message->origin, writer->origin) == 0;

    buf_append_text(out, "{\"role\":");
    json_append_text(out, roles[message->role]);
    if (message->call_id) {
        buf_append_text(out, ",\"tool_call_id\":");
        json_append_text(out, message->call_id);
    }
    if (message->text.length > 0 || message->role != MESSAGE_ASSISTANT || writer->empty_content) {
        buf_append_text(out, ",\"content\":");
        json_append_string(out, message->text.data ? message->text.data : "", message->text.length);
    }
    for (size_t i = 0; i < message->call_count; i++) {
        buf_append_text(out, i == 0 ? ",\"tool_calls\":[" : ",");
        append_call(writer, &message->calls[i], from_here);
    }
    buf_append_text(out, message->call_count > 0 ? "]" : "");
    append_extra(writer, message->extra, from_here);
    if (writer->stored && message->origin) {
        buf_append_text(out, ",\"origin\":");
        json_append_text(out, message->origin);
    }
    buf_append_text(out, "}");
}

/* What a message takes of a conversation, with the comma behind it. */
static size_t stored_bytes(const struct message *message)
{
    auto_buf struct buf out = BUF_MAX(LIMIT_CONVERSATION_BYTES);
    const struct writer writer = {.out = &out, .stored = true};

    append_message(&writer, message);
    return out.failure == BUF_OK ? out.length + 1 : LIMIT_CONVERSATION_BYTES;
}

/* One message of the prompt and all messages of the system; false if there is none. */
static bool append_system(struct buf *out, const char *prompt,
                          const struct conversation *conversation)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_CONVERSATION_BYTES);
    bool found = prompt && *prompt;

    if (found)
        buf_append_text(&text, prompt);
    for (size_t i = 0; i < conversation->count; i++) {
        const struct message *message = &conversation->messages[i];
        if (message->role != MESSAGE_SYSTEM || message->text.length == 0)
            continue;
        buf_append_text(&text, found ? "\n\n" : "");
        buf_append(&text, message->text.data, message->text.length);
        found = true;
    }
    if (text.failure != BUF_OK)
        out->failure = text.failure;
    if (!found)
        return false;
    buf_append_text(out, "{\"role\":\"system\",\"content\":");
    json_append_string(out, buf_text(&text), text.length);
    buf_append_text(out, "}");
    return true;
}

static bool says_something(const struct message *message)
{
    return message->role != MESSAGE_ASSISTANT || message->text.length > 0 ||
           message->call_count > 0;
}

void conversation_append_wire(struct buf *out, const char *system,
                              const struct conversation *conversation, const char *origin,
                              bool empty_content)
{
    const struct writer writer = {.out = out, .origin = origin, .empty_content = empty_content};

    buf_append_text(out, "[");
    bool comma = append_system(out, system, conversation);
    for (size_t i = 0; i < conversation->count; i++) {
        const struct message *message = &conversation->messages[i];
        if (message->role == MESSAGE_SYSTEM || !says_something(message))
            continue;
        buf_append_text(out, comma ? "," : "");
        append_message(&writer, message);
        comma = true;
    }
    buf_append_text(out, "]");
}

void conversation_append_stored(struct buf *out, const struct conversation *conversation)
{
    const struct writer writer = {.out = out, .stored = true};

    buf_append_text(out, "[");
    for (size_t i = 0; i < conversation->count; i++) {
        buf_append_text(out, i > 0 ? "," : "");
        append_message(&writer, &conversation->messages[i]);
    }
    buf_append_text(out, "]");
}

/* ---- reading ---- */

/* The number of a word in a list; -1 for none. */
static int word_in(const json_t *value, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (json_is_string(value) && strcmp(json_string_value(value), list[i]) == 0)
            return (int)i;
    }
    return -1;
}

/* A string that has to be there. */
static int read_name(const json_t *object, const char *member, char **ret_name,
                     struct hutch_error *err)
{
    const json_t *value = json_object_get(object, member);

    if (!json_is_string(value) || json_string_length(value) == 0)
        return err_set(err, HUTCH_ERR_INVALID, "%s: a string that is not empty expected", member);
    *ret_name = message_copy_name(json_string_value(value), json_string_length(value));
    return *ret_name ? 0 : err_no_memory(err);
}

static int read_extra(const json_t *object, json_t **ret_extra, struct hutch_error *err)
{
    json_t *extra = json_object_get(object, "extra");

    if (!extra)
        return 0;
    if (!json_is_object(extra))
        return err_set(err, HUTCH_ERR_INVALID, "extra: an object expected, not %s",
                       json_kind(extra));
    *ret_extra = json_incref(extra);
    return 0;
}

static int read_arguments(struct tool_call *call, struct hutch_error *err)
{
    size_t length = strlen(call->text);

    if (json_read(call->text, length, LIMIT_ARGUMENTS_BYTES, &call->arguments, err) < 0)
        return err_context(err, "function.arguments");
    if (!json_is_object(call->arguments))
        return err_set(err, HUTCH_ERR_INVALID, "function.arguments: an object expected, not %s",
                       json_kind(call->arguments));
    return 0;
}

static int read_call(const json_t *value, struct tool_call *call, struct hutch_error *err)
{
    const json_t *function = json_object_get(value, "function");
    const json_t *fault = json_object_get(value, "fault");

    if (read_name(value, "id", &call->id, err) < 0 ||
        read_name(function, "name", &call->name, err) < 0 ||
        read_name(function, "arguments", &call->text, err) < 0 ||
        read_extra(value, &call->extra, err) < 0)
        return err->code;
    if (!fault)
        return read_arguments(call, err);
    int number = word_in(fault, faults, ARRAY_LENGTH(faults));
    if (number <= CALL_GOOD)
        return err_set(err, HUTCH_ERR_INVALID,
                       "fault: one of cut_off, malformed, unknown_tool expected");
    call->fault = (enum call_fault)number;
    return read_name(value, "problem", &call->problem, err);
}

static int read_calls(const json_t *array, struct message *message, struct hutch_error *err)
{
    size_t count = json_array_size(array);

    if (!array || count == 0)
        return 0;
    if (count > LIMIT_REPLY_CALLS)
        return err_set(err, HUTCH_ERR_INVALID, "tool_calls: at most %d are allowed, not %zu",
                       LIMIT_REPLY_CALLS, count);
    message->calls = calloc(count, sizeof(*message->calls));
    if (!message->calls)
        return err_no_memory(err);
    for (size_t i = 0; i < count; i++) {
        message->call_count = i + 1;
        if (read_call(json_array_get(array, i), &message->calls[i], err) < 0)
            return err_context(err, "tool_calls[%zu]", i);
    }
    return 0;
}

static int read_text(const json_t *object, struct message *message, struct hutch_error *err)
{
    const json_t *content = json_object_get(object, "content");

    if (!content && message->role == MESSAGE_ASSISTANT)
        return 0;
    if (!json_is_string(content))
        return err_set(err, HUTCH_ERR_INVALID, "content: a string expected");
    return message_copy_text(json_string_value(content), json_string_length(content),
                             &message->text, err);
}

static int read_message(const json_t *object, struct message *message, struct hutch_error *err)
{
    int role = word_in(json_object_get(object, "role"), roles, ARRAY_LENGTH(roles));

    if (role < 0)
        return err_set(err, HUTCH_ERR_INVALID,
                       "role: one of system, user, assistant, tool expected");
    message->role = (enum message_role)role;
    if (read_text(object, message, err) < 0)
        return err->code;
    if (role == MESSAGE_TOOL)
        return read_name(object, "tool_call_id", &message->call_id, err);
    if (role != MESSAGE_ASSISTANT)
        return 0;
    if (json_object_get(object, "origin") && read_name(object, "origin", &message->origin, err) < 0)
        return err->code;
    if (read_extra(object, &message->extra, err) < 0)
        return err->code;
    return read_calls(json_object_get(object, "tool_calls"), message, err);
}

int conversation_read(const json_t *array, struct conversation *ret_conversation,
                      struct hutch_error *err)
{
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;

    if (!json_is_array(array))
        return err_set(err, HUTCH_ERR_INVALID, "messages: an array expected");
    for (size_t i = 0; i < json_array_size(array); i++) {
        auto_message struct message message = {.role = MESSAGE_SYSTEM};
        if (read_message(json_array_get(array, i), &message, err) < 0)
            return err_context(err, "messages[%zu]", i);
        if (message.call_id && !conversation_has_call(&conversation, message.call_id))
            return err_set(err, HUTCH_ERR_INVALID,
                           "messages[%zu].tool_call_id: no call before has the id %s", i,
                           quote_text(message.call_id).text);
        if (conversation_add(&conversation, &message, err) < 0)
            return err->code;
    }
    *ret_conversation = conversation;
    conversation = CONVERSATION_EMPTY;
    return 0;
}
