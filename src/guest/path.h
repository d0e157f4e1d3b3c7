/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths below the home directory, as the engine names them. They are walked name by name,
 * without following a symbolic link: whatever the cell's program puts in the way, nothing
 * is opened that lies elsewhere, and nothing blocks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether it is one as wire.h says: of 1 to WIRE_MAX_PATH bytes, of names with one '/'
 * between, none "." or "..". */
bool path_is_sound(const char *path, size_t length);

/* Opens the directory in which the last name of a sound path lies, below the directory
 * home_fd; make makes what is missing. Returns a descriptor that names are looked up from,
 * and *ret_name in path; or -1 with errno. */
int path_open_parent(int home_fd, const char *path, bool make, const char **ret_name);
