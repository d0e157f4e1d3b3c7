/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a run may start. Threads that call hutch_run() come through here: one at a
 * time is admitted while another run fits (admission.h); the others wait in a
 * bounded queue that is fair between owners (fair.h).
 *
 *     scheduler_enter()   admitted, at once where nobody waits and it fits
 *     ...                 the run
 *     scheduler_leave()   the next ones are admitted
 *
 * A session stays inside as long as it lives, and is active while a program runs in it:
 *
 *     scheduler_enter()   as above
 *     scheduler_pause()   idle: the next ones are admitted, all but the place of its cell
 *     scheduler_resume()  admitted again, by its turn and the room there is, but for the cell
 *     scheduler_leave()
 *
 * Where the places for cells are used up, a session's program passes those that wait for one.
 *
 * A newcomer never overtakes who waits. When the queue is full, a newcomer whose owner
 * has fewer waiting than the owner with the most takes the place of that one's newest;
 * otherwise it is refused. So an owner that floods the queue can fill it, and keeps
 * nobody else out of it.
 *
 * Who waits sleeps in poll(2) on a descriptor of its own and on the caller's cancel
 * descriptor. The waiter that is the watcher wakes every 20 ms to look whether the
 * host has become free; the others wake when their turn has come. When the watcher
 * leaves, another one takes over.
 *
 * Any number of threads. Under the lock, files of /proc may be read: about 0.1 ms, at
 * most every 20 ms.
 */
#pragma once

#include "admission.h"
#include "base/attrs.h"
#include "base/buf.h"
#include "fair.h"

#include <hutch.h>
#include <pthread.h>

struct waiter;

struct scheduler {
    uint32_t queue_size;
    double queue_timeout_seconds;
    pthread_mutex_t lock; /* guards what follows */
    struct admission admission;
    struct fair fair;
    struct waiter *watcher; /* there is one while somebody waits */
};

/* A run that was admitted, in memory of the caller's that stays where it is. */
struct ticket {
    struct fair_owner *owner; /* NULL: none */
    uint64_t memory_mb;
    bool is_idle; /* a session's, between pause and resume */
    struct memory_claim claim;
};

/* Takes max_cells, queue_size and queue_timeout_seconds of the options (NULL: all
 * defaults). backend_cells is the most that the backend holds. Errors: INVALID. */
MUST_CHECK int scheduler_init(struct scheduler *ret_scheduler,
                              const struct hutch_engine_options *options, uint32_t backend_cells,
                              const struct load_source *source, struct hutch_error *err);

/* Nobody may be inside any more. */
void scheduler_done(struct scheduler *scheduler);

/* Waits until the run may start, at most queue_timeout_seconds, or until cancel_fd (or
 * -1) becomes readable. After an error nothing is held and nothing was started.
 * Errors: BUSY when the queue is full, or the time is over: the message names what it
 * waited for; CANCELLED; NO_MEMORY; SYSTEM. */
MUST_CHECK int scheduler_enter(struct scheduler *scheduler, const struct hutch_request *request,
                               int cancel_fd, struct ticket *ret_ticket, struct hutch_error *err);

/* Makes an active session idle, and an idle one active; the latter waits as scheduler_enter(),
 * and has the same errors, after which the session is idle as before. */
void scheduler_pause(struct scheduler *scheduler, struct ticket *ticket);
MUST_CHECK int scheduler_resume(struct scheduler *scheduler, struct ticket *ticket, int cancel_fd,
                                struct hutch_error *err);

/* Ends what scheduler_enter() began; a ticket without an owner is ignored.
 * peak_memory_bytes is what the run used at most; 0 where that is not known. */
void scheduler_leave(struct scheduler *scheduler, struct ticket *ticket,
                     uint64_t peak_memory_bytes);

/* Appends the terms and their numbers now as a JSON object; see hutch_doctor(). */
void scheduler_append_report(struct scheduler *scheduler, struct buf *out);
