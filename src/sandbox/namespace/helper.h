/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting and ending hutch-supervisor: the one place where the engine starts
 * a process.
 */
#pragma once

#include "base/attrs.h"
#include "base/error.h"
#include "cgroup_text.h"

#include <hutch.h>
#include <sys/types.h>

/* A running supervisor. fd -1 means none. */
struct helper {
    pid_t owner; /* the process that started it; a fork of that only forgets it */
    pid_t pid;
    int pidfd;
    int control_fd;
    char scope[CGROUP_PATH_BYTES]; /* the cgroup that it was started in by the user's systemd */
};

#define HELPER_NONE ((struct helper){.pid = 0, .pidfd = -1, .control_fd = -1})

/* The engine's options with every default filled in; owned strings. */
struct helper_options {
    char *helper_dir;
    char *cache_dir;
    char *python;
    char *bash;
    char *node;
    char *cgroup;
    uint32_t uid_base;
    uint32_t uid_count;
    uint32_t warmth;
    uint32_t parked_cells;
    char *preload;
    bool zygotes_are_owners;
};

/* Copies and completes options (NULL: all defaults). Finds the helper folder:
 * libexec/hutch beside, above or two above the folder of libhutch or of the
 * program. Errors: INVALID, HELPER, NO_MEMORY. */
MUST_CHECK int helper_options_init(const struct hutch_engine_options *options,
                                   struct helper_options *ret_options, struct hutch_error *err);
void helper_options_done(struct helper_options *options);

/* How many runs a supervisor with these options can hold at once: its places for cells,
 * without those for cells that wait for requests or are being taken down. Not more than
 * half of the descriptors that this process may open suffice for. At least 1. */
uint32_t helper_max_cells(const struct helper_options *options);

/* Spawns a supervisor and waits, at most ten seconds, for its hello. For an
 * ordinary user without a named cgroup it is started in a scope (scope.h) where
 * one is offered; where that does not work within five seconds, without.
 * Errors: HELPER, ISOLATION, SYSTEM. */
MUST_CHECK int helper_spawn(const struct helper_options *options, struct helper *ret_helper,
                            struct hutch_error *err);

/* Lets go of the control socket and waits, at most five seconds, until the
 * supervisor has taken everything down; then kills it. */
void helper_end(struct helper *helper);
