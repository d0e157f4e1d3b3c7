/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of hutch-supervisor share. It is one thread and one epoll
 * loop; see supervisor.c for the picture.
 */
#pragma once

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

/* Cells that wait for a request: see pool.h. */
struct pool {
    struct sandbox_cell *cells[LIMIT_PARKED_CELLS]; /* the last one is the newest */
    size_t count;
    size_t expected;         /* being made */
    uint64_t starts;         /* since the pool was given up last */
    uint64_t after_ns;       /* no new cell before; after one that failed */
    uint64_t used_ns;        /* when the last request came */
    struct proto_start like; /* the last request that a parked cell could have served */
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
    int build_fd;             /* struct hutch_error of the building child */
    struct zygote *zygote;    /* NULL: none */
    uint64_t zygote_after_ns; /* no new one before; after one that failed */
    uint64_t zygote_wait_ns;  /* how long was waited last */
    char zygote_log[1024];    /* the end of what it printed */
    const char *preload;      /* names of modules with commas, for the zygote to load */
    struct pool pool;
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
    size_t parked_cells; /* of a runtime that is in use */
    uint64_t starts[PROTO_ORIGIN_COUNT];
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
    WATCH_ZYGOTE,
    WATCH_ZYGOTE_LOG,
};

/* Watches fd for input, until it is closed here and in every forked child. */
MUST_CHECK int supervisor_watch(struct supervisor *supervisor, int fd, enum watch_kind kind,
                                size_t index, struct hutch_error *err);

/* Ends that. */
void supervisor_unwatch(struct supervisor *supervisor, int fd);
