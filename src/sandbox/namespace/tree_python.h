/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking a Python interpreter of the host what it consists of, and having it
 * compile the runner, in one short process.
 */
#pragma once

#include "base/buf.h"
#include "string_list.h"

#include <stdint.h>

struct python_info {
    char *version;    /* "3.11" */
    char *executable; /* sys.executable, sys.prefix, sys.base_prefix */
    char *prefix;
    char *base_prefix;
    struct string_list path; /* sys.path of python -I, as it is */
    struct buf runner;       /* the compiled runner: the bytes of a .pyc file */
};

void python_info_done(struct python_info *info);
#define auto_python_info __attribute__((cleanup(python_info_done)))

/* Runs the interpreter (an absolute path) with -I, an empty environment and
 * no descriptor but the three standard ones, and waits until deadline_ns.
 * runner_fd is the source of the runner, named TREE_RUNNER's source in
 * tracebacks; its code is not run. The interpreter runs with the rights of
 * the caller and imports its site packages' start-up code.
 * Errors: RUNTIME when there is no CPython 3.9 or later, or when it fails,
 * SYSTEM, NO_MEMORY. */
MUST_CHECK int python_ask(const char *interpreter, int runner_fd, uint64_t deadline_ns,
                          struct python_info *ret_info, struct hutch_error *err);
