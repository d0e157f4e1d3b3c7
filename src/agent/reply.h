/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's reply, put together from a whole completion or from the events of a stream.
 * What servers get wrong and has one plain meaning is taken; the rest is an error that
 * says where. A builder belongs to one thread at a time; its callbacks are called on it.
 */
#pragma once

#include "base/limits.h"
#include "calls.h"
#include "message.h"
#include "model_error.h"
#include "sse.h"

#include <stdbool.h>
#include <stddef.h>

enum reply_finish {
    REPLY_STOP,
    REPLY_LENGTH,         /* the limit of tokens */
    REPLY_CONTENT_FILTER, /* the server's filter ended it */
    REPLY_TOOL_CALLS,
};

/* "stop", "length", "content_filter", "tool_calls". Static. */
const char *reply_finish_name(enum reply_finish finish);

/* Zeroed, it is empty. */
struct reply {
    struct message message;      /* of the assistant: text, calls, what only its server knows. To
                                    be moved by conversation_add; calls present mean a tool step,
                                    whatever finish says */
    struct hutch_text reasoning; /* data is NULL for none */
    enum reply_finish finish;
    bool refused;  /* the text is the model's refusal */
    json_t *usage; /* the last object of that name; NULL for none */
    char *model;   /* as the server names it; NULL for none */
};
void reply_done(struct reply *reply);
#define auto_reply __attribute__((cleanup(reply_done)))

/* Is given text as it comes: valid UTF-8, at least one byte. */
typedef void (*reply_text_fn)(void *user, const char *data, size_t length);

struct reply_options {
    const char *const *tools; /* names that were offered, ended by NULL; NULL: any is good */
    const struct conversation *conversation; /* its ids are not used again; NULL for none */
    reply_text_fn on_text;                   /* may be NULL */
    reply_text_fn on_reasoning;              /* may be NULL */
    void *user;
    const char *const *hidden; /* secrets that are in no error, see secret_at; NULL for none */
};

struct reply_builder {
    struct reply_options options;
    struct buf text, refusal, reasoning;
    struct buf reasoning_content, reasoning_plain; /* as the members of that name */
    struct calls calls;
    struct extra extra;
    json_t *usage;
    char *model;
    enum reply_finish finish;
    bool finished; /* a reason to finish was seen */
    bool done;     /* the end mark of a stream was seen, or the reply came as a whole */
    bool shown;    /* a callback was given something */
};

/* The options, and what they point to, live as long as the builder. */
void reply_builder_init(struct reply_builder *builder, const struct reply_options *options);
void reply_builder_done(struct reply_builder *builder);

/* Takes an event of a stream. Returns 0; 1 when it was the end mark; -1 with *error set:
 * MALFORMED, TOO_LARGE, NO_MEMORY, or what the server says instead of a reply, whose kind
 * and retry_safe follow its code. The builder may be finished after an error, no more. */
MUST_CHECK int reply_take_event(struct reply_builder *builder, const struct sse_event *event,
                                struct model_error *error);

/* Takes a whole completion. Returns 0, or -1 as above. */
MUST_CHECK int reply_take_whole(struct reply_builder *builder, const char *data, size_t length,
                                struct model_error *error);

/* Whether nothing more is needed: a reason to finish or the end mark was seen. */
bool reply_is_complete(const struct reply_builder *builder);

/* Makes the reply. *ret_reply is the caller's. Returns 0, or -1: TRUNCATED when it is not
 * complete, EMPTY when it is stopped without text and calls (both retry_safe unless something
 * was shown; its usage is still the builder's), TOO_LARGE, NO_MEMORY. */
MUST_CHECK int reply_finish(struct reply_builder *builder, struct reply *ret_reply,
                            struct model_error *error);

/* What there is of a reply that broke: text, reasoning, usage, model; no calls, which are
 * not to be trusted. *ret_reply is the caller's. */
void reply_take_partial(struct reply_builder *builder, struct reply *ret_reply);
