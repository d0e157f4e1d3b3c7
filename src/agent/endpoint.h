/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of model servers. Pure. */
#pragma once

#include "base/buf.h"

#include <stdbool.h>

/* Appends the address of the chat completions below a base URL: slashes at its end are
 * dropped, /chat/completions follows. A base URL is http or https, has a host (a name of
 * ASCII, or an address), perhaps a port from 1 to 65535, and has no
 * user, query, fragment, blanks or control characters; at most LIMIT_URL_BYTES. The error
 * says what is wrong. Errors: INVALID, NO_MEMORY. */
MUST_CHECK int endpoint_append(struct buf *out, const char *base_url, struct hutch_error *err);

/* Whether a request, and the key with it, may follow a redirect: the same host, and the
 * same scheme and port, or from http to https. */
bool endpoint_may_follow(const char *from_url, const char *to_url);

/* Whether the address is that of a server that is known to want a key. */
bool endpoint_wants_key(const char *url);

/* Whether it is that of OpenRouter. */
bool endpoint_is_openrouter(const char *url);

/* Appends scheme, host and port of an address, for messages: nothing else of it. */
void endpoint_append_place(struct buf *out, const char *url);
