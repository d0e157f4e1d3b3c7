/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tool calls of a reply, put together from what servers send: whole ones, or pieces
 * whose id, index and name may each be missing, repeated or wrong.
 *
 * Each call has a slot. A piece goes to the slot that its id names; else, with a new id, to
 * that of its index if this has neither id nor whole arguments yet, and without an id to
 * the newest of its index, or the newest of all where it has no index. Otherwise, and
 * where it names another tool that is known, or begins an object anew, it gets a new slot.
 * Where a slot holds a whole object and another begins: after {} it takes its place, the
 * same one once more is dropped, else it is a further call of the same name.
 *
 * Belongs to one thread at a time.
 */
#pragma once

#include "message.h"

#include <stdbool.h>
#include <stddef.h>

/* Members that only the server knows. Zeroed, there are none. */
struct extra {
    json_t *members; /* an object, or NULL */
    size_t bytes;    /* as JSON, or somewhat less */
};

/* Sets a member to a value, of which it has a share; where lists_go_on, a list is put behind the
 * one that is there. Errors: INVALID for more than LIMIT_REPLY_EXTRA_BYTES, NO_MEMORY. */
MUST_CHECK int extra_put(struct extra *extra, const char *name, json_t *value, bool lists_go_on,
                         struct hutch_error *err);

struct call_slot;

struct calls {
    const char *const *tools; /* names that are known, ended by NULL; NULL: any is good */
    struct call_slot *slots;  /* in the order of their first pieces */
    size_t count;
    size_t extra_bytes; /* of the calls together */
};
#define CALLS_OF(tools_) ((struct calls){.tools = (tools_)})
void calls_done(struct calls *calls);

/* Takes an entry of "tool_calls": a piece, or, where whole, a call of its own. What is no
 * object is ignored. Errors: INVALID for more than LIMIT_REPLY_CALLS calls or longer
 * arguments than LIMIT_ARGUMENTS_BYTES or more of other members than LIMIT_REPLY_EXTRA_BYTES,
 * NO_MEMORY. */
MUST_CHECK int calls_take(struct calls *calls, const json_t *entry, bool whole,
                          struct hutch_error *err);

/* Takes a "function_call" of old, of which a reply has one. Where there are calls already it is
 * the first of them once more, as some servers send it, and ignored. Errors as above. */
MUST_CHECK int calls_take_legacy(struct calls *calls, const json_t *function,
                                 struct hutch_error *err);

/* Makes the calls out of the slots, once. at_limit: the reply ended at its limit of
 * tokens, so that arguments which did not come are cut off. Ids that are missing, there
 * twice, or in conversation (or NULL) already are replaced by call_<n>. *ret_calls is the
 * caller's, NULL for none. Errors: INVALID for more than LIMIT_REPLY_CALLS, NO_MEMORY. */
MUST_CHECK int calls_finish(struct calls *calls, bool at_limit,
                            const struct conversation *conversation, struct tool_call **ret_calls,
                            size_t *ret_count, struct hutch_error *err);
