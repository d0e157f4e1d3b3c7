/* SPDX-License-Identifier: Apache-2.0 */
/* The report of hutch_doctor() for the namespace backend. */
#pragma once

#include "base/buf.h"
#include "helper.h"
#include "proto.h"

/* What a probe cell, and the supervisor with it, told. */
struct probe {
    uint32_t layers; /* confirmed */
    struct proto_status status;
    struct hutch_error failure; /* code != 0: there could be none */
};

/* Appends the members of the report's JSON object: scope is the helper's (helper.h). Reads the
 * host's settings to say why a layer is missing and what to do. */
void doctor_append_report(const struct helper_options *options, const char *scope,
                          const struct probe *probe, struct buf *out);
