/* SPDX-License-Identifier: Apache-2.0 */
/* See retry.h. */
#include "retry.h"

#include "base/clock.h"
#include "base/parse.h"

#include <strings.h>

#define AFTER_MAX_SECONDS 60.0
#define DELAY_MAX_MS 8000
#define NEVER_SECONDS 1e9

bool retry_take_header(struct retry_hints *hints, const char *name, const char *value)
{
    struct hutch_error err;
    double number;

    if (strcasecmp(name, "x-should-retry") == 0) {
        if (strcasecmp(value, "true") == 0 || strcasecmp(value, "false") == 0)
            hints->wanted = strcasecmp(value, "true") == 0;
    } else if (strcasecmp(name, "retry-after-ms") == 0) {
        if (parse_double(value, 0, NEVER_SECONDS, &number, &err) == 0)
            hints->after_seconds = number / 1000;
    } else if (strcasecmp(name, "retry-after") == 0) {
        if (parse_double(value, 0, NEVER_SECONDS, &number, &err) < 0)
            return false;
        retry_take_date(hints, number);
    }
    return true;
}

void retry_take_date(struct retry_hints *hints, double seconds)
{
    if (hints->after_seconds < 0)
        hints->after_seconds = seconds;
}

uint64_t retry_delay_ns(const struct retry_hints *hints, unsigned tries, unsigned first_ms,
                        uint32_t random)
{
    if (hints->after_seconds > 0 && hints->after_seconds <= AFTER_MAX_SECONDS)
        return (uint64_t)(hints->after_seconds * (double)NS_PER_SECOND);
    uint64_t ms = first_ms;
    for (; tries > 0 && ms < DELAY_MAX_MS; tries--)
        ms *= 2;
    uint64_t delay_ns = (ms < DELAY_MAX_MS ? ms : DELAY_MAX_MS) * NS_PER_MS;
    return delay_ns - delay_ns / 4 / 1000 * (random % 1001);
}
