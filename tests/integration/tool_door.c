/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The built-in tools for tests: tool_door OPTIONS, where OPTIONS is a JSON object with
 * "cache_dir", "tools" (their names, with commas), "limits" (a request's "timeout_seconds",
 * "memory_mb"), "max_answer_bytes" and "no_conversation". It reads a line of JSON each,
 *
 *     {"tool": "shell", "arguments": {…}}      runs it
 *     {"calls": [{…}, {…}]}                    runs them at once
 *
 * where "stop_at" is a text of the output at which the call is cancelled, and answers each call
 * when it ends by a line
 *
 *     {"number": 0, "failed": false, "answer": "…", "stdout": "…", "stderr": "…", "cells": 1,
 *      "state_lost": false}
 *
 * One conversation has all of them. Ends with status 0 at the end of its input, 2 when the options
 * are bad.
 */
#include "agent/cell_tools.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define CALLS_MAX 8
#define CALL_SECONDS 60

struct door {
    hutch_engine *engine;
    struct tool_set set;
    struct cell_tools *tools;
    struct workspace *workspace;
    uint64_t max_answer_bytes;
    pthread_mutex_t output;
};

/* One call, on a thread of its own. */
struct job {
    struct door *door;
    const json_t *line;
    size_t number;
    pthread_t thread;
    hutch_cancel *cancel;
    struct buf out, errors;
    unsigned cells;
};

static void on_output(void *user, enum hutch_stream stream, const char *data, size_t length)
{
    struct job *job = user;
    const char *stop_at = json_string_value(json_object_get(job->line, "stop_at"));
    struct buf *text = stream == HUTCH_STDERR ? &job->errors : &job->out;

    buf_append(text, data, length);
    if (stop_at && strstr(buf_text(text), stop_at))
        hutch_cancel_trigger(job->cancel);
}

static int on_cell(void *user, const struct hutch_agent_cell *cell, struct hutch_error *err)
{
    struct job *job = user;

    (void)cell, (void)err;
    job->cells++;
    return 0;
}

static void append_member(struct buf *out, const char *name, const struct buf *text)
{
    buf_appendf(out, ",\"%s\":", name);
    json_append_string(out, buf_text(text), text->length);
}

static void answer(struct job *job, const struct hutch_call *call, int failed)
{
    auto_buf struct buf out = BUF_MAX(MIB(256));

    buf_appendf(&out, "{\"number\":%zu,\"failed\":%s", job->number, failed ? "true" : "false");
    append_member(&out, "answer", &call->answer);
    append_member(&out, "stdout", &job->out);
    append_member(&out, "stderr", &job->errors);
    buf_appendf(&out, ",\"cells\":%u,\"state_lost\":%s}\n", job->cells,
                job->door->workspace && workspace_take_state_lost(job->door->workspace) ? "true"
                                                                                        : "false");
    pthread_mutex_lock(&job->door->output);
    fwrite(out.data, 1, out.length, stdout);
    fflush(stdout);
    pthread_mutex_unlock(&job->door->output);
}

static int run_call(struct job *job, struct hutch_error *err)
{
    const char *name = json_string_value(json_object_get(job->line, "tool"));
    struct hutch_call call = {
        .tool = name ? tool_set_find(&job->door->set, name) : NULL,
        .arguments = json_object_get(job->line, "arguments"),
        .cancel = job->cancel,
        .deadline_ns = clock_after_ns(CALL_SECONDS * NS_PER_SECOND),
        .state = job->door->workspace,
        .max_answer_bytes = job->door->max_answer_bytes,
        .listener = {.on_output = on_output, .on_cell = on_cell, .user = job},
    };

    if (!call.tool || !json_is_object(call.arguments))
        return err_set(err, HUTCH_ERR_INVALID, "no such tool, or no arguments");
    int failed = tool_run(&call, err);
    if (failed >= 0)
        answer(job, &call, failed);
    tool_call_end(&call);
    return failed < 0 ? failed : 0;
}

static void *run_job(void *user)
{
    struct job *job = user;
    struct hutch_error err;

    job->out = BUF_MAX(MIB(64));
    job->errors = BUF_MAX(MIB(64));
    if (hutch_cancel_new(&job->cancel, &err) < 0 || run_call(job, &err) < 0)
        fprintf(stderr, "tool_door: %s\n", err.message);
    hutch_cancel_free(job->cancel);
    buf_done(&job->out);
    buf_done(&job->errors);
    return NULL;
}

static void run_line(struct door *door, const json_t *line)
{
    const json_t *calls = json_object_get(line, "calls");
    size_t count = calls ? json_array_size(calls) : 1;
    struct job jobs[CALLS_MAX];

    for (size_t i = 0; i < count && i < CALLS_MAX; i++) {
        jobs[i] = (struct job){
            .door = door, .line = calls ? json_array_get(calls, i) : line, .number = i};
        if (pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < count && i < CALLS_MAX; i++)
        pthread_join(jobs[i].thread, NULL);
}

/* ---- birth and death ---- */

static int make_door(const json_t *options, struct door *door, struct hutch_error *err)
{
    const json_t *limits = json_object_get(options, "limits");
    const json_t *timeout = json_object_get(limits, "timeout_seconds");
    const json_t *memory = json_object_get(limits, "memory_mb");
    const json_t *max = json_object_get(options, "max_answer_bytes");
    struct hutch_engine_options engine;
    struct hutch_request request;

    hutch_engine_options_init(&engine);
    engine.cache_dir = json_string_value(json_object_get(options, "cache_dir"));
    hutch_request_init(&request);
    if (timeout)
        request.timeout_seconds = json_number_value(timeout);
    if (memory)
        request.memory_mb = (uint64_t)json_integer_value(memory);
    door->max_answer_bytes = max ? (uint64_t)json_integer_value(max) : KIB(32);
    if (hutch_engine_new(&engine, &door->engine, err) < 0 ||
        cell_tools_new(door->engine, &request, json_string_value(json_object_get(options, "tools")),
                       &door->set, &door->tools, err) < 0)
        return err->code;
    if (json_is_true(json_object_get(options, "no_conversation")))
        return 0;
    return workspace_new(&door->workspace, err);
}

static int serve(struct door *door, struct hutch_error *err)
{
    size_t capacity = 0;
    auto_free char *text = NULL;

    for (ssize_t length; (length = getline(&text, &capacity, stdin)) > 0;) {
        auto_json json_t *line = NULL;
        if (json_read(text, (size_t)length, MIB(64), &line, err) < 0)
            return err->code;
        run_line(door, line);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct door door = {.output = PTHREAD_MUTEX_INITIALIZER};
    auto_json json_t *options = NULL;
    struct hutch_error err;

    if (argc != 2) {
        fprintf(stderr, "usage: tool_door OPTIONS\n");
        return 2;
    }
    if (json_read(argv[1], strlen(argv[1]), MIB(1), &options, &err) < 0 ||
        make_door(options, &door, &err) < 0) {
        fprintf(stderr, "tool_door: %s\n", err.message);
        return 2;
    }
    int code = serve(&door, &err);
    workspace_free(door.workspace);
    tool_set_done(&door.set);
    cell_tools_free(door.tools);
    hutch_engine_free(door.engine);
    return code < 0 ? 1 : 0;
}
