/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a conversation, in memory, as a request to a model says them, and as a
 * transcript keeps them.
 *
 * Text is valid UTF-8 (what is not becomes U+FFFD, a lone surrogate escape too) and may
 * hold NUL. Ids and names hold no NUL. A conversation owns its messages and belongs to one
 * thread at a time. Its bounds: LIMIT_MESSAGES messages, LIMIT_REPLY_CALLS calls in one,
 * LIMIT_CONVERSATION_BYTES of JSON as conversation_append_stored writes it. The last
 * LIMIT_CONVERSATION_END of these are for messages with a text of at most 1 KiB alone, so that
 * calls can be answered and a run be ended however much was said before.
 */
#pragma once

#include "base/json.h"

#include <hutch.h>
#include <stdbool.h>
#include <stddef.h>

enum message_role { MESSAGE_SYSTEM, MESSAGE_USER, MESSAGE_ASSISTANT, MESSAGE_TOOL };

/* Why a call is not to be executed. Its tool message is then call.problem. */
enum call_fault {
    CALL_GOOD,
    CALL_CUT_OFF,      /* the arguments end early */
    CALL_MALFORMED,    /* the arguments are no object */
    CALL_UNKNOWN_TOOL, /* no tool has this name */
};

/* A call of a tool. Zeroed, it is empty. */
struct tool_call {
    char *id;          /* never empty */
    char *name;        /* 1 to 64 of a-z A-Z 0-9 _ - */
    char *text;        /* the arguments as JSON, always an object; "{}" for a faulty call */
    json_t *arguments; /* the same object; NULL for a faulty call */
    json_t *extra;     /* members of the call that only its server knows; NULL for none */
    enum call_fault fault;
    char *problem; /* what to answer the model for a faulty call; NULL for a good one */
};
void tool_call_done(struct tool_call *call);

struct message {
    enum message_role role;
    struct hutch_text text;  /* data is NULL for none */
    struct tool_call *calls; /* of an assistant */
    size_t call_count;
    char *call_id; /* of a tool: which call it answers */
    json_t *extra; /* of an assistant: members that only its server knows; NULL for none */
    char *origin;  /* server and model that extra came from; NULL for none */
    size_t bytes;  /* as JSON; set by conversation_add */
};
void message_done(struct message *message);

struct conversation {
    struct message *messages;
    size_t count;
    size_t capacity;
    size_t bytes; /* of its messages */
};
#define CONVERSATION_EMPTY ((struct conversation){NULL, 0, 0, 0})

void conversation_done(struct conversation *conversation);
#define auto_conversation __attribute__((cleanup(conversation_done)))

/* Adds a message of the system or the user. The text is copied.
 * Errors of all that add: NO_MEMORY, INVALID for more than the bounds. */
MUST_CHECK int conversation_add_text(struct conversation *conversation, enum message_role role,
                                     const char *text, size_t length, struct hutch_error *err);

/* Adds the answer to a call; where it is too long for what is left, words that say so. An id
 * that no earlier call has is INVALID. */
MUST_CHECK int conversation_add_tool(struct conversation *conversation, const char *call_id,
                                     const char *text, size_t length, struct hutch_error *err);

/* Adds a message; its content moves, *message is empty afterwards. After an error it is as
 * it was. */
MUST_CHECK int conversation_add(struct conversation *conversation, struct message *message,
                                struct hutch_error *err);

/* Whether there is no room left but for last words. */
bool conversation_is_full(const struct conversation *conversation);

/* Whether a call of the conversation has this id. conversation may be NULL. */
bool conversation_has_call(const struct conversation *conversation, const char *id);

/* How many calls the messages hold. conversation may be NULL. */
size_t conversation_calls(const struct conversation *conversation);

/* Drops the messages behind the first count. */
void conversation_cut(struct conversation *conversation, size_t count);

/* Appends the value of a request's "messages": one system message at most, first, which begins
 * with the text system (NULL or "": none); no message of an assistant without text and calls; no
 * nulls. What only a server knows is sent to its origin alone; NULL: to nobody. empty_content:
 * a message with calls and no text has a content all the same, "". */
void conversation_append_wire(struct buf *out, const char *system,
                              const struct conversation *conversation, const char *origin,
                              bool empty_content);

/* Appends all of it as a JSON array, for a transcript. */
void conversation_append_stored(struct buf *out, const struct conversation *conversation);

/* Reads that array, or the "messages" of a request. The error names the message and the
 * member, "messages[3].role: ...". *ret_conversation is the caller's. Errors: INVALID,
 * NO_MEMORY. */
MUST_CHECK int conversation_read(const json_t *array, struct conversation *ret_conversation,
                                 struct hutch_error *err);

/* A copy of text, as valid UTF-8 with a NUL behind it. Errors: NO_MEMORY. */
MUST_CHECK int message_copy_text(const char *text, size_t length, struct hutch_text *ret_text,
                                 struct hutch_error *err);

/* The same as a string: U+FFFD stands for NUL. NULL: no memory. */
char *message_copy_name(const char *text, size_t length);
