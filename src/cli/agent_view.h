/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is shown of an agent's run while it runs: nothing, a line for each tool call, everything
 * as text for people, or everything as JSON lines.
 *
 * As text:
 *
 *     [1] python_executor
 *         print(2**100)
 *     1| 1267650600228229401496703205376
 *     1= exit code 0, 12 ms, 9.1 MiB
 *
 *     2 to the power of 100 is 1267650600228229401496703205376.
 *
 * Calls are numbered; `1|` begins what call 1 printed on stdout, `1!` on stderr, `~` what the
 * model says of its reasoning.
 */
#pragma once

#include "safe_text.h"

#include <hutch-agent.h>

enum agent_view_kind {
    AGENT_VIEW_NOTHING,
    AGENT_VIEW_CALLS, /* on stderr */
    AGENT_VIEW_TEXT,  /* on stdout */
    AGENT_VIEW_LINES, /* on stdout */
};

enum agent_view_part {
    AGENT_PART_NONE,
    AGENT_PART_REASONING,
    AGENT_PART_MESSAGE,
    AGENT_PART_TOOLS
};

/* A call of the step that is shown. */
struct agent_view_call {
    char *id;
    unsigned number;
    struct safe_text streams[2];
};

struct agent_view {
    enum agent_view_kind kind;
    bool colours;
    hutch_cancel *cancel; /* triggered when nothing can be written any more */
    int failure;          /* errno of the first write that failed; 0 */

    struct agent_view_call *calls;
    size_t call_count;
    unsigned numbered; /* calls so far */
    enum agent_view_part part;
    unsigned writer;             /* whose line is the last one */
    bool inside_line;            /* and whether it goes on */
    struct safe_text model_text; /* of the part that is shown */
};
void agent_view_done(struct agent_view *view);

/* A hutch_agent_event_fn whose user is the view. */
void agent_view_event(void *view, const struct hutch_agent_event *event);

/* Ends the last line, and forgets the run: the next one may begin. */
void agent_view_end(struct agent_view *view);
