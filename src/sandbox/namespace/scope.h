/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cgroup for an ordinary user, on a host whose cgroups are all v2: the user's
 * own systemd gives one away as a scope, `systemd-run --user --scope -p
 * Delegate=yes`. The engine starts the supervisor through that; the supervisor
 * then makes room in its scope, since a v2 group that hands controllers on may
 * hold no process itself.
 */
#pragma once

#include "base/attrs.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* systemd-run's own words, in front of the command that it execs. */
#define SCOPE_WORDS 10

struct scope_start {
    const char *words[SCOPE_WORDS];
    char environment[64]; /* XDG_RUNTIME_DIR: where the user's systemd listens */
};

/* Whether a scope is the way to a cgroup here: not for root, and of no use
 * where the controllers are in v1 hierarchies. */
bool scope_is_wanted(void);

/* Whether the user's systemd is there to give one. Fills *ret_start. */
MUST_CHECK bool scope_is_offered(struct scope_start *ret_start);

/* In the supervisor, started in a scope: moves this process into a group of its
 * own in the scope. ret_scope is the path of the scope below the hierarchy.
 * Errors: SYSTEM. */
MUST_CHECK int scope_enter(char *ret_scope, size_t size, struct hutch_error *err);
