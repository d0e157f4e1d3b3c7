/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engines of hutch bench. Each kind of cell has an engine of its own, so that
 * what doctor counts of it is the row's and no other's.
 */
#include "bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/quote.h"

#include <string.h>

#define EXPECTED "1\n"
#define LOOK_AGAIN_NS (20 * NS_PER_MS) /* a look costs as much as a cell */

/* A pool holds more than a block of bench_measure.c takes, and is not down to where
 * the supervisor fills it while requests come (pool.c). */
#define POOL 32
#define POOL_JAVASCRIPT 8 /* each a whole node */
#define POOL_DEFAULT 4    /* hutch.h */

#define LIBRARIES "numpy,pandas"

static const struct engine_spec {
    enum hutch_warmth warmth;
    enum hutch_language language;
    uint32_t parked_cells;
    const char *preload;
    uint64_t patience_ns; /* for a zygote that loads much on a slow host */
    double queue_seconds; /* 0: the default */
} specs[BENCH_ENGINES] = {
    [BENCH_ENGINE_PARKED] = {HUTCH_PARKED, HUTCH_PYTHON, POOL, NULL, 30 * NS_PER_SECOND, 0},
    [BENCH_ENGINE_FORKED] = {HUTCH_FORKED, HUTCH_PYTHON, 0, NULL, 30 * NS_PER_SECOND, 0},
    [BENCH_ENGINE_COLD] = {HUTCH_COLD, HUTCH_PYTHON, 0, NULL, 0, 0},
    [BENCH_ENGINE_LIBRARIES_PARKED] = {HUTCH_PARKED, HUTCH_PYTHON, POOL, LIBRARIES,
                                       30 * NS_PER_SECOND, 0},
    [BENCH_ENGINE_LIBRARIES_FORKED] = {HUTCH_FORKED, HUTCH_PYTHON, 0, LIBRARIES, 30 * NS_PER_SECOND,
                                       0},
    /* There need not be a pool for it at all. */
    [BENCH_ENGINE_JAVASCRIPT] = {HUTCH_PARKED, HUTCH_JAVASCRIPT, POOL_JAVASCRIPT, NULL,
                                 2 * NS_PER_SECOND, 0},
    [BENCH_ENGINE_LOADED] = {HUTCH_PARKED, HUTCH_PYTHON, POOL_DEFAULT, NULL, 30 * NS_PER_SECOND, 0},
    /* What does not fit at once is not waited for. */
    [BENCH_ENGINE_SESSIONS] = {HUTCH_COLD, HUTCH_PYTHON, 0, NULL, 0, 5},
};

int bench_engines_new(const struct settings *settings, struct bench_engine engines[BENCH_ENGINES],
                      struct problem *problem)
{
    for (size_t i = 0; i < BENCH_ENGINES; i++) {
        struct hutch_engine_options options;
        hutch_engine_options_init(&options);
        options.warmth = specs[i].warmth;
        options.parked_cells = specs[i].parked_cells;
        options.preload = specs[i].preload;
        options.queue_timeout_seconds = specs[i].queue_seconds;
        engines[i] = (struct bench_engine){
            .warmth = specs[i].warmth,
            .language = specs[i].language,
            .patience_ns = specs[i].patience_ns,
            .full = specs[i].parked_cells,
        };
        if (cli_engine_make(settings, &options, &engines[i].engine, problem) < 0)
            return problem->code;
    }
    return 0;
}

void bench_engines_done(struct bench_engine engines[BENCH_ENGINES])
{
    for (size_t i = 0; i < BENCH_ENGINES; i++) {
        hutch_engine_free(engines[i].engine);
        engines[i].engine = NULL;
    }
}

/* ---- the state ---------------------------------------------------------- */

static uint64_t number_of(const json_t *object, const char *member)
{
    return (uint64_t)json_integer_value(json_object_get(object, member));
}

static struct bench_memory memory_of(const json_t *warmth, const char *member)
{
    const json_t *memory = json_object_get(warmth, member);

    return (struct bench_memory){
        .cells = number_of(memory, "cells"),
        .private_dirty_bytes = number_of(memory, "private_dirty_bytes"),
        .pss_bytes = number_of(memory, "pss_bytes"),
    };
}

static const json_t *warmth_of(const json_t *cells, enum hutch_language language)
{
    static const char *const names[] = {
        [HUTCH_PYTHON] = "python", [HUTCH_SHELL] = "shell", [HUTCH_JAVASCRIPT] = "javascript"};
    const json_t *list = json_object_get(cells, "warm");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(row, "language"));
        if (name && strcmp(name, names[language]) == 0)
            return row;
    }
    return NULL;
}

static void take_state(const json_t *report, enum hutch_language language,
                       struct bench_look *ret_look)
{
    static const char *const origins[BENCH_ORIGINS] = {
        [BENCH_COLD] = "cold", [BENCH_FORKED] = "forked", [BENCH_PARKED] = "parked"};
    const json_t *cells = json_object_get(report, "cells");
    const json_t *starts = json_object_get(cells, "starts");
    const json_t *warmth = warmth_of(cells, language);

    for (size_t i = 0; i < BENCH_ORIGINS; i++)
        ret_look->starts[i] = number_of(starts, origins[i]);
    ret_look->zygote_is_ready = number_of(warmth, "zygotes") > 0;
    ret_look->parked = (size_t)number_of(warmth, "parked");
    ret_look->zygote_memory = memory_of(warmth, "zygote_memory");
    ret_look->parked_memory = memory_of(warmth, "parked_memory");
}

int bench_engine_look(const struct bench_engine *engine, struct bench_look *ret_look,
                      struct hutch_error *err)
{
    auto_json json_t *report = NULL;
    char *text;

    if (hutch_doctor(engine->engine, &text, err) < 0)
        return err->code;
    int done = json_read(text, strlen(text), LIMIT_REPORT_BYTES, &report, err);
    hutch_free(text);
    if (done < 0)
        return err_context(err, "the library's report");
    take_state(report, engine->language, ret_look);
    return 0;
}

static bool is_full(const struct bench_engine *engine, const struct bench_look *look)
{
    if (engine->gave_up || engine->warmth == HUTCH_COLD)
        return true;
    if (engine->warmth == HUTCH_FORKED)
        return look->zygote_is_ready;
    return look->parked >= engine->full;
}

int bench_engine_fill(struct bench_engine *engine, struct bench_look *ret_look,
                      struct hutch_error *err)
{
    uint64_t deadline_ns = clock_after_ns(engine->patience_ns);
    size_t most = 0;

    for (;;) {
        if (bench_engine_look(engine, ret_look, err) < 0)
            return err->code;
        if (is_full(engine, ret_look))
            return 0;
        if (ret_look->parked > most) {
            most = ret_look->parked;
            deadline_ns = clock_after_ns(engine->patience_ns);
        }
        if (clock_now_ns() >= deadline_ns) {
            engine->full = ret_look->parked;
            engine->gave_up = engine->warmth == HUTCH_FORKED;
            return 0;
        }
        fd_wait(-1, 0, clock_after_ns(LOOK_AGAIN_NS));
    }
}

/* ---- one run ------------------------------------------------------------ */

int bench_check_output(const char *data, size_t length, struct hutch_error *err)
{
    if (length == strlen(EXPECTED) && memcmp(data, EXPECTED, length) == 0)
        return 0;
    return err_set(err, HUTCH_ERR_SYSTEM, "printed %s instead of '1'",
                   quote_bytes(data ? data : "", length).text);
}

static int check_result(const hutch_result *result, struct hutch_error *err)
{
    if (result->error_type)
        return err_set(err, HUTCH_ERR_SYSTEM, "%s: %s",
                       result->error_class ? result->error_class : result->error_type,
                       quote_text(result->error_message ? result->error_message : "").text);
    return bench_check_output(result->stdout_text.data, result->stdout_text.length, err);
}

int bench_engine_run(const struct bench_engine *engine, enum hutch_language language,
                     const char *code, struct bench_sample *ret_sample, struct hutch_error *err)
{
    struct hutch_request request;
    hutch_result *result;

    hutch_request_init(&request);
    request.language = language;
    request.code = code;
    request.code_length = strlen(code);
    request.owner = "hutch bench";
    uint64_t begin_ns = clock_now_ns();
    if (hutch_run(engine->engine, &request, NULL, &result, err) < 0)
        return err->code;
    *ret_sample =
        (struct bench_sample){.elapsed_ns = clock_now_ns() - begin_ns, .layers = result->layers};
    int done = check_result(result, err);
    hutch_result_free(result);
    return done;
}
