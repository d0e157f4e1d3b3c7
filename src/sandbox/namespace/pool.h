/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of parked cells: cells made ahead of time, for requests to come. There is
 * one for each runtime and owner that sends requests.
 *
 * The first run of an engine gets an interpreter of its own; who runs one
 * program pays for no more. The second starts the zygote, and fills the pool of
 * its owner. While requests come, a pool is kept filled, between the requests
 * where that is possible. When none came for a while, it goes, and the zygote
 * with the last one.
 */
#pragma once

#include "supervisor.h"

/* A parked cell that can serve a request; NULL: none. It is the caller's. */
struct sandbox_cell *pool_take(struct supervisor *supervisor, const struct proto_start *start);

/* The zygote to fork the cell of a request from; NULL: start an interpreter. */
struct zygote *pool_zygote(struct supervisor *supervisor, const struct proto_start *start);

/* A cell without a request has parked. False: there are enough, it may be gone. */
bool pool_add(struct supervisor *supervisor, struct sandbox_cell *cell);

/* A cell of a pool is dying. */
void pool_forget(struct sandbox_cell *cell);

/* Adds what a cell without a request had to say, to the log of its zygotes. */
void pool_log(struct supervisor *supervisor, struct sandbox_cell *cell, const char *text,
              size_t length);

/* Fills and empties pools, starts and retires zygotes. Called in every round of the
 * loop; returns when it wants to be called next (monotonic). */
uint64_t pool_tick(struct supervisor *supervisor);

/* What there is of a runtime. */
void pool_describe(const struct supervisor *supervisor, const struct runtime *runtime,
                   struct proto_warmth *ret);
