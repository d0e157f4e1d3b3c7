/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 of RFC 4648, with padding, without line ends. */
#pragma once

#include "buf.h"

void base64_append(struct buf *out, const void *data, size_t length);
