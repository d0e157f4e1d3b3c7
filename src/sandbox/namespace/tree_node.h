/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a node of the host what it consists of. */
#pragma once

#include "base/attrs.h"
#include "string_list.h"

#include <stdint.h>

struct node_info {
    char *executable;        /* process.execPath */
    struct string_list path; /* where require looks last: Debian's packages, say */
};

void node_info_done(struct node_info *info);
#define auto_node_info __attribute__((cleanup(node_info_done)))

/* Runs the interpreter (an absolute path) with an empty environment, and waits
 * until deadline_ns. Errors: RUNTIME when there is no node 18 or later, or when
 * it fails, SYSTEM, NO_MEMORY. */
MUST_CHECK int node_ask(const char *interpreter, uint64_t deadline_ns, struct node_info *ret_info,
                        struct hutch_error *err);
