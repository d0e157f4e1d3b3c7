/* SPDX-License-Identifier: Apache-2.0 */
/* See tool.h, and hutch-agent.h for what tools see of a call. */
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "result_text.h"
#include "schema.h"
#include "tool.h"

#include <stdio.h>
#include <string.h>

#define FAILED 1

/* ---- what a tool sees ---- */

const char *hutch_call_arguments(const hutch_call *call, size_t *ret_length)
{
    if (ret_length)
        *ret_length = call->length;
    return call->text;
}

hutch_cancel *hutch_call_cancel(hutch_call *call)
{
    return call->cancel;
}

double hutch_call_seconds_left(const hutch_call *call)
{
    uint64_t now = clock_now_ns();
    return call->deadline_ns > now ? (double)(call->deadline_ns - now) / (double)NS_PER_SECOND : 0;
}

void hutch_call_output(hutch_call *call, enum hutch_stream stream, const char *data, size_t length)
{
    if (call->listener.on_output && length > 0)
        call->listener.on_output(call->listener.user, stream, data, length);
}

/* A character may come in two pieces, so that UTF-8 is repaired at the end. */
int hutch_call_answer(hutch_call *call, const char *text, size_t length, struct hutch_error *err)
{
    struct hutch_error unused;
    size_t room = call->answer.max - call->answer.length;

    if (length > room) {
        call->answer_cut = true;
        length = room;
    }
    buf_append(&call->answer, text, length);
    return buf_check(&call->answer, err ? err : &unused);
}

int tool_call_note(struct hutch_call *call, const struct hutch_agent_cell *cell,
                   struct hutch_error *err)
{
    if (!call->listener.on_cell)
        return 0;
    return call->listener.on_cell(call->listener.user, cell, err);
}

int hutch_call_record(hutch_call *call, hutch_result *result, struct hutch_error *err)
{
    const struct hutch_agent_cell cell = {
        .exit_code = result->exit_code,
        .error_type = result->error_type,
        .duration_ms = result->duration_ms,
        .peak_memory_bytes = result->peak_memory_bytes,
        .state_lost = result->state_lost,
    };
    struct hutch_error unused;

    hutch_result_free(call->last_cell);
    call->last_cell = result;
    return tool_call_note(call, &cell, err ? err : &unused);
}

/* ---- running ---- */

/* Takes away nulls that stand for nothing, and checks what is left. */
static int take_arguments(struct hutch_call *call, struct hutch_error *err)
{
    const json_t *schema = call->tool->parameters;

    if (schema_drop_nulls(schema, call->arguments, &call->own_arguments, err) < 0)
        return err->code;
    if (schema_check(schema, call->own_arguments, err) < 0)
        return err_context(err, "arguments");
    call->own_text = BUF_MAX(SIZE_MAX / 4);
    json_append_value(&call->own_text, call->own_arguments);
    if (buf_check(&call->own_text, err) < 0)
        return err->code;
    call->arguments = call->own_arguments;
    call->text = call->own_text.data;
    call->length = call->own_text.length;
    return 0;
}

/* What was cancelled as the time was over is no affair of who called. */
static void explain_end(const struct hutch_call *call, struct hutch_error *problem)
{
    static const char cancelled[] = "cancelled by the caller";
    static const char late[] = "the time of the run is over";
    size_t length = strlen(cancelled);
    char rest[sizeof(problem->message)];

    if (problem->code != HUTCH_ERR_CANCELLED || hutch_call_seconds_left(call) > 0 ||
        strncmp(problem->message, cancelled, length) != 0)
        return;
    snprintf(rest, sizeof(rest), "%s", problem->message + length);
    snprintf(problem->message, sizeof(problem->message), "%s%.*s", late,
             (int)(sizeof(problem->message) - sizeof(late)), rest);
}

/* What the model is told, out of what the tool said and why it failed, if it did. */
static int compose(struct hutch_call *call, const char *problem, struct hutch_error *err)
{
    auto_buf struct buf said = TAKE_BUF(call->answer);
    auto_buf struct buf text = BUF_MAX(SIZE_MAX / 4);

    if (problem) {
        buf_append_text(&text, "Error: ");
        buf_append_text(&text, *problem ? problem : "the tool failed and did not say why");
        buf_append_text(&text, said.length > 0 ? "\n" : "");
    }
    utf8_repair(&text, buf_text(&said), said.length);
    buf_append_text(&text, call->answer_cut ? "\n[... the rest is left out ...]" : "");
    buf_append_text(&text, text.length == 0 ? "(no output)" : "");
    if (buf_check(&text, err) < 0)
        return err->code;
    return text_append_cut(&call->answer, text.data, text.length, call->max_answer_bytes, err);
}

int tool_run(struct hutch_call *call, struct hutch_error *err)
{
    struct hutch_error problem = {.code = 0};

    call->answer = BUF_MAX(LIMIT_CALL_ANSWER_BYTES);
    int code = take_arguments(call, &problem);
    if (code == 0)
        code = call->tool->run(call->tool->user, call, &problem);
    problem.message[sizeof(problem.message) - 1] = '\0'; /* a tool may have written it */
    if (code < 0)
        explain_end(call, &problem);
    if (compose(call, code < 0 ? problem.message : NULL, err) < 0)
        return err->code;
    return code < 0 ? FAILED : 0;
}

void tool_call_end(struct hutch_call *call)
{
    buf_done(&call->answer);
    buf_done(&call->own_text);
    hutch_result_free(call->last_cell);
    call->last_cell = NULL;
    json_decref(call->own_arguments);
    call->own_arguments = NULL;
}
