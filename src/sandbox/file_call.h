/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls for files to hutch-init, over a files socket (wire.h). What comes back is the word of
 * a process inside the cell: its form is checked, its amount bounded, and what breaks
 * either ends the connection.
 */
#pragma once

#include "base/attrs.h"
#include "base/error.h"
#include "wire.h"

#include <hutch.h>

/* An entry of a directory, or a file that was changed; name may hold any bytes but NUL. */
struct file_entry {
    const char *name; /* LIST: a name; CHANGES: a path below the home directory */
    uint64_t size;
    bool is_directory;
};

/* One call. path is one of file_name.h; of LIST "" is the home directory. The functions are
 * called on the caller's thread and return 0, or a negative code with *err. */
struct file_call {
    enum wire_file_type type; /* PUT, GET, LIST, DELETE, MARK, CHANGES */
    const char *path;
    bool executable;    /* PUT */
    uint64_t size;      /* PUT: of all that read gives */
    uint64_t max_bytes; /* GET: a larger file is refused */
    int64_t after_ns;   /* CHANGES: later than that, in nanoseconds of real time; 0: the MARK */
    void *user;
    int (*read)(void *user, char *data, size_t length, struct hutch_error *err);
    int (*write)(void *user, const char *data, size_t length, struct hutch_error *err);
    int (*entry)(void *user, const struct file_entry *entry, struct hutch_error *err);

    /* What came of it. */
    bool is_lost;        /* the connection has ended: nothing can be said of the files */
    bool is_sent;        /* the cell may have got all of it, and done it */
    bool is_cut;         /* LIST, CHANGES: there was more than could be told */
    int32_t sys_errno;   /* why hutch-init refused; 0 */
    uint64_t found_size; /* GET: of the file, where it was too large */
};

/* The engine's end of a files socket. One thread at a time uses it. */
struct file_link;

/* The clocks of files. A change has a stamp that lies between the two: the coarse one has
 * ticks of some milliseconds, and may lag. */
int64_t file_clock_ns(void);
int64_t file_clock_coarse_ns(void);

/* Makes one on a stream socket, which is taken over. Errors: NO_MEMORY. */
MUST_CHECK int file_link_new(int fd, struct file_link **ret_link, struct hutch_error *err);
void file_link_free(struct file_link *link);

/* Whether no further call can be made. */
bool file_link_is_broken(const struct file_link *link);

/* Sends the beginning of a call, which file_link_call() then goes on with: whoever has
 * something else to do meanwhile saves the time. An error is that of file_link_call(). */
void file_link_begin(struct file_link *link, struct file_call *call);

/* Makes a call, until deadline_ns or until cancel_fd (or -1) is readable. After an error that
 * is not hutch-init's own answer no further call can be made on the link. Errors: INVALID
 * what the caller can mend (no such file, too large, no space), SYSTEM other answers,
 * HELPER a connection that ended or is broken, CANCELLED, those of the functions. */
MUST_CHECK int file_link_call(struct file_link *link, struct file_call *call, uint64_t deadline_ns,
                              int cancel_fd, struct hutch_error *err);

/* The next entry of a frame's payload: returns the bytes that it takes, 0 when they are no
 * entry. Its name is copied to memory of WIRE_MAX_PATH + 1 bytes. */
size_t file_entry_read(const char *data, size_t length, bool is_path, char *ret_name,
                       struct file_entry *ret_entry);
