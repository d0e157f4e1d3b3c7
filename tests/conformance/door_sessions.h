/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of door.c, by numbers that the caller gives them, from 0. The lines are
 *
 *     session N open IDLE LIFETIME CHECKPOINTS {…}   a request; seconds, 0 for the default, and 0
 *                                                    or 1; the answer is what "info" gives
 *     session N exec {…}                             the answer is the result
 *     session N info
 *     session N interrupt                            the answers of these three are {}
 *     session N cancel                               the exec that runs
 *     session N close                                while no other line of it is under way
 */
#pragma once

#include <hutch.h>

#include <stdbool.h>
#include <stddef.h>

/* Whether a line is for a session. */
bool door_is_session_line(const char *line, size_t length);

/* Answers it; the line is written to. *ret_json is to be freed by hutch_free. */
int door_answer_session(hutch_engine *engine, char *line, size_t length, char **ret_json,
                        struct hutch_error *err);

/* Closes those that are left. */
void door_close_sessions(void);
