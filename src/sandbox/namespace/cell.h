/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cell, as the supervisor sees it, from the request to the last rmdir.
 *
 *   WAITING    its runtime's tree is being built
 *   STARTING   both children are cloned; the interpreter is not exec'd yet, or it
 *              gets ready for a request that may come
 *   PARKED     the interpreter waits for a request
 *   RUNNING    the interpreter runs; its time counts from the moment that its
 *              process is ready to exec it, or gets the request
 *   SERVING    the program is dead, and hutch-init alone stays until the engine has read
 *              what files it wants
 *   CLOSING    everything is being killed; nothing is told to the engine any more
 */
#pragma once

#include "base/clock.h"
#include "net.h"
#include "plan.h"
#include "sample.h"
#include "session.h"
#include "supervisor.h"
#include "zygote.h"

/* For making a cell, which a busy host may delay; no program's time. */
#define CELL_START_LIMIT_NS (30 * NS_PER_SECOND)

enum cell_state {
    CELL_WAITING,
    CELL_STARTING,
    CELL_PARKED,
    CELL_RUNNING,
    CELL_SERVING,
    CELL_CLOSING
};

struct sandbox_cell {
    size_t index;
    enum cell_state state;
    struct proto_start start;
    enum proto_origin origin;
    struct zygote *zygote;        /* that the interpreter comes from; NULL: exec'd */
    struct zygote *zygote_of;     /* that this is the cell of */
    bool is_ordered;              /* its process is on its way from the zygote */
    bool is_ready;                /* its interpreter says that it waits for a request */
    struct pool *pool;            /* that it is made for, or waits in */
    struct cell_session *session; /* NULL: it ends with its program */
    int event_fd;                 /* -1: no request yet, or the engine is not interested any more */
    int fds[PROTO_FDS_MAX];       /* of the engine, for the interpreter; -1 once handed on */
    int park_fd;                  /* to the waiting interpreter */
    int report_fd;
    int attendant_fd;          /* to hutch-init, see wire.h */
    pid_t init_pid, run_pid;   /* 0: none yet; of a dead child maybe another's now */
    int init_pidfd, run_pidfd; /* -1: none, or reaped */
    struct cgroup_cell *cgroup;
    struct net net;         /* of a cell that a zygote serves */
    bool net_used;          /* it had a cell before */
    uid_t uid;              /* of the host, this cell's alone; 0: none */
    cpu_set_t cpus;         /* that it counts for in cpu_load */
    cpu_set_t offered_cpus; /* of which its interpreter takes one; not known yet which */
    uint64_t disk_bytes;    /* what its tmpfs takes */
    uint32_t max_processes; /* of start, and what the interpreter needs beside */
    uint32_t layers;
    uint64_t begin_ns, deadline_ns;
    uint64_t cpu_before_ns; /* used until the request came */
    /* Without a memory cgroup: how it is looked at, when next, the most
     * that was seen. */
    struct sampler sampler;
    uint64_t sample_ns;
    struct sample peak;
    uint64_t close_deadline_ns;
    bool has_disk_state; /* it is known whether files were made */
    bool made_files;
    enum proto_end end;       /* why we killed it */
    struct hutch_error error; /* code != 0: it failed to start */
};

/* Takes over the descriptors of a start packet of length bytes. On an error the
 * engine is told and nothing is left. */
void cell_create(struct supervisor *supervisor, const struct proto_start *start, size_t length,
                 const int *fds, size_t fd_count);

/* Makes the cell of a zygote, which takes over the descriptors. NULL when it cannot. */
struct sandbox_cell *cell_create_zygote(struct supervisor *supervisor,
                                        const struct proto_start *start, int fds[PROTO_FDS_MAX],
                                        struct zygote *zygote, struct hutch_error *err);

/* Makes a cell for a pool, without a request; zygote is NULL where the interpreter is
 * to be started. */
void cell_park(struct supervisor *supervisor, struct pool *pool, struct zygote *zygote);

/* The zygote made the interpreter's process of an ordered cell, or could not: -1
 * and why. */
void cell_take_process(struct supervisor *supervisor, struct sandbox_cell *cell, int pidfd,
                       const struct hutch_error *error);

/* The runtime a WAITING cell waited for is ready, or failed with error. */
void cell_continue(struct supervisor *supervisor, struct sandbox_cell *cell,
                   const struct hutch_error *error);

/* One epoll event of the cell. */
void cell_handle(struct supervisor *supervisor, struct sandbox_cell *cell, enum watch_kind kind);

/* Deadlines: kills what is over its time, removes what is dead. Called in
 * every round of the loop. */
void cell_tick(struct supervisor *supervisor, struct sandbox_cell *cell, uint64_t now_ns);

/* When cell_tick wants to be called next. */
uint64_t cell_next_tick(const struct sandbox_cell *cell);

/* Kills the cell without a word to the engine. */
void cell_abandon(struct supervisor *supervisor, struct sandbox_cell *cell);

/* Takes the reports of the children that have come in; whether more may come. */
bool cell_take_reports(struct sandbox_cell *cell);

/* Hands the engine's files socket, of this number, to hutch-init, if there is one. */
void cell_pass_files(struct sandbox_cell *cell, uint32_t link);

/* Closes what the interpreter has got. */
void cell_close_handed_on(struct sandbox_cell *cell);

/* Whether a program has made files; to be asked when it is dead. Takes what hutch-init's
 * setup has sent. */
void cell_note_disk(struct sandbox_cell *cell);

/* Sends hutch-init an order, with a descriptor or -1. 0, or -1 with errno. */
MUST_CHECK int cell_attend(const struct sandbox_cell *cell, enum wire_attend_type type, int fd);

/* Kills the program, for a reason that is said once. A session outlives it. */
void cell_stop_program(struct sandbox_cell *cell, enum proto_end end);

/* Tells the engine; where it cannot be told, that is the cell's end. */
void cell_tell(struct sandbox_cell *cell, const struct proto_event *event);
void cell_tell_started(struct supervisor *supervisor, struct sandbox_cell *cell);

/* The interpreter is dead: tells the engine, and closes the cell if it was no session. */
void cell_conclude_run(struct supervisor *supervisor, struct sandbox_cell *cell, int status,
                       const struct rusage *waited);

/* ---- build.c ----------------------------------------------------------- */

/* Makes everything of a cell up to its two children, which then go on by
 * themselves. On an error what was made stays recorded in the cell, for the
 * caller to close. */
MUST_CHECK int cell_build(struct supervisor *supervisor, struct sandbox_cell *cell,
                          struct hutch_error *err);

/* The limits that hutch was started with bind its cells too. Where one of them is
 * below what the request allows, a program would fail for a reason that nobody
 * told it. */
MUST_CHECK int cell_check_limits(const struct proto_start *start, struct hutch_error *err);

/* The limits of its cgroup: the request's, and room for what is not the program's. */
struct cgroup_limits cell_cgroup_limits(const struct sandbox_cell *cell);

/* The program's own user owns its pipes, or it could not open /dev/stdout. */
MUST_CHECK int cell_own_pipes(const struct sandbox_cell *cell, struct hutch_error *err);

/* How many processes a cell may have beside hutch-init. */
uint32_t cell_limit_processes(const struct supervisor *supervisor, const struct sandbox_cell *cell);

/* What a parked cell is told when it gets the request that is in it. */
void cell_plan_go(struct supervisor *supervisor, struct sandbox_cell *cell, struct park_go *ret_go);

/* Whether a cell that was made before it can serve a request, and one that a zygote
 * forks. */
bool cell_can_wait(const struct supervisor *supervisor, const struct proto_start *start);
bool cell_can_fork(const struct supervisor *supervisor, const struct proto_start *start);

/* Whether a cell that was made for one request of an owner can serve another. */
bool cell_fits(const struct sandbox_cell *cell, const struct proto_start *start);

/* Whether the interpreter waits at the cell's park socket until it gets a request. */
bool cell_parks(const struct sandbox_cell *cell);

/* Opens the namespaces of a process in a cell. */
MUST_CHECK int cell_open_namespaces(const struct supervisor *supervisor, pid_t pid,
                                    int ret_fds[PLAN_NS_COUNT], struct hutch_error *err);

/* Starts a new interpreter, with the descriptors in cell->fds, in a cell that has lost
 * its own. */
MUST_CHECK int cell_relaunch(struct supervisor *supervisor, struct sandbox_cell *cell,
                             const int ns_fds[PLAN_NS_COUNT], struct hutch_error *err);

/* The error that a child's report stands for. */
void cell_report_error(const struct sandbox_cell *cell, const struct child_report *report,
                       struct hutch_error *err);
