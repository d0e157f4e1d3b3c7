/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch bench: what a fresh cell costs, beside programs that do the same work
 * with less around it. Every round takes one sample of every row, so that
 * whatever else the machine does meets all rows alike; every sample checks the
 * program's output.
 */
#include "bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/quote.h"
#include "cli.h"
#include "output.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#define WARM_UP_ROUNDS 10 /* a zygote is there after some */
#define EXPECTED "1\n"

#define PYTHON "/usr/bin/python3"

struct bench_values {
    uint64_t n;
    bool json;
};

/* What a measurement works with. */
struct bench_tools {
    hutch_engine *engines[HUTCH_COLD + 1]; /* by their warmth */
    char *const *environment;
};

static char own_path[PATH_MAX]; /* set once, by find_own_path */

static const char *const cli_python[] = {own_path, "run", "-c", "print(1)", NULL};
static const char *const cli_probe[] = {own_path, "run", "--json", "-c", "print(1)", NULL};
static const char *const subprocess[] = {PYTHON, "-I", "-S", "-B", "-c", "print(1)", NULL};
static const char *const python_bare[] = {PYTHON, "-I", "-B", "-X", "utf8", "-c", "print(1)", NULL};
static const char *const bash_bare[] = {"/bin/bash", "-c", "echo 1", NULL};
static const char *const bwrap[] = {"/usr/bin/bwrap",
                                    "--unshare-all",
                                    "--die-with-parent",
                                    "--ro-bind",
                                    "/usr",
                                    "/usr",
                                    "--symlink",
                                    "usr/bin",
                                    "/bin",
                                    "--symlink",
                                    "usr/lib",
                                    "/lib",
                                    "--symlink",
                                    "usr/lib64",
                                    "/lib64",
                                    "--proc",
                                    "/proc",
                                    "--dev",
                                    "/dev",
                                    "--tmpfs",
                                    "/tmp",
                                    PYTHON,
                                    "-I",
                                    "-B",
                                    "-X",
                                    "utf8",
                                    "-c",
                                    "print(1)",
                                    NULL};

static const struct bench_row all_rows[] = {
    {.name = "fresh.python.parked.sporadic",
     .language = HUTCH_PYTHON,
     .code = "print(1)",
     .warmth = HUTCH_PARKED,
     .isolated = true},
    {.name = "fresh.python.forked.sporadic",
     .language = HUTCH_PYTHON,
     .code = "print(1)",
     .warmth = HUTCH_FORKED,
     .isolated = true},
    {.name = "fresh.python.cold",
     .language = HUTCH_PYTHON,
     .code = "print(1)",
     .warmth = HUTCH_COLD,
     .isolated = true,
     .bare = "peer.python_bare"},
    {.name = "fresh.shell.cold",
     .language = HUTCH_SHELL,
     .code = "echo 1",
     .warmth = HUTCH_COLD,
     .isolated = true,
     .bare = "peer.bash"},
    {.name = "cli.python", .argv = cli_python, .isolated = true},
    {.name = BENCH_BASE, .argv = subprocess},
    {.name = "peer.python_bare", .argv = python_bare},
    {.name = "peer.bash", .argv = bash_bare},
    {.name = "peer.bwrap", .argv = bwrap, .optional = true},
};

static int find_own_path(struct hutch_error *err)
{
    ssize_t length = readlink("/proc/self/exe", own_path, sizeof(own_path) - 1);
    if (length < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read '/proc/self/exe'");
    own_path[length] = '\0';
    return 0;
}

/* ---- one sample ---- */

static int check_output(const char *data, size_t length, struct hutch_error *err)
{
    if (length == strlen(EXPECTED) && memcmp(data, EXPECTED, length) == 0)
        return 0;
    return err_set(err, HUTCH_ERR_SYSTEM, "printed %s instead of '1'",
                   quote_bytes(data ? data : "", length).text);
}

static int sample_cell(const struct bench_tools *tools, struct bench_row *row, uint64_t *ret_ns,
                       struct hutch_error *err)
{
    struct hutch_request request;
    hutch_result *result;

    hutch_request_init(&request);
    request.language = row->language;
    request.code = row->code;
    request.code_length = strlen(row->code);
    uint64_t begin_ns = clock_now_ns();
    if (hutch_run(tools->engines[row->warmth], &request, NULL, &result, err) < 0)
        return err->code;
    *ret_ns = clock_now_ns() - begin_ns;
    row->layers &= result->layers;
    int done = check_output(result->stdout_text.data, result->stdout_text.length, err);
    hutch_result_free(result);
    return done;
}

static int sample_program(const struct bench_tools *tools, const struct bench_row *row,
                          uint64_t *ret_ns, struct hutch_error *err)
{
    auto_buf struct buf output = BUF_MAX(65536);

    if (bench_spawn(row->argv, tools->environment, &output, ret_ns, err) < 0)
        return err->code;
    return check_output(buf_text(&output), output.length, err);
}

static int sample(const struct bench_tools *tools, struct bench_row *row, double *ret_ms,
                  struct hutch_error *err)
{
    uint64_t elapsed_ns;
    int done = row->argv ? sample_program(tools, row, &elapsed_ns, err)
                         : sample_cell(tools, row, &elapsed_ns, err);

    if (done < 0)
        return err_context(err, "row %s", row->name);
    *ret_ms = (double)elapsed_ns / (double)NS_PER_MS;
    return 0;
}

/* ---- all of them ---- */

/* The layers that `hutch run` had in force, as its result lists them. */
static int probe_cli_layers(const struct bench_tools *tools, uint32_t *ret_layers,
                            struct hutch_error *err)
{
    auto_buf struct buf output = BUF_MAX(65536);
    auto_json json_t *result = NULL;
    uint64_t elapsed_ns;
    uint32_t layers = 0;

    if (bench_spawn(cli_probe, tools->environment, &output, &elapsed_ns, err) < 0 ||
        json_read(buf_text(&output), output.length, output.max, &result, err) < 0)
        return err_context(err, "hutch run --json");
    const json_t *names = json_object_get(result, "layers");
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name)
            layers |= hutch_layer_from_name(name);
    }
    *ret_layers = layers;
    return 0;
}

/* Fills caches, and drops optional rows that do not work here. */
static int warm_up(struct bench *bench, const struct bench_tools *tools, struct hutch_error *err)
{
    double elapsed_ms;

    for (size_t round = 0; round < WARM_UP_ROUNDS; round++) {
        for (size_t i = 0; i < bench->row_count; i++) {
            struct bench_row *row = &bench->rows[i];
            if (row->left_out.code != 0 || sample(tools, row, &elapsed_ms, err) == 0)
                continue;
            if (!row->optional)
                return err->code;
            row->left_out = *err;
        }
    }
    return 0;
}

static int measure(struct bench *bench, const struct bench_tools *tools, struct hutch_error *err)
{
    for (; bench->taken < bench->n; bench->taken++) {
        for (size_t i = 0; i < bench->row_count; i++) {
            struct bench_row *row = &bench->rows[i];
            if (row->left_out.code == 0 &&
                sample(tools, row, &row->samples_ms[bench->taken], err) < 0)
                return err->code;
        }
    }
    return 0;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The first cell of all makes the tree of files that cells see, which takes
 * long; so cells come before what starts `hutch run` with a deadline. */
static int bench_all(struct bench *bench, const struct bench_tools *tools, struct hutch_error *err)
{
    uint32_t cli_layers = 0;

    for (size_t i = 0; i < bench->row_count; i++)
        bench->rows[i].layers = bench->rows[i].isolated ? UINT32_MAX : 0;
    if (find_own_path(err) < 0 || warm_up(bench, tools, err) < 0 ||
        probe_cli_layers(tools, &cli_layers, err) < 0 || measure(bench, tools, err) < 0)
        return err->code;
    for (size_t i = 0; i < bench->row_count; i++) {
        struct bench_row *row = &bench->rows[i];
        if (row->isolated && row->argv)
            row->layers = cli_layers;
        qsort(row->samples_ms, bench->n, sizeof(double), compare_doubles);
    }
    return 0;
}

/* ---- the command ---- */

static void free_engines(struct bench_tools *tools)
{
    for (size_t i = 0; i < ARRAY_LENGTH(tools->engines); i++)
        hutch_engine_free(tools->engines[i]);
}

static int run_bench(const struct settings *settings, const struct bench_values *values,
                     struct bench *bench, struct problem *problem)
{
    struct hutch_error err;
    struct bench_tools tools = {.environment = settings->environment};
    auto_buf struct buf text = BUF_MAX(LIMIT_CLI_TEXT_BYTES);

    int done = 0;
    for (int i = 0; done == 0 && i <= HUTCH_COLD; i++)
        done = cli_engine_new(settings, (enum hutch_warmth)i, &tools.engines[i], problem);
    if (done < 0) {
        free_engines(&tools);
        return problem_report(problem, bench_command.name, values->json);
    }
    done = bench_all(bench, &tools, &err);
    free_engines(&tools);
    if (done < 0) {
        problem_take(problem, &err);
        return problem_report(problem, bench_command.name, values->json);
    }
    if (values->json)
        bench_report_json(bench, &text);
    else
        bench_report_text(bench, &text);
    return output_print(&text, 0);
}

static void bench_defaults(void *memory)
{
    *(struct bench_values *)memory = (struct bench_values){.n = 200};
}

static int bench_main(const struct settings *settings, char **argv)
{
    struct bench_values values;
    struct problem problem;

    bench_defaults(&values);
    int status = command_begin(&bench_command, argv, &values);
    if (status >= 0)
        return status;

    struct bench_row rows[ARRAY_LENGTH(all_rows)];
    struct bench bench = {.rows = rows, .row_count = ARRAY_LENGTH(rows), .n = values.n};
    auto_free double *samples = calloc(bench.row_count * bench.n, sizeof(*samples));
    if (!samples) {
        problem_set(&problem, HUTCH_ERR_NO_MEMORY, "out of memory");
        return problem_report(&problem, bench_command.name, values.json);
    }
    memcpy(rows, all_rows, sizeof(rows));
    for (size_t i = 0; i < bench.row_count; i++)
        rows[i].samples_ms = samples + i * bench.n;
    return run_bench(settings, &values, &bench, &problem);
}

static const struct option_spec bench_options[] = {
    {.name = "runs",
     .letter = 'n',
     .type = OPTION_WHOLE,
     .argument = "N",
     .minimum = 1,
     .maximum = 100000,
     .help = "samples of each row",
     .offset = offsetof(struct bench_values, n)},
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "print the measurements as one JSON object on a line",
     .offset = offsetof(struct bench_values, json)},
    OPTION_HELP_ROW,
};

static const struct exit_row bench_exits[] = {
    {"0", "measured"}, EXIT_ROW_USAGE, EXIT_ROW_FAILURE, {NULL, NULL}};

const struct command bench_command = {
    .name = "bench",
    .synopsis = "[--json] [-n N]",
    .summary = "Measure what a fresh cell costs on this host, beside plain programs.",
    .options = bench_options,
    .option_count = ARRAY_LENGTH(bench_options),
    .exits = bench_exits,
    .values_size = sizeof(struct bench_values),
    .defaults = bench_defaults,
    .main = bench_main,
};
