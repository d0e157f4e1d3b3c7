/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cancel token is: a descriptor that becomes readable, and stays so, when what was
 * given the token has to end. That of hutch_cancel_new is an eventfd.
 *
 * libhutch-agent makes tokens too, which also end at a point in time (agent/stop_token.h), and
 * gives them to libhutch; so both libraries have to be of one version, which hutch_agent_new
 * sees to.
 */
#pragma once

#include <stdint.h>

struct hutch_cancel {
    int fd;               /* is waited on, never read */
    int source_fd;        /* the eventfd behind it; -1: nobody can trigger this token */
    uint64_t deadline_ns; /* monotonic; when it ends by itself, or NO_DEADLINE */
};
