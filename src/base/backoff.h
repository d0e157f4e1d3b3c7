/* SPDX-License-Identifier: Apache-2.0 */
/* When to try again what failed: after a quarter of a second, and after each further
 * failure twice as long as before, up to a minute. */
#pragma once

#include <stdint.h>

struct backoff {
    uint64_t wait_ns;  /* how long is waited */
    uint64_t after_ns; /* nothing is tried before; monotonic, 0: at once */
};
#define BACKOFF_NONE ((struct backoff){0, 0})

/* It failed, once more. */
void backoff_fail(struct backoff *backoff);
