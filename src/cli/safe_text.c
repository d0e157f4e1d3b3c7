/* SPDX-License-Identifier: Apache-2.0 */
/* See safe_text.h. */
#include "safe_text.h"

#include "base/utf8.h"

#include <string.h>

#define PIECE_MAX ((size_t)1 << 30)

void text_rest_append(struct buf *out, struct text_rest *rest, const char *data, size_t length)
{
    auto_buf struct buf piece = BUF_MAX(PIECE_MAX);

    buf_append(&piece, rest->bytes, rest->length);
    buf_append(&piece, data, length);
    if (piece.failure != BUF_OK) {
        out->failure = piece.failure;
        return;
    }
    size_t end = utf8_boundary_before(buf_text(&piece), piece.length, piece.length);
    utf8_repair(out, buf_text(&piece), end);
    rest->length = piece.length - end;
    memcpy(rest->bytes, buf_text(&piece) + end, rest->length);
}

void text_rest_end(struct buf *out, struct text_rest *rest)
{
    if (rest->length > 0)
        buf_append_text(out, UTF8_REPLACEMENT);
    rest->length = 0;
}

/* Whether a character turns the direction of text around it (Unicode's Bidi_Control), so that
 * what a terminal shows is in another order than what it was sent. */
static bool is_direction(const char *data, size_t length)
{
    static const char *const characters[] = {
        "\u061c", "\u200e", "\u200f", "\u202a", "\u202b", "\u202c",
        "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069",
    };

    for (size_t i = 0; i < ARRAY_LENGTH(characters); i++) {
        if (strlen(characters[i]) == length && memcmp(characters[i], data, length) == 0)
            return true;
    }
    return false;
}

/* Appends one character of valid UTF-8. */
static void append_safely(struct buf *out, struct safe_text *state, const char *data, size_t length)
{
    bool after_return = state->after_return;

    state->after_return = *data == '\r';
    if (*data == '\n' && after_return)
        return;
    if (*data == '\r' || *data == '\n')
        buf_append_text(out, "\n");
    else if ((*data != '\t' && utf8_is_control(data, length)) || is_direction(data, length))
        buf_append_text(out, UTF8_REPLACEMENT);
    else
        buf_append(out, data, length);
}

void safe_text_append(struct buf *out, struct safe_text *state, const char *data, size_t length)
{
    auto_buf struct buf whole = BUF_MAX(PIECE_MAX);
    size_t at = 0;

    text_rest_append(&whole, &state->rest, data, length);
    if (whole.failure != BUF_OK)
        out->failure = whole.failure;
    while (at < whole.length) {
        bool valid;
        size_t unit = utf8_unit(whole.data + at, whole.length - at, &valid);
        append_safely(out, state, whole.data + at, unit);
        at += unit;
    }
}

void safe_text_end(struct buf *out, struct safe_text *state)
{
    text_rest_end(out, &state->rest);
}
