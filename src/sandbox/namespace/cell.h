/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cell, as the supervisor sees it, from the request to the last rmdir.
 *
 *   WAITING    its runtime's tree is being built
 *   STARTING   both children are cloned; the interpreter is not exec'd yet
 *   RUNNING    the interpreter runs; its time counts from the moment that its
 *              process is ready to exec it
 *   CLOSING    everything is being killed; nothing is told to the engine any more
 */
#pragma once

#include "base/clock.h"
#include "plan.h"
#include "sample.h"
#include "supervisor.h"

/* For making a cell, which a busy host may delay; no program's time. */
#define CELL_START_LIMIT_NS (30 * NS_PER_SECOND)

enum cell_state { CELL_WAITING, CELL_STARTING, CELL_RUNNING, CELL_CLOSING };

struct sandbox_cell {
    size_t index;
    enum cell_state state;
    struct proto_start start;
    int event_fd;
    int fds[PROTO_FDS_MAX]; /* of the engine, for the interpreter; -1 once handed on */
    int report_fd;
    int lifeline_fd;
    pid_t init_pid, run_pid; /* 0: none, or reaped */
    int init_pidfd, run_pidfd;
    struct cgroup_cell *cgroup;
    uid_t uid; /* of the host, this cell's alone; 0: none */
    cpu_set_t cpus;
    uint32_t max_processes; /* of start, and what the interpreter needs beside */
    uint32_t layers;
    uint64_t begin_ns, deadline_ns;
    /* Without a memory cgroup: how it is looked at, when next, the most
     * that was seen. */
    struct sampler sampler;
    uint64_t sample_ns;
    struct sample peak;
    uint64_t close_deadline_ns;
    enum proto_end end;       /* why we killed it */
    struct hutch_error error; /* code != 0: it failed to start */
};

/* Takes over the descriptors of a start packet of length bytes. On an error the
 * engine is told and nothing is left. */
void cell_create(struct supervisor *supervisor, const struct proto_start *start, size_t length,
                 const int *fds, size_t fd_count);

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

/* ---- build.c ----------------------------------------------------------- */

/* Makes everything of a cell up to its two children, which then go on by
 * themselves. On an error what was made stays recorded in the cell, for the
 * caller to close. */
MUST_CHECK int cell_build(struct supervisor *supervisor, struct sandbox_cell *cell,
                          struct hutch_error *err);

/* The error that a child's report stands for. */
void cell_report_error(const struct sandbox_cell *cell, const struct child_report *report,
                       struct hutch_error *err);
