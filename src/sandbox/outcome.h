/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judging a run: from what the kernel and the supervisor know, and from what
 * the runner claims, to the fields of the result that say how the program
 * ended. Pure functions.
 *
 * Facts win over claims. Why the supervisor ended the run comes first, then the
 * OOM killer, then the wait status; an exit code of 0 is success, whatever was
 * claimed. Only the exception's name, message and line, and whether a failure
 * counts as syntax_error, import_error or resource_limit, rest on a claim.
 *
 * A refusal by the gate is no claim: it counts as the very first frame alone,
 * which the runner sends before it runs anything of the program, and beside the
 * exit status that the runner leaves with. A program that has passed the gate
 * comes second, whatever frames it sends.
 */
#pragma once

#include "backend.h"
#include "base/attrs.h"
#include "report.h"

#include <hutch.h>

struct outcome_facts {
    const struct cell_exit *exit;
    const struct hutch_request *request;
    const struct claim *claim;            /* NULL: none came */
    const struct claim *refusal;          /* by the gate; NULL: none */
    const struct hutch_text *stderr_text; /* not read for python programs; NULL: none */
};

/* Sets exit_code, exit_signal, timed_out, error_type, error_class,
 * error_message and error_line, which are unset before. A run that was
 * cancelled has no outcome: hutch_run returns an error. Errors: NO_MEMORY. */
MUST_CHECK int outcome_judge(const struct outcome_facts *facts, struct hutch_result *result,
                             struct hutch_error *err);
