/* SPDX-License-Identifier: Apache-2.0 */
/* See capture.h. */
#include "capture.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <string.h>

#define MARKER_BYTES 64

void capture_init(struct capture *capture, uint64_t max_bytes)
{
    size_t max = (size_t)max_bytes;

    *capture = (struct capture){.head_max = max / 2, .tail_max = max - max / 2};
    capture->head = BUF_MAX(max); /* at the end the tail moves in */
    capture->tail = BUF_MAX(capture->tail_max);
}

void capture_done(struct capture *capture)
{
    buf_done(&capture->head);
    buf_done(&capture->tail);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Appends to the tail until it is full, then overwrites its oldest bytes. */
static void add_to_tail(struct capture *capture, const char *data, size_t length)
{
    if (length > capture->tail_max) {
        data += length - capture->tail_max;
        length = capture->tail_max;
    }
    size_t count = smaller(length, capture->tail_max - capture->tail.length);
    buf_append(&capture->tail, data, count);
    if (capture->tail.failure != BUF_OK)
        return;
    data += count;
    length -= count;
    while (length > 0) {
        count = smaller(length, capture->tail_max - capture->oldest);
        memcpy(capture->tail.data + capture->oldest, data, count);
        capture->oldest = (capture->oldest + count) % capture->tail_max;
        data += count;
        length -= count;
    }
}

int capture_add(struct capture *capture, const char *data, size_t length, struct hutch_error *err)
{
    size_t count = smaller(length, capture->head_max - capture->head.length);

    capture->total += length;
    buf_append(&capture->head, data, count);
    if (length > count)
        add_to_tail(capture, data + count, length - count);
    if (buf_check(&capture->head, err) < 0)
        return err->code;
    return buf_check(&capture->tail, err);
}

/* Moves the tail behind the head, oldest byte first. */
static void join(struct capture *capture)
{
    const struct buf *tail = &capture->tail;

    if (tail->length > 0) {
        buf_append(&capture->head, tail->data + capture->oldest, tail->length - capture->oldest);
        buf_append(&capture->head, tail->data, capture->oldest);
    }
    buf_done(&capture->tail);
}

static void append_piece(struct buf *out, const char *data, size_t length,
                         enum hutch_encoding encoding)
{
    if (encoding == HUTCH_TEXT)
        utf8_repair(out, data, length);
    else
        buf_append(out, data, length);
}

/* Head, marker, tail. */
static void append_cut(struct buf *out, const struct capture *capture, enum hutch_encoding encoding)
{
    const char *data = capture->head.data;
    size_t length = capture->head.length;
    size_t head_end = capture->head_max, tail_start = head_end;

    if (encoding == HUTCH_TEXT) {
        head_end = utf8_boundary_before(data, head_end, head_end);
        tail_start += utf8_boundary_after(data + tail_start, length - tail_start, 0);
    }
    append_piece(out, data, head_end, encoding);
    buf_appendf(out, "\n[... %" PRIu64 " bytes missing ...]\n",
                capture->total - head_end - (length - tail_start));
    append_piece(out, data + tail_start, length - tail_start, encoding);
}

static struct hutch_text take_text(struct buf *buf)
{
    struct buf taken = TAKE_BUF(*buf);
    return (struct hutch_text){.data = taken.data, .length = taken.length};
}

int capture_finish(struct capture *capture, enum hutch_encoding encoding,
                   struct hutch_text *ret_text, bool *ret_truncated, struct hutch_error *err)
{
    join(capture);
    buf_append(&capture->head, "", 0); /* an empty stream is an empty string */
    if (buf_check(&capture->head, err) < 0)
        return err->code;

    const struct buf *kept = &capture->head;
    bool truncated = capture->total > kept->length;
    if (!truncated && (encoding != HUTCH_TEXT || utf8_valid(kept->data, kept->length))) {
        *ret_text = take_text(&capture->head);
        *ret_truncated = false;
        return 0;
    }
    auto_buf struct buf out = BUF_MAX(kept->length * strlen(UTF8_REPLACEMENT) + MARKER_BYTES);
    if (truncated)
        append_cut(&out, capture, encoding);
    else
        append_piece(&out, kept->data, kept->length, encoding);
    capture_done(capture);
    if (buf_check(&out, err) < 0)
        return err->code;
    *ret_text = take_text(&out);
    *ret_truncated = truncated;
    return 0;
}
