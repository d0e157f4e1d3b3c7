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

/* How a cell is looked at; what is not given below is the sampler's own. */
struct sampler {
    int proc_fd;        /* lists exactly the cell's processes; -1 before sample_open */
    unsigned looks;     /* that the round of asking has taken so far; 0: there is none */
    uint32_t asked_pid; /* the last process that was asked in it */
    uint32_t end_pid;   /* the last one that was there at its begin */
    uint64_t shares;    /* of those asked, in bytes */
};

#define SAMPLER_NONE ((struct sampler){.proc_fd = -1})

/* Opens the proc of the cell whose PID 1 is given. Error: SYSTEM. */
MUST_CHECK int sample_open(pid_t init_pid, struct sampler *sampler, struct hutch_error *err);

/* Looks. What ends meanwhile, or cannot be read, counts as nothing. The sum of
 * what is resident is cheap, and counts shared pages more than once: a pool of
 * forked workers may seem ten times as large as it is. So where it is over
 * limit_bytes each process is asked for its proportional share (Pss). Asking takes
 * long, and a program can make it take longer: a look asks for SAMPLE_BUDGET_NS
 * and the next one goes on where it stopped, a round that has until
 * SAMPLE_LOOKS_MAX looks. It gives the sum so far; what was not asked by then
 * counts as resident. */
struct sample sample_take(struct sampler *sampler, uint64_t limit_bytes);

#define SAMPLE_BUDGET_NS (4ull * 1000 * 1000)
#define SAMPLE_LOOKS_MAX 25
