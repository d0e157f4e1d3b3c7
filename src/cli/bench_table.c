/* SPDX-License-Identifier: Apache-2.0 */
/* Shows what hutch bench measured to people. */
#include "bench.h"

#include "base/host.h"
#include "sandbox/layers.h"

#include <string.h>
#include <sys/utsname.h>

#define NAME_WIDTH 47

static const char *verdict(bool met)
{
    return met ? "met" : "missed";
}

/* Why the row does not count, or not yet. */
static void append_note(const struct bench_row *row, struct buf *text)
{
    struct bench_fault fault = bench_row_fault(row);

    if (fault.text[0])
        buf_appendf(text, "  invalid: %s", fault.text);
    else if (bench_row_has_times(row) && bench_row_has_aim(row) && row->n < BENCH_RUNS_COUNT)
        buf_appendf(text, "  %d runs count", BENCH_RUNS_COUNT);
    buf_append_text(text, "\n");
}

/* ---- rows with times ---------------------------------------------------- */

static void append_aim(const struct bench_row *row, struct buf *text)
{
    char aim[32] = "-";

    if (row->aim_p99_ms > 0)
        snprintf(aim, sizeof(aim), "%.1f/%.1f", row->aim_p50_ms, row->aim_p99_ms);
    else if (row->aim_p50_ms > 0)
        snprintf(aim, sizeof(aim), "%.3g", row->aim_p50_ms);
    buf_appendf(text, " %8s %6s", aim, bench_row_has_aim(row) ? verdict(bench_row_met(row)) : "-");
}

static void append_times(const struct bench *bench, const struct bench_row *row, struct buf *text)
{
    const struct bench_row *base = bench_find_row(bench, BENCH_BASE);
    char ratio[32] = "-", hits[32] = "-";

    if (base)
        snprintf(ratio, sizeof(ratio), "%.2f", bench_ratio(row, base));
    if (bench_row_is_warm(row))
        snprintf(hits, sizeof(hits), "%.0f %%", bench_hit_rate(row) * 100);
    buf_appendf(text, "%-*s %5zu %9.3f %9.3f %9.3f %6s %6s", NAME_WIDTH, row->name, row->n,
                bench_p50(row), bench_percentile(row, 99), row->samples_ms[0], ratio, hits);
    append_aim(row, text);
    append_note(row, text);
}

static void append_all_times(const struct bench *bench, struct buf *text)
{
    buf_appendf(text, "%-*s %5s %9s %9s %9s %6s %6s %8s %6s\n", NAME_WIDTH, "row", "n", "p50 ms",
                "p99 ms", "min ms", "ratio", "hits", "aim ms", "");
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->left_out.code == 0 && bench_row_has_times(row))
            append_times(bench, row, text);
    }
}

/* ---- the other rows ----------------------------------------------------- */

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static void append_load(const struct bench_row *row, struct buf *text)
{
    buf_appendf(text,
                "%-*s %.0f a second by %u threads, %.0f to %.0f in windows of %llu s, %zu runs; "
                "%.0f %% parked (aim: %.0f; %s)",
                NAME_WIDTH, row->name, row->per_second, row->threads, row->min_per_second,
                row->max_per_second, (unsigned long long)row->window_seconds, row->n,
                bench_hit_rate(row) * 100, row->aim_per_second, verdict(bench_row_met(row)));
    append_note(row, text);
}

static void append_memory(const struct bench_row *row, struct buf *text)
{
    buf_appendf(text,
                "%-*s %.2f MiB of its own, %.2f MiB with its share of the rest; average of %zu",
                NAME_WIDTH, row->name, mib(row->memory.private_dirty_bytes),
                mib(row->memory.pss_bytes), row->n);
    if (row->kind == BENCH_SESSIONS)
        buf_appendf(text, " sessions, opened in %.1f ms each (p50)", bench_p50(row));
    if (bench_row_has_aim(row))
        buf_appendf(text, " (aim: %.0f MiB; %s)", mib(row->aim_private_dirty_bytes),
                    verdict(bench_row_met(row)));
    append_note(row, text);
}

static void append_agents(const struct bench_row *row, struct buf *text)
{
    buf_appendf(text,
                "%-*s %.1f MB resident at the most, %.1f MB more than before, with %zu agents at "
                "once (aim: %.0f MB; %s)",
                NAME_WIDTH, row->name, (double)row->resident_bytes / 1e6,
                (double)row->growth_bytes / 1e6, row->n, (double)row->aim_resident_bytes / 1e6,
                verdict(bench_row_met(row)));
    append_note(row, text);
}

static void append_others(const struct bench *bench, struct buf *text)
{
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->left_out.code != 0)
            buf_appendf(text, "%-*s left out: %s\n", NAME_WIDTH, row->name, row->left_out.message);
        else if (row->kind == BENCH_LOAD)
            append_load(row, text);
        else if (row->kind == BENCH_MEMORY || row->kind == BENCH_SESSIONS)
            append_memory(row, text);
        else if (row->kind == BENCH_AGENTS)
            append_agents(row, text);
    }
}

/* ---- comparisons -------------------------------------------------------- */

static void append_comparisons(const struct bench *bench, struct buf *text)
{
    const struct bench_row *base = bench_find_row(bench, BENCH_BASE);

    buf_append_text(text, "\n");
    if (base)
        buf_append_text(text, "ratio: p50 as a multiple of " BENCH_BASE "\n");
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        const struct bench_row *bare = bench_find_row(bench, row->bare);
        if (row->left_out.code != 0)
            continue;
        if (base && row->aim_times_faster > 0)
            buf_appendf(text, "%s is %.1f times as fast as %s (aim: %.0f times; %s)\n", row->name,
                        bench_ratio(base, row), base->name, row->aim_times_faster,
                        verdict(bench_ratio(base, row) >= row->aim_times_faster));
        if (bare)
            buf_appendf(text, "%s adds %.2f ms to %s (aim: adds at most %.0f ms; %s)\n", row->name,
                        bench_added_ms(row, bare), bare->name, BENCH_AIM_ADDED_MS,
                        verdict(bench_added_ms(row, bare) <= BENCH_AIM_ADDED_MS));
    }
}

static void append_host(const struct bench *bench, struct buf *text)
{
    struct utsname name;

    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->left_out.code != 0 || !row->isolated)
            continue;
        buf_append_text(text, "layers in force: ");
        layers_append_names(text, row->layers);
        buf_append_text(text, "\n");
        break;
    }
    if (uname(&name) < 0)
        memset(&name, 0, sizeof(name));
    buf_appendf(text, "host: %u cpus, %llu MiB, %s %s\n", host_cpus(),
                (unsigned long long)host_memory_mb(), name.sysname, name.release);
}

void bench_table(const struct bench *bench, struct buf *text)
{
    append_all_times(bench, text);
    append_others(bench, text);
    append_comparisons(bench, text);
    append_host(bench, text);
}
