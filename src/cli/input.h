/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the files that a command line names. Regular files only: opening
 * anything else could wait for ever (a FIFO without a writer) or act on a
 * device. What comes through a pipe is given as standard input, named '-'.
 */
#pragma once

#include "base/buf.h"
#include "problem.h"

/* Reads the file at path, or standard input for "-", whole; *content brings
 * its maximum along. field is what it is for, "code" or "stdin". Returns 0 or a negative code with
 * *problem set. */
MUST_CHECK int input_read(const char *field, const char *path, struct buf *content,
                          struct problem *problem);

/* Opens a regular file for reading. Returns the descriptor, or -1 with *problem set. */
MUST_CHECK int input_open(const char *field, const char *path, struct problem *problem);
