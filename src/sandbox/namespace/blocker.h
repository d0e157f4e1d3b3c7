/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeps a process of this host from making namespaces, as far as the
 * host's settings show it: files are read, nothing is tried.
 */
#pragma once

#include <stdbool.h>

struct blocker {
    char reason[256];
    char mend[256]; /* one line; "" where none is known */
};

/* Both are copied, and cut where they do not fit. */
void blocker_set(struct blocker *blocker, const char *reason, const char *mend);

/* The likeliest cause. root_fd is the folder that stands for "/"; is_root says
 * whether the effective uid is 0; failure is what went wrong, or "". Cannot fail:
 * a file that is not there tells nothing. */
void blocker_find(int root_fd, bool is_root, const char *failure, struct blocker *ret_blocker);
