/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of a tool call, as models and servers write them: whether they are whole
 * while they come in pieces, and what object they mean in the end. Pure.
 */
#pragma once

#include "base/json.h"

#include <hutch.h>
#include <stdbool.h>
#include <stdint.h>

/* How far a text of JSON has come, without reading it: brackets and strings only. Zeroed,
 * it is at the beginning. */
struct arguments_scan {
    uint64_t objects; /* a bit for each open bracket, the innermost lowest: it is a brace */
    unsigned depth;
    bool in_string, escaped;
    bool whole;  /* one or more objects, and nothing is open */
    bool broken; /* brackets that do not match */
};

void arguments_scan(struct arguments_scan *scan, const char *data, size_t length);

/* Whether the first character that is no blank begins an object. */
bool arguments_begin_object(const char *data, size_t length);

/* Whether the text is an object without members, {} with blanks anywhere. */
bool arguments_are_empty(const char *data, size_t length);

enum arguments_end { ARGUMENTS_OBJECT, ARGUMENTS_CUT_OFF, ARGUMENTS_MALFORMED };

/* Reads the object that the text begins with. *ret_at becomes the offset behind it, and
 * behind blanks. A JSON string that holds an object is that object, and its text is all.
 * Control characters may stand in strings as they are. Returns an enum arguments_end, and
 * for the two that are no object an error that says the place; or a negative code,
 * NO_MEMORY. *ret_object is the caller's. */
MUST_CHECK int arguments_read(const char *text, size_t length, size_t *ret_at, json_t **ret_object,
                              struct hutch_error *err);
