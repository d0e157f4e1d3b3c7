/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the engine know of it. */
#pragma once

#include "backend.h"
#include "load.h"
#include "scheduler.h"

#include <hutch.h>

struct hutch_engine {
    struct backend *backend;
    struct load_host host;
    struct scheduler scheduler;
};

/* 32 hexadecimal digits that nobody has had. Errors: SYSTEM. */
MUST_CHECK int random_id(char ret_id[33], struct hutch_error *err);

/* The descriptor that becomes readable when the token is triggered; -1 for
 * NULL. */
int cancel_fd(const struct hutch_cancel *cancel);
