/* SPDX-License-Identifier: Apache-2.0 */
/* Folders by descriptor: listing, making read-only, removing. */
#pragma once

#include "base/attrs.h"
#include "base/error.h"

#include <dirent.h>

void folder_close(DIR **dir);
#define auto_dir __attribute__((cleanup(folder_close)))

/* A listing of the folder behind fd, from its start. NULL with errno. */
DIR *folder_list(int fd);

/* The next entry but "." and ".."; NULL at the end, with errno 0, or on error. */
struct dirent *folder_next(DIR *dir);

/* Makes the folder behind dir_fd and every folder below it 0555. */
MUST_CHECK int folder_seal(int dir_fd, struct hutch_error *err);

/* Removes name below dir_fd, with all that is in it when it is a folder; fine
 * when it is not there. */
MUST_CHECK int folder_remove(int dir_fd, const char *name, struct hutch_error *err);
