/* SPDX-License-Identifier: Apache-2.0 */
/* What hutch bench is whatever it measures: options, room for samples, and what is printed. */
#include "bench.h"

#include "base/error.h"
#include "output.h"

#define N_MAX 100000
#define SECONDS_MAX 3600

struct bench_values {
    uint64_t n;
    uint64_t seconds;
    const char *rows;
    bool agent;
    bool json;
};

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Each row has its part of *samples. */
static void share_samples(struct bench *bench, double *samples)
{
    for (size_t i = 0; i < bench->row_count; i++) {
        struct bench_row *row = &bench->rows[i];
        row->n = (size_t)(bench->n * row->percent + 99) / 100;
        row->samples_ms = samples + i * bench->n;
        if (row->kind == BENCH_LOAD && bench->seconds == 0)
            err_set(&row->left_out, HUTCH_ERR_INVALID, "not asked for: --seconds 0");
    }
}

static void sort_samples(struct bench *bench)
{
    for (size_t i = 0; i < bench->row_count; i++)
        qsort(bench->rows[i].samples_ms, bench->rows[i].taken, sizeof(double), compare_doubles);
}

static int run_bench(const struct settings *settings, const struct bench_values *values,
                     struct bench *bench, bench_measure_fn measure, struct problem *problem)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_CLI_TEXT_BYTES);
    auto_free double *samples = calloc(bench->row_count * bench->n, sizeof(*samples));

    if (!samples) {
        problem_set(problem, HUTCH_ERR_NO_MEMORY, "out of memory");
        return problem_report(problem, bench_command.name, values->json);
    }
    share_samples(bench, samples);
    if (measure(settings, bench, problem) < 0)
        return problem_report(problem, bench_command.name, values->json);
    sort_samples(bench);
    if (values->json)
        bench_json(bench, &text);
    else
        bench_table(bench, &text);
    return output_print(&text, 0);
}

static void bench_defaults(void *memory)
{
    *(struct bench_values *)memory = (struct bench_values){.n = BENCH_RUNS_COUNT, .seconds = 60};
}

int bench_run(const struct settings *settings, char **argv, bench_measure_fn measure)
{
    struct bench_values values;
    struct problem problem;

    bench_defaults(&values);
    int status = command_begin(&bench_command, argv, &values);
    if (status >= 0)
        return status;

    struct bench bench = {
        .n = values.n, .seconds = values.seconds, .environment = settings->environment};
    if (bench_rows_choose(values.rows, values.agent, &bench.rows, &bench.row_count, &problem) < 0)
        return problem_report(&problem, bench_command.name, values.json);
    status = run_bench(settings, &values, &bench, measure, &problem);
    json_decref(bench.doctor);
    free(bench.rows);
    return status;
}

static const struct option_spec bench_options[] = {
    {.name = "runs",
     .letter = 'n',
     .type = OPTION_WHOLE,
     .argument = "N",
     .minimum = 1,
     .maximum = N_MAX,
     .help = "samples of each row of warm cells; slower rows take fewer",
     .offset = offsetof(struct bench_values, n)},
    {.name = "seconds",
     .type = OPTION_WHOLE,
     .argument = "S",
     .minimum = 0,
     .maximum = SECONDS_MAX,
     .help = "length of the throughput row; 0 leaves it out",
     .offset = offsetof(struct bench_values, seconds)},
    {.name = "rows",
     .type = OPTION_TEXT,
     .argument = "PREFIX[,PREFIX]",
     .help = "only rows whose names begin so",
     .offset = offsetof(struct bench_values, rows)},
    {.name = "agent",
     .type = OPTION_FLAG,
     .help = "measure hutch agent, beside its model and its cells, in place of cells and sessions",
     .offset = offsetof(struct bench_values, agent)},
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
    .synopsis = "[OPTION]...",
    .summary = "Measure what cells and sessions cost on this host, beside plain programs.",
    .options = bench_options,
    .option_count = ARRAY_LENGTH(bench_options),
    .exits = bench_exits,
    .values_size = sizeof(struct bench_values),
    .defaults = bench_defaults,
    .main = bench_main,
};
