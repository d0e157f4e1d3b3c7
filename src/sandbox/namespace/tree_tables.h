/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cell's file tree consists of, as tables; tree_build.c carries them
 * out. Lists of strings end with NULL. What the host lacks is left out.
 */
#pragma once

#include <stdbool.h>

/* Where the runners are in a cell, and what that of javascript reads programs
 * with. */
#define TREE_RUNNER "/usr/lib/hutch/runner.pyc"
#define TREE_ZYGOTE_MODULE "/usr/lib/hutch/hutch_zygote.abi3.so"
#define TREE_NODE_RUNNER "/usr/lib/hutch/runner.cjs"
#define TREE_SHELL_RUNNER "/usr/lib/hutch/runner.sh"
#define TREE_NODE_PARK "/usr/lib/hutch/hutch_park.node" /* beside the runner, which loads it */
#define TREE_FONT_LISTS "/usr/lib/hutch/matplotlib"     /* runner.py knows it */
#define TREE_ACORN "/usr/lib/hutch/acorn.js"

/* Folders that the launcher mounts on, or that programs expect to be there. */
extern const char *const tree_folders[];

/* Programs of all runtimes, by name. */
extern const char *const tree_commands[];

/* Where commands are looked for, in this order. */
extern const char *const tree_command_folders[];

/* Folders and files that are copied as they are. */
struct tree_data {
    const char *path;
    bool python_only;
};
extern const struct tree_data tree_data[];

/* Patterns (fnmatch) of whole paths that are never copied. */
extern const char *const tree_excluded[];

/* Libraries that programs load at run time without naming them in their ELF
 * header. */
extern const char *const tree_libraries[];

/* Generated files; one that was copied from the host stays. */
struct tree_text {
    const char *path;
    const char *text;
};
extern const struct tree_text tree_texts[];

/* Links, made where their target is in the tree. */
struct tree_link {
    const char *path;
    const char *target;
};
extern const struct tree_link tree_links[];

/* Files and folders of the host whose change means that a tree is outdated,
 * beside those of the runtime itself. */
extern const char *const tree_key_files[];
