/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The throughput of an engine: threads that run fresh cells of one owner, one after
 * the other, one thread more than there are processors, so that none waits. Runs are
 * counted by the window of time in which they end: windows that are alike show that
 * nothing fills up.
 */
#include "bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"

#include <pthread.h>
#include <stdatomic.h>

#define SHORT_SECONDS 20 /* below, windows are of one second */
#define LONG_WINDOW_SECONDS 5

struct load {
    const struct bench_engine *engine;
    const struct bench_row *row;
    uint64_t begin_ns, window_ns;
    size_t windows;
    atomic_bool stop; /* a worker failed */
};

struct worker {
    struct load *load;
    pthread_t thread;
    uint64_t *counts; /* of each window */
    uint32_t layers;
    struct hutch_error err; /* code 0: none */
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct load *load = worker->load;

    while (!load->stop) {
        struct bench_sample sample;
        if (bench_engine_run(load->engine, load->row->language, load->row->code, &sample,
                             &worker->err) < 0) {
            load->stop = true;
            return NULL;
        }
        worker->layers &= sample.layers;
        uint64_t window = (clock_now_ns() - load->begin_ns) / load->window_ns;
        if (window >= load->windows)
            break;
        worker->counts[window]++;
    }
    worker->err.code = 0;
    return NULL;
}

/* Each run has its limit, and by that each worker. */
static int run_workers(struct load *load, struct worker *workers, size_t count,
                       struct hutch_error *err)
{
    size_t started = 0;
    int failure = 0;

    load->begin_ns = clock_now_ns();
    while (started < count && failure == 0) {
        failure = pthread_create(&workers[started].thread, NULL, work, &workers[started]);
        started += failure == 0;
    }
    if (failure != 0)
        load->stop = true;
    for (size_t i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    if (failure != 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, failure, "start a thread");
    for (size_t i = 0; i < count; i++) {
        if (workers[i].err.code != 0) {
            *err = workers[i].err;
            return err->code;
        }
    }
    return 0;
}

static void add_up(const struct load *load, const struct worker *workers, size_t count,
                   struct bench_row *row)
{
    double window_seconds = (double)load->window_ns / (double)NS_PER_SECOND;

    for (size_t window = 0; window < load->windows; window++) {
        uint64_t runs = 0;
        for (size_t i = 0; i < count; i++)
            runs += workers[i].counts[window];
        double per_second = (double)runs / window_seconds;
        if (window == 0 || per_second < row->min_per_second)
            row->min_per_second = per_second;
        if (per_second > row->max_per_second)
            row->max_per_second = per_second;
        row->n += runs;
    }
    for (size_t i = 0; i < count; i++)
        row->layers &= workers[i].layers;
    row->per_second = (double)row->n / (window_seconds * (double)load->windows);
}

int bench_load(struct bench_engine *engine, uint64_t seconds, struct bench_row *row,
               struct hutch_error *err)
{
    struct bench_look before, after;

    row->n = 0;
    row->threads = host_cpus() + 1;
    row->window_seconds = seconds < SHORT_SECONDS ? 1 : LONG_WINDOW_SECONDS;
    struct load load = {
        .engine = engine,
        .row = row,
        .window_ns = row->window_seconds * NS_PER_SECOND,
        .windows = seconds / row->window_seconds, /* what is left of one is not measured */
    };
    auto_free struct worker *workers = calloc(row->threads, sizeof(*workers));
    auto_free uint64_t *counts = calloc(row->threads * load.windows, sizeof(*counts));
    if (!workers || !counts)
        return err_no_memory(err);
    for (size_t i = 0; i < row->threads; i++)
        workers[i] = (struct worker){
            .load = &load, .counts = counts + i * load.windows, .layers = UINT32_MAX};
    if (bench_engine_fill(engine, &before, err) < 0 ||
        run_workers(&load, workers, row->threads, err) < 0 ||
        bench_engine_look(engine, &after, err) < 0)
        return err->code;
    add_up(&load, workers, row->threads, row);
    for (size_t i = 0; i < BENCH_ORIGINS; i++)
        row->starts += after.starts[i] - before.starts[i];
    row->hits = after.starts[row->origin] - before.starts[row->origin];
    row->pool_size = engine->full;
    return 0;
}
