/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-init's side of a files socket (wire.h): takes the engine's calls, one at a time,
 * and carries them out with the rights of the cell's user, a bounded piece at a time. It
 * waits for nothing: files_events says what to poll for, files_serve does what is possible.
 * All of its memory is static. There is one connection at most.
 */
#pragma once

#include <stdbool.h>

/* Serves this stream socket from now on, in place of the one before it. */
void files_open(int socket);

/* Whether calls have to wait, because processes are still dying. */
void files_hold(bool hold);

/* The socket to poll, -1 for none; for which events, and at most how long: ms, or -1. */
int files_socket(void);
short files_events(void);
int files_timeout(void);

/* Goes on, given what poll said of the socket. */
void files_serve(short events);
