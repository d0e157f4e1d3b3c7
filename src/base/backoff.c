/* SPDX-License-Identifier: Apache-2.0 */
/* See backoff.h. */
#include "backoff.h"

#include "clock.h"

#define FIRST_NS (NS_PER_SECOND / 4)
#define MOST_NS (60 * NS_PER_SECOND)

void backoff_fail(struct backoff *backoff)
{
    uint64_t wait_ns = backoff->wait_ns > 0 ? backoff->wait_ns * 2 : FIRST_NS;

    backoff->wait_ns = wait_ns < MOST_NS ? wait_ns : MOST_NS;
    backoff->after_ns = clock_after_ns(backoff->wait_ns);
}
