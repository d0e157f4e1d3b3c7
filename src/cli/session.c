/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch session: one session, driven by JSON lines on standard input, with a line on
 * standard output for each: those that are about files in their order, and all others in
 * theirs.
 *
 *     {"code": …}             an exec: the request's fields; the answer is its result
 *     {"op": "info"}          the session: its id, its language, when it expires
 *     {"op": "interrupt"}     interrupts the exec that runs, at once; no answer
 *
 *     {"op": "put", …}        and get, list, delete: files, while execs run; the answer has
 *                             the op of the line (session_files.h)
 *
 * An answer has the id of its line, if that has one. What cannot be done is answered by
 * {"error": {"code", "message", "retry_safe"}}. The main thread reads, and waits for nobody
 * while it does, so that an interrupt does not wait; a second one runs the execs, a third
 * one sees to files. When an answer cannot be written everything ends.
 */
#include "cell_options.h"
#include "cli.h"

#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/quote.h"
#include "output.h"
#include "sandbox/request.h"
#include "session_files.h"
#include "stop.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Lines that were read and wait for their turn, of execs and of files each. */
#define LINES_MAX 1024
#define LINES_BYTES MIB(128)

#define HEAD_BYTES KIB(1) /* what an answer begins with: op, id */

struct session_values {
    const char *language;
    struct cell_values cell;
    double idle_timeout_seconds;
    double lifetime_seconds;
    bool no_checkpoints;
};

struct line {
    char *text; /* NULL where it is not there; then failure says why */
    size_t length;
    enum buf_failure failure;
};

/* Lines that wait for their thread: a ring. */
struct tray {
    struct line lines[LINES_MAX];
    size_t first, count, bytes;
};

/* What the threads share. */
struct desk {
    hutch_session *session;
    hutch_cancel *cancel;
    enum hutch_language language;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tray execs, files;
    bool end;                /* no more lines come */
    int failure;             /* errno of an answer that could not be written; 0 */
    int working;             /* threads that answer */
    int wake;                /* readable when failure or working has changed */
    pthread_mutex_t writing; /* held for a line of output */
};

/* ---- options ---- */

#define VALUE(member) .offset = offsetof(struct session_values, member)

static const struct option_spec session_options[] = {
    {.name = "language",
     .letter = 'l',
     .type = OPTION_CHOICE,
     .argument = "LANG",
     .choices = cell_languages,
     .help = "language of the programs",
     VALUE(language)},
    CELL_OPTION_MEMORY(offsetof(struct session_values, cell)),
    CELL_OPTION_CPUS(offsetof(struct session_values, cell)),
    CELL_OPTION_BACKEND(offsetof(struct session_values, cell)),
    CELL_OPTION_REQUIRE(offsetof(struct session_values, cell),
                        "do not start without this layer of isolation"),
    {.name = "idle-timeout",
     .type = OPTION_NUMBER,
     .argument = "SECONDS",
     .minimum = 1,
     .maximum = LIMIT_IDLE_SECONDS_MAX,
     .help = "how long the session may be without an exec or a file call",
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
    EXIT_ROWS_ENDED,
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
        .idle_timeout_seconds = options.idle_timeout_seconds,
        .lifetime_seconds = options.lifetime_seconds,
    };
    cell_values_init(&values->cell, &request);
}

/* ---- answers ---- */

static void wake(struct desk *desk)
{
    const uint64_t one = 1;

    IGNORE_RESULT(write(desk->wake, &one, sizeof(one)) < 0);
}

/* Nobody reads the answers any more: ends what runs, and the reading. */
static void fail(struct desk *desk, int failure)
{
    pthread_mutex_lock(&desk->lock);
    if (desk->failure == 0)
        desk->failure = failure;
    pthread_mutex_unlock(&desk->lock);
    hutch_cancel_trigger(desk->cancel);
    wake(desk);
}

static bool has_failed(struct desk *desk)
{
    pthread_mutex_lock(&desk->lock);
    bool failed = desk->failure != 0;
    pthread_mutex_unlock(&desk->lock);
    return failed;
}

static int write_text(const char *text)
{
    return output_write(STDOUT_FILENO, text, strlen(text));
}

/* A line: an object with members. Those of head come first, if there are any. */
static void answer(struct desk *desk, const struct buf *head, const char *object)
{
    bool has_head = head && head->length > 0;
    const char *const pieces[] = {has_head ? "{" : "", has_head ? buf_text(head) : "",
                                  has_head ? "," : "", has_head ? object + 1 : object, "\n"};
    int failure = 0;

    pthread_mutex_lock(&desk->writing);
    for (size_t i = 0; i < ARRAY_LENGTH(pieces) && failure == 0; i++)
        failure = write_text(pieces[i]);
    pthread_mutex_unlock(&desk->writing);
    if (failure != 0)
        fail(desk, failure);
}

static void answer_error(struct desk *desk, const struct buf *head, const struct hutch_error *err)
{
    auto_buf struct buf text = BUF_MAX(4096);

    buf_append_text(&text, "{");
    append_error(&text, err);
    buf_append_text(&text, "}");
    answer(desk, head, buf_text(&text));
}

static void answer_info(struct desk *desk, const struct buf *head)
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
    answer(desk, head, buf_text(&text));
}

/* ---- fields ---- */

static const char *const op_fields[] = {"op", "id", NULL};
static const char *const exec_fields[] = {"code",
                                          "language",
                                          "stdin",
                                          "env",
                                          "timeout_seconds",
                                          "max_output_bytes",
                                          "output_encoding",
                                          "tidy",
                                          "gate",
                                          "files",
                                          "return_files",
                                          "id",
                                          NULL};

/* Those that only the start of a session can set, and by what. */
static const struct start_field {
    const char *name, *option;
} start_fields[] = {
    {"memory_mb", "--memory"}, {"cpus", "--cpus"},      {"backend", "--backend"},
    {"require", "--require"},  {"max_processes", NULL}, {"disk_mb", NULL},
    {"owner", NULL},
};

static int check_field(const char *name, const char *what, const char *const *allowed,
                       struct hutch_error *err)
{
    auto_buf struct buf list = BUF_MAX(512);

    for (size_t i = 0; allowed[i]; i++) {
        if (strcmp(allowed[i], name) == 0)
            return 0;
        buf_appendf(&list, "%s%s", i > 0 ? ", " : "", allowed[i]);
    }
    return err_set(err, HUTCH_ERR_INVALID, "%s: is no field of %s; allowed are %s",
                   quote_short(name).text, what, buf_text(&list));
}

static int check_fields(json_t *root, const char *what, const char *const *allowed,
                        struct hutch_error *err)
{
    const char *name;
    json_t *value;

    json_object_foreach(root, name, value)
    {
        if (check_field(name, what, allowed, err) < 0)
            return err->code;
    }
    return 0;
}

static int check_exec_fields(json_t *root, struct hutch_error *err)
{
    for (size_t i = 0; i < ARRAY_LENGTH(start_fields); i++) {
        const struct start_field *field = &start_fields[i];
        if (!json_object_get(root, field->name))
            continue;
        if (!field->option)
            return err_set(err, HUTCH_ERR_INVALID,
                           "%s: belongs to the whole session; hutch session has no option for it",
                           field->name);
        return err_set(err, HUTCH_ERR_INVALID,
                       "%s: belongs to the whole session; start hutch session with %s", field->name,
                       field->option);
    }
    if (check_fields(root, "an exec", exec_fields, err) < 0)
        return err->code;
    if (!json_object_get(root, "code"))
        return err_set(err, HUTCH_ERR_INVALID, "code or op is missing");
    return 0;
}

/* ---- lines that are no files' ---- */

/* The request of an exec. The id is not for its parser, to which it is no field. */
static int parse_exec(const struct line *line, json_t *root, hutch_json_request **ret_request,
                      struct hutch_error *err)
{
    if (!json_object_get(root, "id"))
        return hutch_json_request_parse(line->text, line->length, ret_request, err);
    json_object_del(root, "id");
    char *text = json_dumps(root, JSON_COMPACT);
    if (!text)
        return err_no_memory(err);
    int code = hutch_json_request_parse(text, strlen(text), ret_request, err);
    free(text);
    return code;
}

static int run_exec(struct desk *desk, const struct buf *head, const struct hutch_request *request,
                    struct hutch_error *err)
{
    const struct hutch_run_options options = {.size = sizeof(options), .cancel = desk->cancel};
    struct hutch_result *result = NULL;
    char *json;

    if (hutch_session_exec(desk->session, request, &options, &result, err) < 0)
        return err->code;
    int code = hutch_result_to_json(result, &json, err);
    hutch_result_free(result);
    if (code < 0)
        return code;
    answer(desk, head, json);
    hutch_free(json);
    return 0;
}

static int do_exec(struct desk *desk, const struct line *line, json_t *root, const struct buf *head,
                   struct hutch_error *err)
{
    hutch_json_request *parsed;

    bool names_language = json_object_get(root, "language") != NULL;
    if (check_exec_fields(root, err) < 0 || parse_exec(line, root, &parsed, err) < 0)
        return err->code;
    struct hutch_request request = *hutch_json_request_get(parsed);
    if (!names_language)
        request.language = desk->language;
    int code = run_exec(desk, head, &request, err);
    hutch_json_request_free(parsed);
    return code;
}

static int do_operation(struct desk *desk, json_t *root, const json_t *op, const struct buf *head,
                        struct hutch_error *err)
{
    const char *name = json_string_value(op);

    if (!name)
        return err_set(err, HUTCH_ERR_INVALID, "op: is %s; allowed is a string", json_kind(op));
    if (strcmp(name, "info") != 0 && strcmp(name, "interrupt") != 0)
        return err_set(err, HUTCH_ERR_INVALID,
                       "op: %s; allowed are info, interrupt, put, get, list and delete",
                       quote_text(name).text);
    if (check_fields(root, name, op_fields, err) < 0)
        return err->code;
    if (strcmp(name, "info") == 0)
        answer_info(desk, head);
    else
        hutch_session_interrupt(desk->session);
    return 0;
}

/* The value of a line. */
static int read_value(const struct line *line, json_t **ret_root, struct hutch_error *err)
{
    if (line->failure == BUF_TOO_LONG)
        return err_set(err, HUTCH_ERR_INVALID,
                       "line: is longer than allowed, which is 8 MiB (%zu bytes)",
                       (size_t)LIMIT_REQUEST_JSON_BYTES);
    if (!line->text)
        return err_no_memory(err);
    if (json_read(line->text, line->length, LIMIT_REQUEST_JSON_BYTES, ret_root, err) < 0)
        return err_context(err, "request");
    if (!json_is_object(*ret_root))
        return err_set(err, HUTCH_ERR_INVALID, "request: is %s; allowed is an object",
                       json_kind(*ret_root));
    return 0;
}

static int do_line(struct desk *desk, const struct line *line, struct buf *head,
                   struct hutch_error *err)
{
    auto_json json_t *root = NULL;

    if (read_value(line, &root, err) < 0 || append_id(head, root, err) < 0)
        return err->code;
    const json_t *op = json_object_get(root, "op");
    return op ? do_operation(desk, root, op, head, err) : do_exec(desk, line, root, head, err);
}

/* ---- the other threads ---- */

static bool take_line(struct desk *desk, struct tray *tray, struct line *ret_line)
{
    pthread_mutex_lock(&desk->lock);
    while (tray->count == 0 && !desk->end)
        pthread_cond_wait(&desk->changed, &desk->lock);
    bool taken = tray->count > 0;
    if (taken) {
        *ret_line = tray->lines[tray->first];
        tray->first = (tray->first + 1) % LINES_MAX;
        tray->count--;
        tray->bytes -= ret_line->length;
    } else {
        desk->working--;
    }
    pthread_mutex_unlock(&desk->lock);
    if (!taken)
        wake(desk);
    return taken;
}

static void *answer_lines(void *argument)
{
    struct desk *desk = argument;
    struct line line;

    while (take_line(desk, &desk->execs, &line)) {
        auto_buf struct buf head = BUF_MAX(HEAD_BYTES);
        struct hutch_error err;
        if (stop_status() == 0 && !has_failed(desk) && do_line(desk, &line, &head, &err) < 0)
            answer_error(desk, &head, &err);
        free(line.text);
    }
    return NULL;
}

static void *answer_files(void *argument)
{
    struct desk *desk = argument;
    struct line line;

    while (take_line(desk, &desk->files, &line)) {
        auto_buf struct buf text = BUF_MAX(LIMIT_RESULT_JSON_BYTES);
        if (stop_status() == 0 && !has_failed(desk)) {
            answer_files_line(desk->session, desk->cancel, line.text, line.length, &text);
            answer(desk, NULL, buf_text(&text));
        }
        free(line.text);
    }
    return NULL;
}

/* ---- reading ---- */

static bool add_line(struct desk *desk, struct tray *tray, const struct line *line)
{
    pthread_mutex_lock(&desk->lock);
    bool fits = tray->count < LINES_MAX && tray->bytes + line->length <= LINES_BYTES;
    if (fits) {
        tray->lines[(tray->first + tray->count++) % LINES_MAX] = *line;
        tray->bytes += line->length;
        pthread_cond_broadcast(&desk->changed);
    }
    pthread_mutex_unlock(&desk->lock);
    return fits;
}

/* Takes the line over. To wait until there is room would hold up an interrupt behind it. */
static void put_line(struct desk *desk, struct line line)
{
    auto_json json_t *root = NULL;
    auto_buf struct buf head = BUF_MAX(HEAD_BYTES);
    struct hutch_error err;
    struct tray *tray = &desk->execs;

    int code = read_value(&line, &root, &err);
    const char *op = code == 0 ? json_string_value(json_object_get(root, "op")) : NULL;
    if (op && is_files_operation(op)) {
        tray = &desk->files;
        buf_appendf(&head, "\"op\":\"%s\"", op);
    }
    if (code == 0)
        code = append_id(&head, root, &err);
    if (code == 0 && op && strcmp(op, "interrupt") == 0 &&
        check_fields(root, op, op_fields, &err) == 0) {
        hutch_session_interrupt(desk->session);
        free(line.text);
        return;
    }
    if (add_line(desk, tray, &line)) /* the bad ones as well: their thread answers */
        return;
    err_set(&err, HUTCH_ERR_BUSY,
            "too many lines wait: allowed are %d, and %" PRIu64 " MiB of them, of execs and of "
            "files each",
            LINES_MAX, LINES_BYTES >> 20);
    answer_error(desk, &head, &err);
    free(line.text);
}

/* A line has ended. What is empty gets no answer. */
static void end_line(struct desk *desk, struct buf *text)
{
    struct line line = {.failure = text->failure};

    if (line.failure == BUF_OK && text->length > 0) {
        line.text = malloc(text->length);
        line.failure = line.text ? BUF_OK : BUF_NO_MEMORY;
    }
    if (line.text) {
        memcpy(line.text, text->data, text->length);
        line.length = text->length;
    }
    if (line.text || line.failure != BUF_OK)
        put_line(desk, line);
    buf_clear(text);
}

/* Hands on the lines that end in what was read, and keeps the rest in text, which notes
 * that a line is too long and takes no more of it. */
static void split(struct desk *desk, struct buf *text, const char *data, size_t length)
{
    const char *end;

    while ((end = memchr(data, '\n', length))) {
        buf_append(text, data, (size_t)(end - data));
        end_line(desk, text);
        length -= (size_t)(end - data) + 1;
        data = end + 1;
    }
    buf_append(text, data, length);
}

/* Reads once. 1 at the end of standard input, with which a last line ends. */
static int read_some(struct desk *desk, struct buf *text, struct hutch_error *err)
{
    char block[8 << 10];
    ssize_t count = read(STDIN_FILENO, block, sizeof(block));

    if (count < 0 && errno != EINTR && errno != EAGAIN)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read standard input");
    if (count > 0)
        split(desk, text, block, (size_t)count);
    if (count == 0)
        end_line(desk, text);
    return count == 0;
}

static void close_desk(struct desk *desk)
{
    pthread_mutex_lock(&desk->lock);
    desk->end = true;
    pthread_cond_broadcast(&desk->changed);
    pthread_mutex_unlock(&desk->lock);
}

static bool is_working(struct desk *desk)
{
    pthread_mutex_lock(&desk->lock);
    bool working = desk->working > 0;
    pthread_mutex_unlock(&desk->lock);
    return working;
}

/* Waits for what comes first: a line, a signal, the loss of the reader, which a pipe tells
 * without a write, or a word of the other threads. */
static int await(struct desk *desk, int input, bool *ret_readable, struct hutch_error *err)
{
    struct pollfd fds[] = {{.fd = input, .events = POLLIN},
                           {.fd = stop_fd(), .events = POLLIN},
                           {.fd = desk->wake, .events = POLLIN},
                           {.fd = STDOUT_FILENO}};
    uint64_t count;

    *ret_readable = false;
    if (poll(fds, ARRAY_LENGTH(fds), -1) < 0)
        return errno == EINTR ? 0 : err_errno(err, HUTCH_ERR_SYSTEM, errno, "wait for lines");
    if (fds[3].revents & (POLLERR | POLLHUP))
        fail(desk, EPIPE);
    if (fds[2].revents)
        IGNORE_RESULT(read(desk->wake, &count, sizeof(count)) < 0);
    *ret_readable = fds[0].revents != 0;
    return 0;
}

/* Until standard input has ended and all lines are answered, or a signal, or the loss of
 * the reader. */
static int attend(struct desk *desk, struct hutch_error *err)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_REQUEST_JSON_BYTES);
    int input = STDIN_FILENO;
    bool readable;

    while (is_working(desk)) {
        if (await(desk, input, &readable, err) < 0)
            return err->code;
        if (stop_status() != 0 || has_failed(desk))
            return 0;
        int end = readable ? read_some(desk, &text, err) : 0;
        if (end < 0)
            return end;
        if (end) {
            input = -1;
            close_desk(desk);
        }
    }
    return 0;
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
    if (language_parse(values->language, &request.language, err) < 0 ||
        cell_values_apply(&values->cell, &request, err) < 0)
        return err->code;
    desk->language = request.language;
    return hutch_session_open(engine, &request, &options, &desk->session, err);
}

/* Three threads at their work; the exit status. */
static int serve(struct desk *desk)
{
    struct hutch_error err;
    struct problem problem;
    pthread_t execs, files;

    desk->working = 2;
    bool has_execs = pthread_create(&execs, NULL, answer_lines, desk) == 0;
    bool has_files = has_execs && pthread_create(&files, NULL, answer_files, desk) == 0;
    int code = has_files ? attend(desk, &err)
                         : err_set(&err, HUTCH_ERR_SYSTEM, "no other threads can be started");
    close_desk(desk);
    if (has_execs)
        pthread_join(execs, NULL);
    if (has_files)
        pthread_join(files, NULL);
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
    static struct desk desk = {.lock = PTHREAD_MUTEX_INITIALIZER, /* too large for a stack */
                               .writing = PTHREAD_MUTEX_INITIALIZER,
                               .changed = PTHREAD_COND_INITIALIZER};
    auto_close int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct problem problem;
    struct hutch_error err;
    hutch_engine *engine;

    desk.wake = wake;
    if (wake < 0) {
        err_errno(&err, HUTCH_ERR_SYSTEM, errno, "make an event descriptor");
        problem_take(&problem, &err);
        return problem_report(&problem, session_command.name, true);
    }
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
    cell_values_done(&values.cell);
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
