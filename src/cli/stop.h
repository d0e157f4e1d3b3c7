/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGINT, SIGTERM and SIGHUP end a run: the handler triggers the run's cancel
 * token and makes a descriptor readable, so that both hutch_run() and a write
 * to a stalled reader come back whichever thread took the signal.
 *
 * A signal that hutch was started with ignored (nohup, a background job) stays
 * ignored.
 */
#pragma once

#include "base/attrs.h"

#include <hutch.h>

/* Makes the token and installs the handlers, for the rest of the process.
 * Called once at most. Errors: NO_MEMORY, SYSTEM. */
MUST_CHECK int stop_install(hutch_cancel **ret_cancel, struct hutch_error *err);

/* Forgets a SIGINT that came, for a command that goes on: a new token takes the place of the old
 * one, which is freed. To be called while no run is active and the process has no other thread
 * that takes signals. Errors: NO_MEMORY, SYSTEM. */
MUST_CHECK int stop_renew(hutch_cancel **ret_cancel, struct hutch_error *err);

/* Readable once a signal has come; -1 before stop_install. */
int stop_fd(void);

/* 0 while no signal has come, then the exit status 128 + its number. */
int stop_status(void);
