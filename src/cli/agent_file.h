/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of --session, which keeps a conversation:
 *
 *     {"version": 1, "messages": […]}
 *
 * One hutch at a time has it: its lock (flock) is on the file itself. Writing is a new file, that
 * is locked before it takes the place of the old one, so that there is no moment without a lock
 * and none with half of a file.
 */
#pragma once

#include "problem.h"

#include <hutch-agent.h>

struct agent_file {
    char *path, *name; /* name: of the file in the folder; points into path */
    int dir_fd, fd;    /* fd has the lock; -1: nothing is open */
};
#define AGENT_FILE_NONE ((struct agent_file){NULL, NULL, -1, -1})
void agent_file_done(struct agent_file *file);

/* Opens and locks the file, makes it where it does not exist, and reads the conversation,
 * which is a new one where the file is empty.
 * *ret_conversation is the caller's. Returns 0 or a negative code with *problem set. */
MUST_CHECK int agent_file_open(struct agent_file *file, const char *path,
                               hutch_conversation **ret_conversation, struct problem *problem);

/* Writes the conversation. Returns as above. */
MUST_CHECK int agent_file_save(struct agent_file *file, const hutch_conversation *conversation,
                               struct problem *problem);
