/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipes of a session: each exec has a pair of its own, stdout and stderr, made by
 * hutch-init (wire.h). So what is printed is told apart by where it comes from: the pair of
 * the exec that runs, or one of an earlier exec, which threads and processes that it left
 * still write to.
 *
 * A pair is closed at its end, when too much came on it, and when there are
 * LIMIT_OLD_OUTPUTS younger ones: then whoever still prints to it gets SIGPIPE.
 */
#pragma once

#include "base/attrs.h"
#include "base/limits.h"
#include "sandbox/wire.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct output_pair {
    uint32_t exec_id; /* 0: there is none */
    bool is_open;     /* of one that is to come: by us, see outputs_take */
    int fds[2];       /* -1: closed */
    bool had_end[2];  /* there was nobody who writes; there may be again */
    unsigned ends;    /* so often */
    uint64_t bytes;   /* that came late */
};

struct outputs {
    struct output_pair ready[WIRE_PIPES_AHEAD]; /* of execs that are to come, in no order */
    struct output_pair old[LIMIT_OLD_OUTPUTS];  /* the oldest first */
    size_t old_count;
    bool is_unsure; /* some of the old ones had an end */
};

/* How many slots outputs_poll fills. */
#define OUTPUTS_SLOTS ((size_t)2 * LIMIT_OLD_OUTPUTS)

void outputs_init(struct outputs *outputs);
void outputs_done(struct outputs *outputs);

/* What has come for an exec: its pipes, or nothing. They are what code in the cell may have
 * made: what is no pipe will be dropped, and what is one opened anew, so that nobody else
 * can make it block. Takes the descriptors over. */
void outputs_take(struct outputs *outputs, uint32_t exec_id, int *fds, size_t count);

/* Does that now; else outputs_prepare does, which may have less time. */
void outputs_open(struct outputs *outputs);

/* Whether anything has come for the exec, and whether it was pipes. */
bool outputs_prepare(struct outputs *outputs, uint32_t exec_id, bool *ret_has_pipes);

/* The exec, which was prepared, begins: its pipes become the current ones, and those old.
 * Where it has none, all stays as it is. */
void outputs_begin(struct outputs *outputs, uint32_t exec_id, struct output_pair *current);

/* The current ones become old. */
void outputs_retire(struct outputs *outputs, struct output_pair *current);

/* A current one has come to its end: none has it open to write now. Of an exec's own somebody
 * may open it again by its name, as a shell does, so it is opened anew, to wait for that; one
 * without a name is closed. */
void outputs_end(struct output_pair *current, size_t index);

/* Looks whether old ones that had come to an end have writers again; closes them if not.
 * Gives the number of bytes that it has read from one, or 0. */
size_t outputs_recheck(struct outputs *outputs, char *data, size_t room);

/* Fills slots of a poll, and gives their number. */
size_t outputs_poll(const struct outputs *outputs, struct pollfd slots[OUTPUTS_SLOTS]);

/* Reads from the first of those slots that is ready. Gives the number of bytes, or 0. */
size_t outputs_read(struct outputs *outputs, const struct pollfd *slots, size_t count, char *data,
                    size_t room);
