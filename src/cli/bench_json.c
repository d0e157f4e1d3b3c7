/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hutch bench measured as one JSON object: {"rows", "left_out", "ratios", "added",
 * "host", "doctor"}. docs/benchmarks.md says what is behind them.
 */
#include "bench.h"

#include "base/host.h"

#include <string.h>
#include <sys/utsname.h>

static json_t *layers_json(uint32_t layers)
{
    json_t *names = json_array();

    for (uint32_t bit = 1; bit != 0; bit <<= 1) {
        if ((layers & bit) && hutch_layer_name(bit))
            json_array_append_new(names, json_string(hutch_layer_name(bit)));
    }
    return names;
}

/* An aim of 0 is none. */
static void set_aim(json_t *object, const char *name, double aim)
{
    if (aim > 0)
        json_object_set_new(object, name, json_real(aim));
}

/* ---- rows --------------------------------------------------------------- */

static void set_pool(json_t *object, const struct bench_row *row)
{
    if (row->origin == BENCH_PARKED)
        json_object_set_new(object, "pool_size", json_integer((json_int_t)row->pool_size));
    json_object_set_new(object, "hit_rate", json_real(bench_hit_rate(row)));
}

static json_t *times_json(const struct bench_row *row)
{
    json_t *object = json_pack("{s:s, s:I, s:f, s:f, s:f}", "name", row->name, "n",
                               (json_int_t)row->n, "p50_ms", bench_p50(row), "p99_ms",
                               bench_percentile(row, 99), "min_ms", row->samples_ms[0]);

    if (bench_row_is_warm(row))
        set_pool(object, row);
    set_aim(object, "aim_p50_ms", row->aim_p50_ms);
    set_aim(object, "aim_p99_ms", row->aim_p99_ms);
    return object;
}

static json_t *load_json(const struct bench_row *row)
{
    json_t *object =
        json_pack("{s:s, s:I, s:f, s:f, s:f, s:I, s:i}", "name", row->name, "n", (json_int_t)row->n,
                  "per_second", row->per_second, "min_per_second", row->min_per_second,
                  "max_per_second", row->max_per_second, "window_seconds",
                  (json_int_t)row->window_seconds, "threads", (int)row->threads);

    set_pool(object, row);
    set_aim(object, "aim_per_second", row->aim_per_second);
    return object;
}

static json_t *memory_json(const struct bench_row *row)
{
    json_t *object = json_pack("{s:s, s:I, s:I, s:I}", "name", row->name, "n", (json_int_t)row->n,
                               "private_dirty_bytes", (json_int_t)row->memory.private_dirty_bytes,
                               "pss_bytes", (json_int_t)row->memory.pss_bytes);

    if (row->kind == BENCH_SESSIONS)
        json_object_set_new(object, "open_p50_ms", json_real(bench_p50(row)));
    if (row->aim_private_dirty_bytes > 0)
        json_object_set_new(object, "aim_private_dirty_bytes",
                            json_integer((json_int_t)row->aim_private_dirty_bytes));
    return object;
}

static json_t *agents_json(const struct bench_row *row)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I}", "name", row->name, "n", (json_int_t)row->n,
                     "resident_bytes", (json_int_t)row->resident_bytes, "growth_bytes",
                     (json_int_t)row->growth_bytes, "aim_resident_bytes",
                     (json_int_t)row->aim_resident_bytes);
}

/* What a row is without times. */
static json_t *amounts_json(const struct bench_row *row)
{
    if (row->kind == BENCH_LOAD)
        return load_json(row);
    return row->kind == BENCH_AGENTS ? agents_json(row) : memory_json(row);
}

static json_t *row_json(const struct bench_row *row)
{
    struct bench_fault fault = bench_row_fault(row);
    json_t *object = bench_row_has_times(row) ? times_json(row) : amounts_json(row);

    if (row->kind == BENCH_SESSION)
        json_object_set_new(object, "checkpoint", json_boolean(row->checkpoint));
    if (bench_row_has_times(row) || row->kind == BENCH_LOAD)
        json_object_set_new(object, "spacing", json_string(bench_spacing_name(row->spacing)));
    if (bench_row_has_aim(row))
        json_object_set_new(object, "met", json_boolean(bench_row_met(row)));
    json_object_set_new(object, "layers", layers_json(row->layers));
    json_object_set_new(object, "valid", json_boolean(fault.text[0] == '\0'));
    json_object_set_new(object, "invalid_reason",
                        fault.text[0] ? json_string(fault.text) : json_null());
    return object;
}

/* ---- comparisons -------------------------------------------------------- */

static json_t *ratio_json(const struct bench_row *row, const struct bench_row *base)
{
    json_t *object = json_pack("{s:s, s:s, s:f}", "name", row->name, "against", base->name, "ratio",
                               bench_ratio(row, base));
    double times_faster = bench_ratio(base, row);

    if (row->aim_times_faster > 0) {
        json_object_set_new(object, "times_faster", json_real(times_faster));
        set_aim(object, "aim_times_faster", row->aim_times_faster);
        json_object_set_new(object, "met", json_boolean(times_faster >= row->aim_times_faster));
    }
    return object;
}

static json_t *added_json(const struct bench_row *row, const struct bench_row *bare)
{
    double added_ms = bench_added_ms(row, bare);

    return json_pack("{s:s, s:s, s:f, s:f, s:b}", "name", row->name, "against", bare->name,
                     "added_ms", added_ms, "aim_ms", BENCH_AIM_ADDED_MS, "met",
                     added_ms <= BENCH_AIM_ADDED_MS);
}

static json_t *ratios_json(const struct bench *bench)
{
    const struct bench_row *base = bench_find_row(bench, BENCH_BASE);
    json_t *ratios = json_array();

    for (size_t i = 0; base && i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row != base && row->left_out.code == 0 && bench_row_has_times(row))
            json_array_append_new(ratios, ratio_json(row, base));
    }
    return ratios;
}

static json_t *all_added_json(const struct bench *bench)
{
    json_t *added = json_array();

    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        const struct bench_row *bare = bench_find_row(bench, row->bare);
        if (bare && row->left_out.code == 0)
            json_array_append_new(added, added_json(row, bare));
    }
    return added;
}

/* ---- all of it ---------------------------------------------------------- */

static json_t *host_json(void)
{
    struct utsname name;

    if (uname(&name) < 0)
        memset(&name, 0, sizeof(name));
    return json_pack("{s:i, s:I, s:s}", "cpus", (int)host_cpus(), "memory_mb",
                     (json_int_t)host_memory_mb(), "kernel", name.release);
}

static json_t *report_json(const struct bench *bench)
{
    json_t *rows = json_array(), *left_out = json_array();

    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->left_out.code == 0)
            json_array_append_new(rows, row_json(row));
        else
            json_array_append_new(left_out, json_pack("{s:s, s:s}", "name", row->name, "reason",
                                                      row->left_out.message));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:O?}", "rows", rows, "left_out", left_out,
                     "ratios", ratios_json(bench), "added", all_added_json(bench), "host",
                     host_json(), "doctor", bench->doctor);
}

void bench_json(const struct bench *bench, struct buf *text)
{
    auto_json json_t *report = report_json(bench);
    auto_free char *line =
        report ? json_dumps(report, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;

    if (line)
        buf_appendf(text, "%s\n", line);
    else
        text->failure = BUF_NO_MEMORY;
}
