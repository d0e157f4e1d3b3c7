/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options about the cell, which every command has that starts one.
 */
#pragma once

#include "base/attrs.h"
#include "base/limits.h"
#include "options.h"

#include <hutch.h>
#include <stddef.h>

struct cell_values {
    uint64_t memory_mb;
    double cpus;
    const char *backend;
    struct text_list require;
};

extern const char *const cell_languages[];
extern const char *const cell_backends[];
extern const char *const cell_backends_later[];

double cell_memory_maximum(void);
double cell_cpus_maximum(void);

/* Rows of a table; at is the offset of a struct cell_values in the command's values, of the
 * time-out that of its own member. */
#define CELL_OPTION_TIMEOUT(at, words)                                                             \
    {                                                                                              \
        .name = "timeout", .letter = 't', .type = OPTION_NUMBER, .argument = "SECONDS",            \
        .minimum = LIMIT_TIMEOUT_SECONDS_MIN, .maximum = LIMIT_TIMEOUT_SECONDS_MAX,                \
        .help = (words), .offset = (at)                                                            \
    }
#define CELL_OPTION_MEMORY(at)                                                                     \
    {                                                                                              \
        .name = "memory", .letter = 'm', .type = OPTION_WHOLE, .argument = "MB",                   \
        .minimum = LIMIT_MEMORY_MB_MIN_SHELL, .host_maximum = cell_memory_maximum,                 \
        .help = "memory of all processes together in MiB; python and javascript need 64",          \
        .offset = (at) + offsetof(struct cell_values, memory_mb)                                   \
    }
#define CELL_OPTION_CPUS(at)                                                                       \
    {                                                                                              \
        .name = "cpus", .type = OPTION_NUMBER, .argument = "N", .minimum = LIMIT_CPUS_MIN,         \
        .host_maximum = cell_cpus_maximum, .help = "processors, in parts too",                     \
        .offset = (at) + offsetof(struct cell_values, cpus)                                        \
    }
#define CELL_OPTION_BACKEND(at)                                                                    \
    {                                                                                              \
        .name = "backend", .type = OPTION_CHOICE, .argument = "NAME", .choices = cell_backends,    \
        .later = cell_backends_later, .help = "how the cell is isolated",                          \
        .offset = (at) + offsetof(struct cell_values, backend)                                     \
    }
#define CELL_OPTION_REQUIRE(at, words)                                                             \
    {                                                                                              \
        .name = "require", .type = OPTION_LIST, .argument = "LAYER", .help = (words),              \
        .offset = (at) + offsetof(struct cell_values, require)                                     \
    }

/* Those of a request. */
void cell_values_init(struct cell_values *values, const struct hutch_request *request);
void cell_values_done(struct cell_values *values);

/* Sets them in a request. Errors: INVALID, LAYER. */
MUST_CHECK int cell_values_apply(const struct cell_values *values, struct hutch_request *request,
                                 struct hutch_error *err);
