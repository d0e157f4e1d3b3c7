/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of hutch bench:
 *
 *   bench_frame.c    the command: options, room for samples, printing
 *   bench.c          what cells and sessions cost: the order of events
 *   bench_rows.c     what is measured: the table of rows
 *   bench_measure.c  in what order samples are taken
 *   bench_cells.c    engines, their pools, and one run in a cell
 *   bench_session.c  execs in sessions, and many idle ones
 *   bench_spawn.c    one run of a plain program
 *   bench_load.c     many runs at once
 *   bench_facts.c    what follows from the samples
 *   bench_table.c    what came out, as a table
 *   bench_json.c     the same as JSON
 *
 * and in hutch-agent, of hutch bench --agent, with the same frame and rows
 *
 *   bench_agent.c    runs of agents
 *   bench_model.c    the model's server that they ask
 */
#pragma once

#include "base/attrs.h"
#include "base/buf.h"
#include "base/json.h"
#include "cli.h"

#include <hutch.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a cold cell may add to the start of its bare interpreter, p50. */
#define BENCH_AIM_ADDED_MS 4.0
/* Of a warm row this part of the runs has to start as its name says. */
#define BENCH_HIT_RATE 0.95
/* Fewer runs of a warm row are a look, no measurement. */
#define BENCH_RUNS_COUNT 500

/* The program itself, whatever its file is called by now. */
#define BENCH_OWN "/proc/self/exe"

/* The row that all others are compared with. */
#define BENCH_BASE "peer.subprocess"

/* ---- rows --------------------------------------------------------------- */

enum bench_kind {
    BENCH_CELL,     /* runs in fresh cells, through the C API */
    BENCH_PROGRAM,  /* runs of a plain program */
    BENCH_SESSION,  /* execs in a session that stays */
    BENCH_LOAD,     /* runs from several threads at once */
    BENCH_MEMORY,   /* what waiting processes hold */
    BENCH_SESSIONS, /* what idle sessions hold */
    BENCH_STEPS,    /* steps of an agent */
    BENCH_TOKENS,   /* the first token of a streamed reply */
    BENCH_AGENTS,   /* what many agents hold */
};

enum bench_spacing {
    BENCH_INTERLEAVED,  /* each sample between those of other rows */
    BENCH_BACK_TO_BACK, /* blocks without a gap */
    BENCH_SPORADIC,     /* a gap of 50 ms before each sample */
    BENCH_GAPS,         /* one of 5 ms */
};

/* Engines, each with a supervisor of its own. */
enum bench_engine_id {
    BENCH_ENGINE_PARKED,
    BENCH_ENGINE_FORKED,
    BENCH_ENGINE_COLD,
    BENCH_ENGINE_LIBRARIES_PARKED,
    BENCH_ENGINE_LIBRARIES_FORKED,
    BENCH_ENGINE_JAVASCRIPT,
    BENCH_ENGINE_LOADED,
    BENCH_ENGINE_SESSIONS,
    BENCH_ENGINES
};

/* How cells come to be, as doctor counts them. */
enum bench_origin { BENCH_COLD, BENCH_FORKED, BENCH_PARKED, BENCH_ORIGINS };

struct bench_memory {
    uint64_t cells; /* that were looked at; 0: none could be */
    uint64_t private_dirty_bytes, pss_bytes;
};

struct bench_row {
    /* What it is. A number of 0 is an aim that there is not. */
    const char *name;
    enum bench_kind kind;
    enum bench_spacing spacing;
    enum bench_engine_id engine;
    enum hutch_language language;
    const char *code;         /* of a cell; prints 1 */
    const char *before;       /* of a session: its first exec; or NULL */
    uint64_t memory_mb;       /* of a session; 0: the default */
    uint64_t file_bytes;      /* of a session: a file of that size goes in and out; 0: an exec */
    const char *needs;        /* fails where modules are missing; or NULL */
    const char *preloaded;    /* fails where they are not loaded ahead of the program */
    const char *const *argv;  /* of a program, argv[0] absolute */
    enum bench_origin origin; /* that the row's runs should have */
    bool isolated;            /* by hutch; valid only with every layer in force */
    bool checkpoint;          /* of a session */
    bool optional;            /* left out where it does not work */
    bool of_zygote;           /* memory: of the zygote instead of parked cells */
    const char *bare;         /* the row of the interpreter that a cell adds to; or NULL */
    unsigned percent;         /* of the runs that were asked for */
    double aim_p50_ms, aim_p99_ms, aim_times_faster, aim_per_second;
    uint64_t aim_private_dirty_bytes, aim_resident_bytes;

    /* What came out. */
    struct hutch_error left_out; /* code 0: it was measured */
    size_t n, taken;             /* samples wanted, and there; or runs, or processes */
    double *samples_ms;          /* sorted once all are taken */
    uint32_t layers;             /* that were in force in every run */
    uint64_t starts, hits;       /* of runs in the blocks; those of the row's origin */
    size_t pool_size;            /* cells that wait when the pool is full */
    hutch_session *session;      /* as long as samples are taken */
    bool not_copied;             /* there was no checkpoint in the end */
    bool not_preloaded;          /* a module was not there ahead of the run */
    double per_second, min_per_second, max_per_second;
    uint64_t window_seconds;
    unsigned threads;
    struct bench_memory memory;
    uint64_t resident_bytes; /* of agents: of the process, at the most */
    uint64_t growth_bytes;   /* more than before */
};

struct bench {
    struct bench_row *rows;
    size_t row_count;
    uint64_t n;       /* runs that were asked for */
    uint64_t seconds; /* of a row of BENCH_LOAD; 0: none */
    char *const *environment;
    json_t *doctor; /* the library's report; or NULL */
};

/* Measures the rows of *bench. Returns 0 or a negative code with *problem set. */
typedef int (*bench_measure_fn)(const struct settings *settings, struct bench *bench,
                                struct problem *problem);

/* The command: reads its options, measures, prints. Returns the exit status. */
int bench_run(const struct settings *settings, char **argv, bench_measure_fn measure);

/* Copies the rows that names chooses, beginnings of names with commas, NULL for all, among those
 * of agents or all others.
 * *ret_rows is the caller's. Errors: INVALID with the list of names, NO_MEMORY. */
MUST_CHECK int bench_rows_choose(const char *names, bool of_agents, struct bench_row **ret_rows,
                                 size_t *ret_count, struct problem *problem);

/* Whether a row has times, one for each sample. */
bool bench_row_has_times(const struct bench_row *row);

/* ---- samples ------------------------------------------------------------ */

struct bench_sample {
    uint64_t elapsed_ns;
    uint32_t layers;
};

/* Starts argv[0] with the environment given, stdin empty, and waits until it
 * has ended and closed its output, which is appended to *output. *ret_ns is the
 * time from before the start to then. Errors: SYSTEM, also when it ends with
 * another status than 0. */
MUST_CHECK int bench_spawn(const char *const *argv, char *const *environment, struct buf *output,
                           uint64_t *ret_ns, struct hutch_error *err);

/* The layers that `hutch run` has in force, as its result lists them. */
MUST_CHECK int bench_cli_layers(char *const *environment, uint32_t *ret_layers,
                                struct hutch_error *err);

/* Whether a program printed what it should. */
MUST_CHECK int bench_check_output(const char *data, size_t length, struct hutch_error *err);

struct bench_engine {
    hutch_engine *engine;
    enum hutch_warmth warmth;
    enum hutch_language language; /* that its pool is for */
    uint64_t patience_ns;         /* for the pool to become fuller */
    size_t full;                  /* cells that wait then */
    bool gave_up;                 /* on the zygote */
};

/* What an engine tells of the cells of one language. */
struct bench_look {
    uint64_t starts[BENCH_ORIGINS];
    bool zygote_is_ready;
    size_t parked;
    struct bench_memory zygote_memory, parked_memory;
};

/* Makes all engines; what is there goes by bench_engines_done, also after an error. */
MUST_CHECK int bench_engines_new(const struct settings *settings,
                                 struct bench_engine engines[BENCH_ENGINES],
                                 struct problem *problem);
void bench_engines_done(struct bench_engine engines[BENCH_ENGINES]);

/* Asks for the state. Errors: those of hutch_doctor, SYSTEM. */
MUST_CHECK int bench_engine_look(const struct bench_engine *engine, struct bench_look *ret_look,
                                 struct hutch_error *err);

/* Waits until the pool is full, or the zygote ready, as long as another cell comes
 * within patience_ns; a pool that stays smaller is waited for no more. *ret_look is
 * the state then. */
MUST_CHECK int bench_engine_fill(struct bench_engine *engine, struct bench_look *ret_look,
                                 struct hutch_error *err);

/* One fresh cell. Safe from several threads. Errors: those of hutch_run; SYSTEM for
 * a program that failed or printed something else. */
MUST_CHECK int bench_engine_run(const struct bench_engine *engine, enum hutch_language language,
                                const char *code, struct bench_sample *ret_sample,
                                struct hutch_error *err);

/* One exec, or the way of a file in and out, in the row's session, which is opened first where it
 * is not there. Errors: those of hutch_session_open and _exec; SYSTEM as above. */
MUST_CHECK int bench_session_run(const struct bench_engine *engine, struct bench_row *row,
                                 struct bench_sample *ret_sample, struct hutch_error *err);

/* Ends the row's session, if there is one, and sees whether it had a checkpoint. */
MUST_CHECK int bench_session_end(struct bench_row *row, struct hutch_error *err);

/* Opens as many sessions as the row wants and the engine admits, and looks at their
 * memory. */
MUST_CHECK int bench_sessions(const struct bench_engine *engine, struct bench_row *row,
                              struct hutch_error *err);

/* Runs as many cells as the engine gives, for so long. */
MUST_CHECK int bench_load(struct bench_engine *engine, uint64_t seconds, struct bench_row *row,
                          struct hutch_error *err);

/* Measures all rows. */
MUST_CHECK int bench_measure(struct bench *bench, struct bench_engine engines[BENCH_ENGINES],
                             struct hutch_error *err);

/* ---- facts -------------------------------------------------------------- */

/* A row that was measured, by its name; NULL: there is none. */
const struct bench_row *bench_find_row(const struct bench *bench, const char *name);

/* The nearest-rank percentile of sorted samples. */
double bench_percentile(const struct bench_row *row, size_t percent);
double bench_p50(const struct bench_row *row);

/* The part of the runs that started as the row's name says; 0 where there was none. */
double bench_hit_rate(const struct bench_row *row);

/* Whether that is a matter of the row: its cells are parked or forked. */
bool bench_row_is_warm(const struct bench_row *row);

/* Why a row does not count; "" where it does. */
struct bench_fault {
    char text[512];
};
struct bench_fault bench_row_fault(const struct bench_row *row);

/* Whether the row has an aim of its own, and reached it. */
bool bench_row_has_aim(const struct bench_row *row);
bool bench_row_met(const struct bench_row *row);

/* How many times peer's p50 fits into row's. */
double bench_ratio(const struct bench_row *row, const struct bench_row *peer);

/* What a cell adds to its bare interpreter, in ms. */
double bench_added_ms(const struct bench_row *row, const struct bench_row *bare);

const char *bench_spacing_name(enum bench_spacing spacing);

/* Appends what was measured, as a table or as one JSON object on a line. */
void bench_table(const struct bench *bench, struct buf *text);
void bench_json(const struct bench *bench, struct buf *text);
