/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a run: those of the request and the uploads go in before the code does, and
 * what the program made or changed, return_files and the downloads come out at the end.
 */
#pragma once

#include "backend.h"

struct run_files {
    const struct hutch_request *request;
    const struct hutch_run_options *options; /* maybe NULL, or without later members */
    const struct backend_ops *ops;
    struct cell *cell;
    uint64_t deadline_ns;
    int cancel_fd;
    bool is_lost; /* the cell has ended, or what serves its files: its event says how */
};

/* Checks the uploads and downloads. Errors: INVALID. */
MUST_CHECK int run_files_check(const struct hutch_run_options *options, struct hutch_error *err);

/* Whether there are any to place. */
bool run_files_place_any(const struct hutch_request *request,
                         const struct hutch_run_options *options);

/* Places them. Errors: those of file_call.h, SYSTEM for an upload that cannot be read. */
MUST_CHECK int run_files_place(struct run_files *files, struct hutch_error *err);

/* Fills files of the result, and serves the downloads; exists says that the cell has files. */
MUST_CHECK int run_files_collect(struct run_files *files, const struct cell_exit *exit,
                                 struct hutch_result *result, struct hutch_error *err);
