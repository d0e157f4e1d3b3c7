/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared libraries that the copied programs and libraries need.
 *
 * They are looked for as the dynamic loader does: DT_RPATH of the object and
 * of those that asked for it, or DT_RUNPATH; then the folders of
 * /etc/ld.so.conf and the loader's own. One found by an rpath keeps its place,
 * because the rpath names it; any other is placed in a folder that the loader
 * knows by itself. So the root needs no /etc/ld.so.cache: it would save a
 * handful of failed opens and cost a file format to keep up with.
 */
#pragma once

#include "tree_copy.h"

/* Where this processor's libraries are on Debian, and its name in paths. */
#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#elif defined(__riscv)
#define MULTIARCH "riscv64-linux-gnu"
#endif

/* Copies what the copier's objects need, and what that needs in turn, and the
 * libraries called extra (ended by NULL), which programs load at run time. A
 * library that the host lacks is left out; its user fails as on the host. */
MUST_CHECK int copy_libraries(struct copier *copier, const char *const *extra,
                              struct hutch_error *err);

/* Appends the folders that a file in the format of /etc/ld.so.conf names, and
 * those of the files that it includes. */
MUST_CHECK int library_folders(const char *conf_path, struct string_list *folders,
                               struct hutch_error *err);
