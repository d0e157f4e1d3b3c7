/* SPDX-License-Identifier: Apache-2.0 */
/* Shows what hutch bench measured; see bench.h. */
#include "bench.h"

#include "base/host.h"
#include "base/json.h"
#include "sandbox/layers.h"

#include <string.h>
#include <sys/utsname.h>

/* The nearest-rank percentile of sorted samples. */
static double percentile(const struct bench *bench, const struct bench_row *row, size_t percent)
{
    size_t rank = (bench->n * percent + 99) / 100;
    return row->samples_ms[rank > 0 ? rank - 1 : 0];
}

static double p50(const struct bench *bench, const struct bench_row *row)
{
    return percentile(bench, row, 50);
}

/* A row that was measured, by its name. */
static const struct bench_row *find_row(const struct bench *bench, const char *name)
{
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->left_out.code == 0 && strcmp(row->name, name) == 0)
            return row;
    }
    return NULL;
}

bool bench_row_valid(const struct bench_row *row)
{
    return !row->isolated || (row->layers & HUTCH_LAYERS_NAMESPACE) == HUTCH_LAYERS_NAMESPACE;
}

/* How many times peer's p50 fits into row's. */
static double ratio_of(const struct bench *bench, const struct bench_row *row,
                       const struct bench_row *peer)
{
    return p50(bench, row) / p50(bench, peer);
}

/* What a cell adds to its bare interpreter, in ms. */
static double added_by(const struct bench *bench, const struct bench_row *row,
                       const struct bench_row *bare)
{
    return p50(bench, row) - p50(bench, bare);
}

static struct utsname kernel(void)
{
    struct utsname name;

    if (uname(&name) < 0)
        memset(&name, 0, sizeof(name));
    return name;
}

/* ---- text ---- */

static void append_row_text(const struct bench *bench, const struct bench_row *row,
                            struct buf *text)
{
    if (row->left_out.code != 0) {
        buf_appendf(text, "%-28s left out: %s\n", row->name, row->left_out.message);
        return;
    }
    buf_appendf(text, "%-28s %6zu %9.3f %9.3f %9.3f", row->name, bench->n, p50(bench, row),
                percentile(bench, row, 99), row->samples_ms[0]);
    if (!bench_row_valid(row)) {
        buf_append_text(text, "  invalid, without ");
        layers_append_names(text, HUTCH_LAYERS_NAMESPACE & ~row->layers);
    }
    buf_append_text(text, "\n");
}

static void append_ratios_text(const struct bench *bench, struct buf *text)
{
    const struct bench_row *base = find_row(bench, BENCH_BASE);

    buf_append_text(text, "\np50 as a multiple of " BENCH_BASE "\n");
    for (size_t i = 0; base && i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row != base && row->left_out.code == 0)
            buf_appendf(text, "%-28s %6.2f\n", row->name, ratio_of(bench, row, base));
    }
}

static void append_added_text(const struct bench *bench, struct buf *text)
{
    buf_append_text(text, "\np50 added to the bare interpreter, in ms\n");
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        const struct bench_row *bare = row->bare ? find_row(bench, row->bare) : NULL;
        if (!bare)
            continue;
        double added_ms = added_by(bench, row, bare);
        buf_appendf(text, "%-28s %6.2f over %s (aim: adds at most %.0f ms; %s)\n", row->name,
                    added_ms, bare->name, BENCH_AIM_ADDED_MS,
                    added_ms <= BENCH_AIM_ADDED_MS ? "met" : "missed");
    }
}

void bench_report_text(const struct bench *bench, struct buf *text)
{
    struct utsname name = kernel();

    buf_appendf(text, "%-28s %6s %9s %9s %9s\n", "row", "n", "p50 ms", "p99 ms", "min ms");
    for (size_t i = 0; i < bench->row_count; i++)
        append_row_text(bench, &bench->rows[i], text);
    append_ratios_text(bench, text);
    append_added_text(bench, text);
    buf_append_text(text, "\nlayers in force: ");
    layers_append_names(text, bench->rows[0].layers);
    buf_appendf(text, "\nhost: %u cpus, %llu MiB, %s %s\n", host_cpus(),
                (unsigned long long)host_memory_mb(), name.sysname, name.release);
}

/* ---- JSON ---- */

static json_t *layers_json(uint32_t layers)
{
    json_t *names = json_array();

    for (uint32_t bit = 1; bit != 0; bit <<= 1) {
        if ((layers & bit) && hutch_layer_name(bit))
            json_array_append_new(names, json_string(hutch_layer_name(bit)));
    }
    return names;
}

static json_t *row_json(const struct bench *bench, const struct bench_row *row)
{
    return json_pack("{s:s, s:I, s:f, s:f, s:f, s:o, s:b}", "name", row->name, "n",
                     (json_int_t)bench->n, "p50_ms", p50(bench, row), "p99_ms",
                     percentile(bench, row, 99), "min_ms", row->samples_ms[0], "layers",
                     layers_json(row->layers), "valid", bench_row_valid(row));
}

static json_t *ratio_json(const struct bench *bench, const struct bench_row *row,
                          const struct bench_row *base)
{
    return json_pack("{s:s, s:s, s:f}", "name", row->name, "against", base->name, "ratio",
                     ratio_of(bench, row, base));
}

static json_t *added_json(const struct bench *bench, const struct bench_row *row,
                          const struct bench_row *bare)
{
    double added_ms = added_by(bench, row, bare);

    return json_pack("{s:s, s:s, s:f, s:f, s:b}", "name", row->name, "against", bare->name,
                     "added_ms", added_ms, "aim_ms", BENCH_AIM_ADDED_MS, "met",
                     added_ms <= BENCH_AIM_ADDED_MS);
}

/* {"rows", "left_out", "ratios", "added", "host"}; NULL when memory ran out. */
static json_t *report_json(const struct bench *bench)
{
    const struct bench_row *base = find_row(bench, BENCH_BASE);
    struct utsname name = kernel();
    json_t *rows = json_array(), *left_out = json_array();
    json_t *ratios = json_array(), *added = json_array();

    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        const struct bench_row *bare = row->bare ? find_row(bench, row->bare) : NULL;
        if (row->left_out.code != 0) {
            json_array_append_new(left_out, json_pack("{s:s, s:s}", "name", row->name, "reason",
                                                      row->left_out.message));
            continue;
        }
        json_array_append_new(rows, row_json(bench, row));
        if (base && row != base)
            json_array_append_new(ratios, ratio_json(bench, row, base));
        if (bare)
            json_array_append_new(added, added_json(bench, row, bare));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:{s:i, s:I, s:s}}", "rows", rows, "left_out", left_out,
                     "ratios", ratios, "added", added, "host", "cpus", (int)host_cpus(),
                     "memory_mb", (json_int_t)host_memory_mb(), "kernel", name.release);
}

void bench_report_json(const struct bench *bench, struct buf *text)
{
    auto_json json_t *report = report_json(bench);
    auto_free char *line =
        report ? json_dumps(report, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;

    if (line)
        buf_appendf(text, "%s\n", line);
    else
        text->failure = BUF_NO_MEMORY;
}
