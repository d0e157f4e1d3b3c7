/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing to stdout and stderr of the command line. Whatever is behind them (a
 * pipe that nobody reads, a non-blocking socket, a full disk) neither loses
 * bytes nor keeps a signal from ending hutch.
 */
#pragma once

#include "base/attrs.h"
#include "base/buf.h"

#include <stddef.h>

/* Exit status of a program whose reader went away: 128 + SIGPIPE. */
#define EXIT_READER_GONE 141

/* Writes all of it, waiting as long as it takes. 0, or an errno: EPIPE when
 * the reader has gone, ECANCELED when a signal asked hutch to end (stop.h). */
MUST_CHECK int output_write(int fd, const char *data, size_t length);

/* The exit status of a command that wrote output with the result failure and
 * would otherwise end with status: status itself, EXIT_READER_GONE, that of a
 * signal, or 125 with one line on stderr. */
MUST_CHECK int output_status(int failure, int status);

/* Prints text on stdout as the last act of a command; see output_status. */
MUST_CHECK int output_print(const struct buf *text, int status);
