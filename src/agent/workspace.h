/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sessions of one conversation, see cell_tools.h: one of each language, opened when it is
 * needed first, and again when it is over. What one has made of files is brought to another
 * when that is entered next.
 *
 * Any number of threads. A session that was entered stays until it is left.
 */
#pragma once

#include "base/buf.h"
#include "cell_tools.h"

#include <stdbool.h>
#include <stdint.h>

/* How a session is opened, how long the caller waits, and what it is told. */
struct workspace_entry {
    hutch_engine *engine;
    const struct hutch_request *limits; /* its language does not count */
    hutch_cancel *cancel;               /* may be NULL */
    uint64_t deadline_ns;
    struct buf *note; /* what the model has to know of the files is appended */
    bool reset;       /* set where the session is new, in place of one that was over */
};

struct workspace_cell {
    hutch_session *session;
    enum hutch_language language;
    bool reset; /* opened in place of one that was over, and nobody was told yet */
    unsigned users;
    bool over;
};

/* The session of a language, with the files of the others. Errors: those of
 * hutch_session_open; BUSY where others take too long. */
MUST_CHECK int workspace_enter(struct workspace *workspace, enum hutch_language language,
                               struct workspace_entry *entry, struct workspace_cell **ret_cell,
                               struct hutch_error *err);
void workspace_leave(struct workspace *workspace, struct workspace_cell *cell);

/* It turned out to be over: it is not entered any more, and its state and files are gone. */
void workspace_cell_over(struct workspace *workspace, struct workspace_cell *cell);

/* A whole file of a cell that was entered, by a path in its home directory: into bytes, in place
 * of what they had; and of data. Errors: those of hutch_session_get and hutch_session_put. */
MUST_CHECK int workspace_cell_get(struct workspace_cell *cell, const char *path,
                                  const struct hutch_file_options *options, struct buf *bytes,
                                  struct hutch_error *err);
MUST_CHECK int workspace_cell_put(struct workspace_cell *cell, const char *path,
                                  const struct hutch_file_options *options, const char *data,
                                  size_t length, struct hutch_error *err);

/* The language that was entered last; python before. */
enum hutch_language workspace_current(struct workspace *workspace);

/* A file that the session has made or changed. False: there is no room to note it. */
bool workspace_file_made(struct workspace *workspace, const struct workspace_cell *cell,
                         const char *path);

/* The state of one of its sessions was lost. */
void workspace_state_lost(struct workspace *workspace);
