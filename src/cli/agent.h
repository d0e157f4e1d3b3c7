/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of hutch agent, in the program hutch-agent:
 *
 *   agent_options.c  the options
 *   agent.c          the command: makes the agent, asks one question, says how it ended
 *   agent_prompt.c   asks one question after another on a terminal
 *   agent_view.c     what is shown while a question is worked on
 *   agent_file.c     the file that keeps a conversation
 */
#pragma once

#include "agent_file.h"
#include "agent_options.h"
#include "agent_view.h"
#include "cli.h"

#include <hutch-agent.h>

/* Everything that a question needs. */
struct agent_desk {
    struct agent_values values;
    struct buf question, system, schema;
    const char **headers;
    struct hutch_request cells;
    struct hutch_gate gate;

    hutch_engine *engine;
    hutch_agent *agent;
    hutch_conversation *conversation;
    struct agent_file file;
    hutch_cancel *cancel;
    struct agent_view view;
};

/* Asks, saves the conversation, prints the answer, and says what there is to say. goes_on: an
 * interrupt ends this question alone. Returns the exit status. */
int agent_ask(struct agent_desk *desk, const char *question, size_t length, bool goes_on);

/* Asks for questions on the terminal until its end. Returns the exit status. */
int agent_prompt(struct agent_desk *desk);
