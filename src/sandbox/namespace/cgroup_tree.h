/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups as directories: writing and reading their files, killing what is in
 * them, removing them. No call sleeps or retries without bound.
 */
#pragma once

#include "base/buf.h"
#include "cgroup_text.h"

/* Answer of calls that remove: processes are still dying, or were just told
 * to; call again later. */
#define CGROUP_BUSY 1

/* Writes value, in one write, into the file of a group below dir_fd ("." for
 * dir_fd itself). Returns 0 or the errno value. */
MUST_CHECK int cgroup_write(int dir_fd, const char *group, const char *file, const char *value);

/* Appends the content of the file of a group to *text. */
MUST_CHECK int cgroup_read(int dir_fd, const char *group, const char *file, struct buf *text,
                           struct hutch_error *err);

/* Writes the limits of one controller. */
MUST_CHECK int cgroup_apply(int dir_fd, const char *group, bool v2,
                            enum cgroup_controller controller, const struct cgroup_limits *limits,
                            struct hutch_error *err);

/* Calls visit for each subdirectory of dir_fd until it returns other than 0;
 * returns that, or 0, or -errno. */
int cgroup_each_child(int dir_fd, int (*visit)(void *user, int dir_fd, const char *name),
                      void *user);

/* Sends SIGKILL to what is in a group and in all groups below: through
 * cgroup.kill where there is one (v2, kernel 5.14), else process by process
 * through pidfds, in a bounded number of rounds, after pids.max was set to 0
 * where there is one. A process counts only when its /proc/PID/cgroup names
 * the group, whose full name "/hutch-TOKEN" or "/hutch-TOKEN/cell-1" is. */
void cgroup_tree_kill(int dir_fd, const char *group, const char *full_name);

/* Removes the group name of dir_fd and all groups below it. Returns 0 when it
 * is gone (also when it never was), CGROUP_BUSY, or a negative error. */
MUST_CHECK int cgroup_tree_remove(int dir_fd, const char *name, struct hutch_error *err);

/* Kills and removes what a supervisor left at the absolute path, whose last
 * component must be name ("hutch-TOKEN"). Follows no symlink and touches
 * nothing that is not on a cgroup file system. Returns as cgroup_tree_remove;
 * HUTCH_ERR_INVALID for a path that is not of the form. */
MUST_CHECK int cgroup_tree_reap(const char *path, const char *name, struct hutch_error *err);
