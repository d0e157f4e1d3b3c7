/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of schema.h share: places for messages, references, patterns, numbers. */
#pragma once

#include "base/attrs.h"

#include <hutch.h>
#include <jansson.h>
#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

/* Deeper than values may be (JSON_DEPTH_MAX), as references lead on. */
#define SCHEMA_DEPTH_MAX 192
#define SCHEMA_PATTERN_BYTES 1024
#define SCHEMA_MATCHED_BYTES 65536 /* of a string that a pattern is laid on */

/* Where something stands in a value; a list on the stack, the innermost first. */
struct place {
    const struct place *up;
    const char *name; /* of a member; NULL: index counts */
    size_t index;
    unsigned depth;
};
#define PLACE_ROOT ((struct place){.name = ""})
struct place place_member(const struct place *up, const char *name);
struct place place_item(const struct place *up, size_t index);

/* Puts "items[2].n: " in front of an error's message, nothing for the root. Returns its code. */
int place_tell(const struct place *place, struct hutch_error *err);

/* What "#/…" means in a schema; NULL for nothing. */
const json_t *schema_find(const json_t *root, const char *reference);

/* As schema_check, for a part of a schema. */
MUST_CHECK int schema_check_part(const json_t *root, const json_t *part, const json_t *value,
                                 struct hutch_error *err);

/* Whether it is a pattern that is taken, and not too costly. Errors: INVALID, NO_MEMORY. */
MUST_CHECK int pattern_accept(const char *pattern, struct hutch_error *err);

/* Patterns that were accepted, as they are while values are checked: compiled once, as long as
 * there is room, of which the last ones have it. Begins as zeros. Texts of patterns have to stay,
 * as they are known by their address. */
#define PATTERN_CACHE 64
struct pattern_cache {
    struct {
        const char *pattern;
        regex_t regex;
    } slots[PATTERN_CACHE];
    size_t made; /* also those that were replaced */
};
void pattern_cache_done(struct pattern_cache *cache);

/* 1, 0: whether a part of text matches. Errors: INVALID where text is too long, NO_MEMORY. */
MUST_CHECK int pattern_matches(struct pattern_cache *cache, const char *pattern, const char *text,
                               size_t length, struct hutch_error *err);

/* Whether a number has no fraction, such as 2 and 2.0. */
bool number_is_whole(const json_t *value);

/* Below, at or above 0, as one number is to another. */
int number_compare(const json_t *one, const json_t *other);
