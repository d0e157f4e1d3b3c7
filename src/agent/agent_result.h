/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a run as it grows. It belongs to the run's own thread. */
#pragma once

#include "tool.h"

#include <hutch-agent.h>

/* An empty one: the answer is "", which never is NULL; a count of 0 for each tool.
 * Errors: NO_MEMORY. */
MUST_CHECK int agent_result_new(const struct tool_set *tools, hutch_agent_result **ret_result,
                                struct hutch_error *err);

/* Counts a call. *ret_name becomes the tool's name, which lives as long as the result.
 * Errors: NO_MEMORY. */
MUST_CHECK int agent_result_count(hutch_agent_result *result, const char *tool,
                                  const char **ret_name, struct hutch_error *err);

/* Adds a cell; its tool is a name that agent_result_count gave. Errors: NO_MEMORY. */
MUST_CHECK int agent_result_add_cell(hutch_agent_result *result,
                                     const struct hutch_agent_cell *cell, struct hutch_error *err);

/* Sets the answer to a copy. Errors: NO_MEMORY. */
MUST_CHECK int agent_result_set_answer(hutch_agent_result *result, const char *text, size_t length,
                                       struct hutch_error *err);
