/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tools of an agent, and one call of one of them.
 *
 * A set is filled once and then only read, by any number of threads. A call belongs to the
 * thread that runs it.
 */
#pragma once

#include "base/buf.h"
#include "base/limits.h"

#include <hutch-agent.h>
#include <jansson.h>

struct tool {
    char *name;
    char *description;
    json_t *parameters; /* a schema that was accepted, of type object */
    hutch_tool_fn run;
    void *user;
    bool ends_run;
    bool in_order; /* keeps state in the conversation: after those before it in the reply */
};

/* What servers take for the name of a tool. */
#define TOOL_NAME_BYTES 64
#define TOOL_NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

struct tool_set {
    struct tool tools[LIMIT_TOOLS];
    size_t count;
};
void tool_set_done(struct tool_set *set);

/* Adds a tool, all of it copied but user. The error names the tool and the field.
 * Errors: INVALID, NO_MEMORY. */
MUST_CHECK int tool_set_add(struct tool_set *set, const struct hutch_tool *tool,
                            struct hutch_error *err);

/* NULL if there is none of this name. */
const struct tool *tool_set_find(const struct tool_set *set, const char *name);

/* As struct chat_request has it: an array of name, description, parameters, and strict where
 * that is possible. Other parameters go without their additionalProperties, which some servers
 * refuse; calls are checked by it all the same. NULL: no memory. */
json_t *tool_set_describe(const struct tool_set *set, bool strict);

/* Is told of a call what hutch_call_output says, what cells did, and what an agent that is a tool
 * has done; on the thread of the call. Members may be NULL. */
struct call_listener {
    void (*on_output)(void *user, enum hutch_stream stream, const char *data, size_t length);
    int (*on_cell)(void *user, const struct hutch_agent_cell *cell, struct hutch_error *err);
    int (*on_agent)(void *user, const hutch_agent_result *result, struct hutch_error *err);
    void *user;
};

/* A call, opaque to tools. */
struct hutch_call {
    const struct tool *tool;
    const json_t *arguments; /* an object */
    const char *text;        /* the same as JSON, NUL-terminated */
    size_t length;
    hutch_cancel *cancel; /* triggered when the run is over */
    uint64_t deadline_ns; /* monotonic */
    void *state;          /* the sessions of the conversation, for the built-in tools */
    uint64_t max_answer_bytes;
    struct call_listener listener;
    struct buf answer; /* at most LIMIT_CALL_ANSWER_BYTES */
    bool answer_cut;
    hutch_result *last_cell; /* that was recorded; NULL for none */
    json_t *own_arguments;   /* without needless nulls; see schema.h */
    struct buf own_text;
};

/* Checks the arguments by the schema of the tool and runs it. Nulls that stand for what was left
 * out are dropped before; arguments, text and length are then the call's own. What is behind
 * listener has to be zero before. Afterwards call->answer is what the model is told: valid UTF-8,
 * never empty, of more than max_answer_bytes head and tail. Returns 0, or 1: the call failed, and
 * the answer begins with "Error: ". Negative: NO_MEMORY alone. */
MUST_CHECK int tool_run(struct hutch_call *call, struct hutch_error *err);

/* Notes a cell of which there is no result, such as one that was killed with the call; its tool
 * and step are the listener's affair. Errors: NO_MEMORY. */
MUST_CHECK int tool_call_note(struct hutch_call *call, const struct hutch_agent_cell *cell,
                              struct hutch_error *err);

/* Frees what is behind listener; the rest is the caller's. */
void tool_call_end(struct hutch_call *call);
