/* SPDX-License-Identifier: Apache-2.0 */
/* Filling an empty folder with the file tree that tree.h describes. */
#pragma once

#include "tree.h"
#include "tree_python.h"

/* Fills the folder. python is the answer of spec's interpreter, NULL for the
 * shell. The folder ends up sealed: nothing below it can be written. */
MUST_CHECK int tree_fill(int dir_fd, const struct tree_spec *spec, const struct python_info *python,
                         struct hutch_error *err);
