/* SPDX-License-Identifier: Apache-2.0 */
/* The report of hutch_doctor() for the namespace backend. */
#pragma once

#include "base/attrs.h"
#include "helper.h"

/* Writes the report: scope is the helper's (helper.h), layers is what a probe cell confirmed,
 * failure (or NULL) why there could be none. Reads the host's settings to say why a layer is
 * missing and what to do. *ret_json is the caller's.
 * Errors: NO_MEMORY. */
MUST_CHECK int doctor_report(const struct helper_options *options, const char *scope,
                             uint32_t layers, const struct hutch_error *failure, char **ret_json,
                             struct hutch_error *err);
