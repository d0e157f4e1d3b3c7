/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-init's side of a files socket (wire.h): takes the engine's calls, one at a time,
 * and carries them out with the rights of the cell's user, a bounded piece at a time. It
 * waits for nothing: files_events says what to poll for, files_serve does what is possible.
 * All of its memory is static. There are WIRE_FILE_LINKS connections at most, each with
 * calls of its own, so that a long one on one of them holds up none on another.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Serves this stream socket from now on, in place of the one of this number before it. */
void files_open(uint32_t link, int socket);

/* Whether calls have to wait, because processes are still dying. */
void files_hold(bool hold);

/* The socket of a number to poll, -1 for none; for which events, and at most how long for
 * any of them: ms, or -1. */
int files_socket(uint32_t link);
short files_events(uint32_t link);
int files_timeout(void);

/* Goes on, given what poll said of the socket. */
void files_serve(uint32_t link, short events);

/* Whether a file of this name is one that is being put, and no program's. */
bool files_is_temporary(const char *name);
