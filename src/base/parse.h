/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers as text, in both directions, the same in every locale of the host
 * program. Reading takes the whole string or nothing: no blanks, no sign but a
 * minus of a real number, no hexadecimal, no infinity.
 */
#pragma once

#include "attrs.h"
#include "error.h"

#include <stdint.h>

/* Reads a whole decimal number from min to max. The message names the text and
 * the range, "'12x' is not a whole number from 1 to 4096"; the caller puts the
 * field's name in front. Errors: INVALID. */
MUST_CHECK int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value,
                         struct hutch_error *err);

/* The same for a real number: digits, one point among or around them, a
 * decimal exponent ("0.5", ".5", "1e2"). */
MUST_CHECK int parse_double(const char *text, double min, double max, double *ret_value,
                            struct hutch_error *err);

/* The whole number that a text of the kernel's begins with, after blanks; 0 where
 * there is none, and never more than 2^40, whatever follows. */
uint64_t parse_leading(const char *text);

/* A real number for a message: at most six digits, a point in every locale.
 * Used within one expression: number_text(x).text. */
struct number_text {
    char text[32];
};
struct number_text number_text(double value);

/* A finite real number as JSON, with as many digits as it takes to read the same one again,
 * and a point or an exponent always. */
struct number_text number_exact(double value);
