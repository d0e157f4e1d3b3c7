/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of hutch bench: bench.c measures, bench_spawn.c starts programs,
 * bench_report.c shows what came out.
 */
#pragma once

#include "base/attrs.h"
#include "base/buf.h"

#include <hutch.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a fresh cell may add to the start of its bare interpreter, p50. */
#define BENCH_AIM_ADDED_MS 4.0

/* The row that all others are compared with. */
#define BENCH_BASE "peer.subprocess"

struct bench_row {
    const char *name;
    const char *const *argv; /* a program, argv[0] absolute; NULL: a cell through the C API */
    enum hutch_language language;
    const char *code; /* of a cell */
    enum hutch_warmth warmth;
    bool isolated;    /* by hutch; valid only with every layer in force */
    bool optional;    /* left out where the program is missing or does not work */
    const char *bare; /* the row of the interpreter that a cell adds to; or NULL */

    double *samples_ms;          /* n of them; sorted once all are taken */
    uint32_t layers;             /* that were in force in every run */
    struct hutch_error left_out; /* code 0: it was measured */
};

struct bench {
    struct bench_row *rows;
    size_t row_count;
    size_t n;
    size_t taken; /* samples that each row has */
};

/* Starts argv[0] with the environment given, stdin empty, and waits until it
 * has ended and closed its output, which is appended to *output. *ret_ns is the
 * time from before the start to then. Errors: SYSTEM, also when it ends with
 * another status than 0. */
MUST_CHECK int bench_spawn(const char *const *argv, char *const *environment, struct buf *output,
                           uint64_t *ret_ns, struct hutch_error *err);

/* Whether a row counts: no layer was missing. */
bool bench_row_valid(const struct bench_row *row);

/* Appends what was measured, as a table or as one JSON object on a line. */
void bench_report_text(const struct bench *bench, struct buf *text);
void bench_report_json(const struct bench *bench, struct buf *text);
