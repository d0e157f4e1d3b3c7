/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of what a cell did: a tool frees its own before the run tells of the call's end. Pure. */
#pragma once

#include "base/attrs.h"

#include <hutch.h>

/* *ret_copy is the caller's, to be freed by hutch_result_free. Errors: NO_MEMORY. */
MUST_CHECK int cell_copy(const hutch_result *result, hutch_result **ret_copy,
                         struct hutch_error *err);
