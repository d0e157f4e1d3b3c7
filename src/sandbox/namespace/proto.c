/* SPDX-License-Identifier: Apache-2.0 */
/* See proto.h. */
#include "proto.h"

#include "base/error.h"

#include <sys/wait.h>

/* An error that tells something: one of hutch's own codes. */
static bool is_error(struct hutch_error *error)
{
    error->message[sizeof(error->message) - 1] = '\0';
    return error->code < 0 && error_info(error->code)->code == error->code;
}

bool proto_is_hello(struct proto_hello *hello, size_t length)
{
    hello->scope[sizeof(hello->scope) - 1] = '\0';
    return length == sizeof(*hello) && hello->version == PROTO_VERSION &&
           (hello->error.code == 0 || is_error(&hello->error));
}

bool proto_is_start(const struct proto_start *start, size_t length, size_t fd_count)
{
    return length == sizeof(*start) && start->kind <= PROTO_PROBE &&
           start->language < PROTO_LANGUAGE_COUNT && start->has_stdin <= 1 &&
           start->has_files <= 1 &&
           fd_count == PROTO_FD_STDIN + start->has_stdin + start->has_files;
}

static bool is_end(uint32_t end)
{
    return end <= PROTO_END_OUTPUT;
}

bool proto_is_event(struct proto_event *event, size_t length)
{
    if (length != sizeof(*event))
        return false;
    switch ((enum proto_event_type)event->type) {
    case PROTO_STARTED:
        return (event->layers & ~HUTCH_LAYERS_NAMESPACE) == 0 && event->origin < PROTO_ORIGIN_COUNT;
    case PROTO_EXITED:
        return is_end(event->end) && event->files <= 1 &&
               (WIFEXITED(event->wait_status) || WIFSIGNALED(event->wait_status));
    case PROTO_FAILED:
    case PROTO_LOST:
        return is_error(&event->error);
    }
    return false;
}

bool proto_is_stop(const struct proto_stop *stop, size_t length)
{
    return length == sizeof(*stop) && is_end(stop->end);
}

bool proto_is_files(const struct proto_files *files, size_t length, size_t fd_count)
{
    return length == sizeof(*files) && files->open == 1 && fd_count == 1;
}
