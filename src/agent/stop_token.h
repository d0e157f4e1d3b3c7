/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cancel token that the tools of a run are given: it ends with the token of the run's
 * caller, and when the time of the run is over. No thread watches for that: its descriptor is
 * an epoll of the caller's eventfd and of a timer, which the kernel makes readable with either.
 * Tokens made from such a token wait for the same eventfd, so that agents which are tools of
 * agents can be nested to any depth.
 */
#pragma once

#include "base/attrs.h"
#include "sandbox/cancel.h"

#include <hutch.h>
#include <stdbool.h>

struct stop_token {
    struct hutch_cancel cancel; /* deadline_ns: the sooner of the run's and of the caller's */
    int timer_fd;
};
#define STOP_TOKEN_NONE ((struct stop_token){.cancel = {-1, -1, 0}, .timer_fd = -1})

/* Makes it; caller may be NULL, and has to outlive it. Errors: SYSTEM. */
MUST_CHECK int stop_token_init(struct stop_token *token, const struct hutch_cancel *caller,
                               uint64_t deadline_ns, struct hutch_error *err);
void stop_token_done(struct stop_token *token);

/* Whether the caller has triggered its token. */
bool stop_token_is_cancelled(const struct stop_token *token);

/* Whether the time is over. */
bool stop_token_is_late(const struct stop_token *token);
