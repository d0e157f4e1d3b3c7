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
           start->language < PROTO_LANGUAGE_COUNT && start->has_stdin <= 1 && start->session <= 1 &&
           (start->session == 0 || start->kind == PROTO_RUN) && start->has_files <= 1 &&
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
    case PROTO_TIME_UP:
        return true;
    case PROTO_RESTED:
        return event->signalled <= 1;
    case PROTO_PIPES:
        return event->exec_id > 0;
    case PROTO_EXITED:
        return is_end(event->end) && event->has_copy <= 1 && event->files <= 1 &&
               (WIFEXITED(event->wait_status) || WIFSIGNALED(event->wait_status));
    case PROTO_FAILED:
    case PROTO_LOST:
        return is_error(&event->error);
    }
    return false;
}

bool proto_is_order(const struct proto_order *order, size_t length, size_t fd_count)
{
    static const size_t fds[PROTO_ORDER_COUNT] = {[PROTO_FILES] = 1,
                                                  [PROTO_COPIES] = 1,
                                                  [PROTO_RESUME] = 1,
                                                  [PROTO_RELAUNCH] = PROTO_ORDER_FDS_MAX};

    return length == sizeof(*order) && order->type < PROTO_ORDER_COUNT && is_end(order->end) &&
           order->link < WIRE_FILE_LINKS && fd_count == fds[order->type];
}
