/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foreign text for a terminal, piece by piece as it comes: valid UTF-8 without control
 * characters but tab and line break, so that a model or a program in a cell cannot give the
 * terminal commands. Other control characters, those that turn the direction of text, and bad
 * bytes become U+FFFD; a carriage return becomes a line break, and one with the line feed behind
 * it.
 */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* The beginning of a character whose end has not come yet. Zeroed, there is none. */
struct text_rest {
    char bytes[4];
    size_t length;
};

/* Appends what came, as whole characters; keeps the unfinished one that it ends with. */
void text_rest_append(struct buf *out, struct text_rest *rest, const char *data, size_t length);

/* Appends U+FFFD where something is kept: nothing follows. */
void text_rest_end(struct buf *out, struct text_rest *rest);

/* Of one stream of text. Zeroed, nothing has come. */
struct safe_text {
    struct text_rest rest;
    bool after_return;
};

void safe_text_append(struct buf *out, struct safe_text *state, const char *data, size_t length);
void safe_text_end(struct buf *out, struct safe_text *state);
