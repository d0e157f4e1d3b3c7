/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that follow a schema: how one is asked for, and whether a text is one. Pure. */
#pragma once

#include "base/buf.h"

#include <hutch.h>
#include <jansson.h>
#include <stdbool.h>

/* The response_format that asks for it; strict where the schema can be followed so. *ret_format is
 * the caller's. Errors: NO_MEMORY. */
MUST_CHECK int answer_format(const json_t *schema, bool strict, json_t **ret_format,
                             struct hutch_error *err);

/* Takes the JSON out of a model's text, of all of it or of a Markdown fence in it, and appends it
 * to out when it follows the schema; numbers stay as they are written. The error
 * says what is wrong, for the model too. Errors: INVALID, NO_MEMORY. */
MUST_CHECK int answer_read(const json_t *schema, const struct hutch_text *text, struct buf *out,
                           struct hutch_error *err);

/* What the model is told of an answer that answer_read refuses. */
void answer_append_repair(struct buf *out, const json_t *schema, const struct hutch_error *problem);
