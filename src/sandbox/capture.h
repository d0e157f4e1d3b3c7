/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of one output stream of a program: all of it up to a maximum,
 * else the first half and the last half of the maximum, with a marker line that
 * says how many bytes are missing between them.
 *
 * Memory grows with what is printed, to about twice the maximum, and no further
 * however much comes. Not thread-safe; one capture belongs to one run.
 */
#pragma once

#include "base/attrs.h"
#include "base/buf.h"

#include <hutch.h>

struct capture {
    uint64_t total; /* bytes added so far */
    size_t head_max, tail_max;
    struct buf head; /* the first bytes */
    struct buf tail; /* the last ones; a ring once it is full */
    size_t oldest;   /* where the ring begins */
};

/* Keeps up to max_bytes. Allocates nothing. */
void capture_init(struct capture *capture, uint64_t max_bytes);

/* Takes the next bytes of the stream. Errors: NO_MEMORY. */
MUST_CHECK int capture_add(struct capture *capture, const char *data, size_t length,
                           struct hutch_error *err);

/* Ends the capture and gives what is kept:
 *
 *   HUTCH_TEXT    valid UTF-8. Bad bytes are U+FFFD, decoded over the whole kept
 *                 head and tail, so that the borders of the reads do not matter.
 *                 The cut moves by up to three bytes on each side where it would
 *                 break a character.
 *   HUTCH_BASE64  the bytes as they came (the result's JSON encodes them).
 *
 * Where bytes are missing, "\n[... N bytes missing ...]\n" stands between head
 * and tail, *ret_truncated is true, and kept head + kept tail + N is the total
 * exactly, counted in bytes of the program. The text is the caller's and
 * NUL-terminated, for an empty stream too; the capture is empty afterwards.
 * Errors: NO_MEMORY. */
MUST_CHECK int capture_finish(struct capture *capture, enum hutch_encoding encoding,
                              struct hutch_text *ret_text, bool *ret_truncated,
                              struct hutch_error *err);

/* Frees what is kept. */
void capture_done(struct capture *capture);
