/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch bench: what a fresh cell and an exec in a session cost, beside programs that do the same
 * work with less around it; see bench.h for its parts.
 */
#include "bench.h"

#include "agent_program.h"
#include "base/error.h"
#include "base/limits.h"

#include <string.h>

/* After an error some are there still. */
static void close_sessions(struct bench *bench)
{
    for (size_t i = 0; i < bench->row_count; i++) {
        hutch_session_close(bench->rows[i].session);
        bench->rows[i].session = NULL;
    }
}

/* What this host is, in the library's words. */
static int ask_doctor(struct bench *bench, hutch_engine *engine, struct hutch_error *err)
{
    char *text;

    if (hutch_doctor(engine, &text, err) < 0)
        return err->code;
    int done = json_read(text, strlen(text), LIMIT_REPORT_BYTES, &bench->doctor, err);
    hutch_free(text);
    return done < 0 ? err_context(err, "the library's report") : 0;
}

static int measure(const struct settings *settings, struct bench *bench, struct problem *problem)
{
    struct bench_engine engines[BENCH_ENGINES] = {{.engine = NULL}};
    struct hutch_error err;

    int done = bench_engines_new(settings, engines, problem);
    if (done == 0) {
        done = bench_measure(bench, engines, &err);
        if (done == 0)
            done = ask_doctor(bench, engines[BENCH_ENGINE_PARKED].engine, &err);
        if (done < 0)
            problem_take(problem, &err);
    }
    close_sessions(bench);
    bench_engines_done(engines);
    return done;
}

int bench_main(const struct settings *settings, char **argv)
{
    if (options_have(argv, "--agent"))
        return agent_program_become(settings, &bench_command, argv);
    return bench_run(settings, argv, measure);
}
