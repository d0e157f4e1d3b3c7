/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue that is fair between owners. The next to go is the first waiter of the
 * owner with the fewest active runs; of several, of the one that waits longest: since
 * its first waiter came, or since its last turn, whichever is later. So an owner's own
 * waiters go in the order they came, how many there are of them gets an owner nothing,
 * and owners take turns also where only one run at a time fits.
 *
 * Data only: no lock, no clock, nothing that blocks. What it costs grows with the
 * number of owners that wait, which the bound of the queue limits.
 */
#pragma once

#include "base/attrs.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define FAIR_BUCKETS 256

/* Somebody who waits, in memory of the caller's. */
struct fair_waiter {
    struct fair_owner *owner;
    bool has_cell;   /* a session's program: it waits for its turn, and for no cell */
    uint64_t number; /* in the order of arrival */
    TAILQ_ENTRY(fair_waiter) link;
};
TAILQ_HEAD(fair_waiters, fair_waiter);

/* An owner that has runs which are active or wait. */
struct fair_owner {
    char name[LIMIT_OWNER_BYTES + 1];
    size_t active, waiting, held; /* held: calls of fair_hold that were not released */
    uint64_t turn;                /* when one of its runs began last, by next_number */
    struct fair_waiters waiters;
    LIST_ENTRY(fair_owner) link;
    TAILQ_ENTRY(fair_owner) waiting_link; /* while waiting > 0 */
};

struct fair {
    LIST_HEAD(, fair_owner) buckets[FAIR_BUCKETS];
    TAILQ_HEAD(, fair_owner) owners; /* those that wait */
    size_t waiting;
    uint64_t next_number;
};

void fair_init(struct fair *ret_fair);

/* The owner of that name (NULL is ""), held until fair_release(); it stays at least
 * as long. NULL when memory is out. */
MUST_CHECK struct fair_owner *fair_hold(struct fair *fair, const char *name);
void fair_release(struct fair_owner *owner);

/* Counts a run of a held owner as active, from here to there. */
void fair_begin(struct fair *fair, struct fair_owner *owner);
void fair_end(struct fair_owner *owner);

/* Puts a waiter of a held owner at the end, and takes one out of wherever it is. */
void fair_push(struct fair *fair, struct fair_owner *owner, struct fair_waiter *waiter);
void fair_remove(struct fair *fair, struct fair_waiter *waiter);

/* Whose turn it is, of all or of those that have a cell; NULL when none of them waits. */
struct fair_waiter *fair_first(const struct fair *fair, bool with_cell);

/* The newest waiter of the owner with the most: the last whose turn would come.
 * NULL when nobody waits. */
struct fair_waiter *fair_last(const struct fair *fair);
