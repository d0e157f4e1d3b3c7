/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of parked cells, one for each runtime that a zygote can serve: cells
 * made ahead of time, for requests to come.
 *
 * The first run of an engine gets an interpreter of its own; who runs one
 * program pays for no more. The second starts the zygote. While requests come,
 * the pool is kept filled, between the requests where that is possible. When
 * none came for a while, pool and zygote go.
 */
#pragma once

#include "supervisor.h"

/* A parked cell that can serve a request; NULL: none. It is the caller's. */
struct sandbox_cell *pool_take(struct supervisor *supervisor, const struct proto_start *start);

/* The zygote to fork the cell of a request from; NULL: start an interpreter. */
struct zygote *pool_zygote(struct supervisor *supervisor, const struct proto_start *start);

/* A cell without a request has parked. False: there are enough, it may be gone. */
bool pool_add(struct supervisor *supervisor, struct sandbox_cell *cell);

/* One is being made; one is dying. */
void pool_expect(struct supervisor *supervisor, struct sandbox_cell *cell);
void pool_forget(struct supervisor *supervisor, struct sandbox_cell *cell);

/* Fills and empties pools. Called in every round of the loop; returns when it
 * wants to be called next (monotonic). */
uint64_t pool_tick(struct supervisor *supervisor);
