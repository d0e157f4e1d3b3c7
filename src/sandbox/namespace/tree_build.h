/* SPDX-License-Identifier: Apache-2.0 */
/* Filling an empty folder with the file tree that tree.h describes. */
#pragma once

#include "tree.h"
#include "tree_node.h"
#include "tree_python.h"

/* What the interpreter of a spec is, by its own answer; the others are empty. */
struct tree_facts {
    struct python_info python;
    struct node_info node;
};

/* Fills the folder. It ends up sealed: nothing below it can be written. */
MUST_CHECK int tree_fill(int dir_fd, const struct tree_spec *spec, const struct tree_facts *facts,
                         struct hutch_error *err);
