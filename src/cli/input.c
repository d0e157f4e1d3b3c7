/* SPDX-License-Identifier: Apache-2.0 */
/* See input.h. */
#include "input.h"

#include "base/quote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(const char *field, const char *path, const char *reason, struct problem *problem)
{
    return problem_set(problem, HUTCH_ERR_INVALID, "%s: file %s %s", field, quote_text(path).text,
                       reason);
}

static int refuse_errno(const char *field, const char *path, int number, struct problem *problem)
{
    const char *reason = strerrordesc_np(number);

    return problem_set(problem, HUTCH_ERR_INVALID, "%s: file %s cannot be read: %s", field,
                       quote_text(path).text, reason ? reason : "unknown error");
}

/* Reads to the end; a standard input that does not block is waited for.
 * Returns 0 or an errno; whether all of it fitted is in content->failure. */
static int read_to_end(int fd, struct buf *content)
{
    char chunk[8192];

    while (content->failure == BUF_OK) {
        ssize_t count = read(fd, chunk, sizeof(chunk));
        if (count == 0)
            break;
        if (count > 0) {
            buf_append(content, chunk, (size_t)count);
        } else if (errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLIN};
            if (poll(&wait, 1, -1) < 0 && errno != EINTR)
                return errno;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

int input_open(const char *field, const char *path, struct problem *problem)
{
    struct stat status;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 || fstat(fd, &status) < 0) {
        refuse_errno(field, path, errno, problem);
        return -1;
    }
    if (S_ISDIR(status.st_mode)) {
        refuse(field, path, "is a directory", problem);
        return -1;
    }
    if (!S_ISREG(status.st_mode)) {
        bool can_be_stdin = strcmp(field, "upload") != 0;
        refuse(field, path,
               can_be_stdin ? "is not a regular file; '-' reads standard input"
                            : "is not a regular file",
               problem);
        return -1;
    }
    return TAKE_FD(fd);
}

int input_read(const char *field, const char *path, struct buf *content, struct problem *problem)
{
    struct hutch_error err;
    auto_close int opened = -1;
    int fd = STDIN_FILENO;

    if (strcmp(path, "-") != 0) {
        fd = opened = input_open(field, path, problem);
        if (fd < 0)
            return problem->code;
    }
    int failure = read_to_end(fd, content);
    if (failure != 0)
        return refuse_errno(field, path, failure, problem);
    if (content->failure == BUF_TOO_LONG)
        return problem_set(problem, HUTCH_ERR_INVALID,
                           "%s: file %s is longer than the %zu bytes that are allowed", field,
                           quote_text(path).text, content->max);
    if (buf_check(content, &err) < 0)
        return problem_take(problem, &err);
    return 0;
}
