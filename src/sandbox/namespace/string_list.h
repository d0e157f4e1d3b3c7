/* SPDX-License-Identifier: Apache-2.0 */
/* A list of strings that it owns. */
#pragma once

#include "base/attrs.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define STRING_LIST_MAX 65536 /* strings of one list */

struct string_list {
    char **items;
    size_t count;
};

void string_list_done(struct string_list *list);
#define auto_string_list __attribute__((cleanup(string_list_done)))

/* Appends a copy of text. Errors: NO_MEMORY, INVALID beyond STRING_LIST_MAX. */
MUST_CHECK int string_list_add(struct string_list *list, const char *text, struct hutch_error *err);

bool string_list_has(const struct string_list *list, const char *text);
