/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In what order hutch bench takes its samples. Rows take turns, so that whatever else
 * the machine does meets all alike: in every round
 *
 *   - back-to-back rows take a block each, after a sample that does not count; a row of
 *     warm cells begins when its pool is full;
 *   - sporadic rows, and some of sessions, take a block with a gap before each sample;
 *   - the others take one sample each in turn.
 *
 * Then memory is looked at, and the throughput comes last, alone. Every sample checks
 * the program's output. Around a block doctor counts how its cells came to be.
 */
#include "bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"

#define BLOCK 20
#define WARM_UP_RUNS 2 /* a pool begins with the second */
#define GAP_NS (50 * NS_PER_MS)
#define SHORT_GAP_NS (5 * NS_PER_MS)
#define SETTLE_NS (10 * NS_PER_MS) /* for the cell by which doctor has looked to be gone */

struct measuring {
    struct bench *bench;
    struct bench_engine *engines;
};

static void pause_ns(uint64_t interval_ns)
{
    fd_wait(-1, 0, clock_after_ns(interval_ns));
}

static bool is_measured(const struct bench_row *row)
{
    return row->left_out.code == 0 && bench_row_has_times(row);
}

/* ---- samples ------------------------------------------------------------ */

static int run_program(const struct measuring *measuring, const struct bench_row *row,
                       uint64_t *ret_ns, struct hutch_error *err)
{
    auto_buf struct buf output = BUF_MAX(65536);

    if (bench_spawn(row->argv, measuring->bench->environment, &output, ret_ns, err) < 0)
        return err->code;
    return bench_check_output(buf_text(&output), output.length, err);
}

/* One run, whose time is *ret_ns. */
static int run_once(const struct measuring *measuring, struct bench_row *row, uint64_t *ret_ns,
                    struct hutch_error *err)
{
    struct bench_sample sample;

    if (row->kind == BENCH_PROGRAM)
        return run_program(measuring, row, ret_ns, err);
    const struct bench_engine *engine = &measuring->engines[row->engine];
    int done = row->kind == BENCH_SESSION
                   ? bench_session_run(engine, row, &sample, err)
                   : bench_engine_run(engine, row->language, row->code, &sample, err);
    if (done < 0)
        return err->code;
    row->layers &= sample.layers;
    *ret_ns = sample.elapsed_ns;
    return 0;
}

static int take_sample(const struct measuring *measuring, struct bench_row *row,
                       struct hutch_error *err)
{
    uint64_t elapsed_ns;

    if (row->spacing == BENCH_SPORADIC)
        pause_ns(GAP_NS);
    if (row->spacing == BENCH_GAPS)
        pause_ns(SHORT_GAP_NS);
    if (run_once(measuring, row, &elapsed_ns, err) < 0)
        return err_context(err, "row %s", row->name);
    row->samples_ms[row->taken++] = (double)elapsed_ns / (double)NS_PER_MS;
    return 0;
}

/* Samples one after the other, until the row has so many. */
static int take_run(const struct measuring *measuring, struct bench_row *row, size_t until,
                    struct hutch_error *err)
{
    uint64_t ignored_ns;

    if (row->spacing == BENCH_BACK_TO_BACK && run_once(measuring, row, &ignored_ns, err) < 0)
        return err_context(err, "row %s", row->name);
    while (row->taken < until) {
        if (take_sample(measuring, row, err) < 0)
            return err->code;
    }
    return 0;
}

/* The same, with the pool full before it and a count of the cells' origins. */
static int take_block(const struct measuring *measuring, struct bench_row *row, size_t until,
                      struct hutch_error *err)
{
    struct bench_engine *engine = &measuring->engines[row->engine];
    struct bench_look before, after;

    if (!bench_row_is_warm(row))
        return take_run(measuring, row, until, err);
    if (bench_engine_fill(engine, &before, err) < 0)
        return err_context(err, "row %s", row->name);
    pause_ns(SETTLE_NS);
    if (take_run(measuring, row, until, err) < 0)
        return err->code;
    if (bench_engine_look(engine, &after, err) < 0)
        return err_context(err, "row %s", row->name);
    for (size_t i = 0; i < BENCH_ORIGINS; i++)
        row->starts += after.starts[i] - before.starts[i];
    row->hits += after.starts[row->origin] - before.starts[row->origin];
    row->pool_size = engine->full;
    return 0;
}

/* ---- rounds ------------------------------------------------------------- */

/* How many samples a row has after that round: all of them after the last. */
static size_t wanted(const struct bench_row *row, size_t round, size_t rounds)
{
    return row->n * (round + 1) / rounds;
}

static int take_blocks(const struct measuring *measuring, size_t round, size_t rounds,
                       struct hutch_error *err)
{
    const struct bench *bench = measuring->bench;

    for (size_t i = 0; i < bench->row_count; i++) {
        struct bench_row *row = &bench->rows[i];
        size_t until = wanted(row, round, rounds);
        if (is_measured(row) && row->spacing != BENCH_INTERLEAVED && row->taken < until &&
            take_block(measuring, row, until, err) < 0)
            return err->code;
    }
    return 0;
}

static int take_turns(const struct measuring *measuring, size_t round, size_t rounds,
                      struct hutch_error *err)
{
    const struct bench *bench = measuring->bench;
    bool again = true;

    while (again) {
        again = false;
        for (size_t i = 0; i < bench->row_count; i++) {
            struct bench_row *row = &bench->rows[i];
            if (!is_measured(row) || row->spacing != BENCH_INTERLEAVED ||
                row->taken == wanted(row, round, rounds))
                continue;
            if (take_sample(measuring, row, err) < 0)
                return err->code;
            again = true;
        }
    }
    return 0;
}

static int take_rounds(const struct measuring *measuring, struct hutch_error *err)
{
    size_t rounds = (size_t)(measuring->bench->n + BLOCK - 1) / BLOCK;

    for (size_t round = 0; round < rounds; round++) {
        if (take_blocks(measuring, round, rounds, err) < 0 ||
            take_turns(measuring, round, rounds, err) < 0)
            return err->code;
    }
    return 0;
}

/* ---- before and after --------------------------------------------------- */

/* cli.python, too: the first cell of an engine makes the tree of files. */
static bool is_in_use(const struct bench *bench, size_t engine)
{
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (is_measured(row) && row->isolated && row->engine == engine)
            return true;
    }
    return false;
}

/* Leaves out what cannot do without; or else returns the error. */
static int leave_out(struct bench_row *row, const struct hutch_error *err)
{
    if (!row->optional)
        return err->code;
    row->left_out = *err;
    return 0;
}

/* The engine's first runs, and a full pool. */
static int warm_engine(struct bench_engine *engine, struct bench_look *ret_look,
                       uint32_t *ret_layers, struct hutch_error *err)
{
    const char *code = engine->language == HUTCH_JAVASCRIPT ? "console.log(1)" : "print(1)";
    struct bench_sample sample = {.layers = 0};

    for (size_t i = 0; i < WARM_UP_RUNS; i++) {
        if (bench_engine_run(engine, engine->language, code, &sample, err) < 0)
            return err->code;
    }
    *ret_layers = sample.layers;
    return bench_engine_fill(engine, ret_look, err);
}

/* Without its engine no row can be measured. */
static int leave_out_all(struct bench *bench, size_t engine, struct hutch_error *err)
{
    for (size_t i = 0; i < bench->row_count; i++) {
        struct bench_row *row = &bench->rows[i];
        if (row->isolated && row->engine == engine && leave_out(row, err) < 0)
            return err_context(err, "row %s", row->name);
    }
    return 0;
}

/* Whether the modules of a row are there at all, and ahead of the program. */
static int probe(const struct measuring *measuring, struct bench_row *row, struct hutch_error *err)
{
    struct bench_engine *engine = &measuring->engines[row->engine];
    struct bench_sample ignored;
    struct hutch_error absent;

    if (!row->needs)
        return 0;
    if (bench_engine_run(engine, row->language, row->needs, &ignored, err) < 0)
        return err->code;
    row->not_preloaded =
        bench_engine_run(engine, row->language, row->preloaded, &ignored, &absent) < 0;
    return 0;
}

static int warm_row(const struct measuring *measuring, struct bench_row *row,
                    struct hutch_error *err)
{
    uint64_t ignored_ns;

    if (!is_measured(row))
        return 0;
    int done = probe(measuring, row, err);
    if (done == 0)
        done = run_once(measuring, row, &ignored_ns, err);
    if (done < 0 && leave_out(row, err) < 0)
        return err_context(err, "row %s", row->name);
    return 0;
}

/* Fills caches and pools, and leaves out optional rows that do not work here. The
 * first cell of all makes the tree of files that cells see, which takes long; so
 * cells come before what starts `hutch run` with a deadline. */
static int warm_up(const struct measuring *measuring, struct hutch_error *err)
{
    struct bench *bench = measuring->bench;
    struct bench_look look;
    uint32_t layers;

    for (size_t i = 0; i < BENCH_ENGINES; i++) {
        if (is_in_use(bench, i) && warm_engine(&measuring->engines[i], &look, &layers, err) < 0 &&
            leave_out_all(bench, i, err) < 0)
            return err->code;
    }
    for (size_t i = 0; i < bench->row_count; i++) {
        if (warm_row(measuring, &bench->rows[i], err) < 0)
            return err->code;
    }
    return 0;
}

static void look_at_memory(struct bench_row *row, const struct bench_look *look)
{
    row->memory = row->of_zygote ? look->zygote_memory : look->parked_memory;
    row->n = (size_t)row->memory.cells;
    if (row->n == 0)
        err_set(&row->left_out, HUTCH_ERR_SYSTEM, "no %s whose memory the kernel shows",
                row->of_zygote ? "zygote" : "parked cell");
}

/* What is no matter of single samples. The engine may have been without work for so
 * long that its pool is gone. */
static int take_rest(const struct measuring *measuring, enum bench_kind kind,
                     struct hutch_error *err)
{
    const struct bench *bench = measuring->bench;
    struct bench_look look;

    for (size_t i = 0; i < bench->row_count; i++) {
        struct bench_row *row = &bench->rows[i];
        struct bench_engine *engine = &measuring->engines[row->engine];
        if (row->kind != kind || row->left_out.code != 0)
            continue;
        if (warm_engine(engine, &look, &row->layers, err) < 0)
            return err_context(err, "row %s", row->name);
        if (kind == BENCH_MEMORY)
            look_at_memory(row, &look);
        else if (bench_load(engine, bench->seconds, row, err) < 0)
            return err_context(err, "row %s", row->name);
    }
    return 0;
}

static int end_sessions(const struct bench *bench, struct hutch_error *err)
{
    for (size_t i = 0; i < bench->row_count; i++) {
        if (bench_session_end(&bench->rows[i], err) < 0)
            return err_context(err, "row %s", bench->rows[i].name);
    }
    return 0;
}

static int take_sessions(const struct measuring *measuring, struct hutch_error *err)
{
    const struct bench *bench = measuring->bench;

    for (size_t i = 0; i < bench->row_count; i++) {
        struct bench_row *row = &bench->rows[i];
        if (row->kind == BENCH_SESSIONS &&
            bench_sessions(&measuring->engines[row->engine], row, err) < 0)
            return err_context(err, "row %s", row->name);
    }
    return 0;
}

static int note_cli_layers(const struct bench *bench, struct hutch_error *err)
{
    for (size_t i = 0; i < bench->row_count; i++) {
        struct bench_row *row = &bench->rows[i];
        if (row->kind == BENCH_PROGRAM && row->isolated &&
            bench_cli_layers(bench->environment, &row->layers, err) < 0)
            return err->code;
    }
    return 0;
}

int bench_measure(struct bench *bench, struct bench_engine engines[BENCH_ENGINES],
                  struct hutch_error *err)
{
    const struct measuring measuring = {.bench = bench, .engines = engines};

    for (size_t i = 0; i < bench->row_count; i++)
        bench->rows[i].layers = bench->rows[i].isolated ? UINT32_MAX : 0;
    if (warm_up(&measuring, err) < 0 || note_cli_layers(bench, err) < 0 ||
        take_rounds(&measuring, err) < 0 || end_sessions(bench, err) < 0 ||
        take_rest(&measuring, BENCH_MEMORY, err) < 0 || take_sessions(&measuring, err) < 0)
        return err->code;
    return take_rest(&measuring, BENCH_LOAD, err);
}
