/* SPDX-License-Identifier: Apache-2.0 */
/* The system prompt of hutch: made for the tools that an agent has. Pure. */
#pragma once

#include "base/buf.h"
#include "tool.h"

/* Appends it. schema: what the answer has to follow; NULL: free text.
 * Errors: NO_MEMORY. */
MUST_CHECK int prompt_append(struct buf *out, const struct tool_set *set, const json_t *schema,
                             struct hutch_error *err);
