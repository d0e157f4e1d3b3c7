/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cells in cgroups: limits on memory, processes and processor time, what a
 * cell used, and an event when it meets its memory limit.
 *
 * One code path serves cgroup v2, v1 with each controller mounted alone or
 * together with others, both at once, and hosts without any. What works is
 * found at the start by doing it: making a group and writing limits. A
 * controller that does not work is named with the reason; the others are used.
 *
 *   <place>/hutch-PID-RANDOM          one in every tree that is used, made by
 *   <place>/hutch-PID-RANDOM/cell-N   cgroup_host_open; a group a cell below it
 *
 * The place is the group that the caller named, or else the supervisor's own
 * group where that works, or else the nearest group above it that gives more.
 * On v2 a group that holds processes cannot hand controllers to groups below
 * it ("no internal processes"; the root of the machine is exempt), so there it
 * is usually a group above. No process is moved to make room. A controller is
 * switched on for a place (cgroup.subtree_control) only where that touches
 * nobody else, or where nothing else helps: in a named place, in one that
 * holds no groups but hutch's and the one we are in, and at the top. It is
 * switched off again at a normal end, unless other groups are there by then.
 *
 * A process joins a cell in one of two ways, neither of which waits for the
 * kernel's lock over all thread groups (7 to 15 ms on an idle host):
 *   v1   it writes "0" to the prepared descriptors of "tasks" files itself;
 *        since Linux 5.13 that moves one thread without the lock
 *   v2   it is born there: clone3 with CLONE_INTO_CGROUP (Linux 5.7). Writing
 *        "0" to cgroup.procs works too, but takes the lock.
 *
 * Single-threaded use. Nothing here sleeps: what has to be waited for is said
 * by the return value, and the caller comes back.
 */
#pragma once

#include "base/error.h"
#include "cgroup_text.h"
#include "cgroup_tree.h"

#include <limits.h>
#include <unistd.h>

struct slots_record;

/* ---- the host ---------------------------------------------------------- */

/* Whether a controller is in use; if not, why, and what to do about it. Texts
 * are one line; mend may be empty. */
struct cgroup_status {
    bool usable;
    char reason[220];
    char mend[220];
};

/* One tree that is used. */
struct cgroup_hierarchy {
    bool v2;
    unsigned controllers;         /* mask of those in use here */
    unsigned switched_on;         /* v2: those that we switched on in the place */
    int place_fd;                 /* the place */
    int fd;                       /* this supervisor's group in it */
    char next[NAME_MAX + 1];      /* the group of the place that leads to our own; may be "" */
    char path[CGROUP_PATH_BYTES]; /* of this supervisor's group, absolute */
};

struct cgroup_host {
    char name[64]; /* hutch-PID-RANDOM */
    struct cgroup_status status[CGROUP_CONTROLLERS];
    struct cgroup_hierarchy hierarchies[CGROUP_CONTROLLERS];
    size_t count;
    uint64_t cells_made; /* gives each its name */
};

/* Looks for usable controllers and makes this supervisor's groups; each path
 * is noted in the record before it is made. parent names a group below the top
 * of each tree (a leading slash may stand in front), or is NULL. proc_self is
 * where "cgroup" and "mountinfo" are read, "/proc/self" when NULL. A host
 * without any usable controller is no error. Errors: INVALID (parent),
 * NO_MEMORY, SYSTEM. */
MUST_CHECK int cgroup_host_open(struct slots_record *record, const char *parent,
                                const char *proc_self, struct cgroup_host **ret_host,
                                struct hutch_error *err);

/* The tree that a controller is used in, or NULL. */
const struct cgroup_hierarchy *cgroup_host_find(const struct cgroup_host *host,
                                                enum cgroup_controller controller);

/* Removes this supervisor's groups and frees. All cells must have been removed,
 * or given up. Returns whether every group is gone; if not, the record has to
 * stay. NULL is ignored (true). */
bool cgroup_host_close(struct cgroup_host *host);

/* ---- cells ------------------------------------------------------------- */

/* The groups of one cell. Opaque. Every call but cgroup_cell_create takes NULL
 * for a cell without groups. */
struct cgroup_cell;

#define CGROUP_JOIN_MAX CGROUP_CONTROLLERS

/* Makes the groups of a cell and writes its limits for the controllers in use.
 * *host must outlive the cell. After an error nothing is left. Errors: SYSTEM,
 * NO_MEMORY. */
MUST_CHECK int cgroup_cell_create(struct cgroup_host *host, const struct cgroup_limits *limits,
                                  struct cgroup_cell **ret_cell, struct hutch_error *err);

/* Gives the cell other limits, before anything of a program has run in it.
 * Errors: SYSTEM. */
MUST_CHECK int cgroup_cell_limit(struct cgroup_cell *cell, const struct cgroup_limits *limits,
                                 struct hutch_error *err);

/* Mask of HUTCH_LAYER_CGROUP_* that a process in the cell is limited by. */
uint32_t cgroup_cell_layers(const struct cgroup_cell *cell);

/* Directory for CLONE_INTO_CGROUP on v2; -1 where there is none. */
int cgroup_cell_clone_fd(const struct cgroup_cell *cell);

/* The descriptors for cgroup_join() of a process that was cloned into
 * cgroup_cell_clone_fd (born_inside), or that was not. Returns how many; they
 * stay the cell's. */
size_t cgroup_cell_join_fds(const struct cgroup_cell *cell, bool born_inside,
                            int ret_fds[CGROUP_JOIN_MAX]);

/* Moves the calling process into a cell by its descriptors. For a process with
 * one thread, between clone and exec too: write(2) only. Returns 0 or -errno. */
static inline int cgroup_join(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (write(fds[i], "0", 1) != 1)
            return -errno;
    }
    return 0;
}

/* Opens them again, for one more process. Errors: SYSTEM. */
MUST_CHECK int cgroup_cell_rejoin(struct cgroup_cell *cell, struct hutch_error *err);

/* Closes the descriptors for joining, when all that should join have. */
void cgroup_cell_joined(struct cgroup_cell *cell);

/* A descriptor that becomes readable when the cell may have met its memory
 * limit; -1 where the kernel has no such event (the limit holds all the same).
 * It stays the cell's. */
int cgroup_cell_oom_fd(const struct cgroup_cell *cell);

/* To be called when that is readable; makes it wait for the next event.
 * Whether the limit was met and a process is being killed for it, or was; v2
 * wakes for lesser events too. */
bool cgroup_cell_take_oom(struct cgroup_cell *cell);

/* What a cell used so far; 0 where the kernel does not say. */
struct cgroup_usage {
    uint64_t cpu_ns;
    uint64_t peak_memory_bytes;
    uint64_t oom_kills;
    uint64_t pids_max_hits;
};

/* Reads it, also after all processes of the cell are gone, until it is removed. */
void cgroup_cell_usage(const struct cgroup_cell *cell, struct cgroup_usage *ret_usage);

/* Sends SIGKILL to every process in the cell: for leftovers, since the end of
 * a cell's PID 1 ends the rest. Where pids is in use, no new process can start
 * in it afterwards. */
void cgroup_cell_kill(const struct cgroup_cell *cell);

/* Removes the groups of the cell. Returns whether they are gone; if not,
 * processes are still dying in it: call it again, until a deadline of yours.
 * From the first call on there are no events any more. */
MUST_CHECK bool cgroup_cell_remove(struct cgroup_cell *cell);

/* Frees a cell. Groups that could not be removed are left to
 * cgroup_host_close() and the sweep. */
void cgroup_cell_free(struct cgroup_cell *cell);
