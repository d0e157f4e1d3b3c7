/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking through directories for LIST and CHANGES of wire.h, piece by piece: each step
 * fills a piece of memory with entries and returns, so that whoever serves others meanwhile
 * can. No memory grows; depth, number and bytes of entries have their limits.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum walk_kind {
    WALK_LIST,    /* all that lies in one directory */
    WALK_CHANGES, /* regular files in it and below that were changed after a time */
};

/* Begins at the directory folder_fd, a descriptor for reading, which is taken over. There
 * is one walk at a time: another one ends it. */
void walk_begin(enum walk_kind kind, int folder_fd, struct timespec after);

/* Appends some entries, as of WIRE_FILE_ENTRIES, to memory with room for WIRE_MAX_DATA
 * bytes. Returns how many bytes they take, maybe 0. *ret_end says that they are the last,
 * *ret_cut that there were more. */
size_t walk_step(char *entries, bool *ret_end, bool *ret_cut);

/* Closes what is open. */
void walk_end(void);
