/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_read(), see json.h: recursive descent over the text in memory. A reader
 * of a value returns it, or NULL with the error set.
 */
#include "json.h"
#include "parse.h"
#include "quote.h"
#include "utf8.h"

#include <float.h>
#include <stdint.h>
#include <string.h>

#define ESCAPE_BYTES 6 /* of \uXXXX */

struct reader {
    const char *text;
    size_t length;
    size_t at; /* read up to here */
    size_t depth;
    size_t values; /* read or begun */
    unsigned take; /* JSON_TAKE_ bits */
    struct hutch_error *err;
};

static json_t *read_value(struct reader *reader);

/* ---- failing ---- */

/* Puts the place in front of the error that was just set. */
static json_t *fail_here(struct reader *reader)
{
    size_t line = 1, column = 1;

    for (size_t i = 0; i < reader->at; i++) {
        if (reader->text[i] == '\n') {
            line++;
            column = 1;
        } else if ((reader->text[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    err_context(reader->err, "line %zu, column %zu", line, column);
    return NULL;
}

static json_t *fail(struct reader *reader, const char *what)
{
    err_set(reader->err, HUTCH_ERR_INVALID, "%s", what);
    return fail_here(reader);
}

static json_t *fail_expecting(struct reader *reader, const char *what)
{
    const char *found = reader->text + reader->at;
    bool valid;

    if (reader->at == reader->length)
        err_set(reader->err, HUTCH_ERR_INVALID, "%s expected, not the end of the text", what);
    else
        err_set(reader->err, HUTCH_ERR_INVALID, "%s expected, not %s", what,
                quote_bytes(found, utf8_unit(found, reader->length - reader->at, &valid)).text);
    return fail_here(reader);
}

static json_t *no_memory(struct reader *reader)
{
    err_set(reader->err, HUTCH_ERR_NO_MEMORY, "out of memory");
    return NULL;
}

static json_t *made(struct reader *reader, json_t *value)
{
    return value ? value : no_memory(reader);
}

/* ---- characters ---- */

/* The next byte; NUL at the end, which is no part of any token. */
static char peek(const struct reader *reader)
{
    return reader->at < reader->length ? reader->text[reader->at] : '\0';
}

static bool take(struct reader *reader, char c)
{
    if (reader->at == reader->length || reader->text[reader->at] != c)
        return false;
    reader->at++;
    return true;
}

static void skip_space(struct reader *reader)
{
    while (take(reader, ' ') || take(reader, '\n') || take(reader, '\t') || take(reader, '\r')) {
    }
}

/* ---- strings ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The UTF-16 unit that \uXXXX stands for at this place; -1 if there is none. */
static int unit_at(const struct reader *reader, size_t at)
{
    const char *text = reader->text + at;
    int unit = 0;

    if (reader->length - at < ESCAPE_BYTES || text[0] != '\\' || text[1] != 'u')
        return -1;
    for (size_t i = 2; i < ESCAPE_BYTES; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static void append_point(struct buf *out, unsigned int point)
{
    char bytes[4];
    size_t length = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (size_t i = length - 1; i > 0; i--) {
        bytes[i] = (char)(0x80 | (point & 0x3f));
        point >>= 6;
    }
    bytes[0] = (char)(marks[length] | point);
    buf_append(out, bytes, length);
}

/* Reads \uXXXX, or two of them where they are a surrogate pair; a lone
 * surrogate is read as U+FFFD. False if it is malformed. */
static bool read_unicode_escape(struct reader *reader, struct buf *out)
{
    int unit = unit_at(reader, reader->at);

    if (unit < 0)
        return false;
    reader->at += ESCAPE_BYTES;
    if (unit < 0xd800 || unit > 0xdfff) {
        append_point(out, (unsigned int)unit);
        return true;
    }
    int next = unit < 0xdc00 ? unit_at(reader, reader->at) : -1;
    if (next >= 0xdc00 && next <= 0xdfff) {
        reader->at += ESCAPE_BYTES;
        append_point(out, 0x10000 + ((unsigned int)(unit - 0xd800) << 10) +
                              (unsigned int)(next - 0xdc00));
    } else {
        buf_append_text(out, UTF8_REPLACEMENT);
    }
    return true;
}

/* Reads the escape at a backslash; false if it is malformed. */
static bool read_escape(struct reader *reader, struct buf *out)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";

    if (reader->length - reader->at < 2)
        return false;
    char c = reader->text[reader->at + 1];
    if (c == 'u')
        return read_unicode_escape(reader, out);
    const char *name = c == '\0' ? NULL : strchr(names, c);
    if (!name)
        return false;
    buf_append(out, &meanings[name - names], 1);
    reader->at += 2;
    return true;
}

/* How many bytes stand for themselves from here. */
static size_t plain(const struct reader *reader)
{
    unsigned char lowest = reader->take & JSON_TAKE_CONTROLS ? 0 : 0x20;
    size_t end = reader->at;
    while (end < reader->length && (unsigned char)reader->text[end] >= lowest &&
           reader->text[end] != '"' && reader->text[end] != '\\')
        end++;
    return end - reader->at;
}

/* Reads a string, as valid UTF-8, into out. */
static bool read_string(struct reader *reader, struct buf *out)
{
    reader->at++; /* the quote */
    for (;;) {
        size_t count = plain(reader);
        utf8_repair(out, reader->text + reader->at, count);
        reader->at += count;
        if (take(reader, '"'))
            break;
        if (reader->at == reader->length) {
            fail_expecting(reader, "'\"'");
            return false;
        }
        if (peek(reader) != '\\') {
            fail(reader, "control character in a string; it has to be escaped");
            return false;
        }
        if (!read_escape(reader, out)) {
            fail(reader, "malformed escape in a string");
            return false;
        }
    }
    buf_append(out, "", 0);
    return buf_check(out, reader->err) == 0;
}

/* No character of a string becomes more than one U+FFFD. */
static struct buf string_buf(const struct reader *reader)
{
    return BUF_MAX(reader->length * strlen(UTF8_REPLACEMENT));
}

static json_t *read_string_value(struct reader *reader)
{
    auto_buf struct buf string = string_buf(reader);

    if (!read_string(reader, &string))
        return NULL;
    return made(reader, json_stringn_nocheck(string.data, string.length));
}

/* ---- numbers ---- */

static size_t skip_digits(struct reader *reader)
{
    size_t from = reader->at;
    while (peek(reader) >= '0' && peek(reader) <= '9')
        reader->at++;
    return reader->at - from;
}

/* The value of a whole number in 64 bits; false when it has more. */
static bool whole_number(const char *text, size_t length, json_int_t *ret_value)
{
    bool negative = *text == '-';
    json_int_t value = 0;

    for (size_t i = negative; i < length; i++) {
        json_int_t digit = text[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, negative ? -digit : digit, &value))
            return false;
    }
    *ret_value = value;
    return true;
}

static json_t *read_real(struct reader *reader, size_t from)
{
    auto_buf struct buf text = string_buf(reader);
    double value;

    buf_append(&text, reader->text + from, reader->at - from);
    if (buf_check(&text, reader->err) < 0)
        return NULL;
    if (parse_double(text.data, -DBL_MAX, DBL_MAX, &value, reader->err) < 0) {
        reader->at = from;
        return fail_here(reader);
    }
    return made(reader, json_real(value));
}

static json_t *read_number(struct reader *reader)
{
    size_t from = reader->at;
    bool real = false;

    take(reader, '-');
    if (!take(reader, '0') && skip_digits(reader) == 0)
        return fail_expecting(reader, "digit");
    if (take(reader, '.')) {
        real = true;
        if (skip_digits(reader) == 0)
            return fail_expecting(reader, "digit");
    }
    if (take(reader, 'e') || take(reader, 'E')) {
        real = true;
        if (!take(reader, '+'))
            take(reader, '-');
        if (skip_digits(reader) == 0)
            return fail_expecting(reader, "digit");
    }
    if (real)
        return read_real(reader, from);

    json_int_t value;
    if (!whole_number(reader->text + from, reader->at - from, &value)) {
        if (reader->take & JSON_TAKE_BIG)
            return read_real(reader, from);
        err_set(reader->err, HUTCH_ERR_INVALID, "%s is a whole number over 64 bits",
                quote_bytes(reader->text + from, reader->at - from).text);
        reader->at = from;
        return fail_here(reader);
    }
    return made(reader, json_integer(value));
}

/* ---- containers ---- */

static json_t *read_array(struct reader *reader)
{
    auto_json json_t *array = json_array();

    if (!array)
        return no_memory(reader);
    reader->at++;
    skip_space(reader);
    if (take(reader, ']'))
        return TAKE_POINTER(array);
    for (;;) {
        json_t *value = read_value(reader);
        if (!value)
            return NULL;
        if (json_array_append_new(array, value) < 0)
            return no_memory(reader);
        skip_space(reader);
        if (take(reader, ']'))
            return TAKE_POINTER(array);
        if (!take(reader, ','))
            return fail_expecting(reader, "',' or ']'");
    }
}

/* Reads the name of a member into name. */
static bool read_name(struct reader *reader, const json_t *object, struct buf *name)
{
    size_t from;

    skip_space(reader);
    from = reader->at;
    if (peek(reader) != '"') {
        fail_expecting(reader, "a member's name in '\"'");
        return false;
    }
    if (!read_string(reader, name))
        return false;
    if (strlen(name->data) != name->length)
        err_set(reader->err, HUTCH_ERR_INVALID, "NUL in the name of a member");
    else if (!(reader->take & JSON_TAKE_TWICE) && json_object_get(object, name->data))
        err_set(reader->err, HUTCH_ERR_INVALID, "the member %s is there twice",
                quote_text(name->data).text);
    else
        return true;
    reader->at = from;
    fail_here(reader);
    return false;
}

static bool read_member(struct reader *reader, json_t *object)
{
    auto_buf struct buf name = string_buf(reader);

    if (!read_name(reader, object, &name))
        return false;
    skip_space(reader);
    if (!take(reader, ':')) {
        fail_expecting(reader, "':'");
        return false;
    }
    json_t *value = read_value(reader);
    if (!value)
        return false;
    if (json_object_set_new_nocheck(object, name.data, value) < 0) {
        no_memory(reader);
        return false;
    }
    return true;
}

static json_t *read_object(struct reader *reader)
{
    auto_json json_t *object = json_object();

    if (!object)
        return no_memory(reader);
    reader->at++;
    skip_space(reader);
    if (take(reader, '}'))
        return TAKE_POINTER(object);
    for (;;) {
        if (!read_member(reader, object))
            return NULL;
        skip_space(reader);
        if (take(reader, '}'))
            return TAKE_POINTER(object);
        if (!take(reader, ','))
            return fail_expecting(reader, "',' or '}'");
    }
}

static json_t *read_container(struct reader *reader)
{
    if (reader->depth == JSON_DEPTH_MAX) {
        err_set(reader->err, HUTCH_ERR_INVALID, "nested deeper than %d levels", JSON_DEPTH_MAX);
        return fail_here(reader);
    }
    reader->depth++;
    json_t *value = peek(reader) == '{' ? read_object(reader) : read_array(reader);
    reader->depth--;
    return value;
}

/* ---- the whole ---- */

static bool take_word(struct reader *reader, const char *word)
{
    size_t length = strlen(word);

    if (reader->length - reader->at < length ||
        memcmp(reader->text + reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

static json_t *read_value(struct reader *reader)
{
    skip_space(reader);
    if (reader->values++ == JSON_VALUES_MAX)
        return fail(reader, "more than a million values");
    char c = peek(reader);
    if (c == '{' || c == '[')
        return read_container(reader);
    if (c == '"')
        return read_string_value(reader);
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(reader);
    if (take_word(reader, "true"))
        return json_true();
    if (take_word(reader, "false"))
        return json_false();
    if (take_word(reader, "null"))
        return json_null();
    return fail_expecting(reader, "a value");
}

int json_read_prefix(const char *text, size_t length, unsigned take, size_t *ret_at,
                     json_t **ret_value, struct hutch_error *err)
{
    struct reader reader = {.text = text, .length = length, .take = take, .err = err};

    json_t *value = read_value(&reader);
    *ret_at = reader.at;
    if (!value)
        return err->code;
    *ret_value = value;
    return 0;
}

int json_read(const char *text, size_t length, size_t max_bytes, json_t **ret_value,
              struct hutch_error *err)
{
    struct reader reader = {.text = text, .length = length, .err = err};

    if (length > max_bytes)
        return err_set(err, HUTCH_ERR_INVALID, "%zu bytes of JSON; allowed are at most %zu", length,
                       max_bytes);
    auto_json json_t *value = read_value(&reader);
    if (!value)
        return err->code;
    skip_space(&reader);
    if (reader.at < length) {
        fail_expecting(&reader, "the end of the text");
        return err->code;
    }
    *ret_value = TAKE_POINTER(value);
    return 0;
}
