/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a run: those of the request and the uploads go in before the code does, and
 * what the program made or changed, return_files and the downloads come out at the end.
 */
#pragma once

#include "backend.h"
#include "file_call.h"

struct run_files {
    const struct hutch_request *request;
    const struct hutch_run_options *options; /* maybe NULL, or without later members */
    const struct backend_ops *ops;
    struct cell *cell;
    uint64_t deadline_ns;
    int cancel_fd;
    bool in_session; /* of an exec: nothing is marked, after_ns says since when changes count */
    int64_t after_ns;
    bool is_lost; /* the cell has ended, or what serves its files: its event says how */
    bool has_asked;
    struct file_call changes; /* that was begun */
};

/* Gives a caller's options, which may be NULL, as this version knows them, and checks the
 * uploads and downloads. Errors: INVALID. */
MUST_CHECK int run_options_load(const struct hutch_run_options *options,
                                struct hutch_run_options *ret_options, struct hutch_error *err);

/* Whether there are any to place. */
bool run_files_place_any(const struct hutch_request *request,
                         const struct hutch_run_options *options);

/* Places them. Errors: those of file_call.h, SYSTEM for an upload that cannot be read. */
MUST_CHECK int run_files_place(struct run_files *files, struct hutch_error *err);

/* Asks for what was changed already, so that the answer comes while something else is done;
 * run_files_collect() has to follow. */
void run_files_ask(struct run_files *files);

/* Fills files of the result, and serves the downloads; exit says that the cell has
 * files. In a session, a list that does not come is a truncated one. */
MUST_CHECK int run_files_collect(struct run_files *files, const struct cell_exit *exit,
                                 struct hutch_result *result, struct hutch_error *err);
