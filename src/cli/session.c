/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch session: one session, driven by JSON lines on standard input, with a line on
 * standard output for each, in the order in which they were asked.
 *
 *     {"code": …}             an exec: the request's fields; the answer is its result
 *     {"op": "info"}          the session: its id, its language, when it expires
 *     {"op": "interrupt"}     interrupts the exec that runs, at once; no answer
 *
 * What cannot be done is answered by {"error": {"code", "message", "retry_safe"}}. The
 * main thread reads, so that an interrupt does not wait; a second one runs the execs.
 */
#include "cli.h"

#include "base/error.h"
#include "base/fd.h"
#include "base/host.h"
#include "base/json.h"
#include "base/limits.h"
#include "output.h"
#include "sandbox/request.h"
#include "stop.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINES_MAX 16 /* that were read and wait for their turn */

struct session_values {
    const char *language;
    uint64_t memory_mb;
    double cpus;
    const char *backend;
    struct text_list require;
    double idle_timeout_seconds;
    double lifetime_seconds;
    bool no_checkpoints;
};

struct line {
    char *text;
    size_t length;
};

/* What the two threads share. */
struct desk {
    hutch_session *session;
    hutch_cancel *cancel;
    enum hutch_language language;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct line lines[LINES_MAX]; /* a ring */
    size_t first, count;
    bool end;    /* no more lines come */
    int failure; /* errno of an answer that could not be written; 0 */
};

/* ---- options ---- */

static const char *const languages[] = {"python", "javascript", "shell", "raw", NULL};
static const char *const backends[] = {"auto", "namespace", NULL};
static const char *const backends_later[] = {"microvm", NULL};

static double memory_maximum(void)
{
    return (double)host_memory_mb();
}

static double cpus_maximum(void)
{
    return host_cpus();
}

#define VALUE(member) .offset = offsetof(struct session_values, member)

static const struct option_spec session_options[] = {
    {.name = "language",
     .letter = 'l',
     .type = OPTION_CHOICE,
     .argument = "LANG",
     .choices = languages,
     .help = "language of the programs",
     VALUE(language)},
    {.name = "memory",
     .letter = 'm',
     .type = OPTION_WHOLE,
     .argument = "MB",
     .minimum = LIMIT_MEMORY_MB_MIN_SHELL,
     .host_maximum = memory_maximum,
     .help = "memory of all processes together in MiB; python and javascript need 64",
     VALUE(memory_mb)},
    {.name = "cpus",
     .type = OPTION_NUMBER,
     .argument = "N",
     .minimum = LIMIT_CPUS_MIN,
     .host_maximum = cpus_maximum,
     .help = "processors, in parts too",
     VALUE(cpus)},
    {.name = "backend",
     .type = OPTION_CHOICE,
     .argument = "NAME",
     .choices = backends,
     .later = backends_later,
     .help = "how the cell is isolated",
     VALUE(backend)},
    {.name = "require",
     .type = OPTION_LIST,
     .argument = "LAYER",
     .help = "do not start without this layer of isolation",
     VALUE(require)},
    {.name = "idle-timeout",
     .type = OPTION_NUMBER,
     .argument = "SECONDS",
     .minimum = 1,
     .maximum = LIMIT_IDLE_SECONDS_MAX,
     .help = "how long the session may be without an exec",
     VALUE(idle_timeout_seconds)},
    {.name = "lifetime",
     .type = OPTION_NUMBER,
     .argument = "SECONDS",
     .minimum = 1,
     .maximum = LIMIT_LIFETIME_SECONDS_MAX,
     .help = "how long it may last in all",
     VALUE(lifetime_seconds)},
    {.name = "no-checkpoints",
     .type = OPTION_FLAG,
     .help = "python: keep no copy of the interpreter to go on from when it is killed",
     VALUE(no_checkpoints)},
    OPTION_HELP_ROW,
};

static const struct exit_row session_exits[] = {
    {"0", "standard input has ended, and every line is answered"},
    EXIT_ROW_USAGE,
    EXIT_ROW_FAILURE,
    {"129", "hutch was ended by SIGHUP"},
    {"130", "hutch was ended by SIGINT"},
    {"141", "the reader of the output went away"},
    {"143", "hutch was ended by SIGTERM"},
    {NULL, NULL},
};

static void session_defaults(void *memory)
{
    struct session_values *values = memory;
    struct hutch_session_options options;
    struct hutch_request request;

    hutch_request_init(&request);
    hutch_session_options_init(&options);
    *values = (struct session_values){
        .language = "python",
        .memory_mb = request.memory_mb,
        .cpus = request.cpus,
        .backend = "auto",
        .idle_timeout_seconds = options.idle_timeout_seconds,
        .lifetime_seconds = options.lifetime_seconds,
    };
}

/* ---- answers ---- */

static void answer(struct desk *desk, const char *text)
{
    auto_buf struct buf line = BUF_MAX(LIMIT_RESULT_JSON_BYTES + 1);

    buf_append_text(&line, text);
    buf_append_text(&line, "\n");
    int failure = output_write(STDOUT_FILENO, buf_text(&line), line.length);
    pthread_mutex_lock(&desk->lock);
    if (desk->failure == 0)
        desk->failure = failure;
    pthread_mutex_unlock(&desk->lock);
}

static void answer_error(struct desk *desk, const struct hutch_error *err)
{
    auto_buf struct buf text = BUF_MAX(4096);

    buf_append_text(&text, "{\"error\":{\"code\":");
    json_append_text(&text, hutch_error_name(err->code));
    buf_append_text(&text, ",\"message\":");
    json_append_text(&text, err->message);
    buf_appendf(&text, ",\"retry_safe\":%s}}", hutch_error_retry_safe(err) ? "true" : "false");
    answer(desk, buf_text(&text));
}

static void answer_info(struct desk *desk)
{
    struct hutch_session_info info;
    auto_buf struct buf text = BUF_MAX(4096);

    hutch_session_get_info(desk->session, &info);
    buf_append_text(&text, "{\"session_id\":");
    json_append_text(&text, info.session_id);
    buf_append_text(&text, ",\"language\":");
    json_append_text(&text, info.language);
    buf_append_text(&text, ",\"idle_timeout_seconds\":");
    json_append_ms(&text, info.idle_timeout_seconds);
    buf_append_text(&text, ",\"lifetime_seconds\":");
    json_append_ms(&text, info.lifetime_seconds);
    buf_append_text(&text, ",\"expires_in_seconds\":");
    json_append_ms(&text, info.expires_in_seconds);
    buf_append_text(&text, "}");
    answer(desk, buf_text(&text));
}

static void answer_exec(struct desk *desk, const struct hutch_request *given)
{
    const struct hutch_run_options options = {.size = sizeof(options), .cancel = desk->cancel};
    struct hutch_request request = *given;
    struct hutch_result *result = NULL;
    struct hutch_error err;
    char *json;

    if (request.language == HUTCH_PYTHON) /* which is what a line means that names none */
        request.language = desk->language;
    if (hutch_session_exec(desk->session, &request, &options, &result, &err) < 0 ||
        hutch_result_to_json(result, &json, &err) < 0) {
        answer_error(desk, &err);
    } else {
        answer(desk, json);
        hutch_free(json);
    }
    hutch_result_free(result);
}

/* The operation that a line asks for; NULL for an exec. The caller's, to be freed. */
static char *operation_of(const struct line *line)
{
    json_t *root = json_loadb(line->text, line->length, JSON_REJECT_DUPLICATES, NULL);
    json_t *op = json_is_object(root) ? json_object_get(root, "op") : NULL;
    char *name = op ? strdup(json_is_string(op) ? json_string_value(op) : "") : NULL;

    json_decref(root);
    return name;
}

static void answer_line(struct desk *desk, const struct line *line)
{
    struct hutch_error err;
    hutch_json_request *request;
    char *op = operation_of(line);

    if (op && strcmp(op, "info") == 0) {
        answer_info(desk);
    } else if (op) {
        err_set(&err, HUTCH_ERR_INVALID, "op: '%.40s'; allowed are info and interrupt", op);
        answer_error(desk, &err);
    } else if (hutch_json_request_parse(line->text, line->length, &request, &err) < 0) {
        answer_error(desk, &err);
    } else {
        answer_exec(desk, hutch_json_request_get(request));
        hutch_json_request_free(request);
    }
    free(op);
}

/* ---- the second thread ---- */

static bool take_line(struct desk *desk, struct line *ret_line)
{
    pthread_mutex_lock(&desk->lock);
    while (desk->count == 0 && !desk->end)
        pthread_cond_wait(&desk->changed, &desk->lock);
    bool taken = desk->count > 0;
    if (taken) {
        *ret_line = desk->lines[desk->first];
        desk->first = (desk->first + 1) % LINES_MAX;
        desk->count--;
        pthread_cond_signal(&desk->changed);
    }
    pthread_mutex_unlock(&desk->lock);
    return taken;
}

static void *answer_lines(void *argument)
{
    struct desk *desk = argument;
    struct line line;

    while (take_line(desk, &line)) {
        if (stop_status() == 0 && desk->failure == 0)
            answer_line(desk, &line);
        free(line.text);
    }
    return NULL;
}

/* ---- reading ---- */

/* Takes the line over. Waits while too many do. */
static void put_line(struct desk *desk, struct line line)
{
    char *op = operation_of(&line);
    bool is_interrupt = op && strcmp(op, "interrupt") == 0;

    free(op);
    if (is_interrupt) {
        hutch_session_interrupt(desk->session);
        free(line.text);
        return;
    }
    pthread_mutex_lock(&desk->lock);
    while (desk->count == LINES_MAX)
        pthread_cond_wait(&desk->changed, &desk->lock);
    desk->lines[(desk->first + desk->count++) % LINES_MAX] = line;
    pthread_cond_signal(&desk->changed);
    pthread_mutex_unlock(&desk->lock);
}

/* Hands on the whole lines of text, and keeps the rest. */
static void split(struct desk *desk, struct buf *text)
{
    size_t begin = 0;

    for (const char *end; (end = memchr(text->data + begin, '\n', text->length - begin));) {
        size_t length = (size_t)(end - text->data) - begin;
        char *copy = length > 0 ? malloc(length) : NULL;
        if (copy) {
            memcpy(copy, text->data + begin, length);
            put_line(desk, (struct line){copy, length});
        }
        begin += length + 1;
    }
    memmove(text->data, text->data + begin, text->length - begin);
    text->length -= begin;
}

/* Until the end of standard input, or a signal. */
static int read_lines(struct desk *desk, struct hutch_error *err)
{
    auto_buf struct buf text = BUF_MAX(2 * LIMIT_REQUEST_JSON_BYTES);
    char block[8 << 10];

    for (;;) {
        struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = stop_fd(), .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "wait for standard input");
        if (stop_status() != 0)
            return 0;
        ssize_t count = fds[0].revents ? read(STDIN_FILENO, block, sizeof(block)) : -1;
        if (count < 0 && (fds[0].revents == 0 || errno == EINTR || errno == EAGAIN))
            continue;
        if (count < 0)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read standard input");
        buf_append(&text, count > 0 ? block : "\n", count > 0 ? (size_t)count : 1);
        if (buf_check(&text, err) < 0)
            return err_context(err, "a line of more than 8 MiB");
        split(desk, &text);
        if (count == 0)
            return 0;
    }
}

/* ---- all of it ---- */

static int open_session(hutch_engine *engine, const struct session_values *values,
                        struct desk *desk, struct hutch_error *err)
{
    struct hutch_session_options options;
    struct hutch_request request;

    hutch_request_init(&request);
    hutch_session_options_init(&options);
    options.idle_timeout_seconds = values->idle_timeout_seconds;
    options.lifetime_seconds = values->lifetime_seconds;
    options.checkpoints = !values->no_checkpoints;
    request.memory_mb = values->memory_mb;
    request.cpus = values->cpus;
    if (language_parse(values->language, &request.language, err) < 0 ||
        backend_parse(values->backend, &request.backend, err) < 0)
        return err->code;
    for (size_t i = 0; i < values->require.count; i++) {
        uint32_t layer;
        if (layer_parse(values->require.items[i], &layer, err) < 0)
            return err->code;
        request.require |= layer;
    }
    desk->language = request.language;
    return hutch_session_open(engine, &request, &options, &desk->session, err);
}

/* Two threads at their work; the exit status. */
static int serve(struct desk *desk)
{
    struct hutch_error err;
    struct problem problem;
    pthread_t thread;

    if (pthread_create(&thread, NULL, answer_lines, desk) != 0) {
        problem_set(&problem, HUTCH_ERR_SYSTEM, "no second thread can be started");
        return problem_report(&problem, session_command.name, true);
    }
    int code = read_lines(desk, &err);
    pthread_mutex_lock(&desk->lock);
    desk->end = true;
    pthread_cond_signal(&desk->changed);
    pthread_mutex_unlock(&desk->lock);
    pthread_join(thread, NULL);
    if (stop_status() != 0)
        return stop_status();
    if (code < 0) {
        problem_take(&problem, &err);
        return problem_report(&problem, session_command.name, true);
    }
    return output_status(desk->failure, 0);
}

static int run_session(const struct settings *settings, const struct session_values *values)
{
    struct desk desk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct problem problem;
    struct hutch_error err;
    hutch_engine *engine;

    if (cli_engine_new(settings, &engine, &problem) < 0)
        return problem_report(&problem, session_command.name, true);
    int status;
    if (stop_install(&desk.cancel, &err) < 0 || open_session(engine, values, &desk, &err) < 0) {
        problem_take(&problem, &err);
        status = problem_report(&problem, session_command.name, true);
    } else {
        status = serve(&desk);
    }
    hutch_session_close(desk.session);
    hutch_engine_free(engine);
    return status;
}

static int session_main(const struct settings *settings, char **argv)
{
    struct session_values values;

    session_defaults(&values);
    int status = command_begin(&session_command, argv, &values);
    if (status < 0)
        status = run_session(settings, &values);
    text_list_done(&values.require);
    return status;
}

const struct command session_command = {
    .name = "session",
    .synopsis = "[OPTION]...",
    .summary = "Run programs one after the other in one cell: JSON lines in, JSON lines out.",
    .options = session_options,
    .option_count = ARRAY_LENGTH(session_options),
    .exits = session_exits,
    .values_size = sizeof(struct session_values),
    .defaults = session_defaults,
    .main = session_main,
};
