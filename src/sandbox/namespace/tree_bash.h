/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a bash of the host whether it is one. */
#pragma once

#include "base/attrs.h"

#include <hutch.h>
#include <stdint.h>

/* Runs the interpreter (an absolute path) with an empty environment, and waits
 * until deadline_ns. Errors: RUNTIME when there is no bash 4 or later, or when it
 * fails, SYSTEM, NO_MEMORY. */
MUST_CHECK int bash_ask(const char *interpreter, uint64_t deadline_ns, struct hutch_error *err);
