/* SPDX-License-Identifier: Apache-2.0 */
/* See sse.h. */
#include "sse.h"

#include "base/limits.h"

#include <string.h>

static const char byte_order_mark[] = "\xef\xbb\xbf";
#define MARK_BYTES 3

void sse_init(struct sse *sse, sse_fn on_event, void *user)
{
    *sse = (struct sse){
        .on_event = on_event,
        .user = user,
        .line = BUF_MAX(LIMIT_SSE_EVENT_BYTES),
        .data = BUF_MAX(LIMIT_SSE_EVENT_BYTES),
    };
}

void sse_done(struct sse *sse)
{
    buf_done(&sse->line);
    buf_done(&sse->data);
}

/* ---- lines and events ---- */

static int give_event(struct sse *sse, bool unfinished, struct hutch_error *err)
{
    int code = 0;

    if (buf_check(&sse->data, err) < 0)
        return err_context(err, "an event of the stream");
    if (sse->data.length > 0) {
        const struct sse_event event = {sse->name, sse->data.data, sse->data.length, unfinished};
        code = sse->on_event(sse->user, &event);
    }
    buf_clear(&sse->data);
    sse->has_data = false;
    sse->name[0] = '\0';
    return code;
}

static bool is_field(const struct buf *line, size_t name_length, const char *name)
{
    return name_length == strlen(name) && memcmp(line->data, name, name_length) == 0;
}

static void take_name(struct sse *sse, const char *value, size_t length)
{
    if (length >= sizeof(sse->name))
        length = sizeof(sse->name) - 1;
    memcpy(sse->name, value, length);
    sse->name[length] = '\0';
}

/* A line that is not empty. */
static void take_field(struct sse *sse)
{
    const struct buf *line = &sse->line;
    const char *colon = memchr(line->data, ':', line->length);
    size_t name_length = colon ? (size_t)(colon - line->data) : line->length;
    size_t from = colon ? name_length + 1 : line->length;

    if (from < line->length && line->data[from] == ' ')
        from++;
    if (is_field(line, name_length, "data")) {
        if (sse->has_data)
            buf_append(&sse->data, "\n", 1);
        sse->has_data = true;
        buf_append(&sse->data, line->data + from, line->length - from);
    } else if (is_field(line, name_length, "event")) {
        take_name(sse, line->data + from, line->length - from);
    }
}

static int end_line(struct sse *sse, struct hutch_error *err)
{
    if (buf_check(&sse->line, err) < 0)
        return err_context(err, "a line of the stream");
    if (sse->line.length == 0)
        return give_event(sse, false, err);
    take_field(sse);
    buf_clear(&sse->line);
    return 0;
}

/* ---- bytes ---- */

/* Skips what belongs to a byte order mark at the start. */
static size_t skip_mark(struct sse *sse, const char *data, size_t length)
{
    size_t skipped = 0;

    while (!sse->begun && skipped < length) {
        if (sse->mark < MARK_BYTES && data[skipped] == byte_order_mark[sse->mark]) {
            sse->mark++;
            skipped++;
            continue;
        }
        sse->begun = true;
        if (sse->mark < MARK_BYTES) /* it only looked like one */
            buf_append(&sse->line, byte_order_mark, sse->mark);
    }
    return skipped;
}

static size_t until_line_end(const char *data, size_t length)
{
    size_t count = 0;
    while (count < length && data[count] != '\n' && data[count] != '\r')
        count++;
    return count;
}

int sse_feed(struct sse *sse, const char *data, size_t length, struct hutch_error *err)
{
    size_t at = skip_mark(sse, data, length);

    while (at < length) {
        if (sse->after_cr && data[at] == '\n')
            at++;
        sse->after_cr = false;
        size_t count = until_line_end(data + at, length - at);
        buf_append(&sse->line, data + at, count);
        at += count;
        if (at == length)
            break;
        sse->after_cr = data[at++] == '\r';
        int code = end_line(sse, err);
        if (code != 0)
            return code;
    }
    return buf_check(&sse->line, err) < 0 ? err_context(err, "a line of the stream") : 0;
}

int sse_end(struct sse *sse, struct hutch_error *err)
{
    if (sse->line.length > 0) {
        int code = end_line(sse, err);
        if (code != 0)
            return code;
    }
    return give_event(sse, true, err);
}
