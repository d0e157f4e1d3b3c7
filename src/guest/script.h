/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving a shell program inside the cell, just before bash is exec'd.
 */
#pragma once

/* Reads the frames ENV and RUN from the channel, writes the code to a new
 * executable file at path, to be run by bash, and makes the exec ready: *argv runs the file (by
 * bash, or by what its first line names), *envp is the given environment plus
 * the request's. The strings live in static storage of this module.
 *
 * Async-signal-safe: it runs between clone and exec. Blocking; the
 * supervisor's deadline ends a peer that stalls. Returns 0 or -errno: EPROTO
 * for a broken frame, EPIPE when the engine is gone. */
int script_receive(int channel_fd, const char *bash, const char *path, const char *const **argv,
                   const char *const **envp);
