/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rich outputs of a run: payloads of WIRE_RICH frames that become results. Whoever runs
 * in the cell can send them: each is checked in form, and all are bounded; one that does
 * not pass is counted and else forgotten.
 */
#pragma once

#include "base/attrs.h"

#include <hutch.h>

/* What has come so far. Zero is none. */
struct rich_list {
    struct hutch_rich *items; /* room for WIRE_MAX_RICH_COUNT; NULL before the first */
    size_t count;
    size_t bytes;     /* of the payloads that were kept */
    uint32_t dropped; /* those that were not */
};

void rich_list_done(struct rich_list *list);

/* Takes the next payload, and copies it: a MIME type, NUL, the data. One that is empty
 * stands for an output that the runner left out. Errors: NO_MEMORY. */
MUST_CHECK int rich_add(struct rich_list *list, const char *payload, size_t length,
                        struct hutch_error *err);
