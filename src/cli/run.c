/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch run: one program in a cell of its own. Reads the command line and the
 * files that it names, builds the request, runs it, and turns the result into
 * output and an exit status; run_main, at the end, is the order of events.
 */
#include "cell_options.h"
#include "cli.h"

#include "base/error.h"
#include "base/limits.h"
#include "base/quote.h"
#include "figures.h"
#include "input.h"
#include "output.h"
#include "sandbox/request.h"
#include "stop.h"
#include "transfer.h"

#include <string.h>
#include <unistd.h>

#define EXIT_TIMEOUT 124
#define EXIT_REFUSED 126
#define EXIT_INCOMPLETE 125 /* a file to download has not come */

struct run_values {
    const char *language; /* NULL: guessed */
    const char *code;
    const char *file;
    double timeout_seconds;
    struct cell_values cell;
    struct text_list env;
    const char *stdin_file;
    struct text_list uploads, downloads;
    bool gate;
    bool tidy;
    bool json;
    bool quiet;
};

/* The request and the memory that it borrows. */
struct job {
    struct run_values values;
    struct buf code;
    struct buf stdin_bytes;
    struct hutch_env *env;
    struct hutch_gate gate;
    struct transfers transfers;
    struct hutch_request request;
};

/* Where the program's output goes while it runs. */
struct passage {
    hutch_cancel *cancel;
    int failure;           /* errno of the first write that failed; 0 */
    bool stderr_open_line; /* stderr does not end with a line break */
};

static void job_done(struct job *job)
{
    text_list_done(&job->values.env);
    cell_values_done(&job->values.cell);
    text_list_done(&job->values.uploads);
    text_list_done(&job->values.downloads);
    transfers_done(&job->transfers);
    buf_done(&job->code);
    buf_done(&job->stdin_bytes);
    free(job->env);
}
#define auto_job __attribute__((cleanup(job_done)))

static void cleanup_engine(hutch_engine **engine)
{
    hutch_engine_free(*engine);
}

static void cleanup_result(hutch_result **result)
{
    hutch_result_free(*result);
}

/* ---- options ---- */

#define VALUE(member) .offset = offsetof(struct run_values, member)

static const struct option_spec run_options[] = {
    {.type = OPTION_OPERAND,
     .argument = "FILE",
     .help = "the program, a regular file of at most 1 MiB; - for standard input",
     VALUE(file)},
    {.name = "language",
     .letter = 'l',
     .type = OPTION_CHOICE,
     .argument = "LANG",
     .choices = cell_languages,
     .help = "language of the program, guessed from the ending of FILE (.py, .js, .mjs, .ts, "
             ".sh), else python",
     VALUE(language)},
    {.name = "code",
     .letter = 'c',
     .type = OPTION_TEXT,
     .argument = "CODE",
     .help = "the program itself",
     VALUE(code)},
    CELL_OPTION_TIMEOUT(offsetof(struct run_values, timeout_seconds), "wall-clock limit"),
    CELL_OPTION_MEMORY(offsetof(struct run_values, cell)),
    CELL_OPTION_CPUS(offsetof(struct run_values, cell)),
    {.name = "env",
     .letter = 'e',
     .type = OPTION_LIST,
     .argument = "K=V",
     .help = "environment variable of the program",
     VALUE(env)},
    {.name = "stdin",
     .type = OPTION_TEXT,
     .argument = "FILE",
     .help = "standard input of the program, at most 16 MiB; - for hutch's own; empty without it",
     VALUE(stdin_file)},
    {.name = "upload",
     .type = OPTION_LIST,
     .argument = "LOCAL:CELL",
     .help = "put a regular file into the home folder of the cell, of any size that fits",
     VALUE(uploads)},
    {.name = "download",
     .type = OPTION_LIST,
     .argument = "CELL[:LOCAL]",
     .help = "fetch a file from the home folder of the cell when the program has ended",
     VALUE(downloads)},
    CELL_OPTION_BACKEND(offsetof(struct run_values, cell)),
    CELL_OPTION_REQUIRE(offsetof(struct run_values, cell),
                        "do not run without this layer of isolation"),
    {.name = "gate",
     .type = OPTION_FLAG,
     .help = "refuse a python program that imports os, subprocess, sockets or HTTP clients, or "
             "calls eval and the like; advice, not a wall",
     VALUE(gate)},
    {.name = "tidy",
     .type = OPTION_FLAG,
     .help = "take the program out of a Markdown fence and dedent it; python: handle !command and "
             "%magic lines",
     VALUE(tidy)},
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "print the result, or the error, as one JSON object on a line",
     VALUE(json)},
    {.name = "quiet",
     .letter = 'q',
     .type = OPTION_FLAG,
     .help = "nothing on stderr about a limit that ended the program, nor the names of files that "
             "figures were written to (on a terminal: hutch-figure-1.png and so on)",
     VALUE(quiet)},
    OPTION_HELP_ROW,
};

static const struct exit_row run_exits[] = {
    {"0-255", "the program's own status; 128+N when signal N killed it"},
    EXIT_ROW_USAGE,
    {"124", "the program was ended by its time limit"},
    EXIT_ROW_FAILURE,
    {"126", "the gate refused the program; nothing of it ran"},
    EXIT_ROWS_ENDED,
    {NULL, NULL},
};

static void run_defaults(void *memory)
{
    struct run_values *values = memory;
    struct hutch_request request;

    hutch_request_init(&request);
    *values = (struct run_values){.timeout_seconds = request.timeout_seconds};
    cell_values_init(&values->cell, &request);
}

/* ---- from options to a request ---- */

/* The language that the ending of a file's name stands for; NULL for none. */
static const char *guess_language(const char *file)
{
    static const struct {
        const char *ending;
        const char *language;
    } endings[] = {
        {".py", "python"},      {".sh", "shell"},      {".js", "javascript"},
        {".mjs", "javascript"}, {".ts", "javascript"},
    };
    const char *dot = file ? strrchr(file, '.') : NULL;

    for (size_t i = 0; dot && i < ARRAY_LENGTH(endings); i++) {
        if (strcmp(dot, endings[i].ending) == 0)
            return endings[i].language;
    }
    return NULL;
}

static int choose_language(struct job *job, struct problem *problem)
{
    struct hutch_error err;
    const char *name = job->values.language;

    if (!name)
        name = guess_language(job->values.file);
    if (!name)
        return 0;
    if (language_parse(name, &job->request.language, &err) < 0)
        return problem_take(problem, &err);
    return 0;
}

static int load_code(struct job *job, struct problem *problem)
{
    const struct run_values *values = &job->values;

    if (!values->code && !values->file)
        return problem_set(problem, HUTCH_ERR_INVALID,
                           "no program: give -c CODE, a FILE, or - for standard input");
    if (values->code && values->file)
        return problem_set(problem, HUTCH_ERR_INVALID,
                           "argument %s: is one too many beside -c CODE",
                           quote_text(values->file).text);
    if (values->code) {
        job->request.code = values->code;
        job->request.code_length = strlen(values->code);
        return 0;
    }
    if (input_read("code", values->file, &job->code, problem) < 0)
        return problem->code;
    job->request.code = buf_text(&job->code);
    job->request.code_length = job->code.length;
    return 0;
}

static int load_stdin(struct job *job, struct problem *problem)
{
    const struct run_values *values = &job->values;

    if (!values->stdin_file)
        return 0;
    if (strcmp(values->stdin_file, "-") == 0 && values->file && strcmp(values->file, "-") == 0)
        return problem_set(
            problem, HUTCH_ERR_INVALID,
            "option '--stdin': value '-' and FILE '-' cannot both be standard input");
    if (input_read("stdin", values->stdin_file, &job->stdin_bytes, problem) < 0)
        return problem->code;
    job->request.stdin_data = buf_text(&job->stdin_bytes);
    job->request.stdin_length = job->stdin_bytes.length;
    return 0;
}

static int split_env(struct job *job, struct problem *problem)
{
    const struct text_list *list = &job->values.env;

    job->env = calloc(list->count + 1, sizeof(*job->env));
    if (!job->env)
        return problem_set(problem, HUTCH_ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < list->count; i++) {
        char *equals = strchr(list->items[i], '=');
        if (!equals)
            return problem_set(problem, HUTCH_ERR_INVALID,
                               "option '-e': value %s is not of the form NAME=VALUE",
                               quote_text(list->items[i]).text);
        *equals = '\0';
        job->env[i] = (struct hutch_env){.name = list->items[i], .value = equals + 1};
    }
    job->request.env = job->env;
    job->request.env_count = list->count;
    return 0;
}

static int choose_cell(struct job *job, struct problem *problem)
{
    struct hutch_error err;

    if (cell_values_apply(&job->values.cell, &job->request, &err) < 0)
        return problem_take(problem, &err);
    return 0;
}

/* Usage first, then what this version lacks, then files, which may block. */
static int build_request(struct job *job, struct problem *problem)
{
    struct hutch_request *request = &job->request;

    hutch_request_init(request);
    request->timeout_seconds = job->values.timeout_seconds;
    request->tidy = job->values.tidy;
    if (job->values.gate) {
        hutch_gate_init(&job->gate);
        request->gate = &job->gate;
    }
    if (choose_language(job, problem) < 0 || split_env(job, problem) < 0 ||
        choose_cell(job, problem) < 0 || load_code(job, problem) < 0 ||
        load_stdin(job, problem) < 0 ||
        transfers_open(&job->transfers, &job->values.uploads, &job->values.downloads, problem) < 0)
        return problem->code;
    return 0;
}

/* ---- running ---- */

/* Passes a piece of output on. The first failure ends the run; what the cell
 * still printed by then is dropped. */
static void pass_output(void *user, enum hutch_stream stream, const char *data, size_t length)
{
    struct passage *passage = user;

    if (passage->failure != 0)
        return;
    int fd = stream == HUTCH_STDOUT ? STDOUT_FILENO : STDERR_FILENO;
    passage->failure = output_write(fd, data, length);
    if (passage->failure != 0)
        hutch_cancel_trigger(passage->cancel);
    else if (stream == HUTCH_STDERR)
        passage->stderr_open_line = data[length - 1] != '\n';
}

/* The sentence about the limit that ended the program, on a line of its own. */
static void say_limit(const hutch_result *result, bool open_line)
{
    auto_buf struct buf line = BUF_MAX(LIMIT_CLI_TEXT_BYTES);

    bool limit = result->error_type && (strcmp(result->error_type, "timeout") == 0 ||
                                        strcmp(result->error_type, "resource_limit") == 0);
    if (!limit || !result->error_message)
        return;
    buf_append_text(&line, open_line ? "\nhutch: " : "hutch: ");
    problem_append_line(&line, result->error_message);
    buf_append_text(&line, "\n");
    IGNORE_RESULT(output_write(STDERR_FILENO, buf_text(&line), line.length));
}

static int exit_status_of(const hutch_result *result)
{
    switch (result->exit_code) {
    case -1:
        return EXIT_TIMEOUT;
    case -2:
        return EXIT_REFUSED;
    default:
        return result->exit_code;
    }
}

static int print_json(const hutch_result *result, struct problem *problem)
{
    struct hutch_error err;
    char *json;

    if (hutch_result_to_json(result, &json, &err) < 0) {
        problem_take(problem, &err);
        return problem_report(problem, run_command.name, true);
    }
    int failure = output_write(STDOUT_FILENO, json, strlen(json));
    hutch_free(json);
    if (failure == 0)
        failure = output_write(STDOUT_FILENO, "\n", 1);
    return output_status(failure, exit_status_of(result));
}

/* Runs the job's request; returns the exit status. */
static int run_request(hutch_engine *engine, struct job *job, hutch_cancel *cancel,
                       struct problem *problem)
{
    bool json = job->values.json;
    struct hutch_error err;
    struct passage passage = {.cancel = cancel};
    const struct hutch_run_options options = {
        .size = sizeof(options),
        .on_output = json ? NULL : pass_output,
        .user = &passage,
        .cancel = cancel,
        .uploads = job->transfers.uploads,
        .upload_count = job->transfers.upload_count,
        .downloads = job->transfers.downloads,
        .download_count = job->transfers.download_count,
    };
    __attribute__((cleanup(cleanup_result))) hutch_result *result = NULL;

    int done = hutch_run(engine, &job->request, &options, &result, &err);
    if (stop_status() != 0)
        return stop_status();
    if (passage.failure != 0)
        return output_status(passage.failure, 0);
    if (done < 0) {
        problem_take(problem, &err);
        return problem_report(problem, run_command.name, json);
    }
    if (!json && isatty(STDOUT_FILENO))
        passage.stderr_open_line =
            figures_save(result, job->values.quiet, passage.stderr_open_line);
    if (!json && !job->values.quiet)
        say_limit(result, passage.stderr_open_line);
    bool complete = transfers_finish(&job->transfers);
    int status = json ? print_json(result, problem) : exit_status_of(result);
    return status == 0 && !complete ? EXIT_INCOMPLETE : status;
}

/* Makes what a run needs, and runs. Ending the engine waits until nothing of
 * the cell is left. */
static int run_job(const struct settings *settings, struct job *job, struct problem *problem)
{
    struct hutch_error err;
    hutch_cancel *cancel;
    __attribute__((cleanup(cleanup_engine))) hutch_engine *engine = NULL;

    if (cli_engine_new(settings, &engine, problem) < 0)
        return problem_report(problem, run_command.name, job->values.json);
    if (stop_install(&cancel, &err) < 0) {
        problem_take(problem, &err);
        return problem_report(problem, run_command.name, job->values.json);
    }
    return run_request(engine, job, cancel, problem);
}

static int run_main(const struct settings *settings, char **argv)
{
    struct problem problem;
    auto_job struct job job = {
        .code = BUF_MAX(LIMIT_CODE_BYTES),
        .stdin_bytes = BUF_MAX(LIMIT_STDIN_BYTES),
    };

    run_defaults(&job.values);
    int status = command_begin(&run_command, argv, &job.values);
    if (status >= 0)
        return status;
    if (build_request(&job, &problem) < 0)
        return problem_report(&problem, run_command.name, job.values.json);
    return run_job(settings, &job, &problem);
}

const struct command run_command = {
    .name = "run",
    .synopsis = "[OPTION]... [-c CODE | FILE | -]",
    .summary = "Run a program in a cell of its own.",
    .options = run_options,
    .option_count = ARRAY_LENGTH(run_options),
    .exits = run_exits,
    .values_size = sizeof(struct run_values),
    .defaults = run_defaults,
    .main = run_main,
};
