/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's server of hutch bench --agent: a thread of the same process that answers over the
 * loopback with what is ready beforehand. So its own time is next to nothing, and the clock that
 * tells when it sent and received is the clock of the client.
 *
 * The path below the address says what it does:
 *
 *   /steps/N   N replies with a call of the tool that is asked for first, then text
 *   /stream/N  the same as event streams, one token an event
 */
#pragma once

#include "base/attrs.h"

#include <hutch.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_MODEL_TOOL "nothing" /* which its replies call */

struct bench_model;

/* Starts it. *ret_model is the caller's. Errors: NO_MEMORY, SYSTEM. */
MUST_CHECK int bench_model_new(struct bench_model **ret_model, struct hutch_error *err);

/* Ends it; no client may be waiting. NULL is ignored. */
void bench_model_free(struct bench_model *model);

/* "http://127.0.0.1:PORT"; lives as long as the model. */
const char *bench_model_url(const struct bench_model *model);

/* Takes the next time from a reply that was sent to the request that came for it, in ns, of all
 * in their order; false when there is no more. It means something while one client at a time
 * asks. */
bool bench_model_take_gap(struct bench_model *model, uint64_t *ret_ns);

/* When the last token was sent that was the first of its reply, on the monotonic clock; taken
 * before it was written. */
uint64_t bench_model_token_ns(struct bench_model *model);
