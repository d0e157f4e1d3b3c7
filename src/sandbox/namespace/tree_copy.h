/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying parts of the host into a new root folder, at the same paths.
 *
 * Every path given here is an absolute path of the host. Where a folder on the
 * way is a symbolic link on the host (/bin, /lib on a usr-merged system), the
 * root gets the same link, so a path leads to the same file in both.
 *
 * What a copy is: the bytes and the modification time (Python checks its
 * compiled files against it); mode 0444, or 0555 where the original may be
 * executed; no set-id bit, no extended attribute, no hard link. Folders are
 * left writable for more, until folder_seal. Something that is already there stays.
 *
 * What is left out in silence: what is not there, sockets, pipes and devices,
 * links that lead nowhere, and what the user of the cell could not read on
 * the host either: as root that is what others may not read.
 */
#pragma once

#include "string_list.h"

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

/* A copied file that the dynamic loader may have to do with. */
struct copied_object {
    char *path;
    size_t parent; /* the object that asked for it; SIZE_MAX for none */
};

struct copier {
    int root_fd;                 /* the new root; borrowed */
    const char *const *excluded; /* patterns of fnmatch for whole paths, ended by NULL */
    bool as_root;
    uint64_t files; /* entries made so far, at most LIMIT_FILES_OF_TREE */
    uint64_t bytes;
    struct copied_object *objects; /* executables and shared libraries */
    size_t object_count;
    size_t parent; /* of the objects that come now */
    char *block;   /* for file systems that cannot copy by themselves */
};

void copier_init(struct copier *copier, int root_fd, const char *const *excluded);
void copier_done(struct copier *copier);
#define auto_copier __attribute__((cleanup(copier_done)))

/* Makes the folder at path, with the folders and links on the way to it; a
 * part that the host lacks is made as a folder. ret_path (optional) gets the
 * path without links. Returns a descriptor of the folder. */
MUST_CHECK int copier_folder(struct copier *copier, const char *path, char ret_path[PATH_MAX],
                             struct hutch_error *err);

/* Copies the file that source leads to, as a plain file named path. Returns 1
 * when it was copied, 0 when it was left out. */
MUST_CHECK int copier_file(struct copier *copier, const char *source, const char *path,
                           struct hutch_error *err);

/* Brings a program under its own name: where that is a link, or a chain of
 * links as alternatives make them, the links and the file at their end.
 * Returns 1 when the host has the program, else 0. */
MUST_CHECK int copier_program(struct copier *copier, const char *path, struct hutch_error *err);

/* Copies a folder with all that is below it. Links within the folder stay
 * links; one that leaves it is replaced by what it leads to, when everyone may
 * read that. A path that is no folder is copied as a file. */
MUST_CHECK int copier_tree(struct copier *copier, const char *path, struct hutch_error *err);

/* Makes a file of given content. Mode is 0444. */
MUST_CHECK int copier_content(struct copier *copier, const char *path, const void *data,
                              size_t length, struct hutch_error *err);
MUST_CHECK int copier_text(struct copier *copier, const char *path, const char *text,
                           struct hutch_error *err);

/* Makes a symbolic link, unless target (absolute, without links on the way) is
 * not in the new root. */
MUST_CHECK int copier_link(struct copier *copier, const char *path, const char *target,
                           struct hutch_error *err);

/* Copies one file to name below dir_fd with the given mode, whatever the mode
 * of the original. */
MUST_CHECK int copy_single_file(const char *source, int dir_fd, const char *name, mode_t mode,
                                struct hutch_error *err);
