/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of an output stream: the same however it was cut into reads, and
 * where something is missing, head and tail of the stream with the exact number of
 * bytes between them.
 *
 * Input: a byte each for the encoding, the maximum, and the sizes of reads; the
 * stream.
 */
#include "fuzz.h"

#include "base/utf8.h"
#include "sandbox/capture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEAST 8

static struct hutch_text capture_in(const struct hutch_text *stream, size_t max, size_t piece,
                                    enum hutch_encoding encoding, bool *ret_truncated)
{
    struct hutch_error err;
    struct capture capture;
    struct hutch_text text;

    capture_init(&capture, max);
    for (size_t at = 0; at < stream->length; at += piece) {
        struct input input = {(const uint8_t *)stream->data + at, stream->length - at};
        struct hutch_text bytes = input_bytes(&input, piece);
        int code = capture_add(&capture, bytes.data, bytes.length, &err);
        assert(code == 0);
        free(bytes.data);
    }
    assert(capture.total == stream->length);
    int code = capture_finish(&capture, encoding, &text, ret_truncated, &err);
    assert(code == 0);
    assert(text.data && text.data[text.length] == '\0');
    capture_done(&capture);
    return text;
}

static void append(struct buf *out, const char *data, size_t length, enum hutch_encoding encoding)
{
    if (encoding == HUTCH_TEXT)
        utf8_repair(out, data, length);
    else
        buf_append(out, data, length);
}

/* Whether the text is that of the first head and the last tail bytes, and the cut
 * breaks no character of a stream that is whole. */
static bool is_cut(const struct hutch_text *text, const struct hutch_text *stream, size_t head,
                   size_t tail, enum hutch_encoding encoding)
{
    auto_buf struct buf out = BUF_MAX(3 * stream->length + 64);
    const char *last = stream->data + stream->length - tail;

    if (encoding == HUTCH_TEXT && utf8_valid(stream->data, stream->length) &&
        !(utf8_valid(stream->data, head) && utf8_valid(last, tail)))
        return false;
    append(&out, stream->data, head, encoding);
    buf_appendf(&out, "\n[... %zu bytes missing ...]\n", stream->length - head - tail);
    append(&out, last, tail, encoding);
    assert(out.failure == BUF_OK);
    return out.length == text->length && memcmp(out.data, text->data, out.length) == 0;
}

/* A text is cut where a character ends: up to three bytes off on each side. */
static void check_cut(const struct hutch_text *text, const struct hutch_text *stream, size_t max,
                      enum hutch_encoding encoding)
{
    size_t off = encoding == HUTCH_TEXT ? 3 : 0;
    bool found = false;

    for (size_t head = max / 2 - off; head <= max / 2; head++) {
        for (size_t tail = max - max / 2 - off; tail <= max - max / 2; tail++)
            found = found || is_cut(text, stream, head, tail, encoding);
    }
    assert(found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    enum hutch_encoding encoding = (enum hutch_encoding)(input_number(&input, 1) % 2);
    size_t max = MAX_LEAST + (size_t)input_number(&input, 1);
    size_t piece = 1 + (size_t)input_number(&input, 1);
    struct hutch_text stream = input_bytes(&input, SIZE_MAX);
    bool truncated, also_truncated;

    struct hutch_text text = capture_in(&stream, max, piece, encoding, &truncated);
    struct hutch_text whole = capture_in(&stream, max, SIZE_MAX, encoding, &also_truncated);
    assert(truncated == also_truncated && truncated == (stream.length > max));
    assert(text.length == whole.length && memcmp(text.data, whole.data, text.length) == 0);
    assert(encoding != HUTCH_TEXT || utf8_valid(text.data, text.length));
    if (truncated) {
        check_cut(&text, &stream, max, encoding);
    } else {
        auto_buf struct buf out = BUF_MAX(3 * stream.length);
        append(&out, stream.data, stream.length, encoding);
        check_bytes(&out, text.data, text.length);
    }
    free(text.data);
    free(whole.data);
    free(stream.data);
    return 0;
}
