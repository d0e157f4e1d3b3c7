/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: session.c opens and closes it, and gives each exec its turn; session_exec.c has
 * the exec whose turn it is, session_files.c the calls for files, which have turns of their own.
 */
#pragma once

#include "backend.h"
#include "base/attrs.h"
#include "capture.h"
#include "scheduler.h"

#include <pthread.h>

struct file_waiter;

/* Of its cell, as in struct hutch_request. */
struct session_limits {
    uint64_t memory_mb, disk_mb;
    double cpus;
    uint32_t max_processes;
};

struct hutch_session {
    struct hutch_engine *engine;
    const struct backend_ops *ops;
    struct cell *cell;
    struct ticket ticket;
    enum hutch_language language;
    bool checkpoints;
    double idle_seconds, lifetime_seconds;
    struct session_limits limits;
    uint64_t disk_bytes; /* for a file that is put */
    char id[33];
    pthread_mutex_t lock;
    pthread_cond_t turn_ended;
    uint64_t next_turn, turn; /* given to who comes; whose it is */
    uint64_t left;            /* bit n % 64: who had turn n does not wait any more */
    uint64_t idle_from_ns, end_ns;
    bool executing;
    struct hutch_error end;         /* code != 0: it is over */
    struct file_waiter *file_first; /* whose turn for files it is; behind it who waits */
    int64_t changed_ns; /* by file_clock_ns(): no change of a file that is known of is later */
    /* Of who has the turn: */
    uint32_t exec_id, layers;
    uint32_t done_id; /* of the last exec that ended by itself in this interpreter; 0: none */
    pid_t pid;
    uint64_t told_cpu_ns;      /* of execs of this interpreter, in results */
    bool owes_rest;            /* CELL_RESTED of the exec before is to come */
    bool signalled;            /* an interrupt was sent to it */
    bool restored, state_lost; /* since the last result */
    struct capture late;
};

/* An error after which there is no session any more: what comes later is not started. Returns
 * its code. */
int session_end(struct hutch_session *session, const struct hutch_error *err);

/* Why it is over; 0 when it is not. */
int session_is_over(struct hutch_session *session, struct hutch_error *err);

/* Something was asked of it: it is not idle, for hold_ns from now at least. */
void session_touch(struct hutch_session *session, uint64_t hold_ns);

/* The same where its idle time could end before that. */
void session_hold(struct hutch_session *session, uint64_t hold_ns);

/* The connection to hutch-init has ended: waits, for a moment, for the word of what became of
 * the session. Returns whether it is over, with the reason in *err. */
bool session_explain_loss(struct hutch_session *session, struct hutch_error *err);

/* Files have been changed by what is known. */
void session_note_change(struct hutch_session *session);

/* What has come between two execs, until deadline_ns, by who has the turn; also goes on after
 * the death of an interpreter. An error is the end of the session. */
MUST_CHECK int session_take_between(struct hutch_session *session, uint64_t deadline_ns,
                                    struct hutch_error *err);

/* One exec, by who has the turn; request and options are as this version knows them, called_ns
 * is when the caller came. Errors as of hutch_session_exec. */
MUST_CHECK int session_exec(struct hutch_session *session, const struct hutch_request *request,
                            const struct hutch_run_options *options, uint64_t called_ns,
                            hutch_result **ret_result, struct hutch_error *err);
