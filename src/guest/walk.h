/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking through directories for LIST and CHANGES of wire.h, piece by piece: each step
 * fills a piece of memory with entries and returns, so that whoever serves others meanwhile
 * can. No memory grows; depth, number and bytes of entries have their limits.
 */
#pragma once

#include "../sandbox/wire.h"

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum walk_kind {
    WALK_LIST,    /* all that lies in one directory */
    WALK_CHANGES, /* regular files in it and below that were changed after a time */
};

#define WALK_READ_BYTES 4096 /* of a directory at once */

/* A directory that is being read, and where its entries' names begin in path. */
struct walk_level {
    int fd;
    size_t prefix;
    size_t at, length; /* in entries */
    _Alignas(struct dirent64) char entries[WALK_READ_BYTES];
};

/* All zero where none has begun. */
struct walk {
    enum walk_kind kind;
    struct timespec after;
    size_t depth; /* levels in use */
    uint32_t count, bytes;
    bool cut;
    char path[WIRE_MAX_PATH + WIRE_MAX_NAME + 2];
    struct walk_level levels[WIRE_MAX_DEPTH];
};

/* Begins at the directory folder_fd, a descriptor for reading, which is taken over; a walk
 * that was under way ends. */
void walk_begin(struct walk *walk, enum walk_kind kind, int folder_fd, struct timespec after);

/* Appends some entries, as of WIRE_FILE_ENTRIES, to memory with room for WIRE_MAX_DATA
 * bytes. Returns how many bytes they take, maybe 0. *ret_end says that they are the last,
 * *ret_cut that there were more. */
size_t walk_step(struct walk *walk, char *entries, bool *ret_end, bool *ret_cut);

/* Closes what is open. */
void walk_end(struct walk *walk);
