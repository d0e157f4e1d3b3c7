/* SPDX-License-Identifier: Apache-2.0 */
/* The report of hutch_doctor() for the namespace backend. */
#pragma once

#include "base/attrs.h"
#include "helper.h"
#include "proto.h"

/* What a probe cell, and the supervisor with it, told. */
struct probe {
    uint32_t layers; /* confirmed */
    struct proto_status status;
    struct hutch_error failure; /* code != 0: there could be none */
};

/* Writes the report: scope is the helper's (helper.h). Reads the host's settings to say why a layer
 * is missing and what to do. *ret_json is the caller's. Errors: NO_MEMORY. */
MUST_CHECK int doctor_report(const struct helper_options *options, const char *scope,
                             const struct probe *probe, char **ret_json, struct hutch_error *err);
