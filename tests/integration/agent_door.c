/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent for tests, by its public API: agent_door OPTIONS, where OPTIONS is a JSON object with
 * the members of struct hutch_agent_options, and
 *
 *     "cache_dir"  of an engine for cells; without it there is none
 *     "max_cells"  of that engine
 *     "own"        names of the tools below that the agent has
 *     "helper"     options of another agent, which is a tool of that name
 *
 * reads a JSON object a line:
 *
 *     {"ask": "question", "id": 1}            runs it, on a thread of its own
 *      ... "kept": true                       with the conversation that all those share
 *      ... "cancel_at": "tool_output"         cancels it at the first event of this kind
 *      ... "quiet": true                      without events
 *     {"cancel": 1}                           cancels the run of this id
 *     {"load": "[...]"}                       makes the shared conversation of this JSON
 *     {"wait": 1}                             goes on when that run has ended
 *
 * and writes one a line: {"id": 1, "event": {...}}, {"id": 1, "result": {...}},
 * {"id": 1, "error": "..."}, {"loaded": true}. Ends with status 0 at the end of its input, when
 * all runs have ended; 2 when the options are bad.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/limits.h"
#include "sandbox/cancel.h"

#include <hutch-agent.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define RUNS_MAX 128
#define PATIENCE_SECONDS 20

static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER;
static hutch_agent *agent;
static hutch_engine *engine;
static hutch_conversation *kept;

static void write_line(struct buf *line)
{
    buf_append_text(line, "\n");
    if (line->failure != BUF_OK)
        abort();
    pthread_mutex_lock(&out_lock);
    fwrite(line->data, 1, line->length, stdout);
    fflush(stdout);
    pthread_mutex_unlock(&out_lock);
}

/* ---- tools of its own ---- */

static json_t *arguments_of(hutch_call *call)
{
    struct hutch_error err;
    json_t *arguments = NULL;
    size_t length;
    const char *text = hutch_call_arguments(call, &length);

    if (strlen(text) != length || json_read(text, length, length, &arguments, &err) < 0)
        abort();
    return arguments;
}

/* Answers its text. */
static int echo(void *user, hutch_call *call, struct hutch_error *err)
{
    auto_json json_t *arguments = arguments_of(call);
    const json_t *text = json_object_get(arguments, "text");

    (void)user;
    return hutch_call_answer(call, json_string_value(text), json_string_length(text), err);
}

static int fail_always(void *user, hutch_call *call, struct hutch_error *err)
{
    (void)user;
    if (hutch_call_answer(call, "half of it", 10, err) < 0)
        return err->code;
    *err = (struct hutch_error){.code = HUTCH_ERR_SYSTEM, .message = "the machine is off"};
    return err->code;
}

/* Ends the run with its text, unless that is "bad". */
static int final(void *user, hutch_call *call, struct hutch_error *err)
{
    auto_json json_t *arguments = arguments_of(call);

    if (strcmp(json_string_value(json_object_get(arguments, "text")), "bad") == 0) {
        *err = (struct hutch_error){.code = HUTCH_ERR_INVALID, .message = "that is bad"};
        return err->code;
    }
    return echo(user, call, err);
}

/* Waits until as many calls as it says have come to the same place, and answers how many were at
 * most under way at once. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int inside, most;
    int at[10];
} meeting = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool await_others(int place, int wanted)
{
    struct timespec until;
    int late = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_SECONDS;
    meeting.at[place]++;
    pthread_cond_broadcast(&meeting.changed);
    while (meeting.at[place] < wanted && late == 0)
        late = pthread_cond_timedwait(&meeting.changed, &meeting.lock, &until);
    return late == 0;
}

static int meet(void *user, hutch_call *call, struct hutch_error *err)
{
    auto_json json_t *arguments = arguments_of(call);
    int place = (int)json_integer_value(json_object_get(arguments, "place")) % 10;
    int wanted = (int)json_integer_value(json_object_get(arguments, "wanted"));
    char text[64];

    (void)user;
    pthread_mutex_lock(&meeting.lock);
    meeting.inside++;
    meeting.most = meeting.inside > meeting.most ? meeting.inside : meeting.most;
    bool met = await_others(place, wanted);
    int length = snprintf(text, sizeof(text), "%s at %d, most %d", met ? "met" : "alone", place,
                          meeting.most);
    meeting.inside--;
    pthread_mutex_unlock(&meeting.lock);
    return hutch_call_answer(call, text, (size_t)length, err);
}

/* Says that it is there, and waits for the end of the run. */
static int hang(void *user, hutch_call *call, struct hutch_error *err)
{
    (void)user;
    hutch_call_output(call, HUTCH_STDOUT, "hanging", 7);
    bool ended = fd_wait(hutch_call_cancel(call)->fd, POLLIN,
                         clock_after_ns(PATIENCE_SECONDS * NS_PER_SECOND)) > 0;
    *err = (struct hutch_error){.code = HUTCH_ERR_CANCELLED};
    snprintf(err->message, sizeof(err->message), "%s, %s",
             ended ? "the token is triggered" : "the token is not triggered",
             hutch_call_seconds_left(call) > 0 ? "time is left" : "no time is left");
    return err->code;
}

static void on_cell_output(void *user, enum hutch_stream stream, const char *data, size_t length)
{
    hutch_call_output(user, stream, data, length);
}

/* Runs its code in a cell of the shell. */
static int cell(void *user, hutch_call *call, struct hutch_error *err)
{
    auto_json json_t *arguments = arguments_of(call);
    const json_t *code = json_object_get(arguments, "code");
    const struct hutch_run_options options = {.size = sizeof(options),
                                              .on_output = on_cell_output,
                                              .user = call,
                                              .cancel = hutch_call_cancel(call)};
    struct hutch_request request;
    hutch_result *result;

    (void)user;
    hutch_request_init(&request);
    request.language = HUTCH_SHELL;
    request.code = json_string_value(code);
    request.code_length = json_string_length(code);
    if (hutch_run(engine, &request, &options, &result, err) < 0)
        return err->code;
    if (hutch_call_record(call, result, err) < 0)
        return err->code;
    return hutch_call_answer(call, result->stdout_text.data, result->stdout_text.length, err);
}

/* Notes as many cells as it says, of a millisecond each; none has run. */
static int many(void *user, hutch_call *call, struct hutch_error *err)
{
    auto_json json_t *arguments = arguments_of(call);
    json_int_t count = json_integer_value(json_object_get(arguments, "count"));

    (void)user;
    for (json_int_t i = 0; i < count; i++) {
        hutch_result *result = calloc(1, sizeof(*result));
        if (!result)
            abort();
        result->duration_ms = 1;
        if (hutch_call_record(call, result, err) < 0)
            return err->code;
    }
    return 0;
}

#define ONE_TEXT                                                                                   \
    "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}},"                        \
    "\"required\":[\"text\"]}"
#define NUMBER "{\"type\":\"integer\",\"minimum\":0}"

static const struct hutch_tool own_tools[] = {
    {.size = sizeof(struct hutch_tool),
     .name = "many",
     .description = "counts",
     .parameters =
         "{\"type\":\"object\",\"properties\":{\"count\":" NUMBER "},\"required\":[\"count\"]}",
     .run = many},
    {.size = sizeof(struct hutch_tool),
     .name = "echo",
     .description = "says it",
     .parameters = ONE_TEXT,
     .run = echo},
    {.size = sizeof(struct hutch_tool), .name = "fail", .description = "fails", .run = fail_always},
    {.size = sizeof(struct hutch_tool),
     .name = "final",
     .description = "ends it",
     .parameters = ONE_TEXT,
     .run = final,
     .ends_run = true},
    {.size = sizeof(struct hutch_tool),
     .name = "meet",
     .description = "meets",
     .parameters = "{\"type\":\"object\",\"properties\":{\"place\":" NUMBER ",\"wanted\":" NUMBER
                   "},\"required\":[\"place\",\"wanted\"],\"additionalProperties\":false}",
     .run = meet},
    {.size = sizeof(struct hutch_tool), .name = "hang", .description = "hangs", .run = hang},
    {.size = sizeof(struct hutch_tool),
     .name = "cell",
     .description = "runs it",
     .parameters = "{\"type\":\"object\",\"properties\":{\"code\":{\"type\":\"string\"},"
                   "\"note\":{\"type\":\"string\"}},\"required\":[\"code\"]}",
     .run = cell},
};

/* ---- options ---- */

static double real_of(const json_t *values, const char *name, double otherwise)
{
    const json_t *value = json_object_get(values, name);
    return value ? json_number_value(value) : otherwise;
}

static const char *text_of(const json_t *values, const char *name)
{
    return json_string_value(json_object_get(values, name));
}

static void read_options(const json_t *values, struct hutch_agent_options *options)
{
    hutch_agent_options_init(options);
    options->base_url = text_of(values, "base_url");
    options->model = text_of(values, "model") ? text_of(values, "model") : "m";
    options->key_file = text_of(values, "key_file");
    options->temperature = real_of(values, "temperature", options->temperature);
    options->max_tokens = (uint32_t)real_of(values, "max_tokens", options->max_tokens);
    options->extra = text_of(values, "extra");
    options->strict = json_is_true(json_object_get(values, "strict"));
    options->stream = json_is_true(json_object_get(values, "stream"));
    options->connect_seconds = real_of(values, "connect_seconds", options->connect_seconds);
    options->silence_seconds = real_of(values, "silence_seconds", options->silence_seconds);
    options->retries = (uint32_t)real_of(values, "retries", 0);
    options->max_steps = (uint32_t)real_of(values, "max_steps", options->max_steps);
    options->tool_concurrency =
        (uint32_t)real_of(values, "tool_concurrency", options->tool_concurrency);
    options->timeout_seconds = real_of(values, "timeout_seconds", options->timeout_seconds);
    options->max_total_tokens = (uint64_t)real_of(values, "max_total_tokens", 0);
    options->system_prompt = text_of(values, "system_prompt");
    options->schema = text_of(values, "schema");
    options->builtin_tools = text_of(values, "builtin_tools");
    options->max_answer_bytes =
        (uint64_t)real_of(values, "max_answer_bytes", (double)options->max_answer_bytes);
    options->engine = engine;
}

static int make_engine(const json_t *values, struct hutch_error *err)
{
    struct hutch_engine_options options;

    hutch_engine_options_init(&options);
    options.cache_dir = text_of(values, "cache_dir");
    options.max_cells = (uint32_t)real_of(values, "max_cells", options.max_cells);
    options.warmth = HUTCH_COLD;
    return options.cache_dir ? hutch_engine_new(&options, &engine, err) : 0;
}

/* The tools that values names, and that of another agent. */
static int make_agent(const json_t *values, hutch_agent *helper, hutch_agent **ret_agent,
                      struct hutch_error *err)
{
    const struct hutch_tool *tools[ARRAY_LENGTH(own_tools) + 1];
    struct hutch_tool other;
    const json_t *names = json_object_get(values, "own");
    struct hutch_agent_options options;
    size_t count = 0;

    read_options(values, &options);
    for (size_t i = 0; i < ARRAY_LENGTH(own_tools); i++) {
        for (size_t k = 0; k < json_array_size(names); k++) {
            if (strcmp(json_string_value(json_array_get(names, k)), own_tools[i].name) == 0) {
                tools[count++] = &own_tools[i];
            }
        }
    }
    if (helper) {
        hutch_agent_as_tool(helper, "helper", "helps", &other);
        tools[count++] = &other;
    }
    options.tools = tools;
    options.tool_count = count;
    return hutch_agent_new(&options, ret_agent, err);
}

/* ---- runs ---- */

struct run {
    pthread_t thread;
    json_int_t id;
    json_t *values;
    hutch_cancel *cancel;
    bool joined;
};
static struct run runs[RUNS_MAX];
static size_t run_count;

static const char *kind_name(enum hutch_agent_event_kind kind)
{
    static const char *const names[] = {
        [HUTCH_AGENT_MODEL_TEXT] = "model_text",   [HUTCH_AGENT_REASONING] = "reasoning",
        [HUTCH_AGENT_TOOL_CALL] = "tool_call",     [HUTCH_AGENT_TOOL_OUTPUT] = "tool_output",
        [HUTCH_AGENT_TOOL_RESULT] = "tool_result", [HUTCH_AGENT_STEP] = "step"};
    return names[kind];
}

static void on_event(void *user, const struct hutch_agent_event *event)
{
    const struct run *run = user;
    const char *kind = kind_name(event->kind), *stop = text_of(run->values, "cancel_at");
    auto_buf struct buf line = BUF_MAX(MIB(256));

    if (event->size != sizeof(*event) || (event->text && event->text[event->length] != '\0'))
        abort();
    buf_appendf(&line,
                "{\"id\":%lld,\"event\":{\"kind\":\"%s\",\"step\":%u,\"call\":", (long long)run->id,
                kind, event->step);
    json_append_text(&line, event->id);
    buf_append_text(&line, ",\"name\":");
    json_append_text(&line, event->name);
    buf_append_text(&line, ",\"text\":");
    json_append_string(&line, event->text ? event->text : "", event->length);
    buf_appendf(&line, ",\"stream\":%d,\"failed\":%s,\"cell\":", (int)event->stream,
                event->failed ? "true" : "false");
    if (event->result)
        json_append_string(&line, event->result->stdout_text.data,
                           event->result->stdout_text.length);
    else
        buf_append_text(&line, "null");
    buf_append_text(&line, "}}");
    write_line(&line);
    if (stop && strcmp(stop, kind) == 0)
        hutch_cancel_trigger(run->cancel);
}

static void *ask(void *user)
{
    struct run *run = user;
    const char *question = text_of(run->values, "ask");
    const struct hutch_agent_run_options options = {
        .size = sizeof(options),
        .on_event = json_is_true(json_object_get(run->values, "quiet")) ? NULL : on_event,
        .user = run,
        .cancel = run->cancel,
        .conversation = json_is_true(json_object_get(run->values, "kept")) ? kept : NULL,
    };
    auto_buf struct buf line = BUF_MAX(MIB(512));
    hutch_agent_result *result = NULL;
    struct hutch_error err;
    char *json = NULL;

    buf_appendf(&line, "{\"id\":%lld,", (long long)run->id);
    if (hutch_agent_run(agent, question, strlen(question), &options, &result, &err) < 0 ||
        hutch_agent_result_to_json(result, &json, &err) < 0) {
        buf_append_text(&line, "\"error\":");
        json_append_text(&line, err.message);
    } else {
        buf_appendf(&line, "\"result\":%s", json);
    }
    buf_append_text(&line, "}");
    hutch_free(json);
    hutch_agent_result_free(result);
    write_line(&line);
    return NULL;
}

static struct run *find_run(json_int_t id)
{
    for (size_t i = 0; i < run_count; i++) {
        if (runs[i].id == id)
            return &runs[i];
    }
    abort();
}

static void join(struct run *run)
{
    if (!run->joined)
        pthread_join(run->thread, NULL);
    run->joined = true;
}

static void load(const char *json)
{
    auto_buf struct buf line = BUF_MAX(KIB(64));
    struct hutch_error err = {.code = 0};

    hutch_conversation_free(kept);
    kept = NULL;
    if (hutch_conversation_from_json(json, strlen(json), &kept, &err) < 0) {
        buf_append_text(&line, "{\"loaded\":");
        json_append_text(&line, err.message);
        buf_append_text(&line, "}");
    } else {
        buf_append_text(&line, "{\"loaded\":true}");
    }
    write_line(&line);
}

static void start(json_t *values)
{
    struct run *run = &runs[run_count++];
    struct hutch_error err;

    if (run_count == RUNS_MAX)
        abort();
    run->id = json_integer_value(json_object_get(values, "id"));
    run->values = json_incref(values);
    if (hutch_cancel_new(&run->cancel, &err) < 0 ||
        pthread_create(&run->thread, NULL, ask, run) != 0)
        abort();
}

static void obey(json_t *values)
{
    if (text_of(values, "load"))
        load(text_of(values, "load"));
    else if (json_object_get(values, "cancel"))
        hutch_cancel_trigger(
            find_run(json_integer_value(json_object_get(values, "cancel")))->cancel);
    else if (json_object_get(values, "wait"))
        join(find_run(json_integer_value(json_object_get(values, "wait"))));
    else
        start(values);
}

static int serve(void)
{
    size_t capacity = 0;
    auto_free char *line = NULL;
    struct hutch_error err;

    for (ssize_t length; (length = getline(&line, &capacity, stdin)) > 0;) {
        auto_json json_t *values = NULL;
        if (json_read(line, (size_t)length, MIB(64), &values, &err) < 0) {
            fprintf(stderr, "agent_door: %s\n", err.message);
            return 1;
        }
        obey(values);
    }
    for (size_t i = 0; i < run_count; i++) {
        join(&runs[i]);
        hutch_cancel_free(runs[i].cancel);
        json_decref(runs[i].values);
    }
    return 0;
}

int main(int argc, char **argv)
{
    auto_json json_t *values = NULL;
    hutch_agent *helper = NULL;
    struct hutch_error err;

    if (argc != 2) {
        fprintf(stderr, "usage: agent_door OPTIONS\n");
        return 2;
    }
    if (json_read(argv[1], strlen(argv[1]), MIB(1), &values, &err) < 0)
        abort();
    const json_t *of_helper = json_object_get(values, "helper");
    if (make_engine(values, &err) < 0 || hutch_conversation_new(&kept, &err) < 0 ||
        (of_helper && make_agent(of_helper, NULL, &helper, &err) < 0) ||
        make_agent(values, helper, &agent, &err) < 0) {
        fprintf(stderr, "agent_door: %s\n", err.message);
        return 2;
    }
    int status = serve();
    hutch_conversation_free(kept);
    hutch_agent_free(agent);
    hutch_agent_free(helper);
    hutch_engine_free(engine);
    return status;
}
