/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cells that wait hold of memory for themselves, for doctor's report. Only
 * the supervisor may look: hutch-init shows its memory to nobody else.
 */
#pragma once

#include "supervisor.h"

/* Parked cells are all alike, and looking at one takes the kernel a walk through
 * its page tables, during which no request is served. */
#define FOOTPRINT_CELLS_MAX 4

/* Adds a cell that waits to a sum; one that cannot be looked at is not counted, nor is
 * one more than FOOTPRINT_CELLS_MAX. */
void footprint_add(const struct sandbox_cell *cell, struct proto_memory *sum);
