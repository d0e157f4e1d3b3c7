/* SPDX-License-Identifier: Apache-2.0 */
/* See calls.h. */
#include "calls.h"

#include "arguments.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <ctype.h>
#include <string.h>

#define NO_INDEX (-1)
#define LEGACY_INDEX (-2)
#define NAME_BYTES 64   /* that a request may hold */
#define SHOWN_BYTES 300 /* of arguments that are told to the model */
#define PROBLEM_BYTES KIB(8)
#define NO_SLOT SIZE_MAX

struct call_slot {
    json_int_t index;
    struct buf id, name, arguments;
    const char *known; /* the tool that the name was, at some time; NULL for none */
    struct arguments_scan scan;
    json_t *extra;
    size_t next;    /* a further call that began in this one */
    size_t repeats; /* the slot in which this one began; it may be the same call again */
};

static void slot_done(struct call_slot *slot)
{
    buf_done(&slot->id);
    buf_done(&slot->name);
    buf_done(&slot->arguments);
    json_decref(slot->extra);
}

void calls_done(struct calls *calls)
{
    for (size_t i = 0; i < calls->count; i++)
        slot_done(&calls->slots[i]);
    free(calls->slots);
    *calls = CALLS_OF(calls->tools);
}

/* The known tool of that name; NULL for none. Without a list nothing is known. */
static const char *tool_named(const struct calls *calls, const char *name)
{
    for (size_t i = 0; calls->tools && calls->tools[i]; i++) {
        if (strcmp(calls->tools[i], name) == 0)
            return calls->tools[i];
    }
    return NULL;
}

/* ---- members that only the server knows ---- */

/* What a member takes as JSON; of more than is allowed, more than that. */
static size_t member_bytes(const char *name, const json_t *value)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_REPLY_EXTRA_BYTES);

    json_append_value(&text, value);
    return strlen(name) + strlen("\"\":,") +
           (text.failure == BUF_OK ? text.length : LIMIT_REPLY_EXTRA_BYTES);
}

int extra_put(struct extra *extra, const char *name, json_t *value, bool lists_go_on,
              struct hutch_error *err)
{
    if (!extra->members)
        extra->members = json_object();
    json_t *had = json_object_get(extra->members, name);
    bool goes_on = lists_go_on && json_is_array(had) && json_is_array(value);
    size_t bytes = extra->bytes + member_bytes(name, value);
    if (had && !goes_on)
        bytes -= member_bytes(name, had);
    if (bytes > LIMIT_REPLY_EXTRA_BYTES)
        return err_set(err, HUTCH_ERR_INVALID,
                       "members of the reply that are not of the protocol: more than %llu bytes",
                       (unsigned long long)LIMIT_REPLY_EXTRA_BYTES);
    extra->bytes = bytes;
    if (goes_on)
        return json_array_extend(had, value) < 0 ? err_no_memory(err) : 0;
    json_t *own = json_is_array(value) ? json_copy(value) : json_incref(value);
    return json_object_set_new_nocheck(extra->members, name, own) < 0 ? err_no_memory(err) : 0;
}

/* ---- which slot ---- */

/* A piece as it was sent. */
struct piece {
    json_int_t index;
    const char *id, *name; /* NULL for none */
    struct buf arguments;
    const json_t *entry; /* for what else there is; NULL for none */
};

static int slot_new(struct calls *calls, json_int_t index, size_t *ret_slot,
                    struct hutch_error *err)
{
    if (calls->count == LIMIT_REPLY_CALLS)
        return err_set(err, HUTCH_ERR_INVALID, "more than %d tool calls in a reply",
                       LIMIT_REPLY_CALLS);
    if (!calls->slots)
        calls->slots = calloc(LIMIT_REPLY_CALLS, sizeof(*calls->slots));
    if (!calls->slots)
        return err_no_memory(err);
    calls->slots[calls->count] = (struct call_slot){
        .index = index,
        .id = BUF_MAX(LIMIT_CALL_ID_BYTES),
        .name = BUF_MAX(LIMIT_CALL_NAME_BYTES),
        .arguments = BUF_MAX(LIMIT_ARGUMENTS_BYTES),
        .next = NO_SLOT,
        .repeats = NO_SLOT,
    };
    *ret_slot = calls->count++;
    return 0;
}

static size_t slot_of_id(const struct calls *calls, const char *id)
{
    for (size_t i = 0; i < calls->count; i++) {
        if (strcmp(buf_text(&calls->slots[i].id), id) == 0) {
            while (calls->slots[i].next != NO_SLOT)
                i = calls->slots[i].next;
            return i;
        }
    }
    return NO_SLOT;
}

/* The newest slot of an index; without one the newest of all. */
static size_t slot_of_index(const struct calls *calls, json_int_t index)
{
    for (size_t i = calls->count; i-- > 0;) {
        if (index == NO_INDEX || calls->slots[i].index == index)
            return i;
    }
    return NO_SLOT;
}

static bool only_metadata(const struct piece *piece)
{
    return !piece->id && !piece->name && piece->arguments.length == 0;
}

/* Whether a piece without an id begins another call than that of the slot. */
static bool begins_anew(const struct calls *calls, const struct call_slot *slot,
                        const struct piece *piece)
{
    if (!piece->name)
        return false;
    if (strcmp(piece->name, buf_text(&slot->name)) != 0)
        return slot->name.length > 0 && tool_named(calls, piece->name) != NULL;
    return slot->scan.whole &&
           arguments_begin_object(buf_text(&piece->arguments), piece->arguments.length);
}

/* Whether a piece with the id of a slot begins another call, of a server that gives all calls
 * one id: it has a name and another index, and the slot is whole. Servers that count pieces by
 * the index send no further name. */
static bool shares_id(const struct call_slot *slot, const struct piece *piece)
{
    return piece->name && piece->index != NO_INDEX && slot->index != NO_INDEX &&
           piece->index != slot->index && slot->scan.whole;
}

static size_t find_slot(const struct calls *calls, const struct piece *piece)
{
    size_t at = piece->id ? slot_of_id(calls, piece->id) : NO_SLOT;

    if (at != NO_SLOT && !shares_id(&calls->slots[at], piece))
        return at;
    at = slot_of_index(calls, piece->index);
    if (at == NO_SLOT)
        return only_metadata(piece) && calls->count > 0 ? calls->count - 1 : NO_SLOT;
    const struct call_slot *slot = &calls->slots[at];
    if (!piece->id)
        return begins_anew(calls, slot, piece) ? NO_SLOT : at;
    return slot->id.length > 0 || slot->scan.whole ? NO_SLOT : at;
}

/* ---- filling it ---- */

static void take_name(const struct calls *calls, struct call_slot *slot, const char *name)
{
    size_t had = slot->name.length, length = strlen(name);
    const char *now = buf_text(&slot->name);

    if (length <= had && memcmp(now, name, length) == 0)
        return; /* the same, or its beginning, again */
    if (had > 0 && length > had && memcmp(name, now, had) == 0)
        buf_clear(&slot->name); /* more of it */
    buf_append_text(&slot->name, name);
    const char *known = tool_named(calls, buf_text(&slot->name));
    if (known)
        slot->known = known;
}

/* A further call that begins where the one of the slot at from is whole. */
static int split(struct calls *calls, size_t from, size_t *ret_slot, struct hutch_error *err)
{
    if (slot_new(calls, calls->slots[from].index, ret_slot, err) < 0)
        return err->code;
    struct call_slot *old = &calls->slots[from], *slot = &calls->slots[*ret_slot];
    buf_append(&slot->name, buf_text(&old->name), old->name.length);
    slot->known = old->known;
    slot->repeats = from;
    old->next = *ret_slot;
    return 0;
}

static int take_arguments(struct calls *calls, size_t at, const struct buf *arguments,
                          struct hutch_error *err)
{
    struct call_slot *slot = &calls->slots[at];

    if (arguments->length == 0)
        return 0;
    if (slot->scan.whole && arguments_begin_object(arguments->data, arguments->length)) {
        if (!arguments_are_empty(slot->arguments.data, slot->arguments.length)) {
            if (split(calls, at, &at, err) < 0)
                return err->code;
            slot = &calls->slots[at];
        }
        buf_clear(&slot->arguments);
        slot->scan = (struct arguments_scan){.depth = 0};
    }
    buf_append(&slot->arguments, arguments->data, arguments->length);
    arguments_scan(&slot->scan, arguments->data, arguments->length);
    return buf_check(&slot->arguments, err) < 0 ? err_context(err, "arguments of a tool call") : 0;
}

/* Members of an entry that are not of the protocol; the last value counts. */
static int take_extra(struct calls *calls, struct call_slot *slot, const json_t *entry,
                      struct hutch_error *err)
{
    struct extra extra = {slot->extra, calls->extra_bytes};
    static const char *const known[] = {"index", "id", "type", "function"};
    json_t *members = (json_t *)entry; /* is not changed by being walked through */

    for (void *at = json_object_iter(members); at; at = json_object_iter_next(members, at)) {
        const char *name = json_object_iter_key(at);
        bool ours = json_is_null(json_object_iter_value(at));
        for (size_t i = 0; i < ARRAY_LENGTH(known); i++)
            ours = ours || strcmp(known[i], name) == 0;
        int code = ours ? 0 : extra_put(&extra, name, json_object_iter_value(at), false, err);
        slot->extra = extra.members;
        calls->extra_bytes = extra.bytes;
        if (code < 0)
            return code;
    }
    return 0;
}

static int take_piece(struct calls *calls, const struct piece *piece, bool whole,
                      struct hutch_error *err)
{
    size_t at = whole ? NO_SLOT : find_slot(calls, piece);

    if (at == NO_SLOT && slot_new(calls, piece->index, &at, err) < 0)
        return err->code;
    struct call_slot *slot = &calls->slots[at];
    if (piece->id && slot->id.length == 0)
        buf_append_text(&slot->id, piece->id);
    if (piece->name)
        take_name(calls, slot, piece->name);
    if (buf_check(&slot->id, err) < 0 || buf_check(&slot->name, err) < 0)
        return err_context(err, "id or name of a tool call");
    if (take_extra(calls, slot, piece->entry, err) < 0)
        return err->code;
    return take_arguments(calls, at, &piece->arguments, err);
}

/* ---- reading an entry ---- */

/* A string that says something; NULL for what does not. */
static const char *text_of(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) > 0 ? json_string_value(value) : NULL;
}

/* Arguments are text; what came as a value is written as one. */
static int read_arguments(const json_t *value, struct buf *out, struct hutch_error *err)
{
    if (json_is_string(value))
        buf_append(out, json_string_value(value), json_string_length(value));
    else if (value && !json_is_null(value))
        json_append_value(out, value);
    return buf_check(out, err) < 0 ? err_context(err, "arguments of a tool call") : 0;
}

static int take_function(struct calls *calls, json_int_t index, const char *id,
                         const json_t *function, const json_t *entry, bool whole,
                         struct hutch_error *err)
{
    struct piece piece = {
        .index = index,
        .id = id,
        .name = text_of(json_object_get(function, "name")),
        .arguments = BUF_MAX(LIMIT_ARGUMENTS_BYTES),
        .entry = entry,
    };
    int code = read_arguments(json_object_get(function, "arguments"), &piece.arguments, err);
    if (code == 0)
        code = take_piece(calls, &piece, whole, err);
    buf_done(&piece.arguments);
    return code;
}

int calls_take(struct calls *calls, const json_t *entry, bool whole, struct hutch_error *err)
{
    const json_t *index = json_object_get(entry, "index");
    const json_t *function = json_object_get(entry, "function");
    const char *id = text_of(json_object_get(entry, "id"));

    if (!json_is_object(entry))
        return 0;
    if (!id)
        id = text_of(json_object_get(function, "id"));
    bool has_index = json_is_integer(index) && json_integer_value(index) >= 0;
    return take_function(calls, has_index ? json_integer_value(index) : NO_INDEX, id, function,
                         entry, whole, err);
}

int calls_take_legacy(struct calls *calls, const json_t *function, struct hutch_error *err)
{
    bool is_there = calls->count > 0 && calls->slots[0].index != LEGACY_INDEX;

    if (!json_is_object(function) || is_there)
        return 0;
    return take_function(calls, LEGACY_INDEX, NULL, function, NULL, false, err);
}

/* ---- the end ---- */

struct finish {
    struct calls *calls;
    bool at_limit;
    const struct conversation *conversation;
    struct tool_call *made;
    size_t count;
    size_t next_id;
};

static bool id_is_used(const struct finish *finish, const char *id)
{
    for (size_t i = 0; i < finish->count; i++) {
        if (finish->made[i].id && strcmp(finish->made[i].id, id) == 0)
            return true;
    }
    return conversation_has_call(finish->conversation, id);
}

/* Whether a slot that is still to come has this id from its server. */
static bool id_will_come(const struct finish *finish, const char *id)
{
    return slot_of_id(finish->calls, id) != NO_SLOT;
}

static char *new_id(struct finish *finish)
{
    for (;;) {
        struct buf id = BUF_MAX(32);
        buf_appendf(&id, "call_%zu", finish->next_id++);
        if (id.failure != BUF_OK ||
            (!id_is_used(finish, id.data) && !id_will_come(finish, id.data)))
            return id.data;
        buf_done(&id);
    }
}

/* A name that a request may hold. */
static char *clean_name(const char *name)
{
    char *copy = strndup(*name ? name : "unknown", NAME_BYTES);

    for (char *at = copy; at && *at; at++) {
        if (!(isalnum((unsigned char)*at) && (unsigned char)*at < 0x80) && *at != '_' && *at != '-')
            *at = '_';
    }
    return copy;
}

static char *name_of(const struct calls *calls, const struct call_slot *slot)
{
    const char *name = buf_text(&slot->name);
    return clean_name(slot->known && !tool_named(calls, name) ? slot->known : name);
}

static int set_problem(struct tool_call *call, enum call_fault fault, struct buf *text,
                       struct hutch_error *err)
{
    if (buf_check(text, err) < 0)
        return err->code;
    free(call->problem);
    call->fault = fault;
    call->problem = TAKE_BUF(*text).data;
    return 0;
}

static int set_bad_arguments(struct tool_call *call, bool cut_off, const char *text, size_t length,
                             const struct hutch_error *why, struct hutch_error *err)
{
    auto_buf struct buf problem = BUF_MAX(PROBLEM_BYTES);
    size_t shown = length <= SHOWN_BYTES ? length : utf8_boundary_before(text, length, SHOWN_BYTES);

    if (cut_off)
        buf_appendf(&problem, "Error: the call was not executed: its arguments were cut off at the "
                              "token limit, send less.");
    else
        buf_appendf(&problem,
                    "Error: the call was not executed: its arguments are not a JSON "
                    "object: %s.",
                    why->message);
    if (shown > 0) {
        buf_append_text(&problem, " Arguments as they came: ");
        utf8_repair(&problem, text, shown);
        buf_append_text(&problem, shown < length ? "..." : "");
    }
    return set_problem(call, cut_off ? CALL_CUT_OFF : CALL_MALFORMED, &problem, err);
}

static int set_unknown(const struct calls *calls, struct tool_call *call, struct hutch_error *err)
{
    auto_buf struct buf problem = BUF_MAX(PROBLEM_BYTES + LIMIT_TOOLS * (NAME_BYTES + 2));

    buf_appendf(&problem, "Error: there is no tool '%s'. Available tools: ", call->name);
    for (size_t i = 0; calls->tools[i]; i++)
        buf_appendf(&problem, "%s%s", i > 0 ? ", " : "", calls->tools[i]);
    buf_append_text(&problem, calls->tools[0] ? "." : "none.");
    return set_problem(call, CALL_UNKNOWN_TOOL, &problem, err);
}

/* A call of the slot's name that has no arguments yet. */
static int begin_call(struct finish *finish, const struct call_slot *slot,
                      struct tool_call **ret_call, struct hutch_error *err)
{
    const char *id = buf_text(&slot->id);

    if (finish->count == LIMIT_REPLY_CALLS)
        return err_set(err, HUTCH_ERR_INVALID, "more than %d tool calls in a reply",
                       LIMIT_REPLY_CALLS);
    struct tool_call *call = &finish->made[finish->count];
    call->id = *id && !id_is_used(finish, id) ? strdup(id) : new_id(finish);
    call->name = name_of(finish->calls, slot);
    call->text = strdup("{}");
    call->extra = slot->extra ? json_deep_copy(slot->extra) : NULL;
    finish->count++;
    if (!call->id || !call->name || !call->text || (slot->extra && !call->extra))
        return err_no_memory(err);
    *ret_call = call;
    return 0;
}

/* The text of an object: as it came, where that is JSON to everybody. */
static char *argument_text(const char *text, size_t length, const json_t *object)
{
    struct hutch_error err;
    auto_json json_t *same = NULL;
    auto_buf struct buf written = BUF_MAX(SIZE_MAX / 4);

    if (!memmem(text, length, "\\u", 2) &&
        json_read(text, length, LIMIT_ARGUMENTS_BYTES, &same, &err) == 0 && json_is_object(same))
        return strndup(text, length);
    json_append_value(&written, object);
    return written.failure == BUF_OK ? TAKE_BUF(written).data : NULL;
}

static bool is_known(const struct calls *calls, const struct tool_call *call)
{
    return !calls->tools || tool_named(calls, call->name);
}

/* A call with an object for arguments, which is the call's. */
static int add_good(struct finish *finish, const struct call_slot *slot, const char *text,
                    size_t length, json_t *object, struct hutch_error *err)
{
    auto_json json_t *owned = object;
    struct tool_call *call;

    if (begin_call(finish, slot, &call, err) < 0)
        return err->code;
    if (!is_known(finish->calls, call))
        return set_unknown(finish->calls, call, err);
    free(call->text);
    call->text = argument_text(text, length, object);
    if (!call->text)
        return err_no_memory(err);
    call->arguments = TAKE_POINTER(owned);
    return 0;
}

static int add_bad(struct finish *finish, const struct call_slot *slot, bool cut_off,
                   const char *text, size_t length, const struct hutch_error *why,
                   struct hutch_error *err)
{
    struct tool_call *call;

    if (begin_call(finish, slot, &call, err) < 0)
        return err->code;
    if (!is_known(finish->calls, call))
        return set_unknown(finish->calls, call, err);
    return set_bad_arguments(call, cut_off, text, length, why, err);
}

static bool is_blank_or_null(const struct buf *arguments)
{
    const char *text = buf_text(arguments);
    size_t at = strspn(text, " \t\r\n");

    if (strncmp(text + at, "null", 4) == 0)
        at += 4;
    return at + strspn(text + at, " \t\r\n") == arguments->length;
}

static int add_blank(struct finish *finish, const struct call_slot *slot, struct hutch_error *err)
{
    if (finish->at_limit)
        return add_bad(finish, slot, true, "", 0, NULL, err);
    json_t *object = json_object();
    return object ? add_good(finish, slot, "{}", 2, object, err) : err_no_memory(err);
}

/* The objects of a slot, one call each: usually one. */
static int add_objects(struct finish *finish, const struct call_slot *slot, struct hutch_error *err)
{
    const char *text = slot->arguments.data, *before = NULL;
    size_t left = slot->arguments.length, before_length = 0;
    struct hutch_error why;

    while (left > 0) {
        json_t *object = NULL;
        size_t at;
        int end = arguments_read(text, left, &at, &object, &why);
        if (end < 0)
            return err_set(err, end, "%s", why.message);
        if (end != ARGUMENTS_OBJECT)
            return add_bad(finish, slot, end == ARGUMENTS_CUT_OFF, text, left, &why, err);
        if (at < left && text[at] != '{') {
            json_decref(object);
            err_set(&why, HUTCH_ERR_INVALID, "more text behind the object");
            return add_bad(finish, slot, false, text, left, &why, err);
        }
        bool again = before && before_length == at && memcmp(before, text, at) == 0;
        bool replaced = at < left && arguments_are_empty(text, at) &&
                        arguments_begin_object(text + at, left - at);
        if (again || replaced)
            json_decref(object);
        else if (add_good(finish, slot, text, at, object, err) < 0)
            return err->code;
        before = text;
        before_length = at;
        text += at;
        left -= at;
    }
    return 0;
}

static bool is_repetition(const struct calls *calls, const struct call_slot *slot)
{
    if (slot->repeats == NO_SLOT)
        return false;
    const struct buf *first = &calls->slots[slot->repeats].arguments;
    return first->length == slot->arguments.length &&
           memcmp(first->data, slot->arguments.data, first->length) == 0;
}

static int finish_slot(struct finish *finish, const struct call_slot *slot, struct hutch_error *err)
{
    if (is_repetition(finish->calls, slot))
        return 0;
    if (is_blank_or_null(&slot->arguments))
        return add_blank(finish, slot, err);
    return add_objects(finish, slot, err);
}

int calls_finish(struct calls *calls, bool at_limit, const struct conversation *conversation,
                 struct tool_call **ret_calls, size_t *ret_count, struct hutch_error *err)
{
    struct finish finish = {
        .calls = calls,
        .at_limit = at_limit,
        .conversation = conversation,
        .next_id = conversation_calls(conversation) + 1,
    };
    int code = 0;

    if (calls->count > 0) {
        finish.made = calloc(LIMIT_REPLY_CALLS, sizeof(*finish.made));
        if (!finish.made)
            return err_no_memory(err);
    }
    for (size_t i = 0; i < calls->count && code == 0; i++)
        code = finish_slot(&finish, &calls->slots[i], err);
    if (code < 0) {
        for (size_t i = 0; i < finish.count; i++)
            tool_call_done(&finish.made[i]);
        free(finish.made);
        return code;
    }
    *ret_calls = finish.made;
    *ret_count = finish.count;
    return 0;
}
