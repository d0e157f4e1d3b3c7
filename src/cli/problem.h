/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a command of hutch ends without doing its work: one line on stderr, the
 * error object on stdout where --json was given, and an exit status. An error
 * of the library becomes a problem; so does a wrong option, whose line may be
 * longer than struct hutch_error holds.
 */
#pragma once

#include "base/attrs.h"
#include "base/buf.h"

#include <hutch.h>

#include <stdbool.h>

struct problem {
    int code; /* one of enum hutch_error_code; HUTCH_ERR_INVALID is a matter of usage */
    bool retry_safe;
    char text[1024]; /* one line of valid UTF-8, no full stop */
};

/* Sets code and text; the problem counts as "not started". Returns code. */
int problem_set(struct problem *problem, int code, const char *format, ...) PRINTF_LIKE(3, 4);

/* Takes over an error of the library. Returns its code. */
int problem_take(struct problem *problem, const struct hutch_error *err);

/* Says the problem: "hutch COMMAND: text" for usage, else "hutch: text", and
 * with json {"error": {"code", "message", "retry_safe"}} on stdout as well.
 * Returns the exit status, 2 or 125. */
int problem_report(const struct problem *problem, const char *command, bool json);

/* The same, where head is what that object begins with, such as "{\"event\":\"error\","; NULL:
 * there is none. */
int problem_report_behind(const struct problem *problem, const char *command, const char *head);

/* Appends text as it may stand in a line of a message: control characters and
 * bad UTF-8 become U+FFFD. */
void problem_append_line(struct buf *line, const char *text);
