/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of hutch session that are about files: put, get, list, delete.
 */
#pragma once

#include "base/buf.h"

#include <hutch.h>
#include <jansson.h>
#include <stdbool.h>

/* Whether an operation is one of them. */
bool is_files_operation(const char *op);

/* Does what a line asks for, and appends the answer, which has no line end. */
void answer_files_line(hutch_session *session, hutch_cancel *cancel, const char *text,
                       size_t length, struct buf *answer);

/* Appends "id": what a line has as its id, as a member of an object; nothing where it has
 * none. Errors: INVALID. */
MUST_CHECK int append_id(struct buf *text, const json_t *line, struct hutch_error *err);

/* Appends "error": {...}, as a member of an object. */
void append_error(struct buf *text, const struct hutch_error *err);
