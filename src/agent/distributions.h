/* SPDX-License-Identifier: Apache-2.0 */
/* Which distributions the modules of a Python program come from. Pure. */
#pragma once

#include "base/buf.h"

#include <stddef.h>

/* Appends "MODULE of the distribution NAME, ...", each once, for those modules in the import
 * statements of a program that are known to be of a distribution by another name; nothing where
 * there are none. It looks at lines, and so may take one in a text for a statement. */
void distributions_append(struct buf *out, const char *code, size_t length);
