/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which namespaces a cell gets. All of them, as long as the host lets us: so
 * nothing is tried at the start, and only when a clone is refused is each one
 * probed, once, by making it.
 */
#pragma once

#include "supervisor.h"

/* Sets all namespaces. */
void namespaces_assume(struct supervisor *supervisor);

/* Finds the largest set that the host allows. Error: ISOLATION when one is
 * missing without which there is no cell. */
MUST_CHECK int namespaces_probe(struct supervisor *supervisor, struct hutch_error *err);

/* The layers that supervisor's namespaces stand for. */
uint32_t namespaces_layers(const struct supervisor *supervisor);

/* Back into the supervisor's own namespace of a kind (CLONE_NEWNS, ...); ends the
 * process where that fails, because nothing that followed would be where it
 * thinks it is. Keeps errno. */
void namespaces_return(int ns_fd, int kind);
