/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoder of server-sent events. Bytes come in any pieces; lines end in LF, CRLF or CR; a
 * byte order mark at the start is skipped. Lines that begin with a colon are comments.
 * "data" lines of an event are joined by LF, one blank after the colon is dropped; "event"
 * names the event; every other field says nothing. An empty line ends the event; one
 * without data is dropped.
 *
 * A decoder belongs to one thread at a time.
 */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

#define SSE_NAME_BYTES 32 /* of an event's name; what is longer is cut */

struct sse_event {
    const char *name; /* "" for none */
    const char *data; /* any bytes, at least one, with a NUL behind them */
    size_t length;
    bool unfinished; /* the stream ended before the empty line, maybe inside of the data */
};

/* Is given each event; the event is gone when it returns. Anything but 0 stops decoding. */
typedef int (*sse_fn)(void *user, const struct sse_event *event);

struct sse {
    sse_fn on_event;
    void *user;
    struct buf line, data;
    char name[SSE_NAME_BYTES];
    unsigned mark; /* bytes of the byte order mark that were seen; past it when begun */
    bool begun;    /* the first byte that is none of the mark was seen */
    bool after_cr; /* an LF that comes next belongs to it */
    bool has_data; /* a data line was seen since the last empty line */
};

void sse_init(struct sse *sse, sse_fn on_event, void *user);
void sse_done(struct sse *sse);

/* Decodes the next bytes. Returns 0; or what on_event returned, if that is not 0; or a
 * negative code with *err set: INVALID for a line or an event of more than
 * LIMIT_SSE_EVENT_BYTES, NO_MEMORY. The decoder is then only good for sse_done. */
MUST_CHECK int sse_feed(struct sse *sse, const char *data, size_t length, struct hutch_error *err);

/* The stream has ended: a line and an event that are not finished are given as they are.
 * Returns as sse_feed. */
MUST_CHECK int sse_end(struct sse *sse, struct hutch_error *err);
