/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hutch bench measures, and the choice among it. The names are stable: who
 * compares two versions compares rows of one name.
 */
#include "bench.h"

#include "base/limits.h"
#include "base/quote.h"

#include <limits.h>
#include <string.h>

#define PYTHON "/usr/bin/python3"
#define NODE "/usr/bin/node"

/* Shares of the runs: what takes longer has to be content with fewer. */
#define ALL 100
#define HALF 50
#define FIFTH 20
#define TENTH 10
#define TWENTIETH 5

#define LIBRARIES                                                                                  \
    .optional = true, .needs = "import numpy, pandas\nprint(1)",                                   \
    .preloaded = "import sys\nprint(int('numpy' in sys.modules and 'pandas' in sys.modules))"

#define SUM                                                                                        \
    "import pandas\n"                                                                              \
    "frame = pandas.DataFrame({'a': [1, 2, 3], 'b': [4, 5, 6]})\n"                                 \
    "print(1 if int((frame['a'] * frame['b']).sum()) == 32 else 0)"

static const char *const cli_python[] = {BENCH_OWN, "run", "-c", "print(1)", NULL};
static const char *const subprocess[] = {PYTHON, "-I", "-S", "-B", "-c", "print(1)", NULL};
static const char *const python_bare[] = {PYTHON, "-I", "-B", "-X", "utf8", "-c", "print(1)", NULL};
static const char *const bash_bare[] = {"/bin/bash", "-c", "echo 1", NULL};
static const char *const node_bare[] = {NODE, "-e", "console.log(1)", NULL};
static const char *const libraries[] = {PYTHON, "-c", "import numpy, pandas; print(1)", NULL};
/* clang-format off */
static const char *const bwrap[] = {
    "/usr/bin/bwrap", "--unshare-all", "--die-with-parent",
    "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
    "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
    PYTHON, "-I", "-B", "-X", "utf8", "-c", "print(1)", NULL};
/* clang-format on */

#define CELL(of_language, its_engine, its_origin, its_code)                                        \
    .kind = BENCH_CELL, .isolated = true, .language = (of_language), .engine = (its_engine),       \
    .origin = (its_origin), .code = (its_code)
#define SESSION(of_language, its_code)                                                             \
    .kind = BENCH_SESSION, .isolated = true, .language = (of_language),                            \
    .engine = BENCH_ENGINE_COLD, .code = (its_code), .percent = ALL
/* Small objects, as programs have them, of about so many MiB. */
#define HEAP(its_mb) .before = "heap = list(range(" #its_mb " * 26214))"
#define PROGRAM(its_argv) .kind = BENCH_PROGRAM, .argv = (its_argv)

static const struct bench_row all_rows[] = {
    {.name = "fresh.python.parked",
     CELL(HUTCH_PYTHON, BENCH_ENGINE_PARKED, BENCH_PARKED, "print(1)"),
     .spacing = BENCH_BACK_TO_BACK,
     .percent = ALL,
     .aim_p50_ms = 0.6,
     .aim_p99_ms = 2.0,
     .aim_times_faster = 5.0},
    {.name = "fresh.python.parked.sporadic",
     CELL(HUTCH_PYTHON, BENCH_ENGINE_PARKED, BENCH_PARKED, "print(1)"),
     .spacing = BENCH_SPORADIC,
     .percent = ALL},
    {.name = "fresh.python.forked",
     CELL(HUTCH_PYTHON, BENCH_ENGINE_FORKED, BENCH_FORKED, "print(1)"),
     .spacing = BENCH_BACK_TO_BACK,
     .percent = ALL,
     .aim_p50_ms = 2.0},
    {.name = "fresh.python.forked.sporadic",
     CELL(HUTCH_PYTHON, BENCH_ENGINE_FORKED, BENCH_FORKED, "print(1)"),
     .spacing = BENCH_SPORADIC,
     .percent = ALL},
    {.name = "fresh.python.cold",
     CELL(HUTCH_PYTHON, BENCH_ENGINE_COLD, BENCH_COLD, "print(1)"),
     .percent = HALF,
     .bare = "peer.python_bare"},
    {.name = "fresh.python.numpy_pandas.parked",
     CELL(HUTCH_PYTHON, BENCH_ENGINE_LIBRARIES_PARKED, BENCH_PARKED, "print(1)"),
     LIBRARIES,
     .spacing = BENCH_BACK_TO_BACK,
     .percent = ALL,
     .aim_p50_ms = 2.5},
    {.name = "fresh.python.numpy_pandas.sum.parked",
     CELL(HUTCH_PYTHON, BENCH_ENGINE_LIBRARIES_PARKED, BENCH_PARKED, SUM),
     LIBRARIES,
     .spacing = BENCH_BACK_TO_BACK,
     .percent = ALL},
    {.name = "fresh.python.numpy_pandas.forked",
     CELL(HUTCH_PYTHON, BENCH_ENGINE_LIBRARIES_FORKED, BENCH_FORKED, "print(1)"),
     LIBRARIES,
     .spacing = BENCH_BACK_TO_BACK,
     .percent = ALL},
    {.name = "fresh.javascript.parked",
     CELL(HUTCH_JAVASCRIPT, BENCH_ENGINE_JAVASCRIPT, BENCH_PARKED, "console.log(1)"),
     .spacing = BENCH_BACK_TO_BACK,
     .percent = FIFTH,
     .optional = true},
    {.name = "fresh.javascript.cold",
     CELL(HUTCH_JAVASCRIPT, BENCH_ENGINE_COLD, BENCH_COLD, "console.log(1)"),
     .percent = TENTH,
     .optional = true},
    {.name = "fresh.shell",
     CELL(HUTCH_SHELL, BENCH_ENGINE_COLD, BENCH_COLD, "echo 1"),
     .percent = HALF,
     .bare = "peer.bash"},
    {.name = "session.python.exec",
     SESSION(HUTCH_PYTHON, "print(1)"),
     .spacing = BENCH_BACK_TO_BACK,
     .aim_p50_ms = 0.2},
    {.name = "session.python.exec.checkpoint",
     SESSION(HUTCH_PYTHON, "print(1)"),
     .checkpoint = true,
     .spacing = BENCH_GAPS,
     .aim_p50_ms = 0.25},
    {.name = "session.python.exec.checkpoint.back_to_back",
     SESSION(HUTCH_PYTHON, "print(1)"),
     .checkpoint = true,
     .spacing = BENCH_BACK_TO_BACK},
    {.name = "session.python.exec.checkpoint.numpy_pandas",
     SESSION(HUTCH_PYTHON, "print(1)"),
     .checkpoint = true,
     .before = "import numpy, pandas",
     .spacing = BENCH_GAPS,
     .optional = true},
    {.name = "session.python.exec.checkpoint.10mb",
     SESSION(HUTCH_PYTHON, "print(1)"),
     HEAP(10),
     .checkpoint = true,
     .spacing = BENCH_GAPS},
    {.name = "session.python.exec.checkpoint.100mb",
     SESSION(HUTCH_PYTHON, "print(1)"),
     HEAP(100),
     .memory_mb = 512,
     .checkpoint = true,
     .spacing = BENCH_GAPS},
    {.name = "session.python.exec.checkpoint.100mb.back_to_back",
     SESSION(HUTCH_PYTHON, "print(1)"),
     HEAP(100),
     .memory_mb = 512,
     .checkpoint = true,
     .spacing = BENCH_BACK_TO_BACK},
    {.name = "session.python.exec.checkpoint.500mb",
     SESSION(HUTCH_PYTHON, "print(1)"),
     HEAP(500),
     .memory_mb = 2048, /* more than some hosts have */
     .checkpoint = true,
     .spacing = BENCH_GAPS,
     .optional = true},
    {.name = "session.javascript.exec",
     SESSION(HUTCH_JAVASCRIPT, "console.log(1)"),
     .spacing = BENCH_BACK_TO_BACK,
     .optional = true},
    {.name = "session.shell.exec", SESSION(HUTCH_SHELL, "echo 1"), .spacing = BENCH_BACK_TO_BACK},
    {.name = "session.files",
     SESSION(HUTCH_PYTHON, ""),
     .file_bytes = MIB(1),
     .spacing = BENCH_BACK_TO_BACK},
    {.name = "cli.python",
     PROGRAM(cli_python),
     .isolated = true,
     .engine = BENCH_ENGINE_COLD, /* makes the tree of files first */
     .percent = HALF},
    {.name = BENCH_BASE, PROGRAM(subprocess), .spacing = BENCH_BACK_TO_BACK, .percent = ALL},
    {.name = "peer.python_bare", PROGRAM(python_bare), .percent = HALF},
    {.name = "peer.bash", PROGRAM(bash_bare), .percent = HALF},
    {.name = "peer.node", PROGRAM(node_bare), .percent = TENTH, .optional = true},
    {.name = "peer.numpy_pandas", PROGRAM(libraries), .percent = TWENTIETH, .optional = true},
    {.name = "peer.bwrap", PROGRAM(bwrap), .percent = TENTH, .optional = true},
    {.name = "memory.python.parked",
     .kind = BENCH_MEMORY,
     .isolated = true,
     .engine = BENCH_ENGINE_PARKED,
     .code = "print(1)",
     .aim_private_dirty_bytes = MIB(3)},
    {.name = "memory.python.zygote",
     .kind = BENCH_MEMORY,
     .isolated = true,
     .of_zygote = true,
     .engine = BENCH_ENGINE_PARKED,
     .code = "print(1)"},
    {.name = "memory.session.python",
     .kind = BENCH_SESSIONS,
     .isolated = true,
     .engine = BENCH_ENGINE_SESSIONS,
     .code = "print(1)",
     .checkpoint = true,
     .percent = ALL},
    {.name = "throughput.python.fresh",
     .kind = BENCH_LOAD,
     .isolated = true,
     .spacing = BENCH_BACK_TO_BACK,
     .engine = BENCH_ENGINE_LOADED,
     .origin = BENCH_PARKED,
     .code = "print(1)",
     .aim_per_second = 800.0},
    {.name = "agent.step.overhead",
     .kind = BENCH_STEPS,
     .spacing = BENCH_BACK_TO_BACK,
     .percent = ALL,
     .aim_p50_ms = 1.0},
    {.name = "agent.stream.first_token",
     .kind = BENCH_TOKENS,
     .spacing = BENCH_BACK_TO_BACK,
     .percent = ALL,
     .aim_p50_ms = 5.0,
     .aim_p99_ms = 5.0},
    {.name = "agent.memory.100", .kind = BENCH_AGENTS, .aim_resident_bytes = 200000000},
};

bool bench_row_has_times(const struct bench_row *row)
{
    return row->kind == BENCH_CELL || row->kind == BENCH_PROGRAM || row->kind == BENCH_SESSION ||
           row->kind == BENCH_STEPS || row->kind == BENCH_TOKENS;
}

static bool is_of_agents(const struct bench_row *row)
{
    return row->kind == BENCH_STEPS || row->kind == BENCH_TOKENS || row->kind == BENCH_AGENTS;
}

/* ---- the choice --------------------------------------------------------- */

/* Marks the rows whose names begin with the word; whether there is one. */
static bool mark(const char *word, size_t length, bool of_agents,
                 bool chosen[ARRAY_LENGTH(all_rows)])
{
    bool found = false;

    for (size_t i = 0; i < ARRAY_LENGTH(all_rows); i++) {
        if (is_of_agents(&all_rows[i]) == of_agents && length > 0 &&
            strncmp(all_rows[i].name, word, length) == 0)
            chosen[i] = found = true;
    }
    return found;
}

static int refuse(const char *word, size_t length, bool of_agents, struct problem *problem)
{
    auto_buf struct buf names = BUF_MAX(4096);

    for (size_t i = 0; i < ARRAY_LENGTH(all_rows); i++) {
        if (is_of_agents(&all_rows[i]) == of_agents)
            buf_appendf(&names, "%s%s", names.length > 0 ? ", " : "", all_rows[i].name);
    }
    return problem_set(problem, HUTCH_ERR_INVALID,
                       "option '--rows': value %s is not the beginning of one of %s",
                       quote_bytes(word, length).text, buf_text(&names));
}

static int mark_all(const char *names, bool of_agents, bool chosen[ARRAY_LENGTH(all_rows)],
                    struct problem *problem)
{
    for (;;) {
        size_t length = strcspn(names, ",");
        if (!mark(names, length, of_agents, chosen))
            return refuse(names, length, of_agents, problem);
        if (names[length] == '\0')
            return 0;
        names += length + 1;
    }
}

int bench_rows_choose(const char *names, bool of_agents, struct bench_row **ret_rows,
                      size_t *ret_count, struct problem *problem)
{
    bool chosen[ARRAY_LENGTH(all_rows)] = {false};
    size_t count = 0;

    if (names && mark_all(names, of_agents, chosen, problem) < 0)
        return problem->code;
    struct bench_row *rows = calloc(ARRAY_LENGTH(all_rows), sizeof(*rows));
    if (!rows)
        return problem_set(problem, HUTCH_ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < ARRAY_LENGTH(all_rows); i++) {
        if (names ? chosen[i] : is_of_agents(&all_rows[i]) == of_agents)
            rows[count++] = all_rows[i];
    }
    *ret_rows = rows;
    *ret_count = count;
    return 0;
}
