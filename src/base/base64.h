/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 of RFC 4648, with padding, without line ends. */
#pragma once

#include "attrs.h"
#include "buf.h"

#include <stdbool.h>

void base64_append(struct buf *out, const void *data, size_t length);

/* The bytes that length characters stand for at most. */
#define BASE64_DECODED(length) ((length) / 4 * 3)

/* Decodes into memory of that size. False for what is not canonical Base64. */
MUST_CHECK bool base64_decode(const char *text, size_t length, char *ret_data, size_t *ret_length);
