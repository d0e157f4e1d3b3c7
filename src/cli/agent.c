/* SPDX-License-Identifier: Apache-2.0 */
/* See agent.h; agent_main, at the end, is the order of events. */
#include "agent.h"

#include "agent/environment.h"
#include "base/error.h"
#include "base/limits.h"
#include "input.h"
#include "output.h"
#include "stop.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_NO_ANSWER 1
#define EXIT_TIMEOUT 124
#define EXIT_FAILED 125
#define EXIT_INTERRUPTED (128 + SIGINT)

/* Those of runs that ended otherwise than by an answer. */
static const struct {
    const char *exit_reason;
    int status;
} exit_statuses[] = {
    {"refusal", EXIT_NO_ANSWER},  {"content_filter", EXIT_NO_ANSWER},
    {"schema", EXIT_NO_ANSWER},   {"timeout", EXIT_TIMEOUT},
    {"model_error", EXIT_FAILED}, {"cancelled", EXIT_INTERRUPTED},
};

static void desk_done(struct agent_desk *desk)
{
    agent_view_done(&desk->view);
    hutch_conversation_free(desk->conversation);
    agent_file_done(&desk->file);
    hutch_agent_free(desk->agent);
    hutch_engine_free(desk->engine); /* waits until nothing of its cells is left */
    free(desk->headers);
    buf_done(&desk->question);
    buf_done(&desk->system);
    buf_done(&desk->schema);
    agent_values_done(&desk->values);
}
#define auto_desk __attribute__((cleanup(desk_done)))

static void cleanup_result(hutch_agent_result **result)
{
    hutch_agent_result_free(*result);
}

/* ---- a problem ---------------------------------------------------------- */

/* With --stream --json it is the last event. */
static int report(const struct agent_desk *desk, const struct problem *problem)
{
    const struct agent_values *values = &desk->values;
    const char *head = values->stream ? "{\"event\":\"error\"," : "{";

    return problem_report_behind(problem, agent_command.name, values->json ? head : NULL);
}

static int report_error(const struct agent_desk *desk, const struct hutch_error *err)
{
    struct problem problem;

    problem_take(&problem, err);
    return report(desk, &problem);
}

/* ---- the answer --------------------------------------------------------- */

static void say(const char *format, ...) PRINTF_LIKE(1, 2);
static void say(const char *format, ...)
{
    char text[2048];
    va_list args;
    auto_buf struct buf line = BUF_MAX(8192);

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    buf_append_text(&line, "hutch: ");
    problem_append_line(&line, text);
    buf_append_text(&line, "\n");
    IGNORE_RESULT(output_write(STDERR_FILENO, buf_text(&line), line.length));
}

static bool ended_by(const hutch_agent_result *result, const char *reason)
{
    return strcmp(result->exit_reason, reason) == 0;
}

/* Says how a run ended that has no whole answer of the model's own accord. */
static void say_end(const struct agent_values *values, const hutch_agent_result *result)
{
    const char *message = result->error_message ? result->error_message : "no reason is known";

    if (ended_by(result, "max_agent_steps"))
        say("the model had its %llu steps (--max-steps) and was made to answer without more tools",
            (unsigned long long)values->max_steps);
    else if (ended_by(result, "token_budget"))
        say("the %llu tokens of --max-total-tokens were used up; the model was made to answer "
            "without more tools",
            (unsigned long long)values->max_total_tokens);
    else if (ended_by(result, "length"))
        say("the answer is cut off: the server ended it at its limit of tokens (--max-tokens %llu)",
            (unsigned long long)values->max_tokens);
    else if (ended_by(result, "refusal"))
        say("the model refused to answer");
    else if (ended_by(result, "content_filter"))
        say("the content filter of the server ended the answer");
    else if (ended_by(result, "schema"))
        say("the answer does not follow the schema: %s", message);
    else if (ended_by(result, "timeout"))
        say("time limit of %.15g s exceeded (--timeout-total)", values->timeout_total_seconds);
    else if (ended_by(result, "cancelled"))
        say("interrupted");
    else if (ended_by(result, "model_error"))
        say("%s", message);
}

static int exit_status_of(const hutch_agent_result *result)
{
    for (size_t i = 0; i < ARRAY_LENGTH(exit_statuses); i++) {
        if (ended_by(result, exit_statuses[i].exit_reason))
            return exit_statuses[i].status;
    }
    return 0;
}

static int write_text(const char *text, size_t length)
{
    return output_write(STDOUT_FILENO, text, length);
}

static int print_json(const struct agent_desk *desk, const hutch_agent_result *result,
                      struct hutch_error *err, int *ret_failure)
{
    char *json;
    const char *text;
    int failure = 0;

    if (hutch_agent_result_to_json(result, &json, err) < 0)
        return err->code;
    text = json;
    if (desk->values.stream) {
        failure = write_text("{\"event\":\"result\",", 18);
        text++; /* its opening brace */
    }
    if (failure == 0)
        failure = write_text(text, strlen(text));
    if (failure == 0)
        failure = write_text("\n", 1);
    hutch_free(json);
    *ret_failure = failure;
    return 0;
}

/* Streamed text is there already. */
static int print_answer(const struct agent_desk *desk, const hutch_agent_result *result,
                        struct hutch_error *err, int *ret_failure)
{
    struct safe_text safe = {.after_return = false};
    auto_buf struct buf text = BUF_MAX(LIMIT_REPLY_BYTES * 2);

    if (desk->values.json)
        return print_json(desk, result, err, ret_failure);
    *ret_failure = 0;
    if (desk->values.stream || result->answer.length == 0)
        return 0;
    safe_text_append(&text, &safe, result->answer.data, result->answer.length);
    safe_text_end(&text, &safe);
    if (text.length > 0 && text.data[text.length - 1] != '\n')
        buf_append_text(&text, "\n");
    if (buf_check(&text, err) < 0)
        return err->code;
    *ret_failure = write_text(buf_text(&text), text.length);
    return 0;
}

/* Prints what came of a question; returns the exit status. */
static int show_result(const struct agent_desk *desk, const hutch_agent_result *result)
{
    struct hutch_error err;
    int failure = 0;

    if (print_answer(desk, result, &err, &failure) < 0)
        return report_error(desk, &err);
    if (failure != 0)
        return output_status(failure, 0);
    say_end(&desk->values, result);
    return exit_status_of(result);
}

/* ---- a question --------------------------------------------------------- */

/* After an interrupt: a new token, and output again. */
static int go_on(struct agent_desk *desk)
{
    struct hutch_error err;

    if (stop_renew(&desk->cancel, &err) < 0)
        return report_error(desk, &err);
    if (!desk->view.inside_line && isatty(STDERR_FILENO)) /* behind the ^C of the terminal */
        IGNORE_RESULT(output_write(STDERR_FILENO, "\n", 1));
    desk->view.cancel = desk->cancel;
    desk->view.failure = 0;
    return 0;
}

static int save(struct agent_desk *desk, struct problem *problem)
{
    if (desk->file.fd < 0)
        return 0;
    return agent_file_save(&desk->file, desk->conversation, problem);
}

int agent_ask(struct agent_desk *desk, const char *question, size_t length, bool goes_on)
{
    struct hutch_error err;
    struct problem problem;
    __attribute__((cleanup(cleanup_result))) hutch_agent_result *result = NULL;
    const struct hutch_agent_run_options options = {
        .size = sizeof(options),
        .on_event = agent_view_event,
        .user = &desk->view,
        .cancel = desk->cancel,
        .conversation = desk->conversation,
    };

    int done = hutch_agent_run(desk->agent, question, length, &options, &result, &err);
    int saved = save(desk, &problem);
    if (goes_on && stop_status() == EXIT_INTERRUPTED && go_on(desk) != 0)
        return EXIT_FAILED;
    agent_view_end(&desk->view);
    int status;
    if (stop_status() != 0)
        status = stop_status();
    else if (desk->view.failure != 0)
        status = output_status(desk->view.failure, 0);
    else
        status = done < 0 ? report_error(desk, &err) : show_result(desk, result);
    if (saved < 0) {
        int failed = report(desk, &problem);
        return status == 0 ? failed : status;
    }
    return status;
}

/* ---- before a question -------------------------------------------------- */

/* The file of an option. */
static int load(const struct agent_values *values, const char *field, const char *path,
                struct buf *content, struct problem *problem)
{
    bool stdin_is_question = !values->question || strcmp(values->question, "-") == 0;

    if (!path)
        return 0;
    if (strcmp(path, "-") == 0 && stdin_is_question)
        return problem_set(
            problem, HUTCH_ERR_INVALID,
            "option '--%s': value '-' and the question cannot both be standard input", field);
    return input_read(field, path, content, problem);
}

/* A question by a pipe or a file; line ends behind it belong to the shell. */
static int read_question(struct agent_desk *desk, struct problem *problem)
{
    struct buf *question = &desk->question;
    struct hutch_error err;
    bool given = desk->values.question && strcmp(desk->values.question, "-") != 0;
    const char *source = given ? "argument QUESTION" : "standard input";

    if (given)
        buf_append_text(question, desk->values.question);
    else if (input_read("question", "-", question, problem) < 0)
        return problem->code;
    while (question->length > 0 && strchr("\r\n", question->data[question->length - 1]))
        question->data[--question->length] = '\0';
    if (buf_check(question, &err) < 0)
        return problem_take(problem, &err);
    if (strspn(buf_text(question), " \t\r\n") == question->length)
        return problem_set(problem, HUTCH_ERR_INVALID, "%s: is empty; a question has to be in it",
                           source);
    return 0;
}

static int build_cells(struct agent_desk *desk, struct problem *problem)
{
    struct hutch_error err;

    hutch_request_init(&desk->cells);
    hutch_gate_init(&desk->gate);
    desk->cells.gate = &desk->gate;
    desk->cells.timeout_seconds = desk->values.timeout_seconds;
    if (cell_values_apply(&desk->values.cell, &desk->cells, &err) < 0)
        return problem_take(problem, &err);
    return 0;
}

static int list_headers(struct agent_desk *desk, struct problem *problem)
{
    const struct text_list *list = &desk->values.headers;

    desk->headers = calloc(list->count + 1, sizeof(*desk->headers));
    if (!desk->headers)
        return problem_set(problem, HUTCH_ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < list->count; i++)
        desk->headers[i] = list->items[i];
    return 0;
}

/* A list with commas, as it is typed in quotes. */
static char *without_blanks(const char *list)
{
    char *copy = strdup(list), *to = copy;

    for (; copy && *list; list++) {
        if (*list != ' ')
            *to++ = *list;
    }
    if (copy)
        *to = '\0';
    return copy;
}

/* An error of the library that names a member: it is that of an option here. */
static int refuse_option(const struct hutch_error *err, struct problem *problem)
{
    static const struct {
        const char *member, *option;
    } options[] = {
        {"builtin_tools", "--tools"},
        {"headers", "--header"},
        {"extra", "--extra"},
        {"schema", "--schema"},
        {"system_prompt", "--system"},
        {"key_file", "--key-file"},
        {"model", "--model"},
        {"cells: memory_mb", "-m"},
        {"cells: timeout_seconds", "-t"},
        {"cells: cpus", "--cpus"},
        {"cells: backend", "--backend"},
        {"cells: require", "--require"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(options) && err->code == HUTCH_ERR_INVALID; i++) {
        const char *member = options[i].member;
        size_t length = strlen(member);
        if (strncmp(err->message, member, length) != 0 || !strchr(":.[", err->message[length]))
            continue;
        const char *rest = err->message + length + strcspn(err->message + length, ":.");
        return problem_set(problem, err->code, "option '%s': %s", options[i].option,
                           rest + strspn(rest, ":. "));
    }
    return problem_take(problem, err);
}

static int make_agent(struct agent_desk *desk, const struct settings *settings,
                      struct problem *problem)
{
    const struct agent_values *values = &desk->values;
    struct hutch_agent_options options;
    struct hutch_error err;

    auto_free char *tools = without_blanks(values->tools ? values->tools : "");
    if (!tools)
        return problem_set(problem, HUTCH_ERR_NO_MEMORY, "out of memory");
    hutch_agent_options_init(&options);
    options.environment = settings->environment;
    options.model = values->model;
    options.base_url = values->base_url;
    options.key_file = values->key_file;
    options.headers = desk->headers;
    options.temperature = values->temperature;
    options.max_tokens = (uint32_t)values->max_tokens;
    options.extra = values->extra;
    options.stream = values->stream;
    options.retries = (uint32_t)values->retries;
    options.max_steps = (uint32_t)values->max_steps;
    options.max_total_tokens = values->max_total_tokens;
    options.timeout_seconds = values->timeout_total_seconds;
    if (values->system_file)
        options.system_prompt = buf_text(&desk->system);
    if (values->schema_file)
        options.schema = buf_text(&desk->schema);
    if (values->tools)
        options.builtin_tools = tools;
    options.engine = options.builtin_tools[0] ? desk->engine : NULL;
    options.cells = &desk->cells;
    return hutch_agent_new(&options, &desk->agent, &err) < 0 ? refuse_option(&err, problem) : 0;
}

static int open_conversation(struct agent_desk *desk, struct problem *problem)
{
    struct hutch_error err;
    const char *path = desk->values.session_file;

    if (path)
        return agent_file_open(&desk->file, path, &desk->conversation, problem);
    return hutch_conversation_new(&desk->conversation, &err) < 0 ? problem_take(problem, &err) : 0;
}

static int prepare(struct agent_desk *desk, const struct settings *settings,
                   struct problem *problem)
{
    const struct agent_values *values = &desk->values;

    if (build_cells(desk, problem) < 0 || list_headers(desk, problem) < 0 ||
        load(values, "system", values->system_file, &desk->system, problem) < 0 ||
        load(values, "schema", values->schema_file, &desk->schema, problem) < 0 ||
        cli_engine_new(settings, &desk->engine, problem) < 0 ||
        make_agent(desk, settings, problem) < 0 || open_conversation(desk, problem) < 0)
        return problem->code;
    return 0;
}

/* Whether a terminal takes colours, as far as its user wants any (no-color.org). */
static bool wants_colours(const struct settings *settings)
{
    const char *terminal = environment_get(settings->environment, "TERM");

    return isatty(STDOUT_FILENO) && !environment_get(settings->environment, "NO_COLOR") &&
           terminal && strcmp(terminal, "dumb") != 0;
}

static void choose_view(struct agent_desk *desk, const struct settings *settings)
{
    const struct agent_values *values = &desk->values;
    struct agent_view *view = &desk->view;

    if (values->stream)
        view->kind = values->json ? AGENT_VIEW_LINES : AGENT_VIEW_TEXT;
    else if (!values->json && isatty(STDERR_FILENO))
        view->kind = AGENT_VIEW_CALLS;
    view->colours = wants_colours(settings);
    view->cancel = desk->cancel;
}

int agent_main(const struct settings *settings, char **argv)
{
    struct hutch_error err;
    struct problem problem;
    auto_desk struct agent_desk desk = {
        .question = BUF_MAX(LIMIT_QUESTION_BYTES),
        .system = BUF_MAX(LIMIT_PROMPT_BYTES),
        .schema = BUF_MAX(LIMIT_SCHEMA_BYTES),
        .file = AGENT_FILE_NONE,
    };

    agent_values_init(&desk.values);
    int status = command_begin(&agent_command, argv, &desk.values);
    if (status >= 0)
        return status;
    bool asks = !desk.values.question && isatty(STDIN_FILENO);
    if (prepare(&desk, settings, &problem) < 0 || (!asks && read_question(&desk, &problem) < 0))
        return report(&desk, &problem);
    if (stop_install(&desk.cancel, &err) < 0)
        return report_error(&desk, &err);
    choose_view(&desk, settings);
    return asks ? agent_prompt(&desk)
                : agent_ask(&desk, buf_text(&desk.question), desk.question.length, false);
}
