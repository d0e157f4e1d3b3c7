/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from the samples of hutch bench: the same for its table and its JSON. */
#include "bench.h"

#include "sandbox/layers.h"

#include <string.h>

const struct bench_row *bench_find_row(const struct bench *bench, const char *name)
{
    for (size_t i = 0; name && i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->left_out.code == 0 && strcmp(row->name, name) == 0)
            return row;
    }
    return NULL;
}

double bench_percentile(const struct bench_row *row, size_t percent)
{
    size_t rank = (row->n * percent + 99) / 100;
    return row->samples_ms[rank > 0 ? rank - 1 : 0];
}

double bench_p50(const struct bench_row *row)
{
    return bench_percentile(row, 50);
}

double bench_hit_rate(const struct bench_row *row)
{
    return row->starts > 0 ? (double)row->hits / (double)row->starts : 0.0;
}

bool bench_row_is_warm(const struct bench_row *row)
{
    return row->kind == BENCH_CELL && row->origin != BENCH_COLD;
}

/* ---- what does not count ------------------------------------------------ */

static void append_fault(const struct bench_row *row, struct buf *text)
{
    static const char *const origins[] = {
        [BENCH_COLD] = "cold", [BENCH_FORKED] = "forked", [BENCH_PARKED] = "parked"};
    uint32_t missing = row->isolated ? HUTCH_LAYERS_NAMESPACE & ~row->layers : 0;

    if (missing != 0) {
        buf_append_text(text, "without ");
        layers_append_names(text, missing);
    }
    if (row->not_preloaded)
        buf_appendf(text, "%smodules were not loaded ahead", text->length > 0 ? "; " : "");
    if (row->not_copied)
        buf_appendf(text, "%sno checkpoint was there", text->length > 0 ? "; " : "");
    if (bench_row_is_warm(row) && bench_hit_rate(row) < BENCH_HIT_RATE)
        buf_appendf(text, "%s%llu of %llu cells were %s, %.0f %% is the least",
                    text->length > 0 ? "; " : "", (unsigned long long)row->hits,
                    (unsigned long long)row->starts, origins[row->origin], BENCH_HIT_RATE * 100);
}

struct bench_fault bench_row_fault(const struct bench_row *row)
{
    struct bench_fault fault;
    auto_buf struct buf text = BUF_MAX(sizeof(fault.text) - 1);

    append_fault(row, &text);
    snprintf(fault.text, sizeof(fault.text), "%s",
             text.failure == BUF_NO_MEMORY ? "out of memory" : buf_text(&text));
    return fault;
}

/* ---- aims --------------------------------------------------------------- */

bool bench_row_has_aim(const struct bench_row *row)
{
    return row->aim_p50_ms > 0 || row->aim_per_second > 0 || row->aim_private_dirty_bytes > 0 ||
           row->aim_resident_bytes > 0;
}

bool bench_row_met(const struct bench_row *row)
{
    switch (row->kind) {
    case BENCH_CELL:
    case BENCH_PROGRAM:
    case BENCH_SESSION:
    case BENCH_STEPS:
    case BENCH_TOKENS:
        return bench_p50(row) <= row->aim_p50_ms &&
               (row->aim_p99_ms == 0 || bench_percentile(row, 99) <= row->aim_p99_ms);
    case BENCH_LOAD:
        return row->per_second >= row->aim_per_second;
    case BENCH_MEMORY:
    case BENCH_SESSIONS:
        return row->memory.private_dirty_bytes <= row->aim_private_dirty_bytes;
    case BENCH_AGENTS:
        return row->resident_bytes <= row->aim_resident_bytes;
    }
    return false;
}

double bench_ratio(const struct bench_row *row, const struct bench_row *peer)
{
    return bench_p50(row) / bench_p50(peer);
}

double bench_added_ms(const struct bench_row *row, const struct bench_row *bare)
{
    return bench_p50(row) - bench_p50(bare);
}

const char *bench_spacing_name(enum bench_spacing spacing)
{
    switch (spacing) {
    case BENCH_INTERLEAVED:
        return "interleaved";
    case BENCH_BACK_TO_BACK:
        return "back_to_back";
    case BENCH_SPORADIC:
        return "50ms";
    case BENCH_GAPS:
        return "5ms";
    }
    return "";
}
