/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel writes about cgroups, as text, and what we write into their
 * files: pure functions without a system call, so that odd input is a matter
 * of unit tests. Text ends at NUL. Nothing is changed where a call says false.
 */
#pragma once

#include "base/attrs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cgroup_controller { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_CPUACCT };
#define CGROUP_CONTROLLERS 4

/* Masks of controllers. */
#define CGROUP_BIT(controller) (1u << (controller))
#define CGROUP_ALL (CGROUP_BIT(CGROUP_CONTROLLERS) - 1u)

/* The longest path of a group that we use. */
#define CGROUP_PATH_BYTES 1024

/* "memory", "pids", "cpu", "cpuacct". */
const char *cgroup_controller_name(enum cgroup_controller controller);

/* A decimal number without sign that fills all of the length bytes. */
MUST_CHECK bool cgroup_text_digits(const char *text, size_t length, uint64_t *ret_number);

/* A file that holds one number; one line feed may follow it. "max" is none. */
MUST_CHECK bool cgroup_text_number(const char *text, uint64_t *ret_number);

/* The number behind a key in a file of "key number" lines. */
MUST_CHECK bool cgroup_text_value(const char *text, const char *key, uint64_t *ret_number);

/* Our controllers among words parted by blanks, commas and line feeds: a file
 * such as cgroup.controllers, or the options of a v1 mount. */
unsigned cgroup_text_controllers(const char *text);

/* From /proc/PID/cgroup: the path of the process in the v2 tree (controller is
 * NULL) or in the v1 tree of a controller. */
MUST_CHECK bool cgroup_text_own(const char *text, const char *controller, char *ret_path,
                                size_t size);

/* Whether a process with that /proc/PID/cgroup is in a group, or below it, whose
 * path ends in group ("/hutch-1-2/cell-3"). */
bool cgroup_text_in_group(const char *text, const char *group);

/* One mounted cgroup tree. */
struct cgroup_mount {
    bool v2;
    bool cpuset;          /* v1: mounted together with cpuset */
    unsigned controllers; /* v1: mask of ours; v2: 0, its top says them */
    char root[CGROUP_PATH_BYTES];
    char point[CGROUP_PATH_BYTES];
};

/* The next cgroup mount in the text of mountinfo at *text, which moves on.
 * Lines that cannot be read are passed over. False at the end. */
MUST_CHECK bool cgroup_text_next_mount(const char **text, struct cgroup_mount *ret_mount);

/* Where the group own lies below a mount that shows the group root: "a/b", or
 * "" for the top. False when it does not lie there. */
MUST_CHECK bool cgroup_text_below(const char *root, const char *own, char *ret_place, size_t size);

/* Whether path may be used below a mount: no empty component, no "." or "..".
 * A leading slash is not allowed; "" is the top. */
bool cgroup_text_relative(const char *path);

/* The token of a supervisor: PID-RANDOM, decimal and 16 hexadecimal digits. */
bool cgroup_text_token(const char *token);

/* Whether path is absolute, without empty, "." or ".." components, and ends in
 * a component that is exactly name. */
bool cgroup_text_ends_in(const char *path, const char *name);

/* The limits of a cell; all are set. */
struct cgroup_limits {
    uint64_t memory_bytes;  /* no swap beyond it */
    uint32_t max_processes; /* and threads; hutch-init included */
    uint32_t cpu_millis;    /* 1000 is one processor */
    bool one_by_one;        /* out of memory, the kernel kills one process, not all (v2) */
};

/* One write into a file of a group. */
struct cgroup_setting {
    const char *file;
    char value[48];
    int tolerated; /* an errno that is no failure, or 0 */
};
#define CGROUP_SETTINGS_MAX 4

/* What a controller's limit means in files; returns how many. */
size_t cgroup_settings(bool v2, enum cgroup_controller controller,
                       const struct cgroup_limits *limits,
                       struct cgroup_setting ret_settings[CGROUP_SETTINGS_MAX]);
