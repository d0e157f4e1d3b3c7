/* SPDX-License-Identifier: Apache-2.0 */
/* See problem.h. */
#include "problem.h"

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "output.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_USAGE 2
#define LINE_MAX_BYTES 8192 /* a problem's text with every byte escaped, and more */

int problem_set(struct problem *problem, int code, const char *format, ...)
{
    va_list args;

    problem->code = code;
    problem->retry_safe = true;
    va_start(args, format);
    vsnprintf(problem->text, sizeof(problem->text), format, args);
    va_end(args);
    return code;
}

int problem_take(struct problem *problem, const struct hutch_error *err)
{
    problem_set(problem, err->code, "%s", err->message);
    problem->retry_safe = hutch_error_retry_safe(err);
    return err->code;
}

void problem_append_line(struct buf *line, const char *text)
{
    size_t length = strlen(text);

    while (length > 0) {
        bool valid;
        size_t unit = utf8_unit(text, length, &valid);
        if (valid && !utf8_is_control(text, unit))
            buf_append(line, text, unit);
        else
            buf_append_text(line, UTF8_REPLACEMENT);
        text += unit;
        length -= unit;
    }
}

static void report_json(const struct problem *problem, const char *head)
{
    auto_buf struct buf line = BUF_MAX(LINE_MAX_BYTES);

    buf_append_text(&line, head);
    buf_append_text(&line, "\"error\":{\"code\":");
    json_append_text(&line, hutch_error_name(problem->code));
    buf_append_text(&line, ",\"message\":");
    json_append_text(&line, problem->text);
    buf_appendf(&line, ",\"retry_safe\":%s}}\n", problem->retry_safe ? "true" : "false");
    IGNORE_RESULT(output_write(STDOUT_FILENO, buf_text(&line), line.length));
}

int problem_report(const struct problem *problem, const char *command, bool json)
{
    return problem_report_behind(problem, command, json ? "{" : NULL);
}

int problem_report_behind(const struct problem *problem, const char *command, const char *head)
{
    int status = error_info(problem->code)->exit_status;

    if (head)
        report_json(problem, head);
    auto_buf struct buf line = BUF_MAX(LINE_MAX_BYTES);
    buf_append_text(&line, "hutch");
    if (status == EXIT_USAGE)
        buf_appendf(&line, " %s", command);
    buf_append_text(&line, ": ");
    problem_append_line(&line, problem->text);
    if (problem->code == HUTCH_ERR_ISOLATION)
        buf_append_text(&line, "; 'hutch doctor' says why, and what to do");
    buf_append_text(&line, "\n");
    IGNORE_RESULT(output_write(STDERR_FILENO, buf_text(&line), line.length));
    return status;
}
