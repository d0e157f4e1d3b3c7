/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session, as the supervisor sees it: a cell whose interpreter runs one program (an
 * exec) after the other, and that outlives its interpreter.
 *
 *   BEGIN, DONE     an exec has a time limit. When it is over the interpreter gets SIGINT,
 *                   of a shell the whole foreground with it, and the engine TIME_UP; a
 *                   second later it is killed. DONE is answered by RESTED.
 *   INTERRUPT       SIGINT, whenever the engine wants it.
 *   in between      the session ends when it was idle for too long, or is too old.
 *   the end of the interpreter, by whatever cause: all other processes of the cell are
 *                   killed, but for a copy; then the engine gets EXITED, and says how to
 *                   go on: RESUME (the copy takes over) or RELAUNCH (a new interpreter in
 *                   the same cell).
 *
 * bash and node may miss a SIGINT, in the moments between fork and exec or at the ends of a
 * script; python's runner ignores one that comes before the program. So it is sent again every
 * quarter of a second, for a second or until DONE; no two are sent sooner one after the other.
 * An interpreter that it would kill is spared, for it may only be on the way from one handler
 * to another; if it is such for all of the second, it gets one.
 *
 * Runner and engine are ahead of us: when we hear of DONE the next exec could run already, and
 * a signal, a kill or a word of ours that was meant for the last one would be taken to be of
 * the next. So the engine sends no code before it has RESTED. What we have sent by then is in
 * the kernel's hands, and the runner sees it before it can read that code. Where the kill was
 * on its way, RESTED comes behind the EXITED that it leads to.
 *
 * A copy is a fork of the interpreter that waits. It makes a socket pair, keeps one end
 * and sends the other, with struct wire_copy, on the socket that came with COPIES; the
 * kernel says who made a socket. Closing the other end ends it; a byte and a channel on
 * it tell it to take over. The cell's programs could do the same: then one of them
 * takes over, in its own cell. It says after which exec it was made: an interpreter that dies
 * between the answer to an exec and the next copy leaves an older one, which the engine does
 * not take for the state after that exec.
 *
 * Each exec has pipes of its own (wire.h), which hutch-init is asked for long before, while
 * an earlier exec runs and the engine only waits. They go on to the engine as they come.
 *
 * The interpreter is the supervisor's child. A copy is not: its status is told by
 * hutch-init, which it is left to.
 */
#pragma once

#include "cgroup.h"
#include "plan.h"
#include "supervisor.h"

struct sandbox_cell;
struct rusage;

/* Of a process that waits to take over. */
struct session_copy {
    pid_t pid;    /* of the host */
    pid_t ns_pid; /* in the cell */
    uint32_t exec_id;
    int pidfd, wake_fd;
};

enum session_phase {
    SESSION_IDLE,
    SESSION_EXEC,        /* an exec runs */
    SESSION_INTERRUPTED, /* it is over its time, and was told so */
    SESSION_DYING,       /* the interpreter is dead, hutch-init has not said how it ended */
    SESSION_CLEARING,    /* the interpreter is dead, others are being killed */
    SESSION_STOPPED,     /* EXITED was told: the engine says how to go on */
    SESSION_LAUNCHING,   /* a new interpreter is on its way */
};

struct cell_session {
    enum session_phase phase;
    int copies_fd;
    struct session_copy copy;
    pid_t promoted; /* the interpreter in the cell, where it was a copy; else 0 */
    bool has_status;
    int status;                 /* of it, as waitpid gives it */
    struct cgroup_usage before; /* what earlier interpreters met */
    int proc_fd;                /* the cell's proc */
    int ns_fds[PLAN_NS_COUNT];
    uint64_t pid_ns;   /* inode of the cell's pid namespace */
    uint32_t exec_id;  /* of the last exec */
    uint32_t pipes_id; /* the last exec that hutch-init was asked to make pipes for */
    uint64_t limit_ns; /* of the phase; NO_DEADLINE */
    uint64_t look_ns;  /* CLEARING: when to look again, and how long after the look before */
    uint64_t pause_ns;
    uint32_t copies_seen;      /* packets since the exec began */
    uint64_t again_ns;         /* when SIGINT may, or shall, be sent again; NO_DEADLINE */
    uint64_t again_end_ns;     /* until when it shall */
    bool spared;               /* it was not sent yet, because it would kill */
    bool signalled;            /* it was sent, in this exec */
    bool rest;                 /* RESTED is to be told */
    uint64_t end_ns;           /* of the session, whatever happens */
    uint32_t died_in;          /* the exec in which the interpreter has died; 0: between two */
    struct proto_event exited; /* to be told when the others are dead */
};

/* Makes a session of a cell whose interpreter is there. Errors: NO_MEMORY, SYSTEM. */
MUST_CHECK int session_open(struct supervisor *supervisor, struct sandbox_cell *cell,
                            struct hutch_error *err);

/* NULL is ignored. */
void session_close(struct supervisor *supervisor, struct cell_session *session);

/* An order of the engine, whose descriptors it takes over; false for one that makes no
 * sense now. */
bool session_take_order(struct supervisor *supervisor, struct sandbox_cell *cell,
                        const struct proto_order *order, int *fds, size_t fd_count);

/* What has come on the copies' socket. */
void session_take_copies(struct supervisor *supervisor, struct sandbox_cell *cell);

/* The interpreter has died, and left event behind. */
void session_lose_interpreter(struct supervisor *supervisor, struct sandbox_cell *cell,
                              const struct proto_event *event);

/* What hutch-init has said: of one that died, or with pipes for an exec. */
void session_take_word(struct supervisor *supervisor, struct sandbox_cell *cell);

/* An interpreter that was a copy has died. */
void session_take_death(struct supervisor *supervisor, struct sandbox_cell *cell);

/* Takes away what earlier interpreters of the cell have met, and notes the rest. */
void session_subtract_usage(struct cell_session *session, struct cgroup_usage *usage);

/* A new interpreter was exec'd, or could not be: cell->error. */
void session_conclude_launch(struct supervisor *supervisor, struct sandbox_cell *cell);

/* Its limits; called in every round of the loop. The cell may be gone afterwards. */
void session_tick(struct supervisor *supervisor, struct sandbox_cell *cell, uint64_t now_ns);
uint64_t session_next_tick(const struct sandbox_cell *cell);
