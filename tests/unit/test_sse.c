/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events: the events of a stream, in whatever pieces it comes. */
#include "agent/sse.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct row {
    const char *what, *stream, *events; /* "name=data;" each, "?" before one not finished */
} rows[] = {
    {"one", "data: a\n\n", "=a;"},
    {"no blank behind the colon", "data:a\n\n", "=a;"},
    {"one blank is dropped", "data:  a\n\n", "= a;"},
    {"two lines", "data: a\ndata: b\n\n", "=a\nb;"},
    {"an empty line among them", "data: a\ndata\ndata: b\n\n", "=a\n\nb;"},
    {"carriage returns", "data: a\r\rdata: b\r\r", "=a;=b;"},
    {"both", "data: a\r\n\r\ndata: b\r\n\r\n", "=a;=b;"},
    {"all of them", "data: a\n\r\ndata: b\r\n\rdata: c\n\n", "=a;=b;=c;"},
    {"a mark at the start",
     "\xef\xbb\xbf"
     "data: a\n\n",
     "=a;"},
    {"half a mark",
     "\xef\xbb"
     "data: a\n\ndata: b\n\n",
     "=b;"},
    {"a mark later",
     "\n\xef\xbb\xbf"
     "data: a\n\ndata: b\n\n",
     "=b;"},
    {"comments", ": hello\n\n:\n\ndata: a\n: in between\ndata: b\n\n", "=a\nb;"},
    {"names", "event: ping\ndata: a\n\ndata: b\n\n", "ping=a;=b;"},
    {"a name alone", "event: ping\n\ndata: b\n\n", "=b;"},
    {"a long name", "event: 0123456789012345678901234567890123456789\ndata: a\n\n",
     "0123456789012345678901234567890=a;"},
    {"other fields", "id: 1\nretry: 3000\nfoo: bar\ndata: a\n\n", "=a;"},
    {"retry alone", "retry: 3000\n\n", ""},
    {"empty data", "data:\n\ndata\n\ndata: \n\n", ""},
    {"no empty line at the end", "data: a\n\ndata: b\n", "=a;?=b;"},
    {"no end of line at the end", "data: a\n\ndata: b", "=a;?=b;"},
    {"more colons", "data: a:b: c\n\n", "=a:b: c;"},
    {"nothing", "", ""},
};

static int note(void *user, const struct sse_event *event)
{
    struct buf *out = user;

    assert_int_equal(strlen(event->data), event->length);
    buf_appendf(out, "%s%s=%s;", event->unfinished ? "?" : "", event->name, event->data);
    return 0;
}

/* Feeds the stream in pieces: up to first, then of size bytes. */
static void check(const struct row *row, size_t first, size_t size)
{
    struct hutch_error err;
    auto_buf struct buf seen = BUF_MAX(1000);
    struct sse sse;
    size_t length = strlen(row->stream);

    sse_init(&sse, note, &seen);
    assert_int_equal(sse_feed(&sse, row->stream, first, &err), 0);
    for (size_t at = first; at < length; at += size) {
        size_t count = length - at < size ? length - at : size;
        assert_int_equal(sse_feed(&sse, row->stream + at, count, &err), 0);
    }
    assert_int_equal(sse_end(&sse, &err), 0);
    sse_done(&sse);
    if (strcmp(buf_text(&seen), row->events) != 0)
        print_error("%s, %zu and %zu bytes\n", row->what, first, size);
    assert_string_equal(buf_text(&seen), row->events);
}

static void events_are_the_same_in_any_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        check(&rows[i], 0, 1);
        for (size_t first = 0; first <= strlen(rows[i].stream); first++)
            check(&rows[i], first, 10000);
    }
}

static int stop(void *user, const struct sse_event *event)
{
    (void)event;
    ++*(int *)user;
    return 7;
}

static void who_is_given_an_event_may_stop(void **state)
{
    (void)state;
    struct hutch_error err;
    struct sse sse;
    int count = 0;

    sse_init(&sse, stop, &count);
    assert_int_equal(sse_feed(&sse, "data: a\n\ndata: b\n\n", 18, &err), 7);
    assert_int_equal(count, 1);
    sse_done(&sse);
}

static void lines_and_events_are_bounded(void **state)
{
    (void)state;
    static char piece[1 << 16];
    struct hutch_error err;
    auto_buf struct buf seen = BUF_MAX(1000);
    struct sse sse;
    int code = 0;
    uint64_t fed = 0;

    memset(piece, 'x', sizeof(piece));
    sse_init(&sse, note, &seen);
    for (; code == 0 && fed <= 2 * LIMIT_SSE_EVENT_BYTES; fed += sizeof(piece))
        code = sse_feed(&sse, piece, sizeof(piece), &err);
    assert_int_equal(code, HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "a line of the stream: longer than 8388608 bytes");
    assert_true(fed <= LIMIT_SSE_EVENT_BYTES + sizeof(piece));
    sse_done(&sse);

    memcpy(piece, "data:", 5);
    piece[sizeof(piece) - 1] = '\n';
    sse_init(&sse, note, &seen);
    for (code = 0, fed = 0; code == 0 && fed <= LIMIT_SSE_EVENT_BYTES + MIB(1);
         fed += sizeof(piece))
        code = sse_feed(&sse, piece, sizeof(piece), &err);
    assert_int_equal(code, 0);
    assert_int_equal(sse_feed(&sse, "\n", 1, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "an event of the stream: longer than 8388608 bytes");
    assert_string_equal(buf_text(&seen), "");
    sse_done(&sse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_the_same_in_any_pieces),
        cmocka_unit_test(who_is_given_an_event_may_stop),
        cmocka_unit_test(lines_and_events_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
