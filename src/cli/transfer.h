/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that hutch run puts into a cell and fetches from it: --upload LOCAL:CELL and
 * --download CELL[:LOCAL]. What is fetched appears under its local name when it is there
 * whole: until then it has a temporary name beside it.
 */
#pragma once

#include "options.h"

/* A file that is to be fetched. */
struct arrival {
    char *local;
    char *temporary; /* NULL: written to directly, because it is no regular file */
    int fd;
    struct hutch_error error;
};

/* Opens what a cell's file is written to: local, or its name in the folder local, or, where
 * that is NULL, in this one. On an error *arrival is to be freed as well. 0, or an errno. */
MUST_CHECK int arrival_open(struct arrival *arrival, const char *cell, const char *local);

/* Gives it its name: 0, or an errno. */
MUST_CHECK int arrival_finish(struct arrival *arrival);

/* Removes what has not got its name, and frees. */
void arrival_done(struct arrival *arrival);

struct transfers {
    struct hutch_upload *uploads;
    size_t upload_count;
    struct hutch_download *downloads;
    struct arrival *arrivals; /* one a download */
    size_t download_count;
};

/* Reads the values of both options, which are cut to pieces, and opens all local files. On
 * an error *transfers is to be freed as well. */
MUST_CHECK int transfers_open(struct transfers *transfers, const struct text_list *uploads,
                              const struct text_list *downloads, struct problem *problem);

/* After a run: gives what was fetched its name, and says on stderr what was not. Returns
 * whether all are there. */
MUST_CHECK bool transfers_finish(struct transfers *transfers);

/* Closes everything, removes what has not got its name, frees. */
void transfers_done(struct transfers *transfers);
