/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock, the second wall around a cell's files: should a mount or a mode be
 * wrong, a program still reads and writes below these paths only. A file that
 * lies outside of the cell's root, reached through whatever descriptor, is
 * below none of them. From ABI 6 on, signals and abstract Unix sockets end at
 * the cell as well. TCP is not restricted: programs may serve and call
 * themselves on loopback.
 *
 * Plain system calls only, safe between clone and exec.
 */
#pragma once

#include "base/attrs.h"

#include <stddef.h>
#include <stdint.h>

/* What may be done at and below a path: LANDLOCK_ACCESS_FS_* flags. */
struct landlock_rule {
    const char *path;
    uint64_t access;
};

/* The kernel's Landlock ABI, from 1; 0 when it has none or it is switched off. */
int landlock_abi(void);

/* Denies the calling thread, and what it will start, every file access that no
 * rule allows, for good. Needs no_new_privs. Rights that abi (at least 1, at
 * most landlock_abi()) does not know are left out, of the rules and of what is
 * denied; under ABI 1 files cannot be renamed or linked from one folder to
 * another (EXDEV). Returns 0 or -errno; ENOENT when a path does not exist. */
MUST_CHECK int landlock_restrict(const struct landlock_rule *rules, size_t count, int abi);

/* The same with the rules of a cell, from inside the cell's root. */
MUST_CHECK int landlock_confine_cell(int abi);
