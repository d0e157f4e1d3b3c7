/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The result of a run, see struct hutch_result: made, filled, freed, and
 * written as JSON by hutch_result_to_json().
 */
#pragma once

#include "base/attrs.h"

#include "rich.h"

#include <hutch.h>

/* Processes; room for LIMIT_BACKGROUND, or items is NULL. Zero is none. */
struct process_list {
    struct hutch_process *items;
    size_t count;
};

/* An empty result for a request: language and output_encoding are its own,
 * backend is a static name. hutch_result_free() frees it in any state.
 * Errors: NO_MEMORY. */
MUST_CHECK int result_new(const struct hutch_request *request, const char *backend,
                          struct hutch_result **ret_result, struct hutch_error *err);

/* Sets value to a copy of the runner's claim, made valid UTF-8; data NULL is
 * no value. Errors: NO_MEMORY. */
MUST_CHECK int result_set_value(struct hutch_result *result, const char *data, size_t length,
                                struct hutch_error *err);

/* Appends a file, without data. Errors: NO_MEMORY. */
MUST_CHECK int result_add_file(struct hutch_result *result, const char *path, uint64_t size,
                               struct hutch_error *err);

/* By path, byte by byte. */
void result_sort_files(struct hutch_result *result);

void process_list_done(struct process_list *list);

/* Moves processes into a result that has none; the list is empty afterwards. */
void result_take_background(struct hutch_result *result, struct process_list *list);

/* Says that a session went on from its checkpoint, and what that does not bring back. */
void result_set_restored(struct hutch_result *result);

/* Moves rich outputs into a result that has none; the list is empty afterwards. */
void result_take_rich(struct hutch_result *result, struct rich_list *list);
