/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: closing, waiting, writing, and sending them. */
#pragma once

#include "attrs.h"

#include <stdint.h>
#include <sys/types.h>

/* Closes *fd where there is one, and sets it to -1. */
void fd_close(int *fd);

/* Reads length bytes of a file from an offset, fewer only where it ends before. How many, or -1
 * with errno. */
MUST_CHECK ssize_t fd_read_at(int fd, void *data, size_t length, uint64_t offset);

/* Writes all of it. 0, or -1 with errno. */
MUST_CHECK int fd_write_all(int fd, const char *data, size_t length);

/* Writes text, in one write, into the file at path, which has to be there: a
 * file of proc, say. 0, or -1 with errno. */
MUST_CHECK int fd_write_file(const char *path, const char *text);

/* Waits until fd has one of the poll events, or its peer is gone, at most
 * until deadline_ns (monotonic). Returns the revents, 0 when the deadline
 * passed, -1 with errno set. */
int fd_wait(int fd, short events, uint64_t deadline_ns);

/* A close-on-exec pair of pipe ends; read end first. 0, or -1 with errno. */
MUST_CHECK int fd_pipe(int ret_fds[2]);

/* One packet with count descriptors (at most FD_SEND_MAX) over a Unix socket.
 * 0, or -1 with errno. */
#define FD_SEND_MAX 16
MUST_CHECK int fd_send(int socket, const void *data, size_t length, const int *fds, size_t count);

/* The same without waiting for room: EAGAIN, whatever the socket's mode, which those at its
 * other end may have a hold on. */
MUST_CHECK int fd_send_now(int socket, const void *data, size_t length, const int *fds,
                           size_t count);

/* Receives one packet and up to *count descriptors, born close-on-exec.
 * Returns the packet's length, 0 at the end, -1 with errno: EMSGSIZE for a
 * packet or a number of descriptors that was cut (nothing stays open then).
 * *count becomes the number received. */
MUST_CHECK ssize_t fd_receive(int socket, void *data, size_t length, int *ret_fds, size_t *count);
