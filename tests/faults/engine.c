/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine [--helper-dir DIR] [--cache-dir DIR] [--python FILE] [--user UID]
 *        [--require LAYER]... TASK...
 *
 * A program with an engine, for inject.c to work on. Between its marks it makes
 * an engine, does its tasks on it and frees it. The tasks are "python", "shell",
 * "doctor", and "long", a Python program that takes a while. Then it says what
 * happened, one JSON object a line:
 *
 *     {"run": "python", "printed": true, "result": {…}}
 *     {"run": "shell", "printed": false, "error": {"code": …, "message": …, "retry_safe": …}}
 *     {"left": {"descriptors": 0, "memory": 0, "children": false}}
 *
 * where "printed" says that something of the program was printed, which therefore
 * ran. The shell program has to have each LAYER. With --user all is done as that
 * user.
 */
#include "mark.h"

#include <dirent.h>
#include <hutch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WITH_MEMORY
#include "memory.h"
#endif

#define PYTHON "import sys; print(sys.stdin.read() * 2, flush=True); 6 * 7"
#define LONG "print('begin', flush=True); sum(range(2000000)); print('end'); 6 * 7"
#define TASKS_MAX 2
#define SHELL "cat; echo $GREETING"

struct outcome {
    const char *run; /* NULL: it never came to that */
    bool printed;
    char *json; /* NULL: err says why */
    struct hutch_error err;
};

struct options {
    struct hutch_engine_options engine;
    uint32_t require;
    char **tasks;
    int count;
};

static void note_output(void *user, enum hutch_stream stream, const char *data, size_t length)
{
    struct outcome *outcome = user;

    (void)stream, (void)data;
    outcome->printed = outcome->printed || length > 0;
}

static void run(hutch_engine *engine, const struct hutch_request *request, const char *name,
                struct outcome *outcome)
{
    const struct hutch_run_options options = {
        .size = sizeof(options), .on_output = note_output, .user = outcome};
    hutch_result *result = NULL;

    *outcome = (struct outcome){.run = name};
    if (hutch_run(engine, request, &options, &result, &outcome->err) >= 0 &&
        hutch_result_to_json(result, &outcome->json, &outcome->err) < 0)
        outcome->json = NULL;
    hutch_result_free(result);
}

static void run_python(hutch_engine *engine, const char *name, const char *code,
                       struct outcome *outcome)
{
    struct hutch_request request;

    hutch_request_init(&request);
    request.code = code;
    request.code_length = strlen(code);
    request.stdin_data = "in";
    request.stdin_length = 2;
    run(engine, &request, name, outcome);
}

static void run_shell(hutch_engine *engine, uint32_t require, struct outcome *outcome)
{
    const struct hutch_env env = {"GREETING", "hello"};
    struct hutch_request request;

    hutch_request_init(&request);
    request.language = HUTCH_SHELL;
    request.code = SHELL;
    request.code_length = strlen(SHELL);
    request.env = &env;
    request.env_count = 1;
    request.require = require;
    run(engine, &request, "shell", outcome);
}

static void run_doctor(hutch_engine *engine, struct outcome *outcome)
{
    *outcome = (struct outcome){.run = "doctor"};
    if (hutch_doctor(engine, &outcome->json, &outcome->err) < 0)
        outcome->json = NULL;
}

static void do_task(hutch_engine *engine, const char *task, uint32_t require,
                    struct outcome *outcome)
{
    if (strcmp(task, "python") == 0)
        run_python(engine, task, PYTHON, outcome);
    else if (strcmp(task, "long") == 0)
        run_python(engine, task, LONG, outcome);
    else if (strcmp(task, "shell") == 0)
        run_shell(engine, require, outcome);
    else
        run_doctor(engine, outcome);
}

/* What all of this is for: the calls between the marks are those that may fail. */
static void work(const struct options *options, struct outcome outcomes[TASKS_MAX])
{
    hutch_engine *engine;

    prctl(MARK, MARK_BEGIN, 0, 0, 0);
    if (hutch_engine_new(&options->engine, &engine, &outcomes[0].err) < 0) {
        outcomes[0].run = "engine";
    } else {
        for (int i = 0; i < options->count; i++)
            do_task(engine, options->tasks[i], options->require, &outcomes[i]);
        hutch_engine_free(engine);
    }
    prctl(MARK, MARK_END, 0, 0, 0);
}

/* Texts of errors are one line of printable bytes; what is not would break the JSON. */
static void print_outcome(const struct outcome *outcome)
{
    if (!outcome->run)
        return;
    printf("{\"run\": \"%s\", \"printed\": %s, ", outcome->run,
           outcome->printed ? "true" : "false");
    if (outcome->json) {
        printf("\"result\": %s}\n", outcome->json);
        return;
    }
    printf("\"error\": {\"code\": \"%s\", \"message\": \"", hutch_error_name(outcome->err.code));
    for (const char *at = outcome->err.message; *at != '\0'; at++)
        printf(*at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
    printf("\", \"retry_safe\": %s}}\n", hutch_error_retry_safe(&outcome->err) ? "true" : "false");
}

static long count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    long count = 0;

    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static long count_memory(void)
{
#ifdef WITH_MEMORY
    return memory_live();
#else
    return 0; /* the leak sanitizer looks at it */
#endif
}

static bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Number of a text of digits; a test passes no other. */
static uint32_t number(const char *text)
{
    uint32_t value = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        value = value * 10 + (uint32_t)(*text - '0');
    return value;
}

static bool become(uint32_t uid)
{
    return setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0 &&
           prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0;
}

static bool is_option(const char *argument)
{
    return argument[0] == '-';
}

static bool parse_options(int argc, char **argv, struct options *options)
{
    int i = 1;

    hutch_engine_options_init(&options->engine);
    for (; i + 1 < argc && is_option(argv[i]); i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--helper-dir") == 0)
            options->engine.helper_dir = value;
        else if (strcmp(argv[i], "--cache-dir") == 0)
            options->engine.cache_dir = value;
        else if (strcmp(argv[i], "--python") == 0)
            options->engine.python = value;
        else if (strcmp(argv[i], "--require") == 0)
            options->require |= hutch_layer_from_name(value);
        else if (strcmp(argv[i], "--user") != 0 || !become(number(value)))
            return false;
    }
    options->tasks = argv + i;
    options->count = argc - i;
    return options->count > 0 && options->count <= TASKS_MAX && !is_option(argv[i]);
}

int main(int argc, char **argv)
{
    static char buffer[BUFSIZ]; /* not memory that would count as left */
    struct options options = {.require = 0};
    struct outcome outcomes[TASKS_MAX] = {{0}};

    if (!parse_options(argc, argv, &options)) {
        fprintf(stderr, "engine: wrong options\n");
        return 2;
    }
    setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
    long descriptors = count_descriptors();
    long memory = count_memory();
    work(&options, outcomes);
    for (size_t i = 0; i < TASKS_MAX; i++) {
        print_outcome(&outcomes[i]);
        hutch_free(outcomes[i].json);
    }
    printf("{\"left\": {\"descriptors\": %ld, \"memory\": %ld, \"children\": %s}}\n",
           count_descriptors() - descriptors, count_memory() - memory,
           has_children() ? "true" : "false");
    return 0;
}
