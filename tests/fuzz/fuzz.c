/* SPDX-License-Identifier: Apache-2.0 */
/* See fuzz.h. */
#include "fuzz.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- taking the input apart ---- */

uint64_t input_number(struct input *input, size_t bytes)
{
    uint64_t number = 0;

    for (size_t i = 0; i < bytes && input->length > 0; i++) {
        number |= (uint64_t)*input->data << (8 * i);
        input->data++;
        input->length--;
    }
    return number;
}

struct hutch_text input_bytes(struct input *input, size_t length)
{
    struct hutch_text text = {.length = smaller(length, input->length)};

    text.data = malloc(text.length ? text.length : 1);
    assert(text.data);
    if (text.length > 0)
        memcpy(text.data, input->data, text.length);
    input->data += text.length;
    input->length -= text.length;
    return text;
}

char *input_text(struct input *input)
{
    size_t length = input->length > 0 ? strnlen((const char *)input->data, input->length) : 0;
    char *text = malloc(length + 1);

    assert(text);
    if (length > 0)
        memcpy(text, input->data, length);
    text[length] = '\0';
    *input = (struct input){.data = input->data + input->length};
    return text;
}

int input_file(const struct input *input)
{
    static int fd = -1;

    if (fd < 0)
        fd = memfd_create("input", MFD_CLOEXEC);
    assert(fd >= 0);
    bool written = ftruncate(fd, 0) == 0 &&
                   pwrite(fd, input->data, input->length, 0) == (ssize_t)input->length &&
                   lseek(fd, 0, SEEK_SET) == 0;
    assert(written);
    return fd;
}

/* ---- assertions ---- */

void check_error(int code, const struct hutch_error *err)
{
    assert(code < 0);
    assert(err->code == code);
    assert(error_info(code)->code == code);
    size_t length = strnlen(err->message, sizeof(err->message));
    assert(length > 0 && length < sizeof(err->message));
    assert(!strchr(err->message, '\n'));
}

void check_bytes(const struct buf *buf, const char *data, size_t length)
{
    assert(buf->failure == BUF_OK);
    assert(buf->length == length);
    assert(length == 0 || memcmp(buf->data, data, length) == 0);
}

static unsigned sextet_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;

    assert(at);
    return (unsigned)(at - digits);
}

void check_base64(const char *text, size_t text_length, const char *data, size_t length)
{
    assert(text_length == (length + 2) / 3 * 4);
    for (size_t i = 0; i < text_length; i += 4) {
        size_t at = i / 4 * 3, count = smaller(3, length - at);
        uint32_t bits = 0;
        for (size_t digit = 0; digit < 4; digit++) {
            bool used = digit <= count;
            assert(used || text[i + digit] == '=');
            bits = bits << 6 | (used ? sextet_of(text[i + digit]) : 0);
        }
        for (size_t byte = 0; byte < 3; byte++) {
            unsigned char value = (unsigned char)(bits >> (16 - 8 * byte));
            assert(value == (byte < count ? (unsigned char)data[at + byte] : 0));
        }
    }
}
