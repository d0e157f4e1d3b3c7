/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel writes about the load of a host, as text: pure functions, as in
 * namespace/proc_text.h. Nothing is changed where a call says false.
 */
#pragma once

#include "base/attrs.h"

#include <stdbool.h>
#include <stdint.h>

/* meminfo: the bytes of a line, "MemAvailable" say; at most 2^50. */
MUST_CHECK bool load_text_memory(const char *text, const char *name, uint64_t *ret_bytes);

/* loadavg: the threads that run or could run; at most 2^32 - 1. */
MUST_CHECK bool load_text_runnable(const char *text, uint32_t *ret_threads);

/* pressure/memory, or memory.pressure of a cgroup: the share of the last ten
 * seconds in which some thread waited for memory, in hundredths of a percent; at
 * most 10000. */
MUST_CHECK bool load_text_pressure(const char *text, uint32_t *ret_hundredths);

/* What a cgroup with a limit still takes: inactive_file are bytes of its usage
 * that the kernel gives up without writing anything. */
uint64_t load_headroom(uint64_t limit, uint64_t usage, uint64_t inactive_file);
