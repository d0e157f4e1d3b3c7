/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of hutch-supervisor share. It is one thread and one epoll
 * loop; see supervisor.c for the picture.
 */
#pragma once

#include "base/backoff.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/limits.h"
#include "cgroup.h"
#include "proto.h"
#include "slots.h"
#include "tree.h"

#include <sched.h>
#include <sys/types.h>

struct sandbox_cell;
struct zygote;

/* Requests that came lately. */
struct demand {
    uint64_t starts;  /* since there was none for a while */
    uint64_t used_ns; /* when the last one came */
};

/* Where a zygote may be, see zygote.h: one for each runtime, or for each of its pools. */
struct zygote_place {
    struct runtime *runtime;
    struct zygote *zygote;    /* NULL: none */
    struct zygote *successor; /* that is starting, of one that is used up */
    struct demand demand;
    struct backoff backoff;
    bool load_in_cells; /* one failed: its modules are the cells' to load */
    uint32_t deaths;    /* of zygotes that nobody had given up */
    char log[1024];     /* the end of what it printed */
};

/* Cells of one runtime that wait for requests of one owner: see pool.h. */
struct pool {
    struct runtime *runtime;
    char owner[LIMIT_OWNER_BYTES];
    struct sandbox_cell *cells[LIMIT_PARKED_CELLS]; /* the last one is the newest */
    size_t count;
    size_t expected; /* being made */
    struct demand demand;
    struct backoff backoff;
    struct proto_start like;         /* the last request that a parked cell could have served */
    struct zygote_place own_zygotes; /* in use when zygotes are for one owner */
};

/* One language's interpreter and file tree. */
enum runtime_state { RUNTIME_UNKNOWN, RUNTIME_BUILDING, RUNTIME_READY };

struct runtime {
    enum proto_language language;
    const char *interpreter;
    enum runtime_state state;
    struct tree tree;
    int mount_ns_fd; /* the tree as the root of a mount namespace, to clone cells from */
    pid_t build_pid;
    int build_fd;        /* struct hutch_error of the building child */
    const char *preload; /* names of modules with commas, for cells to find loaded */
    struct zygote_place zygotes;
};

struct supervisor {
    int epoll_fd;
    int control_fd; /* -1 once the engine is gone */
    /* Our own, to come back to after a clone from a runtime's mount namespace
     * and into a cell's pid namespace. */
    int mount_ns_fd, pid_ns_fd;
    const char *helper_dir;
    const char *cache_dir;
    const char *cgroup_parent;     /* as the engine's options name it, or "" */
    char scope[CGROUP_PATH_BYTES]; /* the group that the user's systemd gave, or "" */
    bool is_root;                  /* with the capabilities that making cells takes */
    bool uid_0_is_root;            /* uid 0 is the host's root, not that of a user namespace */
    bool can_step;                 /* into a cell's pid namespace and back */
    unsigned namespaces;           /* CLONE_NEW* flags that every cell gets */
    bool cgroup_ns;
    int landlock_abi;
    cpu_set_t cpus; /* that we may hand out */
    unsigned cpu_count;
    unsigned cpu_load[CPU_SETSIZE]; /* cells on each */
    struct runtime runtimes[PROTO_LANGUAGE_COUNT];
    int run_dir;
    struct slots_record record;
    struct slots *slots;
    struct cgroup_host *cgroups;
    uint64_t sweep_ns; /* when to sweep again */
    bool has_strays;   /* children that no cell knows: see zygote.h */
    struct sandbox_cell *cells[LIMIT_CELLS];
    size_t cell_count, cell_limit;
    enum hutch_warmth warmth;
    size_t parked_cells;     /* of a pool that is in use */
    bool zygotes_are_owners; /* each owner has one of its own */
    struct pool *pools[LIMIT_POOLS];
    size_t pool_count;
    uint64_t starts[PROTO_ORIGIN_COUNT];
    size_t running;      /* programs */
    uint64_t started_ns; /* when the last of them began */
    uint64_t ended_ns;   /* when the last one ended */
};

/* What an epoll event is about; the tag holds the kind and the cell's place. */
enum watch_kind {
    WATCH_CONTROL,
    WATCH_ENGINE,
    WATCH_BUILD, /* index: the runtime */
    WATCH_CELL_EVENTS,
    WATCH_CELL_REPORT,
    WATCH_CELL_RUN,
    WATCH_CELL_INIT,
    WATCH_CELL_MEMORY,
    WATCH_CELL_PARK,
    WATCH_CELL_LIFELINE,
    WATCH_CELL_COPIES,
    WATCH_ZYGOTE,
    WATCH_ZYGOTE_LOG,
    WATCH_DYING, /* index: the pidfd of a child that no cell knows any more */
};

/* Watches fd for input. It is to be closed by supervisor_close: as long as a forked
 * child has it open, it would be watched on. */
MUST_CHECK int supervisor_watch(struct supervisor *supervisor, int fd, enum watch_kind kind,
                                size_t index, struct hutch_error *err);

/* Ends that. */
void supervisor_unwatch(struct supervisor *supervisor, int fd);

/* Closes a descriptor that is watched; it becomes -1. Nothing is done for -1. */
void supervisor_close(struct supervisor *supervisor, int *fd);

/* Takes the pidfd of a child that was killed, which becomes -1, and the child's status
 * as soon as it is dead. Nothing is done for -1. */
void supervisor_bury(struct supervisor *supervisor, int *pidfd);
