/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of hutch agent: known to hutch, which explains them, and to hutch-agent, which
 * reads them.
 */
#pragma once

#include "cell_options.h"

#include <stdbool.h>

struct agent_values {
    const char *question; /* NULL: none; "-": standard input */

    /* the model */
    const char *model;
    const char *base_url;
    const char *key_file;
    struct text_list headers;
    double temperature;
    uint64_t max_tokens;
    const char *extra;
    uint64_t retries;

    /* the run */
    uint64_t max_steps;
    uint64_t max_total_tokens;
    double timeout_total_seconds;
    const char *tools;
    const char *system_file;
    const char *schema_file;
    const char *session_file;

    /* output */
    bool stream;
    bool json;

    /* cells */
    double timeout_seconds;
    struct cell_values cell;
};

void agent_values_init(struct agent_values *values);
void agent_values_done(struct agent_values *values);
