/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foreign text inside a message: one line, bounded, valid UTF-8, in quotes.
 * Control characters become escapes (\n, \x1b), bad bytes U+FFFD, and text that
 * is too long ends in "...". Used within one expression:
 *
 *     err_set(err, HUTCH_ERR_INVALID, "env: %s", quote_text(name).text);
 */
#pragma once

#include <stddef.h>

#define QUOTE_TEXT_BYTES 48 /* of the quoted text; messages have 244 */
#define QUOTE_SHORT_BYTES 20

struct quote {
    char text[QUOTE_TEXT_BYTES + sizeof("'...'")];
};

struct quote quote_bytes(const char *data, size_t length);

/* The same of a string; NULL is shown as "none", without quotes. */
struct quote quote_text(const char *text);

/* The same in at most QUOTE_SHORT_BYTES, for messages that go on with a list. */
struct quote quote_short(const char *text);
