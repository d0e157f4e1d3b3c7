/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch bench --agent: what the client and the loop of an agent cost, beside what the model and
 * the cells take. The model is a thread of this process (bench_model.h), its only tool does
 * nothing.
 */
#include "bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/parse.h"
#include "bench_model.h"

#include <hutch-agent.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define STEPS 10     /* of a run */
#define STEPS_MAX 20 /* more, so that the model answers of its own accord */
#define AGENTS 100   /* at once */
#define MEETING_SECONDS 60

#define QUESTION "What is there to do?"

/* Where agents wait in a tool until all of them are there. */
struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned expected, there;
};

/* ---- runs --------------------------------------------------------------- */

/* The tool of the rows that measure time. */
static int do_nothing(void *user, hutch_call *call, struct hutch_error *err)
{
    (void)user;
    return hutch_call_answer(call, "done", 4, err);
}

static int make_agent(const char *base_url, bool stream, hutch_tool_fn run, void *user,
                      hutch_agent **ret_agent, struct hutch_error *err)
{
    struct hutch_agent_options options;
    const struct hutch_tool tool = {.size = sizeof(tool),
                                    .name = BENCH_MODEL_TOOL,
                                    .description = "Does nothing.",
                                    .run = run,
                                    .user = user};
    const struct hutch_tool *const tools[] = {&tool};

    hutch_agent_options_init(&options);
    options.base_url = base_url;
    options.model = "bench";
    options.builtin_tools = "";
    options.tools = tools;
    options.tool_count = 1;
    options.max_steps = STEPS_MAX;
    options.stream = stream;
    return hutch_agent_new(&options, ret_agent, err);
}

/* Asks; the run has to end by an answer after so many calls of the tool. */
static int ask(hutch_agent *agent, unsigned calls, hutch_agent_event_fn on_event, void *user,
               struct hutch_error *err)
{
    const struct hutch_agent_run_options options = {
        .size = sizeof(options), .on_event = on_event, .user = user};
    hutch_agent_result *result = NULL;
    int done = 0;

    if (hutch_agent_run(agent, QUESTION, strlen(QUESTION), &options, &result, err) < 0)
        return err->code;
    if (strcmp(result->exit_reason, "text") != 0 || result->tool_calls != calls)
        done = err_set(err, HUTCH_ERR_SYSTEM, "the agent ended with %s after %u calls: %.160s",
                       result->exit_reason, result->tool_calls,
                       result->error_message ? result->error_message : "no error");
    hutch_agent_result_free(result);
    return done;
}

/* ---- steps -------------------------------------------------------------- */

static int run_steps(struct bench_model *model, hutch_agent *agent, struct bench_row *row,
                     struct hutch_error *err)
{
    uint64_t ns;

    if (ask(agent, STEPS, NULL, NULL, err) < 0) /* connects, fills caches */
        return err->code;
    while (bench_model_take_gap(model, &ns))
        continue;
    while (row->taken < row->n) {
        if (ask(agent, STEPS, NULL, NULL, err) < 0)
            return err->code;
        while (bench_model_take_gap(model, &ns)) {
            if (row->taken < row->n)
                row->samples_ms[row->taken++] = (double)ns / 1e6;
        }
    }
    return 0;
}

/* ---- tokens ------------------------------------------------------------- */

struct first_token {
    struct bench_model *model;
    uint64_t elapsed_ns; /* 0: it has not come */
};

static void on_token(void *user, const struct hutch_agent_event *event)
{
    struct first_token *token = user;

    if (event->kind == HUTCH_AGENT_MODEL_TEXT && token->elapsed_ns == 0)
        token->elapsed_ns = clock_now_ns() - bench_model_token_ns(token->model);
}

static int run_tokens(struct bench_model *model, hutch_agent *agent, struct bench_row *row,
                      struct hutch_error *err)
{
    if (ask(agent, 0, NULL, NULL, err) < 0)
        return err->code;
    while (row->taken < row->n) {
        struct first_token token = {.model = model};
        if (ask(agent, 0, on_token, &token, err) < 0)
            return err->code;
        if (token.elapsed_ns == 0)
            return err_set(err, HUTCH_ERR_SYSTEM, "no token was shown");
        row->samples_ms[row->taken++] = (double)token.elapsed_ns / 1e6;
    }
    return 0;
}

/* ---- memory ------------------------------------------------------------- */

static int meet(void *user, hutch_call *call, struct hutch_error *err)
{
    struct meeting *meeting = user;
    uint64_t deadline_ns = clock_after_ns(MEETING_SECONDS * NS_PER_SECOND);
    const struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / NS_PER_SECOND),
                                      .tv_nsec = (long)(deadline_ns % NS_PER_SECOND)};
    int late = 0;

    pthread_mutex_lock(&meeting->lock);
    meeting->there++;
    pthread_cond_broadcast(&meeting->changed);
    while (meeting->there < meeting->expected && late == 0)
        late =
            pthread_cond_clockwait(&meeting->changed, &meeting->lock, CLOCK_MONOTONIC, &deadline);
    unsigned there = meeting->there;
    pthread_mutex_unlock(&meeting->lock);
    if (there < meeting->expected)
        return err_set(err, HUTCH_ERR_SYSTEM, "%u of %u agents came", there, meeting->expected);
    return hutch_call_answer(call, "done", 4, err);
}

/* A line of /proc/self/status, in bytes. */
static int read_status(const char *name, uint64_t *ret_bytes, struct hutch_error *err)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    char digits[24];
    uint64_t kib;

    if (buf_read_file(&text, AT_FDCWD, "/proc/self/status", err) < 0)
        return err->code;
    const char *at = strstr(buf_text(&text), name);
    if (!at)
        return err_set(err, HUTCH_ERR_SYSTEM, "/proc/self/status has no %s", name);
    at += strlen(name);
    at += strspn(at, ": \t");
    snprintf(digits, sizeof(digits), "%.*s", (int)strcspn(at, " \n"), at);
    if (parse_u64(digits, 0, UINT64_MAX >> 10, &kib, err) < 0)
        return err->code;
    *ret_bytes = kib << 10;
    return 0;
}

struct member {
    pthread_t thread;
    bool started;
    const char *url;
    struct meeting *meeting;
    struct hutch_error err; /* code 0: it did what it should */
};

static void *run_member(void *user)
{
    struct member *member = user;
    hutch_agent *agent = NULL;

    if (make_agent(member->url, true, meet, member->meeting, &agent, &member->err) == 0 &&
        ask(agent, 1, NULL, NULL, &member->err) == 0)
        member->err.code = 0;
    hutch_agent_free(agent);
    return NULL;
}

/* One that could not be started is not waited for. */
static void miss_one(struct meeting *meeting)
{
    pthread_mutex_lock(&meeting->lock);
    meeting->expected--;
    pthread_cond_broadcast(&meeting->changed);
    pthread_mutex_unlock(&meeting->lock);
}

static int run_members(const char *url, struct hutch_error *err)
{
    struct meeting meeting = {
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .expected = AGENTS};
    auto_free struct member *members = calloc(AGENTS, sizeof(*members));
    int done = 0;

    if (!members)
        return err_no_memory(err);
    for (size_t i = 0; i < AGENTS; i++) {
        struct member *member = &members[i];
        member->url = url;
        member->meeting = &meeting;
        int number = pthread_create(&member->thread, NULL, run_member, member);
        member->started = number == 0;
        if (number != 0) {
            miss_one(&meeting);
            done = err_errno(err, HUTCH_ERR_SYSTEM, number, "start a thread");
        }
    }
    for (size_t i = 0; i < AGENTS; i++) {
        if (!members[i].started)
            continue;
        pthread_join(members[i].thread, NULL);
        if (members[i].err.code != 0 && done == 0) {
            *err = members[i].err;
            done = err->code;
        }
    }
    return done;
}

static int run_agents(const char *url, struct bench_row *row, struct hutch_error *err)
{
    uint64_t before;

    /* Forgets what other rows used at the most; where that cannot be done, the number is
     * larger, and still true of the process. */
    IGNORE_RESULT(fd_write_file("/proc/self/clear_refs", "5") < 0);
    if (read_status("VmRSS", &before, err) < 0 || run_members(url, err) < 0 ||
        read_status("VmHWM", &row->resident_bytes, err) < 0)
        return err->code;
    row->growth_bytes = row->resident_bytes > before ? row->resident_bytes - before : 0;
    row->n = AGENTS;
    return 0;
}

/* ---- rows --------------------------------------------------------------- */

/* A row that one agent is enough for. */
static int run_one_agent(struct bench_model *model, struct bench_row *row, struct hutch_error *err)
{
    hutch_agent *agent = NULL;
    char url[128];
    bool tokens = row->kind == BENCH_TOKENS;
    unsigned steps = tokens ? 0 : STEPS;

    snprintf(url, sizeof(url), "%s/%s/%u/", bench_model_url(model), tokens ? "stream" : "steps",
             steps);
    if (make_agent(url, tokens, do_nothing, NULL, &agent, err) < 0)
        return err->code;
    int done = tokens ? run_tokens(model, agent, row, err) : run_steps(model, agent, row, err);
    hutch_agent_free(agent);
    return done;
}

static int run_row(struct bench_model *model, struct bench_row *row, struct hutch_error *err)
{
    char url[128];

    if (row->kind != BENCH_AGENTS)
        return run_one_agent(model, row, err);
    snprintf(url, sizeof(url), "%s/stream/1/", bench_model_url(model));
    return run_agents(url, row, err);
}

/* Nothing may stand between the client and the model. */
static void forget_proxies(void)
{
    static const char *const names[] = {"http_proxy", "all_proxy", "ALL_PROXY"};

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        unsetenv(names[i]);
}

static int measure(const struct settings *settings, struct bench *bench, struct problem *problem)
{
    struct bench_model *model;
    struct hutch_error err;
    int done = 0;

    (void)settings;
    forget_proxies();
    if (bench_model_new(&model, &err) < 0)
        return problem_take(problem, &err);
    for (size_t i = 0; i < bench->row_count && done == 0; i++) {
        done = run_row(model, &bench->rows[i], &err);
        if (done < 0) {
            err_context(&err, "row %s", bench->rows[i].name);
            problem_take(problem, &err);
        }
    }
    bench_model_free(model);
    return done;
}

int bench_main(const struct settings *settings, char **argv)
{
    return bench_run(settings, argv, measure);
}
