/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See error.h. Text is built in the error itself; a message that does not fit
 * keeps its end, because the cause stands there.
 */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(struct hutch_error) == 256, "an error crosses a pipe in one atomic write");

static const struct error_info table[] = {
#define ERROR(code, name, http, exit, python, meaning) {code, name, http, exit, python, meaning},
#include "errors.def"
#undef ERROR
    {0, "unknown", 500, 125, "HutchError", "An error code of another version."},
};

const struct error_info *error_table(void)
{
    return table;
}

const struct error_info *error_info(int code)
{
    const struct error_info *row = table;
    while (row->code != 0 && row->code != code)
        row++;
    return row;
}

static void begin(struct hutch_error *err, int code, int sys_errno)
{
    memset(err, 0, sizeof(*err));
    err->code = code;
    err->sys_errno = sys_errno;
}

int err_set(struct hutch_error *err, int code, const char *format, ...)
{
    va_list args;

    begin(err, code, 0);
    va_start(args, format);
    vsnprintf(err->message, sizeof(err->message), format, args);
    va_end(args);
    return code;
}

int err_no_memory(struct hutch_error *err)
{
    return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
}

int err_errno(struct hutch_error *err, int code, int sys_errno, const char *format, ...)
{
    va_list args;

    begin(err, code, sys_errno);
    const char *text = strerrordesc_np(sys_errno);
    snprintf(err->message, sizeof(err->message), "%s", text ? text : "unknown error");
    char what[sizeof(err->message)];
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return err_context(err, "%s", what);
}

int err_fork(struct hutch_error *err, int code, int sys_errno, const char *what)
{
    if (sys_errno != EAGAIN)
        return err_errno(err, code, sys_errno, "%s", what);
    err_set(err, code, "%s: no more processes are allowed (ulimit -u, or pids.max of a cgroup)",
            what);
    err->sys_errno = sys_errno;
    return code;
}

int err_context(struct hutch_error *err, const char *format, ...)
{
    char cause[sizeof(err->message)];
    memcpy(cause, err->message, sizeof(cause));
    size_t room = sizeof(err->message) - 1 - strlen(cause);
    if (room <= 2)
        return err->code;

    char context[sizeof(err->message)];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof(context), format, args);
    va_end(args);
    snprintf(err->message, sizeof(err->message), "%.*s: %s", (int)(room - 2), context, cause);
    return err->code;
}

void err_mark_maybe_ran(struct hutch_error *err)
{
    err->maybe_ran = 1;
}

bool hutch_error_retry_safe(const struct hutch_error *err)
{
    return err->maybe_ran == 0;
}

const char *hutch_error_name(int code)
{
    return error_info(code)->name;
}
