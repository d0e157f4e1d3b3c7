/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate's lists, see struct hutch_gate: their rules, and the frame that takes
 * them to the runner, which does the checking.
 */
#pragma once

#include "base/attrs.h"
#include "base/buf.h"

#include <hutch.h>
#include <stdint.h>

/* Whether a gate may be put before a program of this language, and whether its
 * names are names; the message says "gate" or "gate.calls" and what is allowed.
 * Errors: INVALID. */
MUST_CHECK int gate_check(const struct hutch_gate *gate, enum hutch_language language,
                          struct hutch_error *err);

/* Appends the payload of a WIRE_GATE frame, defaults filled in; returns the
 * frame's flags. At most WIRE_MAX_GATE bytes for a gate that was checked. */
uint16_t gate_append(const struct hutch_gate *gate, struct buf *payload);
