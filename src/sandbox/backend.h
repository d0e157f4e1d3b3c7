/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The border between the engine and the ways to isolate a cell. A backend
 * starts cells, carries bytes and frames, and says what happened, as events;
 * no descriptor crosses it, so a cell may as well be a virtual machine behind
 * one serial line.
 *
 * One cell belongs to one thread. cell_next_event, the call that waits for the
 * program, takes a deadline and the cancel descriptor of the request; the others
 * have a limit of their own, of seconds.
 */
#pragma once

#include "base/attrs.h"
#include "base/buf.h"
#include "base/error.h"
#include "report.h"
#include "wire.h"

#include <hutch.h>
#include <sys/types.h>

struct backend;
struct cell;
struct file_call;
struct process_list;

/* What a cell is made for. Borrowed during cell_start only. */
struct cell_spec {
    const struct hutch_request *request;
    bool session;              /* the cell stays after a program; see session_begin */
    uint64_t idle_ns, life_ns; /* of a session: without an exec, and in all */
    bool has_files;            /* cell_file will be called before the program runs */
};

/* The ways for calls for files; a call waits only for those on its own. */
enum cell_files {
    CELL_FILES,        /* of the run or the exec itself */
    CELL_CALLER_FILES, /* of a session: what its callers ask for meanwhile */
    CELL_FILES_COUNT
};

enum cell_event_type {
    CELL_STARTED, /* the interpreter has begun; layers is set */
    CELL_FAILED,  /* nothing was started; error says why; the last event */
    CELL_STDOUT,  /* data, length: bytes the program printed */
    CELL_STDERR,
    CELL_REPORT, /* report is set: a frame of the runner, in order */
    CELL_EXITED, /* exit is set; more output may follow */
    CELL_END,    /* dead, and every pipe read to its end: the last event */
    /* Of a session, which has no CELL_END: */
    CELL_TIME_UP, /* the exec is over its time, and was interrupted */
    CELL_RESTED,  /* after session_done: no signal is sent any more because of that exec;
                     signalled is set */
    CELL_QUIET,   /* nothing has come until the deadline */
    CELL_LATE,    /* data, length: bytes that threads or processes of an earlier exec printed */
    CELL_PIPES,   /* session_prepare may give another answer now */
};

/* How a program ended, as the kernel and the supervisor know it. */
enum cell_end { CELL_END_EXIT, CELL_END_TIMEOUT, CELL_END_MEMORY, CELL_END_OUTPUT };

struct cell_exit {
    enum cell_end end;
    int wait_status; /* as of waitpid */
    uint64_t duration_ns;
    uint64_t cpu_ns;
    uint64_t peak_memory_bytes;
    uint64_t oom_kills;
    uint64_t process_limit_hits;
    bool has_copy;    /* of a session: it can go on where an exec had ended, */
    uint32_t copy_of; /* that one, as the cell says */
    uint32_t exec_id; /* of a session: the exec that it ended in; 0: between two */
    bool has_files; /* there may be some, and cell_file gives them, as long as the cell is not freed
                     */
};

struct cell_event {
    enum cell_event_type type;
    uint32_t layers;
    uint64_t begin_ns; /* STARTED: when the interpreter began, monotonic clock */
    pid_t pid;         /* STARTED: of the interpreter, 0 where it cannot be known */
    const char *data;  /* valid until the next call on the cell */
    size_t length;
    struct report report; /* its data likewise */
    struct cell_exit exit;
    bool signalled; /* RESTED: an interrupt was sent */
    struct hutch_error error;
};

struct backend_ops {
    const char *name; /* "namespace" */

    /* Starts a cell; returns before it runs. An error is always "not started". */
    int (*cell_start)(struct backend *backend, const struct cell_spec *spec, struct cell **ret_cell,
                      struct hutch_error *err);

    /* Queues one frame for the runner; data is borrowed until the cell is
     * freed. It travels while cell_next_event waits. */
    int (*cell_send)(struct cell *cell, enum wire_type type, uint16_t flags, const void *data,
                     size_t length, struct hutch_error *err);

    /* Waits for the next event until deadline_ns (monotonic) or until
     * cancel_fd (or -1) becomes readable: HUTCH_ERR_CANCELLED. After any error
     * the outcome is unknown; only CELL_FAILED means that nothing ran. */
    int (*cell_next_event)(struct cell *cell, uint64_t deadline_ns, int cancel_fd,
                           struct cell_event *ret_event, struct hutch_error *err);

    /* A call for files to the cell (file_call.h): before its program runs, where the spec
     * says that there will be some, or after its end, where CELL_EXITED has files; of a
     * session at any time, and again after a call that broke its link. Those on
     * CELL_CALLER_FILES may come from another thread than the cell's, one at a time. */
    int (*cell_file)(struct cell *cell, enum cell_files link, struct file_call *call,
                     uint64_t deadline_ns, int cancel_fd, struct hutch_error *err);

    /* Sends the beginning of a call that cell_file is going to make. */
    int (*cell_file_begin)(struct cell *cell, enum cell_files link, struct file_call *call,
                           struct hutch_error *err);

    /* Ends the run because it printed too much; CELL_EXITED follows. */
    void (*cell_stop)(struct cell *cell);

    /* Of a session. The first frames of all; checkpoints: a copy shall wait. */
    int (*session_open)(struct cell *cell, bool checkpoints, struct hutch_error *err);

    /* Whether nothing can be said to the interpreter any more: it is of no use. */
    bool (*session_is_broken)(const struct cell *cell);

    /* Whether all is there for the exec to begin; CELL_PIPES tells when. Once it is, text
     * that is late comes later, if that can be told apart. */
    bool (*session_prepare)(struct cell *cell, uint32_t exec_id);

    /* An exec begins: frames that are sent from now on have its number. */
    int (*session_begin)(struct cell *cell, uint32_t exec_id, uint64_t timeout_ns,
                         struct hutch_error *err);

    /* The processes that run and are neither the interpreter, its copy nor the cell's
     * own; where the kernel does not say, none. */
    int (*session_background)(struct cell *cell, struct process_list *ret_list,
                              struct hutch_error *err);

    /* The exec has ended. CELL_RESTED follows, before which no other may begin. */
    int (*session_done)(struct cell *cell, struct hutch_error *err);

    /* Interrupts the exec, for a second again and again until it has ended. From any thread,
     * as long as the cell is there. */
    void (*session_interrupt)(struct cell *cell);

    /* The session is not idle, for hold_ns from now at least. From any thread, as is
     * session_interrupt. */
    void (*session_used)(struct cell *cell, uint64_t hold_ns);

    /* After CELL_EXITED: the copy goes on, or a new interpreter. CELL_STARTED follows. */
    int (*session_resume)(struct cell *cell, struct hutch_error *err);
    int (*session_relaunch)(struct cell *cell, bool checkpoints, struct hutch_error *err);

    /* Kills whatever is left and frees the handle; NULL is ignored. */
    void (*cell_free)(struct cell *cell);

    /* Appends the layers' state, as members of the JSON object of hutch_doctor(). */
    void (*doctor)(struct backend *backend, struct buf *out);

    /* Ends the backend: every cell, every helper process. NULL is ignored. */
    void (*free)(struct backend *backend);
};

struct backend {
    const struct backend_ops *ops;
    uint32_t max_cells; /* runs that it holds at once; one more may be refused */
};

/* Makes the namespace backend. Options' strings are copied.
 * Implemented in namespace/backend.c. */
MUST_CHECK int namespace_backend_new(const struct hutch_engine_options *options,
                                     struct backend **ret_backend, struct hutch_error *err);
