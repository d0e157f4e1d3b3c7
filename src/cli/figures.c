/* SPDX-License-Identifier: Apache-2.0 */
/* See figures.h. */
#include "figures.h"

#include "base/attrs.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/fd.h"
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NUMBER_MAX 9999
#define NAME_BYTES 64

/* The ending of a figure's file; NULL for what is none. */
static const char *ending_of(const struct hutch_rich *rich)
{
    if (strcmp(rich->mime, "image/png") == 0)
        return "png";
    return strcmp(rich->mime, "image/svg+xml") == 0 ? "svg" : NULL;
}

/* Makes the first file of a number from *number on that is not there yet. Returns its
 * descriptor, or -1 with errno. */
static int create_next(unsigned *number, const char *ending, char name[NAME_BYTES])
{
    for (; *number <= NUMBER_MAX; (*number)++) {
        snprintf(name, NAME_BYTES, "hutch-figure-%u.%s", *number, ending);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* 0, or an errno; then there is no file. */
static int save(const struct hutch_rich *rich, unsigned *number, const char *ending,
                char name[NAME_BYTES])
{
    auto_close int fd = create_next(number, ending, name);
    if (fd < 0)
        return errno;
    int failure = output_write(fd, rich->data, rich->length);
    if (failure != 0)
        unlink(name);
    return failure;
}

bool figures_save(const hutch_result *result, bool quiet, bool open_line)
{
    unsigned number = 1;

    for (size_t i = 0; i < result->result_count; i++) {
        const char *ending = ending_of(&result->results[i]);
        char name[NAME_BYTES];
        if (!ending)
            continue;
        int failure = save(&result->results[i], &number, ending, name);
        number++;
        if (quiet && failure == 0)
            continue;
        auto_buf struct buf line = BUF_MAX(256);
        buf_appendf(&line, "%shutch: %s", open_line ? "\n" : "", name);
        if (failure != 0)
            buf_appendf(&line, " could not be written: %s", strerrordesc_np(failure));
        buf_append_text(&line, "\n");
        IGNORE_RESULT(output_write(STDERR_FILENO, buf_text(&line), line.length));
        open_line = false;
    }
    return open_line;
}
