/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs in the cell of a session beside hutch-init, the interpreter and its copy, as
 * the host's proc shows it. Where there is nothing, which is the rule, a look costs two
 * reads of files that stay open.
 *
 * The kernel tells the children of a thread in /proc/PID/task/TID/children. One that was not
 * built with that, or hides it, has nothing to tell, and then nothing is found.
 */
#pragma once

#include "base/attrs.h"
#include "base/error.h"

#include <sys/types.h>

struct background;
struct process_list;

/* For the interpreter and the hutch-init of a cell; replaces *background. NULL where
 * nothing can be found. */
void background_open(struct background **background, pid_t interpreter, pid_t init);

/* Looks which process is the copy; a later background_list need not. */
void background_find_copy(struct background *background);

/* What runs now: pids as in the cell. Commands are what the processes say of themselves,
 * bounded and made valid UTF-8. Errors: NO_MEMORY. */
MUST_CHECK int background_list(struct background *background, struct process_list *ret_list,
                               struct hutch_error *err);

/* NULL is ignored. */
void background_free(struct background *background);
