/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of files in a cell: which paths a caller may give, which of them a pattern means,
 * and what kind of data the ending of a name promises.
 */
#pragma once

#include "base/attrs.h"
#include "base/limits.h"

#include <hutch.h>

/* A path relative to the cell's home directory, as wire.h has it. */
struct file_path {
    char text[LIMIT_PATH_BYTES + 1];
};

/* Checks a caller's path, relative to the home directory or below it from the root, and
 * takes out what means nothing (".", "//"). Refused are what is empty or too long, "..",
 * and other absolute paths. field is what the message names. Errors: INVALID. */
MUST_CHECK int file_path_read(const char *field, const char *path, struct file_path *ret_path,
                              struct hutch_error *err);

/* The same of a path of length bytes, which may hold NUL and be empty: the home directory. */
MUST_CHECK int file_path_read_bytes(const char *field, const char *path, size_t length,
                                    struct file_path *ret_path, struct hutch_error *err);

/* Whether a pattern means a path. "*" and "?" stand for characters of a name, "**" for any
 * part of a path, "[a-z]" and "[!a-z]" for one byte of a name. */
bool file_matches(const char *pattern, const char *path);

/* The media type of the ending of a path's name; static. */
const char *file_mime(const char *path);
