/* SPDX-License-Identifier: Apache-2.0 */
/* See output.h. */
#include "output.h"

#include "base/error.h"
#include "problem.h"
#include "stop.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

int output_write(int fd, const char *data, size_t length)
{
    while (length > 0) {
        struct pollfd wait[] = {{.fd = fd, .events = POLLOUT}, {.fd = stop_fd(), .events = POLLIN}};
        if (poll(wait, ARRAY_LENGTH(wait), -1) < 0) {
            if (errno == EINTR)
                continue;
            return errno;
        }
        if (wait[1].revents)
            return ECANCELED;
        /* A pipe that polls as writable takes PIPE_BUF bytes without blocking;
         * a longer write could block where no signal is looked at. */
        ssize_t count = write(fd, data, length < PIPE_BUF ? length : PIPE_BUF);
        if (count < 0) {
            if (errno == EINTR || errno == EAGAIN)
                continue;
            return errno;
        }
        data += count;
        length -= (size_t)count;
    }
    return 0;
}

/* Ends with 125 because of err. */
static int give_up(const struct hutch_error *err)
{
    struct problem problem;

    problem_take(&problem, err);
    return problem_report(&problem, "", false);
}

int output_status(int failure, int status)
{
    struct hutch_error err;

    switch (failure) {
    case 0:
        return status;
    case EPIPE:
        return EXIT_READER_GONE;
    case ECANCELED:
        return stop_status();
    default:
        err_errno(&err, HUTCH_ERR_SYSTEM, failure, "write the output");
        return give_up(&err);
    }
}

int output_print(const struct buf *text, int status)
{
    struct hutch_error err;

    if (buf_check(text, &err) < 0)
        return give_up(&err);
    return output_status(output_write(STDOUT_FILENO, buf_text(text), text->length), status);
}
