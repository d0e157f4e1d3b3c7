/* SPDX-License-Identifier: Apache-2.0 */
/* See clock.h. */
#include "clock.h"

#include <limits.h>
#include <time.h>

uint64_t clock_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

uint64_t clock_after_ns(uint64_t interval_ns)
{
    uint64_t now = clock_now_ns();
    return interval_ns >= NO_DEADLINE - now ? NO_DEADLINE : now + interval_ns;
}

uint64_t clock_sooner_ns(uint64_t one_ns, uint64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

int clock_poll_timeout(uint64_t deadline_ns)
{
    if (deadline_ns == NO_DEADLINE)
        return -1;
    uint64_t now = clock_now_ns();
    if (now >= deadline_ns)
        return 0;
    uint64_t ms = (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}
