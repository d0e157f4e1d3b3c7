/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether one more run fits now: by what is used and not by the sum of limits,
 * which hardly any program meets. docs/decisions/0015-admission.md has the reasons.
 *
 *   cells      fewer than max_cells are there
 *   memory     available >= reserve + claims of young runs + claim of the new one
 *   pressure   of the last ten seconds less than a fifth was spent waiting for memory,
 *              or a quarter of all memory is available
 *   cpu        threads that could run, and runs that came since they were counted,
 *              are fewer than eight a processor
 *
 * A claim is what a run is expected to use that no reading of the host shows yet. It
 * stands until a reading that is a second younger than the run. What is expected is
 * what finished runs used: the highest, which comes down by a sixteenth of the
 * difference with each run that used less; at least 32 MiB, and at most memory_mb or
 * half of the memory there is.
 *
 * Pressure and cpu hold back the many and not the few, or one program could hold up
 * everybody by being busy: an engine without active runs is never held back by them,
 * and an owner with fewer active runs than there are processors is by one run a
 * reading only. Of memory, an engine without active runs needs no more than the
 * reserve and an eighth.
 *
 * Readings come when they are asked for: those of memory serve for 20 ms, or for
 * 250 ms as long as they leave a quarter over; those of the pace for 20 ms, and an
 * engine without active runs does not need them.
 *
 * A session keeps its cell between programs. While one runs, it counts as a run does,
 * and for the cell it needs no place. While it is idle, it counts as a cell and by the
 * memory that it uses, and is not active. The claim of a program that has ended stands
 * until the next reading: it has taken all that it will, and what is left of it shows.
 *
 * No lock in here: the scheduler's.
 */
#pragma once

#include "base/error.h"
#include "load.h"

#include <stddef.h>
#include <sys/queue.h>

/* Where readings and the time come from. */
struct load_source {
    void (*read_memory)(void *user, struct load_memory *ret_memory);
    void (*read_pace)(void *user, struct load_pace *ret_pace);
    uint64_t (*now_ns)(void *user);
    void *user;
};

enum admission_term { TERM_NONE, TERM_CELLS, TERM_MEMORY, TERM_PRESSURE, TERM_CPU };

/* What an active run is expected to use; of a session one for each program. */
struct memory_claim {
    uint64_t bytes, since_ns;
    bool is_young; /* in the list */
    TAILQ_ENTRY(memory_claim) link;
};

struct admission {
    struct load_source source;
    uint32_t max_cells;
    size_t active;                    /* runs, and sessions whose program runs */
    size_t cells;                     /* of those, and of idle sessions */
    uint64_t peak_bytes;              /* of finished runs: see above */
    TAILQ_HEAD(, memory_claim) young; /* the oldest first */
    uint64_t claimed_bytes;           /* their sum */
    struct load_memory memory;
    struct load_pace pace;
    uint64_t memory_ns, pace_ns; /* when they were read; NO_DEADLINE: never */
    size_t active_then;          /* at the reading of the pace */
    bool has_passed;             /* since that: a run that pressure or cpu would hold back */
};

void admission_init(struct admission *ret_admission, const struct load_source *source,
                    uint32_t max_cells);

/* Reads everything now. */
void admission_read(struct admission *admission);

/* What holds back a run with that limit, of an owner with so many active runs; or
 * TERM_NONE. */
enum admission_term admission_hold(struct admission *admission, size_t owner_active,
                                   uint64_t memory_mb);

/* The same for the program of an idle session, whose cell is there. */
enum admission_term admission_hold_idle(struct admission *admission, size_t owner_active,
                                        uint64_t memory_mb);

/* Counts a run as active, from here to there. The claim is memory of the caller's,
 * which stays where it is. peak_memory_bytes 0: not known. */
void admission_begin(struct admission *admission, uint64_t memory_mb,
                     struct memory_claim *ret_claim);
void admission_end(struct admission *admission, struct memory_claim *claim,
                   uint64_t peak_memory_bytes);

/* Between the two: an active run becomes an idle session, that one active again, or ends. */
void admission_pause(struct admission *admission, struct memory_claim *claim);
void admission_resume(struct admission *admission, uint64_t memory_mb, struct memory_claim *claim);
void admission_end_idle(struct admission *admission, struct memory_claim *claim);

/* What a run with that limit is expected to use. */
uint64_t admission_expected(const struct admission *admission, uint64_t memory_mb);

/* How many runnable threads are too many. */
uint64_t admission_runnable_limit(const struct admission *admission);

/* Says that a run waited for a term in vain, with its numbers. Sets BUSY. */
int admission_explain(const struct admission *admission, enum admission_term term,
                      double waited_seconds, uint64_t memory_mb, struct hutch_error *err);

/* "memory" ...; NULL for TERM_NONE. */
const char *admission_term_name(enum admission_term term);
