/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8: check, repair, and cut without breaking a character.
 *
 * Bytes are read in units. A unit is either one well-formed character, or the
 * longest part of the input that could have become one and did not (Unicode's
 * "maximal subpart"; at least one byte). Each bad unit is shown as one U+FFFD,
 * exactly as Python's bytes.decode("utf-8", "replace") does.
 */
#pragma once

#include "buf.h"

#include <stdbool.h>
#include <stddef.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* The bytes of the unit at data, 1 to 4; length is at least 1. A character
 * that the end of the data cuts off is a bad unit. */
size_t utf8_unit(const char *data, size_t length, bool *ret_valid);

/* The offset of the first bad unit; length when there is none. */
size_t utf8_bad_at(const char *data, size_t length);

bool utf8_valid(const char *data, size_t length);

/* Appends data with U+FFFD for each bad unit. */
void utf8_repair(struct buf *out, const char *data, size_t length);

/* The nearest offset at or before (at or after) offset that lies between two
 * units. data is taken as a piece of a longer stream: a character that its end
 * cuts off counts as reaching beyond it, and up to three continuation bytes at
 * its beginning count as the rest of a character that began before it. So
 *
 *     utf8_boundary_before(data, n, n)   drops an unfinished character's bytes
 *     utf8_boundary_after(data, n, 0)    skips the rest of a broken one
 *
 * Neither moves by more than three bytes; both stay within 0 to length. */
size_t utf8_boundary_before(const char *data, size_t length, size_t offset);
size_t utf8_boundary_after(const char *data, size_t length, size_t offset);

/* Whether a valid unit is a control character: below U+0020, or U+007F to
 * U+009F. */
bool utf8_is_control(const char *data, size_t length);
