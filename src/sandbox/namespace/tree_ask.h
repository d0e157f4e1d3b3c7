/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking an interpreter of the host something, in one short process.
 */
#pragma once

#include "base/buf.h"
#include "string_list.h"

#include <stdint.h>

#define ASK_OUTPUT_MAX (4u << 20) /* bytes that the interpreter may print */
#define ASK_EXIT_UNSUITABLE 99    /* its exit status when it is another than the one wanted */

struct question {
    const char *interpreter;      /* absolute path */
    const char *const *arguments; /* the program that asks among them; ended by NULL */
    const char *wanted;           /* what it has to be: "CPython 3.9 or later" */
    int input_fd;                 /* its standard input; -1 for none */
    uint64_t deadline_ns;
};

/* Runs the interpreter with an empty environment and no descriptor but the three
 * standard ones, with the rights of the caller, and appends what it prints.
 * Errors: RUNTIME when it is not what was wanted, or fails, SYSTEM, NO_MEMORY. */
MUST_CHECK int ask_interpreter(const struct question *question, struct buf *output,
                               struct hutch_error *err);

/* Takes the next of the NUL-ended strings of an answer; false at its end. */
bool ask_next_fact(const struct buf *output, size_t *at, const char **ret_fact);

/* Takes the facts up to an empty one. */
MUST_CHECK int ask_list(const struct buf *output, size_t *at, struct string_list *list,
                        struct hutch_error *err);
