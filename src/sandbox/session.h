/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: session.c opens and closes it, session_turns.c gives execs and calls for files
 * their turns, session_exec.c has the exec whose turn it is, session_files.c the call for files.
 */
#pragma once

#include "backend.h"
#include "base/attrs.h"
#include "capture.h"
#include "scheduler.h"

#include <pthread.h>

/* Who waits for a turn, or has it. */
struct session_waiter {
    struct session_waiter *next;
    int token;      /* readable to give up; or -1 */
    double seconds; /* of patience, up to deadline_ns; 0: without a limit */
    uint64_t deadline_ns;
};

/* First come, first served. Guarded by session.lock. */
struct session_line {
    const char *what;             /* waits, in the plural */
    struct session_waiter *first; /* it has the turn; NULL: nobody */
};

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
    struct session_line execs, files;
    uint64_t idle_from_ns, end_ns;
    struct hutch_error end; /* code != 0: it is over */
    int64_t changed_ns;     /* by file_clock_ns(): no change of a file that is known of is later */
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

/* Waits for a turn. Errors: BUSY where too many wait or patience ends, CANCELLED, EXPIRED; then
 * there is none. *me has to stay until session_leave(). */
MUST_CHECK int session_enter(struct hutch_session *session, struct session_line *line,
                             struct session_waiter *me, struct hutch_error *err);
void session_leave(struct hutch_session *session, struct session_line *line,
                   const struct session_waiter *me);

/* Waits, with session.lock, for a change, but not for long. */
void session_wait_slice(struct hutch_session *session);

/* An error after which there is no session any more: what comes later is not started. Returns
 * its code. */
int session_end(struct hutch_session *session, const struct hutch_error *err);

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
