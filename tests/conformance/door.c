/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C API as a front door of the conformance and escape suites: one JSON
 * request a line on standard input, one JSON answer a line on standard output,
 *
 *     {"line": 7, "printed": true, "result": {…}}
 *     {"line": 7, "printed": false, "error": {"code": "…", "message": "…", "retry_safe": true}}
 *
 * where "line" is the number of the request, and "printed" says that output of the
 * program was seen, which therefore ran. The line "doctor" is answered by
 * the engine's report as the result. The line "cancel N" cancels request N, one of
 * the first of which --cancels says how many, and is not answered. Lines for sessions are in
 * door_sessions.h. One engine serves
 * all of them; --threads N threads share it, so answers may come in another order.
 * Uses the public API only. Ends with status 0 at the end of its input.
 */
#include "door_sessions.h"

#include <hutch.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 256
#define MAX_CANCELS 64

struct door {
    hutch_engine *engine;
    pthread_mutex_t input;  /* guards stdin and lines */
    pthread_mutex_t output; /* guards stdout */
    unsigned long lines;
    hutch_cancel *cancels[MAX_CANCELS]; /* of the requests from 1; NULL: there is none */
};

struct options {
    struct hutch_engine_options engine;
    unsigned threads;
    unsigned cancels;
};

static void print_json_string(const char *text)
{
    putchar('"');
    for (const char *at = text; *at; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte < 0x20)
            printf("\\u%04x", byte);
        else if (byte == '"' || byte == '\\')
            printf("\\%c", byte);
        else
            putchar(byte);
    }
    putchar('"');
}

static void print_error(const struct hutch_error *err)
{
    printf("\"error\": {\"code\": ");
    print_json_string(hutch_error_name(err->code));
    printf(", \"message\": ");
    print_json_string(err->message);
    printf(", \"retry_safe\": %s}", hutch_error_retry_safe(err) ? "true" : "false");
}

static void note_output(void *user, enum hutch_stream stream, const char *data, size_t length)
{
    bool *printed = user;

    (void)stream, (void)data;
    *printed = *printed || length > 0;
}

static hutch_cancel *cancel_of(struct door *door, unsigned long number)
{
    return number >= 1 && number <= MAX_CANCELS ? door->cancels[number - 1] : NULL;
}

/* Runs one request; *ret_json is the result, to be freed by hutch_free. */
static int answer(struct door *door, unsigned long number, char *line, size_t length,
                  bool *ret_printed, char **ret_json, struct hutch_error *err)
{
    const struct hutch_run_options options = {.size = sizeof(options),
                                              .on_output = note_output,
                                              .user = ret_printed,
                                              .cancel = cancel_of(door, number)};
    hutch_engine *engine = door->engine;
    hutch_json_request *request = NULL;
    hutch_result *result = NULL;

    if (length == strlen("doctor") && memcmp(line, "doctor", length) == 0)
        return hutch_doctor(engine, ret_json, err);
    if (door_is_session_line(line, length))
        return door_answer_session(engine, line, length, ret_json, err);
    int code = hutch_json_request_parse(line, length, &request, err);
    if (code >= 0)
        code = hutch_run(engine, hutch_json_request_get(request), &options, &result, err);
    if (code >= 0)
        code = hutch_result_to_json(result, ret_json, err);
    hutch_result_free(result);
    hutch_json_request_free(request);
    return code;
}

/* The next line without its end; -1 at the end of the input. */
static ssize_t next_line(struct door *door, char **line, size_t *capacity, unsigned long *number)
{
    pthread_mutex_lock(&door->input);
    ssize_t length = getline(line, capacity, stdin);
    *number = ++door->lines;
    pthread_mutex_unlock(&door->input);
    if (length > 0 && (*line)[length - 1] == '\n')
        length--;
    return length;
}

static unsigned parse_number(const char *text)
{
    unsigned number = 0;

    for (; *text >= '0' && *text <= '9' && number <= MAX_THREADS; text++)
        number = number * 10 + (unsigned)(*text - '0');
    return *text == '\0' && number <= MAX_THREADS ? number : 0;
}

static void cancel(struct door *door, const char *number)
{
    hutch_cancel *token = cancel_of(door, parse_number(number));
    if (token)
        hutch_cancel_trigger(token);
}

static void *serve(void *user)
{
    struct door *door = user;
    char *line = NULL;
    size_t capacity = 0;
    unsigned long number = 0;

    for (ssize_t length; (length = next_line(door, &line, &capacity, &number)) >= 0;) {
        struct hutch_error err;
        bool printed = false;
        char *json = NULL;
        if (length > 0 && strncmp(line, "cancel ", strlen("cancel ")) == 0) {
            line[length] = '\0';
            cancel(door, line + strlen("cancel "));
            continue;
        }
        int code = answer(door, number, line, (size_t)length, &printed, &json, &err);

        pthread_mutex_lock(&door->output);
        printf("{\"line\": %lu, \"printed\": %s, ", number, printed ? "true" : "false");
        if (code < 0)
            print_error(&err);
        else
            printf("\"result\": %s", json);
        printf("}\n");
        fflush(stdout);
        pthread_mutex_unlock(&door->output);
        hutch_free(json);
    }
    free(line);
    return NULL;
}

static int parse_options(int argc, char **argv, struct options *options)
{
    hutch_engine_options_init(&options->engine);
    options->threads = 1;
    options->cancels = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0)
            options->threads = parse_number(argv[i + 1]);
        else if (strcmp(argv[i], "--helper-dir") == 0)
            options->engine.helper_dir = argv[i + 1];
        else if (strcmp(argv[i], "--cache-dir") == 0)
            options->engine.cache_dir = argv[i + 1];
        else if (strcmp(argv[i], "--python") == 0)
            options->engine.python = argv[i + 1];
        else if (strcmp(argv[i], "--bash") == 0)
            options->engine.bash = argv[i + 1];
        else if (strcmp(argv[i], "--node") == 0)
            options->engine.node = argv[i + 1];
        else if (strcmp(argv[i], "--warmth") == 0)
            options->engine.warmth = parse_number(argv[i + 1]);
        else if (strcmp(argv[i], "--parked") == 0)
            options->engine.parked_cells = parse_number(argv[i + 1]);
        else if (strcmp(argv[i], "--preload") == 0)
            options->engine.preload = argv[i + 1];
        else if (strcmp(argv[i], "--zygote-per-owner") == 0)
            options->engine.zygote_per_owner = strcmp(argv[i + 1], "yes") == 0;
        else if (strcmp(argv[i], "--cancels") == 0)
            options->cancels = parse_number(argv[i + 1]);
        else if (strcmp(argv[i], "--cgroup") == 0)
            options->engine.cgroup = argv[i + 1];
        else if (strcmp(argv[i], "--max-cells") == 0)
            options->engine.max_cells = parse_number(argv[i + 1]);
        else if (strcmp(argv[i], "--queue-size") == 0)
            options->engine.queue_size = parse_number(argv[i + 1]);
        else if (strcmp(argv[i], "--queue-timeout") == 0)
            options->engine.queue_timeout_seconds = parse_number(argv[i + 1]);
        else
            return -1;
    }
    return argc % 2 == 1 && options->threads > 0 && options->cancels <= MAX_CANCELS ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct door door = {.input = PTHREAD_MUTEX_INITIALIZER, .output = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[MAX_THREADS];
    struct options options;
    struct hutch_error err;

    if (parse_options(argc, argv, &options) < 0) {
        fprintf(stderr,
                "usage: door [--threads N] [--helper-dir DIR] [--cache-dir DIR] [--python FILE] "
                "[--bash FILE] [--node FILE] [--warmth 0|1|2] [--parked N] [--preload NAMES] "
                "[--zygote-per-owner yes|no] [--cgroup PATH] [--max-cells N] [--queue-size N] "
                "[--queue-timeout SECONDS] [--cancels N]\n");
        return 2;
    }
    if (hutch_engine_new(&options.engine, &door.engine, &err) < 0) {
        fprintf(stderr, "door: %s\n", err.message);
        return 1;
    }
    for (unsigned i = 0; i < options.cancels; i++) {
        if (hutch_cancel_new(&door.cancels[i], &err) < 0) {
            fprintf(stderr, "door: %s\n", err.message);
            return 1;
        }
    }
    for (unsigned i = 0; i < options.threads; i++) {
        if (pthread_create(&threads[i], NULL, serve, &door) != 0) {
            fprintf(stderr, "door: cannot start thread %u\n", i + 1);
            return 1;
        }
    }
    for (unsigned i = 0; i < options.threads; i++)
        pthread_join(threads[i], NULL);
    door_close_sessions();
    hutch_engine_free(door.engine);
    for (unsigned i = 0; i < options.cancels; i++)
        hutch_cancel_free(door.cancels[i]);
    return 0;
}
