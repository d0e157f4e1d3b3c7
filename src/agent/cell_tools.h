/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The built-in tools: code in cells.
 *
 * python_executor     a fresh cell for each call, with the gate
 * code_interpreter    a session of python, javascript or the shell for each conversation
 * shell               commands in the conversation's session of the shell
 * read_file, write_file, list_files   the files of the conversation
 *
 * The sessions of one conversation are cells of their own; they share files: what one has made
 * or changed is brought to the other before its next exec, within bounds that the model is told
 * of where they bite.
 */
#pragma once

#include "tool.h"

struct cell_tools;
struct workspace;

/* Makes them for an engine, for cells as limits says (NULL: the defaults), both as in struct
 * hutch_agent_options, and adds those that names lists to set, in the order above. *ret_tools has
 * to live as long as set. The error names the option. Errors: INVALID, NO_MEMORY. */
MUST_CHECK int cell_tools_new(hutch_engine *engine, const struct hutch_request *limits,
                              const char *names, struct tool_set *set,
                              struct cell_tools **ret_tools, struct hutch_error *err);
void cell_tools_free(struct cell_tools *tools);

/* The sessions and the files of one conversation: hutch_call.state. Calls of one conversation
 * may run at once. Nothing is started here. Errors: NO_MEMORY. */
MUST_CHECK int workspace_new(struct workspace **ret_workspace, struct hutch_error *err);

/* Closes its sessions. NULL is ignored. */
void workspace_free(struct workspace *workspace);

/* Whether one of its sessions has lost its state since the last question. */
bool workspace_take_state_lost(struct workspace *workspace);
