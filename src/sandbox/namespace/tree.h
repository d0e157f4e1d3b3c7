/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file tree of cells: for each runtime a minimal folder that holds copies
 * of the interpreter, its libraries and data, made from the host at the first
 * use and kept in the cache for as long as nothing of it has changed there.
 *
 *   CACHE/trees/              0700; lock is held by the one process that builds
 *     python-<hash>/          one tree with what belongs to it; a process that
 *                             uses the tree holds a shared flock on it
 *       manifest              what the tree was made of, see tree.c
 *       tree/                 T, what a cell mounts as its root
 *         root/               what programs in the cell see as /
 *         scratch/            mount point of the cell's tmpfs
 *         init                hutch-init, mode 0111: nobody may read it, so the
 *                             kernel makes PID 1 non-dumpable when it starts
 *         cpu/N/              online, possible and present for N processors;
 *                             root/sys/devices/system/cpu shows one
 *     .new/                   a tree that is being built
 *
 * The host's files are copied, never linked; nothing in the tree can be
 * written by anyone, and nothing has a set-id bit. root/ has the host's paths,
 * so that a Python prefix such as /opt/venv is where the interpreter expects
 * it. Files of the host that only root may read never come in.
 *
 * root/dev holds null, zero, full, random and urandom: as root real device
 * nodes, where the file system of the cache allows them; else empty files, to
 * bind the host's devices on.
 */
#pragma once

#include "base/attrs.h"
#include "base/error.h"

#include <stdbool.h>

struct tree_spec {
    const char *name;        /* "python", "javascript" or "shell" */
    const char *interpreter; /* absolute path of python, node or bash */
    const char *helper_dir;  /* holds hutch-init and the runners */
    const char *cache_dir;   /* absolute; made with mode 0700 when it is missing */
};

/* A tree that is ready. While lock_fd is open it will not be removed. */
struct tree {
    char *path;       /* of T, absolute; the descriptor is the better way in */
    int fd;           /* T, O_PATH */
    int lock_fd;      /* the shared lock */
    bool has_devices; /* root/dev holds device nodes */
};

#define TREE_NONE ((struct tree){.fd = -1, .lock_fd = -1})

/* Releases the descriptors, and with them the lock. */
void tree_close(struct tree *tree);
#define auto_tree __attribute__((cleanup(tree_close)))

/* Looks for a tree of spec that is up to date: some thirty system calls, no
 * waiting. Returns 1 and *ret_tree, or 0 when there is none.
 * Errors: INVALID for a bad spec, SYSTEM when the cache folder is not the
 * caller's own, NO_MEMORY. */
MUST_CHECK int tree_find(const struct tree_spec *spec, struct tree *ret_tree,
                         struct hutch_error *err);

/* Builds the tree, unless another process does meanwhile: then it waits for
 * that. Takes a second or so, forks once, changes the umask for its duration,
 * and is meant for a child process that may be killed at any time: what that
 * leaves is removed by the next build. Removes trees that are outdated and in
 * nobody's use. Errors: RUNTIME (the interpreter is missing or unfit; names
 * the package; for javascript acorn too), HELPER (hutch-init or the runner is
 * missing), INVALID, SYSTEM,
 * NO_MEMORY. */
MUST_CHECK int tree_build(const struct tree_spec *spec, struct hutch_error *err);

/* tree_find, and if need be tree_build in this process. */
MUST_CHECK int tree_prepare(const struct tree_spec *spec, struct tree *ret_tree,
                            struct hutch_error *err);
