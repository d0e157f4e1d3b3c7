/* SPDX-License-Identifier: Apache-2.0 */
/* An API key: kept in memory that is zeroed, and shown to nobody. */
#pragma once

#include "base/attrs.h"
#include "base/error.h"

#include <stddef.h>

struct secret {
    char *text; /* visible ASCII, 1 to LIMIT_KEY_BYTES; NULL for none */
};
#define SECRET_NONE ((struct secret){NULL})

/* Zeroes and frees it. */
void secret_done(struct secret *secret);
#define auto_secret __attribute__((cleanup(secret_done)))

/* Takes a key, without blanks and line ends around it. *ret_secret is the caller's. The
 * error names what is wrong, never the key. Errors: INVALID, NO_MEMORY. */
MUST_CHECK int secret_from_text(const char *text, struct secret *ret_secret,
                                struct hutch_error *err);

/* The content of a file, or of a pipe, which has LIMIT_KEY_SECONDS for each piece of it. Errors:
 * INVALID, NO_MEMORY. */
MUST_CHECK int secret_from_file(const char *path, struct secret *ret_secret,
                                struct hutch_error *err);

/* The first variable of environment ("NAME=value" strings, ended by NULL) that one of the
 * names, ended by NULL, in their order has and that is not empty; SECRET_NONE if there is
 * none. The error names the variable. Errors: INVALID, NO_MEMORY. */
MUST_CHECK int secret_from_environment(char *const *environment, const char *const *names,
                                       struct secret *ret_secret, struct hutch_error *err);

/* What is shown in place of a secret. */
#define SECRET_MASK "***"

/* The length of the longest of the secrets, strings ended by NULL (NULL: none), that data begins
 * with; 0: of none. One that is shorter than the mask is no secret. */
size_t secret_at(const char *const *hidden, const char *data, size_t length);

/* Writes the mask over each place of a text that holds one of them. */
void secret_hide(const char *const *hidden, char *text);
