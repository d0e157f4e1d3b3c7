/* SPDX-License-Identifier: Apache-2.0 */
/* Where the programs lie that hutch starts. */
#pragma once

#include "base/attrs.h"

#include <hutch.h>

/* The folder libexec/hutch near the library, else near the program, by the supervisor in it.
 * *ret_dir is the caller's, to be freed by free. Errors: HELPER. */
MUST_CHECK int helper_dir_find(char **ret_dir, struct hutch_error *err);
