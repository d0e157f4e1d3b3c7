/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine and hutch-supervisor say to each other: fixed frames over
 * SOCK_SEQPACKET sockets, one frame a packet, so nothing is ever half read.
 *
 * The control socket (PROTO_CONTROL_FD of the supervisor) carries
 *     supervisor -> engine   proto_hello, once
 *     engine -> supervisor   proto_start with the cell's descriptors
 * Every cell has an event socket of its own, passed with proto_start:
 *     supervisor -> engine   proto_event: STARTED or FAILED, then EXITED or LOST; of a
 *                            session PIPES with descriptors
 *     engine -> supervisor   proto_order
 * In a session EXITED may come many times: see enum proto_order_type.
 * Closing the event socket ends the cell; closing the control socket ends all
 * cells and the supervisor. So whatever ends the engine ends what it started.
 *
 * The frames come from the same build: the version is checked once, by hello. Each
 * side still looks at what it gets (proto_is_...): a supervisor that went wrong must
 * not take the program along that the engine lives in, nor the other way round.
 */
#pragma once

#include "../wire.h"
#include "base/attrs.h"
#include "cgroup_text.h"

#include "base/limits.h"

#include <hutch.h>
#include <stdbool.h>
#include <stddef.h>

#define PROTO_VERSION WIRE_VERSION

/* Where the supervisor finds what it inherits. */
#define PROTO_CONTROL_FD 3
#define PROTO_ENGINE_PIDFD 4

struct proto_hello {
    uint32_t version;
    struct hutch_error error;      /* code 0, or why the supervisor cannot work at all */
    char scope[CGROUP_PATH_BYTES]; /* the cgroup that it got from the user's systemd, or "" */
};

enum proto_language { PROTO_PYTHON, PROTO_SHELL, PROTO_JAVASCRIPT, PROTO_LANGUAGE_COUNT };

/* Descriptors that travel with proto_start, in this order; the last two only when
 * has_stdin, and has_files, are set. */
enum proto_fd {
    PROTO_FD_EVENTS,
    PROTO_FD_STDOUT,
    PROTO_FD_STDERR,
    PROTO_FD_CHANNEL,
    PROTO_FD_STDIN,
    PROTO_FD_FILES /* hutch-init's end of the files socket, see wire.h */
};
#define PROTO_FDS_MAX 6

enum proto_start_kind {
    PROTO_RUN,    /* run the language's interpreter */
    PROTO_PROBE,  /* build a whole cell, check its layers from inside, run nothing */
    PROTO_ZYGOTE, /* the supervisor's own: see zygote.h */
};

struct proto_start {
    uint32_t kind; /* enum proto_start_kind */
    uint32_t language;
    uint32_t has_stdin;
    uint32_t session; /* 1: the cell stays after a program, until the engine lets go */
    uint32_t has_files;
    uint32_t require; /* mask of layers */
    uint32_t max_processes;
    uint32_t cpu_millis; /* 1000 is one processor */
    uint64_t timeout_ns; /* of a session none: each exec has its own */
    uint64_t idle_ns;    /* of a session: how long it may be without an exec */
    uint64_t life_ns;    /* of a session: how long it may last in all */
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    char owner[LIMIT_OWNER_BYTES]; /* filled up with NULs */
};

enum proto_event_type {
    PROTO_STARTED, /* the interpreter was exec'd; layers is set */
    PROTO_FAILED,  /* nothing ran; error is set */
    PROTO_EXITED,  /* the interpreter is dead, and all other processes are being killed; with
                      files, but for hutch-init; of a session they are dead, but for a copy that
                      can go on */
    PROTO_LOST,    /* the cell was destroyed, or its time is over; error is set */
    PROTO_TIME_UP, /* of a session: the exec was over its time, and interrupted */
    PROTO_RESTED,  /* of a session, after each DONE: from here on no signal is sent because of
                      that exec; signalled is set */
    PROTO_PIPES,   /* of a session, with the ends to read stdout and stderr of an exec; without
                      descriptors: it has the pipes of the exec before */
};

/* How the interpreter's process came to be. */
enum proto_origin {
    PROTO_COLD,   /* exec'd for this request */
    PROTO_FORKED, /* forked by a zygote for this request */
    PROTO_PARKED, /* it was there before the request */
    PROTO_ORIGIN_COUNT
};

/* Why a run ended. */
enum proto_end {
    PROTO_END_EXIT,    /* by itself, or by a signal from inside */
    PROTO_END_TIMEOUT, /* the supervisor killed it at the deadline */
    PROTO_END_MEMORY,  /* the memory limit */
    PROTO_END_OUTPUT,  /* the engine asked for it: too much output */
};

struct proto_event {
    uint32_t type;
    uint32_t layers;
    uint32_t origin;    /* STARTED: enum proto_origin */
    uint64_t begin_ns;  /* STARTED: when the interpreter began, monotonic clock */
    int32_t pid;        /* STARTED: of the interpreter, as the supervisor sees it */
    int32_t init_pid;   /* STARTED: of hutch-init, likewise */
    uint32_t exec_id;   /* PIPES; EXITED of a session: in which it was, 0: in none */
    uint32_t signalled; /* RESTED: 1: an interrupt was sent during that exec */
    /* EXITED only */
    uint32_t has_copy;    /* of a session: a copy of the interpreter waits */
    uint32_t copy_of;     /* the exec after which it was made, as the copy says */
    uint32_t end;         /* enum proto_end */
    int32_t wait_status;  /* as of waitpid */
    uint64_t duration_ns; /* from the start of the interpreter to its end */
    uint64_t cpu_ns;      /* of all processes of the cell */
    uint64_t peak_memory_bytes;
    uint64_t oom_kills;
    uint64_t process_limit_hits;
    uint32_t files; /* 1: the cell had files, or has, and stays until its event socket is closed */
    /* FAILED and LOST only */
    struct hutch_error error;
};

/* Memory of cells, added up: of each its interpreter and its hutch-init. */
struct proto_memory {
    uint32_t cells;               /* that were looked at */
    uint64_t private_dirty_bytes; /* written, and shared with no other process */
    uint64_t pss_bytes;           /* the proportional share of all that is resident */
};

/* What a runtime keeps ready for requests. */
struct proto_warmth {
    uint32_t zygotes;       /* that fork */
    uint32_t zygote_deaths; /* that nobody wanted */
    uint32_t pools;         /* one an owner */
    uint32_t parked;        /* cells that wait for a request, in all of them */
    struct proto_memory zygote_memory;
    struct proto_memory parked_memory; /* of some of them: footprint.h */
    char log[1024];                    /* what was printed last: modules that could not be loaded */
};

/* supervisor -> engine on the event socket of a PROTO_PROBE, after STARTED */
struct proto_status {
    uint64_t starts[PROTO_ORIGIN_COUNT]; /* of requests, by how their cells came to be */
    struct proto_warmth runtimes[PROTO_LANGUAGE_COUNT];
};

enum proto_order_type {
    PROTO_STOP,  /* kill the program; end says why */
    PROTO_FILES, /* with hutch-init's end of the files socket link: after EXITED, of a session
                    any time */
    /* Of a session: */
    PROTO_COPIES,    /* with the socket on which the interpreter tells of copies */
    PROTO_BEGIN,     /* an exec begins, its time is timeout_ns */
    PROTO_DONE,      /* it has ended; RESTED follows */
    PROTO_INTERRUPT, /* interrupt it, if one runs */
    PROTO_USED,      /* the session is not idle, for timeout_ns at least */
    PROTO_RESUME,    /* after EXITED: the copy goes on, with this channel */
    PROTO_RELAUNCH,  /* after EXITED: a new interpreter, with stdout, stderr and channel; STARTED
                        or LOST follows */
    PROTO_ORDER_COUNT
};

/* engine -> supervisor on the event socket */
struct proto_order {
    uint32_t type;    /* enum proto_order_type */
    uint32_t end;     /* enum proto_end */
    uint32_t exec_id; /* BEGIN */
    uint32_t link;    /* FILES: see wire.h */
    uint64_t timeout_ns;
};
#define PROTO_EVENT_FDS_MAX 2
#define PROTO_ORDER_FDS_MAX 3

/* Whether a packet of length bytes, received into the frame, is such a frame with
 * every field in its range: whoever reads it then need not look again. The texts
 * of a hello and the message of an error get their end. */
MUST_CHECK bool proto_is_hello(struct proto_hello *hello, size_t length);
MUST_CHECK bool proto_is_start(const struct proto_start *start, size_t length, size_t fd_count);
MUST_CHECK bool proto_is_event(struct proto_event *event, size_t length);
MUST_CHECK bool proto_is_order(const struct proto_order *order, size_t length, size_t fd_count);

/* Positional arguments of hutch-supervisor; an empty PROTO_ARG_CGROUP is the default.
 * PROTO_ARG_IN_SCOPE is "yes" or "no": whether it was started in a scope (scope.h). */
enum proto_argument {
    PROTO_ARG_HELPER_DIR = 1,
    PROTO_ARG_CACHE_DIR,
    PROTO_ARG_PYTHON,
    PROTO_ARG_BASH,
    PROTO_ARG_NODE,
    PROTO_ARG_CGROUP,
    PROTO_ARG_IN_SCOPE,
    PROTO_ARG_UID_BASE,
    PROTO_ARG_UID_COUNT,
    PROTO_ARG_WARMTH,
    PROTO_ARG_PARKED,
    PROTO_ARG_PRELOAD,
    PROTO_ARG_OWNERS, /* "yes" or "no": zygotes are for one owner each */
    PROTO_ARG_END,
};
