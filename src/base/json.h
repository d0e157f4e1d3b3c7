/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON from outside, read into jansson's values, and JSON of our own, written
 * into a struct buf.
 *
 * The reader is our own: that of jansson drops failed allocations, and then
 * writes beyond its buffers or aborts the process (its issue 362). It follows
 * RFC 8259. What language models and their clients send is not always strict;
 * it takes what has one plain meaning and refuses what has none:
 *
 *   lone surrogate escape (\ud800)   read as U+FFFD
 *   bytes that are not UTF-8         read as U+FFFD
 *   \u0000 in a string               kept; the field's check names the field
 *                                    that may not hold it (NUL in a member's
 *                                    name is refused)
 *   the same member twice            refused
 *   nested deeper than 64            refused
 *   whole number over 64 bits,
 *   real number over the range       refused
 */
#pragma once

#include "attrs.h"
#include "buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define JSON_DEPTH_MAX 64
/* Of a text that is read: empty objects take eighty times the memory of their text. */
#define JSON_VALUES_MAX 1000000

/* A json_t * local that is released at the end of its scope. */
#define auto_json __attribute__((cleanup(json_decrefp)))

/* Reads one value of at most max_bytes of text and JSON_VALUES_MAX values in all. The message says
 * where the text is wrong, "line 1, column 9: ...", counted from 1 in characters. *ret_value is the
 * caller's. Errors: INVALID, NO_MEMORY. */
MUST_CHECK int json_read(const char *text, size_t length, size_t max_bytes, json_t **ret_value,
                         struct hutch_error *err);

/* What json_read_prefix takes beyond that, by choice: for what models write and what
 * servers make of it. */
#define JSON_TAKE_TWICE 1u    /* the same member twice: the last one counts */
#define JSON_TAKE_BIG 2u      /* a whole number over 64 bits: read as a real one */
#define JSON_TAKE_CONTROLS 4u /* control characters in strings, as themselves */

/* Reads the value that a text begins with, after blanks; what follows it is not looked at.
 * take: JSON_TAKE_ bits. *ret_at becomes the offset behind the value; after an error it is
 * the place of that, the text's length where the text ends too early. The message says the
 * place too, as that of json_read. *ret_value is the caller's. Errors: INVALID, NO_MEMORY. */
MUST_CHECK int json_read_prefix(const char *text, size_t length, unsigned take, size_t *ret_at,
                                json_t **ret_value, struct hutch_error *err);

/* Whether a text is one JSON value of RFC 8259, nested no deeper than JSON_DEPTH_MAX. It
 * takes no memory, for texts that are foreign and long. Unlike json_read it says nothing
 * about names that occur twice, the range of numbers and UTF-8. */
bool json_valid(const char *text, size_t length);

/* What a value is, for messages: "a string", "an object", "null" ... */
const char *json_kind(const json_t *value);

/* Appends a JSON string, quotes included. Bad UTF-8 becomes U+FFFD. Control
 * characters and the line separators U+2028 and U+2029 are escaped, so that no
 * reader sees a line end in it and no terminal a command. */
void json_append_string(struct buf *out, const char *data, size_t length);

/* The same of a string; null for NULL. */
void json_append_text(struct buf *out, const char *text);

/* Appends a value as compact JSON, members in their order; a real number with as many
 * digits as it takes to read the same one again. A value that is nested deeper than
 * JSON_DEPTH_MAX fails the buffer. */
void json_append_value(struct buf *out, const json_t *value);

/* Appends a time in ms with three decimals; 0 for what is no time. */
void json_append_ms(struct buf *out, double ms);
