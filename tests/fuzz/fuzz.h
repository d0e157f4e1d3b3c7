/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share. A target is one function that is given bytes and
 * asserts what must hold for them, whatever they are: libFuzzer looks for bytes for
 * which an assertion fails or a sanitizer complains. README.md says more.
 *
 * Where a target needs choices beside its text, it takes them from the beginning
 * of the input; at its end they are 0.
 */
#pragma once

#include "base/buf.h"

#include <assert.h>
#include <hutch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- taking the input apart ---- */

struct input {
    const uint8_t *data;
    size_t length;
};

/* The next bytes (at most 8) as a number, the lowest first. */
uint64_t input_number(struct input *input, size_t bytes);

/* The next bytes, at most length, in memory of just their size, so that a read
 * beyond their end is seen. To be freed. */
struct hutch_text input_bytes(struct input *input, size_t length);

/* All that is left, up to a NUL, as a string in memory of just its size. To be
 * freed. */
char *input_text(struct input *input);

/* A file that holds all that is left, to be read from its beginning. There is one
 * for all inputs: it is not to be closed. */
int input_file(const struct input *input);

/* ---- assertions that several targets make ---- */

/* An error that a call gave: its code is the one returned and one of hutch's, its
 * message a line that is not empty. */
void check_error(int code, const struct hutch_error *err);

/* A buffer holds exactly these bytes, and has not failed. */
void check_bytes(const struct buf *buf, const char *data, size_t length);

/* The base64 text is that of the bytes. */
void check_base64(const char *text, size_t text_length, const char *data, size_t length);

/* A result that is told to the caller: its fields agree with one another, and its
 * JSON says the same as they do. */
void check_result(const struct hutch_result *result);
