/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program in a cell, as a run (run.c) and an exec of a session (session_exec.c) have it alike:
 * the frames that take it there, the output and the reports that come back, and what of them
 * goes into a result.
 */
#pragma once

#include "backend.h"
#include "base/attrs.h"
#include "base/buf.h"
#include "capture.h"
#include "report.h"

struct program {
    const struct hutch_request *request;     /* as this version knows it, as are the options */
    const struct hutch_run_options *options; /* of which on_output counts */
    const struct backend_ops *ops;
    struct cell *cell; /* set by the user once it is there; borrowed */
    struct capture out, err;
    struct reports reports;
    struct buf env, gate, code; /* payloads of frames, which the cell borrows */
    struct cell_exit exit;      /* how it ended; set by the user */
    bool stopped;               /* for the amount of its output, or to be stopped for it no more */
};

/* Allocates nothing. */
void program_init(struct program *program, const struct hutch_request *request,
                  const struct hutch_run_options *options, const struct backend_ops *ops);

void program_done(struct program *program);

/* Forgets the payloads that were made; those that are queued have to be gone. */
void program_forget_frames(struct program *program);

/* The request's variables, NAME=VALUE, each ended by NUL. */
void program_append_env(const struct program *program, struct buf *text);

/* Queues a frame; the payload stays the caller's. Errors: NO_MEMORY, SYSTEM. */
MUST_CHECK int program_send_frame(struct program *program, enum wire_type type, uint16_t flags,
                                  const struct buf *payload, struct hutch_error *err);

/* Queues variables and gate, those of them that there are. */
MUST_CHECK int program_send_head(struct program *program, struct hutch_error *err);

/* Queues the code, the last frame; flags beside WIRE_RUN_TIDY. */
MUST_CHECK int program_send_code(struct program *program, uint16_t flags, struct hutch_error *err);

/* Takes a CELL_STDOUT or CELL_STDERR; stops the cell at the hard limit. Errors: NO_MEMORY. */
MUST_CHECK int program_take_output(struct program *program, const struct cell_event *event,
                                   struct hutch_error *err);

/* Fills a result but for layers, queue_ms and files: output, times and memory as exit has them,
 * and what the cell said about itself: judged, checked in form, shown. */
MUST_CHECK int program_fill_result(struct program *program, struct hutch_result *result,
                                   struct hutch_error *err);
