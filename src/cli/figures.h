/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of a result as files in the current directory, for somebody at a terminal:
 * hutch-figure-1.png and so on. Each gets the first number that no file has yet; no file
 * is ever overwritten.
 */
#pragma once

#include <hutch.h>
#include <stdbool.h>

/* Writes each image among the results to a file of its own, and says its name on stderr,
 * unless quiet; also, whatever quiet says, why one could not be written. open_line: stderr
 * does not end with a line break. Returns open_line as it is then. */
bool figures_save(const hutch_result *result, bool quiet, bool open_line);
