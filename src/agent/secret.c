/* SPDX-License-Identifier: Apache-2.0 */
/* See secret.h. */
#include "secret.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "environment.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>

void secret_done(struct secret *secret)
{
    if (secret->text)
        explicit_bzero(secret->text, strlen(secret->text));
    free(secret->text);
    *secret = SECRET_NONE;
}

#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* as some editors begin a file */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int take(const char *text, size_t length, struct secret *ret_secret, struct hutch_error *err)
{
    if (length >= strlen(BYTE_ORDER_MARK) &&
        memcmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0) {
        text += strlen(BYTE_ORDER_MARK);
        length -= strlen(BYTE_ORDER_MARK);
    }
    while (length > 0 && is_blank(*text)) {
        text++;
        length--;
    }
    while (length > 0 && is_blank(text[length - 1]))
        length--;
    if (length == 0)
        return err_set(err, HUTCH_ERR_INVALID, "the API key is empty");
    if (length > LIMIT_KEY_BYTES)
        return err_set(err, HUTCH_ERR_INVALID, "the API key has more than %d bytes",
                       (int)LIMIT_KEY_BYTES);
    for (size_t i = 0; i < length; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return err_set(err, HUTCH_ERR_INVALID,
                           "the API key holds a blank or a byte that is not visible ASCII");
    }
    char *copy = strndup(text, length);
    if (!copy)
        return err_no_memory(err);
    ret_secret->text = copy;
    return 0;
}

int secret_from_text(const char *text, struct secret *ret_secret, struct hutch_error *err)
{
    return take(text, strlen(text), ret_secret, err);
}

/* Reads up to size bytes of a file; what it has beyond is not read. -1 with errno. */
static ssize_t read_some(int fd, char *data, size_t size)
{
    size_t length = 0;

    while (length < size) {
        int ready =
            fd_wait(fd, POLLIN, clock_after_ns((uint64_t)(LIMIT_KEY_SECONDS * NS_PER_SECOND)));
        if (ready == 0)
            errno = ETIMEDOUT;
        if (ready <= 0)
            return -1;
        ssize_t count = read(fd, data + length, size - length);
        if (count < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (count < 0)
            return -1;
        if (count == 0)
            break;
        length += (size_t)count;
    }
    return (ssize_t)length;
}

int secret_from_file(const char *path, struct secret *ret_secret, struct hutch_error *err)
{
    char data[LIMIT_KEY_BYTES + 64]; /* line ends may follow the key */
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return err_errno(err, HUTCH_ERR_INVALID, errno, "key_file: cannot open '%s'", path);
    ssize_t length = read_some(fd, data, sizeof(data));
    if (length < 0)
        return err_errno(err, HUTCH_ERR_INVALID, errno, "key_file: cannot read '%s'", path);
    int code = take(data, (size_t)length, ret_secret, err);
    explicit_bzero(data, sizeof(data));
    return code < 0 ? err_context(err, "key_file: '%s'", path) : 0;
}

int secret_from_environment(char *const *environment, const char *const *names,
                            struct secret *ret_secret, struct hutch_error *err)
{
    for (; *names; names++) {
        const char *value = environment_get(environment, *names);
        if (value && secret_from_text(value, ret_secret, err) < 0)
            return err_context(err, "%s", *names);
        if (value)
            return 0;
    }
    *ret_secret = SECRET_NONE;
    return 0;
}

size_t secret_at(const char *const *hidden, const char *data, size_t length)
{
    size_t longest = 0;

    for (; hidden && *hidden; hidden++) {
        size_t size = strlen(*hidden);
        if (size >= strlen(SECRET_MASK) && size <= length && size > longest &&
            memcmp(*hidden, data, size) == 0)
            longest = size;
    }
    return longest;
}

void secret_hide(const char *const *hidden, char *text)
{
    size_t length = strlen(text), to = 0;

    for (size_t at = 0; at < length;) {
        size_t size = secret_at(hidden, text + at, length - at);
        if (size > 0) {
            memcpy(text + to, SECRET_MASK, strlen(SECRET_MASK));
            to += strlen(SECRET_MASK);
            at += size;
        } else {
            text[to++] = text[at++];
        }
    }
    text[to] = '\0';
}
