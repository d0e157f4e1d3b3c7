/* SPDX-License-Identifier: Apache-2.0 */
/* See buf.h. */
#include "buf.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void buf_done(struct buf *buf)
{
    int saved = errno;
    free(buf->data);
    *buf = BUF_MAX(buf->max);
    errno = saved;
}

struct buf buf_take(struct buf *buf)
{
    struct buf taken = *buf;
    *buf = BUF_MAX(taken.max);
    return taken;
}

/* Room for length more bytes and the NUL. */
static bool reserve(struct buf *buf, size_t length)
{
    if (buf->failure != BUF_OK)
        return false;
    if (length > buf->max - buf->length) {
        buf->failure = BUF_TOO_LONG;
        return false;
    }
    size_t need = buf->length + length + 1;
    if (need <= buf->capacity)
        return true;
    size_t capacity = buf->capacity ? buf->capacity : 256;
    while (capacity < need)
        capacity *= 2;
    if (capacity > buf->max + 1)
        capacity = buf->max + 1;
    char *data = realloc(buf->data, capacity);
    if (!data) {
        buf->failure = BUF_NO_MEMORY;
        return false;
    }
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

void buf_append(struct buf *buf, const void *data, size_t length)
{
    if (!reserve(buf, length))
        return;
    if (length > 0)
        memcpy(buf->data + buf->length, data, length);
    buf->length += length;
    buf->data[buf->length] = '\0';
}

void buf_append_text(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

void buf_appendf(struct buf *buf, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0 || !reserve(buf, (size_t)length))
        return;
    va_start(args, format);
    vsnprintf(buf->data + buf->length, (size_t)length + 1, format, args);
    va_end(args);
    buf->length += (size_t)length;
}

void buf_drop_front(struct buf *buf, size_t count)
{
    if (count == 0)
        return;
    buf->length -= count;
    memmove(buf->data, buf->data + count, buf->length + 1); /* its end too */
}

void buf_clear(struct buf *buf)
{
    buf->length = 0;
    buf->failure = BUF_OK;
    if (buf->data)
        buf->data[0] = '\0';
}

int buf_check(const struct buf *buf, struct hutch_error *err)
{
    switch (buf->failure) {
    case BUF_OK:
        return 0;
    case BUF_NO_MEMORY:
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    case BUF_TOO_LONG:
        break;
    }
    return err_set(err, HUTCH_ERR_INVALID, "longer than %zu bytes", buf->max);
}

int buf_read_fd(struct buf *buf, int fd, struct hutch_error *err)
{
    char chunk[8192];

    for (;;) {
        ssize_t count = read(fd, chunk, sizeof(chunk));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read");
        if (count == 0)
            return buf_check(buf, err);
        buf_append(buf, chunk, (size_t)count);
        if (buf->failure != BUF_OK)
            return buf_check(buf, err);
    }
}

int buf_read_file(struct buf *buf, int dir_fd, const char *path, struct hutch_error *err)
{
    auto_close int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s'", path);
    if (buf_read_fd(buf, fd, err) < 0)
        return err_context(err, "'%s'", path);
    return 0;
}

const char *buf_text(const struct buf *buf)
{
    return buf->data ? buf->data : "";
}
