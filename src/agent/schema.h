/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON Schema, the part of it that hutch-agent.h lists: whether a schema is one, and whether a
 * value follows it. Pure; any number of threads.
 */
#pragma once

#include "base/attrs.h"

#include <hutch.h>
#include <jansson.h>

/* Whether it is a schema of which every keyword is known and right. The error names the place
 * and the keyword: "properties.code.minLength: ...". Errors: INVALID, NO_MEMORY. */
MUST_CHECK int schema_accept(const json_t *schema, struct hutch_error *err);

/* Whether value follows a schema that was accepted. The error names the place and what is
 * allowed: "items[2].n: 'x' is a string; allowed is integer", "code: is missing". Errors: INVALID,
 * NO_MEMORY. */
MUST_CHECK int schema_check(const json_t *schema, const json_t *value, struct hutch_error *err);

/* A copy as servers want it for strict following: at each level no other properties, all of
 * them required, those that were not nullable. *ret_strict is the caller's. Returns 0; or 1 for
 * a schema that cannot be so: it has an object of any properties. Errors: NO_MEMORY. */
MUST_CHECK int schema_strict(const json_t *schema, json_t **ret_strict, struct hutch_error *err);

/* A copy of a value without the nulls that stand for what was left out: members that are not
 * required and may not be null. Models send them, and have to where a schema is followed
 * strictly. *ret_value is the caller's. Errors: NO_MEMORY. */
MUST_CHECK int schema_drop_nulls(const json_t *schema, const json_t *value, json_t **ret_value,
                                 struct hutch_error *err);
