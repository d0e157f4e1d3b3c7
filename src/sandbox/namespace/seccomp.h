/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call filter of cells, built from seccomp_rules.def when hutch is
 * built: an allow-list, everything else answers ENOSYS.
 */
#pragma once

#include "base/attrs.h"

#include <linux/filter.h>

/* The filter of a cell; that of a zygote; and what has to come on top of that to
 * make it the one of a cell: see seccomp_zygote.def. */
enum seccomp_stage { SECCOMP_CELL, SECCOMP_ZYGOTE, SECCOMP_FORKED, SECCOMP_STAGES };

/* Puts the calling thread, and what it will start, under the filter for good.
 * It needs no_new_privs (or CAP_SYS_ADMIN) and must be the last step before the
 * cell's program: the filter closes the calls that build a cell, Landlock's
 * among them. Plain system calls only, safe between clone and exec. Returns 0
 * or -errno. */
MUST_CHECK int seccomp_install(enum seccomp_stage stage);

/* The filter itself. */
const struct sock_fprog *seccomp_filter(enum seccomp_stage stage);
