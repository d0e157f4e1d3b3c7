/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON reader, beside that of jansson: what jansson takes, ours takes for the
 * same value, but for the depth that it allows; what ours takes is the same after
 * it was written and read again. And any bytes written as a string come back
 * repaired. json_valid() says what the reader does, but for what it does not look at.
 *
 * Input: the text.
 */
#include "fuzz.h"

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define JANSSON_FLAGS (JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL)

static void check_again(const json_t *value)
{
    struct hutch_error err;
    auto_json json_t *again = NULL;
    auto_free char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));

    assert(text);
    int code = json_read(text, strlen(text), SIZE_MAX, &again, &err);
    assert(code == 0 && json_equal(value, again));
}

static void check_refused(const struct hutch_text *text, int code, const struct hutch_error *err,
                          const json_t *theirs)
{
    check_error(code, err);
    assert(code == HUTCH_ERR_INVALID);
    assert(strncmp(err->message, "line ", strlen("line ")) == 0);
    assert(utf8_valid(err->message, strlen(err->message)));
    /* jansson loses a NUL behind a number */
    assert(!theirs || strstr(err->message, "nested deeper") ||
           memchr(text->data, '\0', text->length));
    assert(text->length > 0 || strstr(err->message, "the end of the text"));
}

static void check_reader(const struct hutch_text *text)
{
    struct hutch_error err;
    auto_json json_t *ours = NULL;
    auto_json json_t *theirs = json_loadb(text->data, text->length, JANSSON_FLAGS, NULL);

    int code = json_read(text->data, text->length, SIZE_MAX, &ours, &err);
    bool valid = json_valid(text->data, text->length);
    if (code < 0) {
        assert(!valid || strstr(err.message, "twice") || strstr(err.message, "NUL") ||
               strstr(err.message, "64 bits") || strstr(err.message, "is not a number from"));
        check_refused(text, code, &err, theirs);
        return;
    }
    assert(valid);
    assert(!theirs || json_equal(ours, theirs));
    check_again(ours);
}

static void check_string(const struct hutch_text *text)
{
    struct hutch_error err;
    auto_json json_t *value = NULL;
    auto_buf struct buf written = BUF_MAX(6 * text->length + 2);
    auto_buf struct buf repaired = BUF_MAX(3 * text->length);

    json_append_string(&written, text->data, text->length);
    assert(written.failure == BUF_OK && utf8_valid(written.data, written.length));
    int code = json_read(written.data, written.length, SIZE_MAX, &value, &err);
    assert(code == 0 && json_is_string(value));
    utf8_repair(&repaired, text->data, text->length);
    check_bytes(&repaired, json_string_value(value), json_string_length(value));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct hutch_text text = input_bytes(&input, SIZE_MAX);

    check_reader(&text);
    check_string(&text);
    free(text.data);
    return 0;
}
