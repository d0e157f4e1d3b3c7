/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, as servers count them. */
#pragma once

#include "base/attrs.h"

#include <hutch.h>
#include <jansson.h>
#include <stdint.h>

/* Adds what a server counted, an object, to *sum, an object or NULL: numbers are summed, objects
 * likewise, all else is left out. Errors: NO_MEMORY. */
MUST_CHECK int usage_add(json_t **sum, const json_t *usage, struct hutch_error *err);

/* The tokens that it makes in all. */
uint64_t usage_total(const json_t *usage);
