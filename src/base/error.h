/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How calls fail: struct hutch_error (include/hutch.h) is a value, set once
 * where the failure happened and given context on the way up.
 *
 *     return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open manifest '%s'", name);
 *     ...
 *     return err_context(err, "starting python cell");
 *
 * gives "starting python cell: open manifest 'x': No such file or directory".
 * Inside the library err is never NULL; the public border puts a local one
 * where the caller passed NULL. Nothing here allocates.
 */
#pragma once

#include "attrs.h"

#include <hutch.h>

/* Sets code and message; the error counts as "not started". Returns code. */
int err_set(struct hutch_error *err, int code, const char *format, ...) PRINTF_LIKE(3, 4);

/* The same for memory that is not there. */
int err_no_memory(struct hutch_error *err);

/* As err_set, followed by ": " and the text of the errno value sys_errno. */
int err_errno(struct hutch_error *err, int code, int sys_errno, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* The same for a process that could not be made: where the kernel only says "try
 * again", this says which limits to look at. */
int err_fork(struct hutch_error *err, int code, int sys_errno, const char *what);

/* Puts "text: " in front of the message; when both are too long the context
 * gives way and the cause stays whole. Returns the error's code. */
int err_context(struct hutch_error *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Marks the error as "outcome unknown": the code may have run. */
void err_mark_maybe_ran(struct hutch_error *err);

/* One row of errors.def. */
struct error_info {
    int code;
    const char *name;         /* API string */
    int http_status;          /* for the service */
    int exit_status;          /* for the command line: 2 or 125 */
    const char *python_class; /* for the Python client */
    const char *meaning;
};

/* The row of a code; the last row ("unknown") for any other number. */
const struct error_info *error_info(int code);

/* All rows, ended by the "unknown" row, whose code is 0. */
const struct error_info *error_table(void);
