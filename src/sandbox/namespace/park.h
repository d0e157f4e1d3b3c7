/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parked process: the interpreter of a cell that has no request yet. It waits
 * at the park socket, which stands in the channel's place, for what the request
 * brings (struct park_go), and then goes on as if it had been started with that.
 * Linked into the interpreters' modules: zygote_module.c, node_park.c.
 */
#pragma once

#include "plan.h"

struct parking {
    int socket; /* where it waits; the channel comes in its place */
    int flags;  /* of the descriptors: O_CLOEXEC, or 0 where children inherit them */
    bool (*set_cpu)(const cpu_set_t *cpu);
};

/* Says that the process is ready, with a text for the log. A supervisor that does
 * not hear it is gone, which park sees next. */
void park_say_ready(const struct parking *parking, const char *log, size_t length);

/* Waits for the request, without a limit: the supervisor ends it by closing its
 * end. Returns whether the request brought stdin. Nothing of a program may run
 * without its limits, so the process ends where it is not told or cannot do what
 * it has to: status 0 when the supervisor lets go, else WIRE_EXIT_FAILED. */
MUST_CHECK bool park(const struct parking *parking);
