/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct buf: growing bytes with a maximum from birth. It remembers its first
 * failure, so a run of appends is checked once:
 *
 *     auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
 *     buf_append_text(&text, "pid ");
 *     buf_appendf(&text, "%d", pid);
 *     if (buf_check(&text, err) < 0) ...
 */
#pragma once

#include "attrs.h"
#include "error.h"

#include <stddef.h>

enum buf_failure { BUF_OK = 0, BUF_NO_MEMORY, BUF_TOO_LONG };

struct buf {
    char *data; /* NUL-terminated once anything was appended; NULL before */
    size_t length;
    size_t capacity;
    size_t max; /* bytes of content; appending beyond fails */
    enum buf_failure failure;
};

#define BUF_MAX(bytes) ((struct buf){.max = (bytes)})

void buf_done(struct buf *buf);
#define auto_buf __attribute__((cleanup(buf_done)))

/* Moves the content out; *buf is empty and usable afterwards. */
struct buf buf_take(struct buf *buf);
#define TAKE_BUF(buf) buf_take(&(buf))

/* Appends; after a failure nothing is appended any more. */
void buf_append(struct buf *buf, const void *data, size_t length);
void buf_append_text(struct buf *buf, const char *text);
void buf_appendf(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3);

/* Drops the first count bytes, of at most length. */
void buf_drop_front(struct buf *buf, size_t count);

/* Empties it, keeps the memory, forgets a failure. */
void buf_clear(struct buf *buf);

/* 0, or the first failure: HUTCH_ERR_NO_MEMORY, HUTCH_ERR_INVALID when over max. */
MUST_CHECK int buf_check(const struct buf *buf, struct hutch_error *err);

/* Appends what fd gives until its end. A descriptor that delivers more than
 * the maximum is an error, and so is a failed read. Blocking. */
MUST_CHECK int buf_read_fd(struct buf *buf, int fd, struct hutch_error *err);

/* Appends the content of the file at path below dir_fd (AT_FDCWD for the
 * working directory). */
MUST_CHECK int buf_read_file(struct buf *buf, int dir_fd, const char *path,
                             struct hutch_error *err);

/* The content as a string; "" for an empty one. */
const char *buf_text(const struct buf *buf);
