/* SPDX-License-Identifier: Apache-2.0 */
/* struct hutch_conversation, for runs. */
#pragma once

#include "cell_tools.h"
#include "message.h"

#include <hutch-agent.h>
#include <stdatomic.h>

struct hutch_conversation {
    struct conversation said;
    struct workspace *workspace;
    hutch_engine *engine; /* that the sessions are of; NULL: of none yet */
    atomic_flag taken;    /* a run has it */
};

/* Takes it for a run on an engine, which may be NULL. Errors: INVALID when another run has it,
 * hutch_conversation_to_json is at it, or
 * it has been used with another engine. */
MUST_CHECK int conversation_take(struct hutch_conversation *conversation, hutch_engine *engine,
                                 struct hutch_error *err);
void conversation_release(struct hutch_conversation *conversation);

/* hutch_conversation_to_json of one that was taken. */
MUST_CHECK int conversation_write(const struct hutch_conversation *conversation, char **ret_json,
                                  struct hutch_error *err);
