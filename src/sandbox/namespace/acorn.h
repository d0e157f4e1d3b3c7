/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Acorn, a parser of JavaScript in one file, with which the javascript runner
 * reads programs. It is of the distribution: node-acorn on Debian.
 */
#pragma once

#include "base/attrs.h"

#include <stddef.h>
#include <unistd.h>

#define ACORN_PACKAGE "node-acorn"

/* Where the host has it; NULL when it has not. */
static inline const char *acorn_find(void)
{
    static const char *const paths[] = {
        "/usr/share/nodejs/acorn/dist/acorn.js",
        "/usr/lib/node_modules/acorn/dist/acorn.js",
    };

    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
        if (access(paths[i], R_OK) == 0)
            return paths[i];
    }
    return NULL;
}
