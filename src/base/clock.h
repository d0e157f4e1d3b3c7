/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time in nanoseconds. Points in time are named deadline_ns. */
#pragma once

#include <stdint.h>

#define NS_PER_SECOND 1000000000ull
#define NS_PER_MS 1000000ull
#define NO_DEADLINE UINT64_MAX

/* Now on CLOCK_MONOTONIC. */
uint64_t clock_now_ns(void);

/* Now plus an interval, without overflow. */
uint64_t clock_after_ns(uint64_t interval_ns);

/* The earlier of two points in time. */
uint64_t clock_sooner_ns(uint64_t one_ns, uint64_t other_ns);

/* The time-out for poll(2) in ms until deadline_ns: rounded up, 0 when it has
 * passed, -1 for NO_DEADLINE. */
int clock_poll_timeout(uint64_t deadline_ns);
