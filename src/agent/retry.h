/* SPDX-License-Identifier: Apache-2.0 */
/* When a request to a model is sent again. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What a server's headers say of it. */
struct retry_hints {
    double after_seconds; /* negative: nothing */
    int wanted;           /* x-should-retry: 1 true, 0 false, -1 not said */
};
#define RETRY_NO_HINTS ((struct retry_hints){-1, -1})

/* Takes a header of an answer, whose name is given in any case, if it is one of these:
 * retry-after-ms before retry-after, in whatever order they come; x-should-retry. A
 * retry-after that is no number is false: a date, for the caller to read. */
bool retry_take_header(struct retry_hints *hints, const char *name, const char *value);

/* A date of retry-after, as seconds from now, where there was no better word. */
void retry_take_date(struct retry_hints *hints, double seconds);

/* How long to wait after the failed try number tries (from 0): what the server says where
 * that is more than 0 and up to 60 s, else first_ms doubled with each try, at most 8 s, less
 * up to a quarter at random. random: any number. */
uint64_t retry_delay_ns(const struct retry_hints *hints, unsigned tries, unsigned first_ms,
                        uint32_t random);
