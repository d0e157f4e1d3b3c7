/* SPDX-License-Identifier: Apache-2.0 */
/* Children that are known by their pidfds. */
#pragma once

#include "base/attrs.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* What the ids of a user namespace stand for outside. */
struct id_maps {
    char uid[64], gid[64];
    bool deny_setgroups; /* whoever has no power outside can map a group only then */
};

/* Gives the user namespace of a process its maps, by the proc file system at that path. 0, or
 * -1 with errno. */
MUST_CHECK int process_write_maps(const char *proc, pid_t pid, const struct id_maps *maps);

/* The pid of the process, by the proc file system at that path; 0: gone. */
pid_t process_number(const char *proc, int pidfd);

/* Takes the status of a dead child (as waitpid gives it) and what it used, and
 * says that it is gone. False while it lives. Both results may be NULL. */
bool process_reap(int pidfd, int *ret_status, struct rusage *ret_usage);

/* fork with CLONE_* flags, a pidfd, and on cgroup v2 straight into the group of
 * cgroup_fd, -1 for none. The child returns 0. Both processes are single-threaded. */
pid_t process_clone(uint64_t flags, int cgroup_fd, int *ret_pidfd);
