/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tool calls of one reply. They run on the thread of the caller and, where there are several,
 * on up to concurrency - 1 more, which are made for them and end with them; but those that keep
 * state in the conversation one after the other, in their order. A call that is faulty, or that
 * had not begun when the run was stopped, is answered without being run.
 */
#pragma once

#include "agent.h"
#include "events.h"
#include "message.h"
#include "stop_token.h"

/* What they are run for; only read, but for events. */
struct tool_desk {
    struct hutch_agent *agent;
    struct workspace *workspace;
    struct stop_token *token;
    struct events *events;
    hutch_agent_result *result; /* takes counts and cells; not touched by other threads */
    json_t **usage;             /* takes what agents that are tools used; likewise */
    uint64_t *tokens;           /* takes the sum of that; likewise */
};

/* Runs the calls of the last message of said and adds an answer to each, in their order.
 * *ret_ended: the tool that ends the run, the first of those that did not fail, and the answer is
 * in the result; NULL for none. Where it fails said may lack answers. Errors: NO_MEMORY; INVALID
 * when said is full. */
MUST_CHECK int tool_calls_run(const struct tool_desk *desk, struct conversation *said,
                              const char **ret_ended, struct hutch_error *err);
