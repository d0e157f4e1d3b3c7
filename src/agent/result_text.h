/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is told of a run in a cell. Pure. */
#pragma once

#include "base/attrs.h"
#include "base/buf.h"

#include <hutch.h>

struct result_context {
    double timeout_seconds; /* that were allowed */
    uint64_t memory_mb;
    const struct hutch_gate *gate; /* that was before the code; NULL: none */
    const char *note;              /* begins the hint; NULL: nothing */
    bool files_lost;               /* where the state is: with the files */
    const char *python;            /* the program, of this language; NULL: it is of another */
    size_t python_length;
};

/* Appends a JSON object on one line: stdout, stderr, exit_code, timed_out, error_type, always in
 * this order and always there, as the model knows them from its prompt; then, where there is
 * something to say, value, error (class, message and line in the user's code), files, figures,
 * display, late_output, background, restored, state_lost, hint. Text is cut, head and tail, so
 * that the whole is at most max_bytes long (at least 1024) and the error at its end stays.
 * Errors: NO_MEMORY. */
MUST_CHECK int result_text_append(struct buf *out, const hutch_result *result,
                                  const struct result_context *context, uint64_t max_bytes,
                                  struct hutch_error *err);

/* Copies text into out so that it is at most max_bytes long (at least 64): head, a line that says
 * how much is left out, tail; cut at characters. Errors: NO_MEMORY. */
MUST_CHECK int text_append_cut(struct buf *out, const char *text, size_t length, uint64_t max_bytes,
                               struct hutch_error *err);
