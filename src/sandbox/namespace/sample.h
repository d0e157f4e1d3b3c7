/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where no cgroup counts what a cell uses: looking at its processes, fifty times
 * a second. Weaker than a cgroup, and reported as such: a
 * program can use more between two looks than it may.
 */
#pragma once

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

#define SAMPLE_INTERVAL_NS (20ull * 1000 * 1000)

struct sample {
    uint64_t memory_bytes; /* of all processes together */
    uint32_t processes;
};

/* Opens the proc of the cell whose PID 1 is given: it lists exactly the cell's
 * processes. Returns a descriptor. Error: SYSTEM. */
MUST_CHECK int sample_open(pid_t init_pid, struct hutch_error *err);

/* Looks. What ends meanwhile, or cannot be read, counts as nothing. The sum of
 * what is resident is cheap, and counts shared pages more than once; only where
 * it is over limit_bytes is each process asked for its proportional share (Pss),
 * for at most SAMPLE_BUDGET_NS, because a program can make that slow: what there
 * is no time for counts as resident. */
struct sample sample_take(int proc_fd, uint64_t limit_bytes);

#define SAMPLE_BUDGET_NS (2ull * 1000 * 1000)
