/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets between the engine and the supervisor, in both directions: one that is
 * taken has every field in the range that its reader relies on.
 *
 * Input: a byte that says which, a byte with the number of descriptors, the packet.
 */
#include "fuzz.h"

#include "sandbox/namespace/proto.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

union packet {
    struct proto_hello hello;
    struct proto_start start;
    struct proto_event event;
    struct proto_order order;
    char bytes[sizeof(struct proto_hello) + sizeof(struct proto_event)];
};

static void check_hello(struct proto_hello *hello, size_t length)
{
    if (!proto_is_hello(hello, length))
        return;
    assert(length == sizeof(*hello) && hello->version == PROTO_VERSION);
    if (hello->error.code != 0)
        assert(strcmp(hutch_error_name(hello->error.code), "unknown") != 0);
}

static void check_start(const struct proto_start *start, size_t length, size_t fd_count)
{
    if (!proto_is_start(start, length, fd_count))
        return;
    assert(length == sizeof(*start));
    assert(fd_count <= PROTO_FDS_MAX && fd_count > PROTO_FD_CHANNEL);
    assert(fd_count == PROTO_FD_STDIN + (size_t)start->has_stdin + start->has_files);
    assert(start->kind == PROTO_RUN || start->kind == PROTO_PROBE);
    assert(start->language < PROTO_LANGUAGE_COUNT);
}

static void check_event(struct proto_event *event, size_t length)
{
    if (!proto_is_event(event, length))
        return;
    assert(length == sizeof(*event));
    switch ((enum proto_event_type)event->type) {
    case PROTO_STARTED:
        for (uint32_t bit = 1; bit != 0; bit <<= 1)
            assert(!(event->layers & bit) || hutch_layer_name(bit));
        return;
    case PROTO_TIME_UP:
        return;
    case PROTO_PIPES:
        assert(event->exec_id > 0);
        return;
    case PROTO_EXITED:
        assert(WIFEXITED(event->wait_status) || WTERMSIG(event->wait_status) > 0);
        assert(event->end <= PROTO_END_OUTPUT && event->has_copy <= 1);
        return;
    case PROTO_FAILED:
    case PROTO_LOST:
        assert(memchr(event->error.message, '\0', sizeof(event->error.message)));
        assert(event->error.code < 0);
        assert(strcmp(hutch_error_name(event->error.code), "unknown") != 0);
        return;
    case PROTO_RESTED:
        assert(event->signalled <= 1);
        return;
    }
    abort(); /* it was taken, and has no type */
}

static void check_order(const struct proto_order *order, size_t length, size_t fd_count)
{
    if (!proto_is_order(order, length, fd_count))
        return;
    assert(length == sizeof(*order) && order->end <= PROTO_END_OUTPUT);
    assert(order->type < PROTO_ORDER_COUNT && fd_count <= PROTO_ORDER_FDS_MAX);
    assert(order->link < WIRE_FILE_LINKS);
    assert(fd_count > 0 || (order->type != PROTO_FILES && order->type != PROTO_COPIES));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    unsigned which = (unsigned)input_number(&input, 1) % 4;
    size_t fd_count = (size_t)input_number(&input, 1) % (PROTO_FDS_MAX + 2);
    union packet packet;
    size_t length = input.length < sizeof(packet) ? input.length : sizeof(packet);

    memset(&packet, 0xa5, sizeof(packet)); /* as the last packet may have left it */
    if (length > 0)
        memcpy(&packet, input.data, length);
    if (which == 0)
        check_hello(&packet.hello, length);
    else if (which == 1)
        check_start(&packet.start, length, fd_count);
    else if (which == 2)
        check_event(&packet.event, length);
    else
        check_order(&packet.order, length, fd_count);
    return 0;
}
