/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where no cgroup counts what a cell uses: looking at its processes, twenty
 * times and more a second. Weaker than a cgroup, and reported as such: a
 * program can use more between two looks than it may.
 */
#pragma once

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

#define SAMPLE_INTERVAL_NS (20ull * 1000 * 1000)

struct sample {
    uint64_t memory_bytes; /* the sum of what each process adds (Pss) */
    uint32_t processes;
};

/* Opens the proc of the cell whose PID 1 is given: it lists exactly the cell's
 * processes. Returns a descriptor. Error: SYSTEM. */
MUST_CHECK int sample_open(pid_t init_pid, struct hutch_error *err);

/* Looks. What ends meanwhile, or cannot be read, counts as nothing. */
struct sample sample_take(int proc_fd);
