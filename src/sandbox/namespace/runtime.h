/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The languages of a supervisor: which interpreter, and the file tree that its
 * cells see. A tree that is not in the cache yet is built by a child, so that
 * the loop goes on; cells that want it wait.
 */
#pragma once

#include "supervisor.h"

void runtime_init(struct runtime *runtime, enum proto_language language, const char *interpreter);

/* Makes the runtime usable. Returns 1 when it is, 0 when a child builds its
 * tree (WATCH_BUILD follows), or an error: RUNTIME, SYSTEM, ISOLATION. */
MUST_CHECK int runtime_prepare(struct supervisor *supervisor, struct runtime *runtime,
                               struct hutch_error *err);

/* The building child has ended: 0 when the runtime is usable now. */
MUST_CHECK int runtime_finish(struct supervisor *supervisor, struct runtime *runtime,
                              struct hutch_error *err);
