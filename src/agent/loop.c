/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of an agent: the model is asked; what it calls is run, and it is asked again; what it
 * says without calling anything is the answer. Where the steps or the tokens are used up it is
 * asked a last time, and calls in that reply are not run.
 *
 * All of it is on the thread of the caller but tools (tool_calls.c). However a run ends, each
 * call has an answer in the conversation, and a text of the assistant is its last message: so
 * any server takes it when it is gone on from. Only after an error, which gives no result, it is
 * as it was before.
 */
#include "agent.h"

#include "agent_result.h"
#include "answer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/utf8.h"
#include "conversation.h"
#include "events.h"
#include "sandbox/request.h"
#include "stop_token.h"
#include "tool_calls.h"
#include "usage.h"

#include <string.h>

/* Replies in a row with calls that were cut off. */
#define CUT_OFF_MAX 2
/* More than one step adds: calls, their answers, a repair, the answer. */
#define MESSAGES_OF_A_STEP 100

struct run {
    struct hutch_agent *agent;
    struct hutch_conversation *conversation;
    struct client *client;
    struct stop_token token;
    struct events events;
    hutch_agent_result *result;
    json_t *usage;
    uint64_t tokens;
    uint64_t begun_ns;
    uint32_t tool_steps;
    uint32_t cut_off; /* replies in a row */
};

/* How the model is asked. */
struct form {
    bool tools;
    bool no_calls; /* they are offered, and not to be called */
};

/* ---- asking ---- */

static void tell_text(struct run *run, enum hutch_agent_event_kind kind, const char *data,
                      size_t length)
{
    if (length > 0)
        events_tell(&run->events,
                    &(struct hutch_agent_event){.kind = kind, .text = data, .length = length});
}

/* Of a stream, whose pieces have a NUL behind them as they are the end of what has come. */
static void on_text(void *user, const char *data, size_t length)
{
    tell_text(user, HUTCH_AGENT_MODEL_TEXT, data, length);
}

static void on_reasoning(void *user, const char *data, size_t length)
{
    tell_text(user, HUTCH_AGENT_REASONING, data, length);
}

static void send(struct run *run, const struct form *form, bool format, struct reply *reply,
                 struct model_error *error)
{
    const struct hutch_agent *agent = run->agent;
    const struct chat_request request = {
        .system = agent->system_prompt,
        .conversation = &run->conversation->said,
        .model = agent->model,
        .tools = form->tools ? agent->tool_list : NULL,
        .tool_choice = form->no_calls ? agent->no_call : NULL,
        .temperature = agent->temperature,
        .max_tokens = agent->max_tokens,
        .response_format = format ? agent->response_format : NULL,
        .extra = agent->extra,
        .stream = agent->stream,
    };
    bool shows = agent->stream && run->events.fn;
    const struct client_call call = {
        .on_text = shows ? on_text : NULL,
        .on_reasoning = shows ? on_reasoning : NULL,
        .user = run,
        .cancel_fd = run->token.cancel.source_fd,
        .deadline_ns = run->token.cancel.deadline_ns,
    };

    reply_done(reply);
    if (client_chat(run->client, &request, &call, reply, error) == 0)
        error->kind = MODEL_OK;
}

static bool is_refused(const struct model_error *error)
{
    return error->kind == MODEL_REFUSED && (error->http_status == 400 || error->http_status == 422);
}

/* Some servers bind a whole reply to its response_format, so that no tool could be called: it is
 * sent where none is to be called. */
static bool wants_format(const struct run *run, const struct form *form)
{
    bool may_call = form->tools && !form->no_calls && run->agent->tool_list;

    return run->agent->response_format && !may_call && !run->agent->no_response_format;
}

/* Asks once more without what a server may not take: response_format, tools that are not to be
 * called. */
static void send_as_taken(struct run *run, struct form form, struct reply *reply,
                          struct model_error *error)
{
    bool format = wants_format(run, &form);

    send(run, &form, format, reply, error);
    if (format && is_refused(error)) {
        send(run, &form, false, reply, error);
        if (error->kind == MODEL_OK)
            run->agent->no_response_format = true;
    }
    if (form.no_calls && form.tools && is_refused(error)) {
        form.tools = false;
        send(run, &form, false, reply, error);
    }
}

/* A server is not trusted to keep small what it counts. */
static int count_tokens(struct run *run, const json_t *usage, struct hutch_error *err)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_USAGE_BYTES);

    if (!json_is_object(usage))
        return 0;
    json_append_value(&text, usage);
    if (text.failure != BUF_OK)
        return 0;
    uint64_t tokens = usage_total(usage);
    run->tokens = tokens > UINT64_MAX - run->tokens ? UINT64_MAX : run->tokens + tokens;
    return usage_add(&run->usage, usage, err);
}

/* error->kind says whether there is a reply. */
static int ask(struct run *run, struct form form, struct reply *reply, struct model_error *error,
               struct hutch_error *err)
{
    run->events.step++;
    events_tell(&run->events, &(struct hutch_agent_event){.kind = HUTCH_AGENT_STEP});
    send_as_taken(run, form, reply, error);
    if (error->kind == MODEL_NO_MEMORY)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "%s", error->message);
    if (count_tokens(run, reply->usage, err) < 0)
        return err->code;
    if (error->kind != MODEL_OK)
        return 0;
    run->result->step_count++;
    if (!run->agent->stream) {
        tell_text(run, HUTCH_AGENT_REASONING, reply->reasoning.data, reply->reasoning.length);
        tell_text(run, HUTCH_AGENT_MODEL_TEXT, reply->message.text.data,
                  reply->message.text.length);
    }
    return 0;
}

static void drop_calls(struct message *message)
{
    for (size_t i = 0; i < message->call_count; i++)
        tool_call_done(&message->calls[i]);
    free(message->calls);
    message->calls = NULL;
    message->call_count = 0;
}

/* Asks for an answer without calls. A server may not know tool_choice: where there are calls all
 * the same and no text, it is asked once more, without tools. */
static int ask_last(struct run *run, struct reply *reply, struct model_error *error,
                    struct hutch_error *err)
{
    struct form form = {.tools = true, .no_calls = true};

    if (ask(run, form, reply, error, err) < 0)
        return err->code;
    if (error->kind == MODEL_OK && reply->message.call_count > 0 &&
        reply->message.text.length == 0) {
        form.tools = false;
        if (ask(run, form, reply, error, err) < 0)
            return err->code;
    }
    drop_calls(&reply->message);
    return 0;
}

/* ---- how it ends ---- */

/* NULL: it goes on. */
static const char *stopped(const struct run *run)
{
    if (stop_token_is_cancelled(&run->token))
        return "cancelled";
    return stop_token_is_late(&run->token) ? "timeout" : NULL;
}

static int set_error(hutch_agent_result *result, const char *code, const char *message,
                     struct hutch_error *err)
{
    free(result->error_message);
    result->error_code = code;
    result->error_message = strdup(message);
    return result->error_message ? 0 : err_no_memory(err);
}

/* Adds a reply to the conversation; *reply is without a message then. */
static int keep_reply(struct run *run, struct reply *reply, struct hutch_error *err)
{
    const struct message *message = &reply->message;

    if (message->text.length == 0 && message->call_count == 0)
        return 0;
    return conversation_add(&run->conversation->said, &reply->message, err);
}

static int end_with_text(struct run *run, struct reply *reply, const char *reason,
                         struct hutch_error *err)
{
    const struct hutch_text *text = &reply->message.text;

    run->result->exit_reason = reason;
    if (agent_result_set_answer(run->result, text->data, text->length, err) < 0)
        return err->code;
    return keep_reply(run, reply, err);
}

/* What was shown of a reply that broke is what there is of an answer. */
static int end_with_error(struct run *run, struct reply *reply, const struct model_error *error,
                          struct hutch_error *err)
{
    const char *reason = error->kind == MODEL_CANCELLED ? "cancelled" : stopped(run);
    hutch_agent_result *result = run->result;

    if (!reason) {
        reason = "model_error";
        result->http_status = error->http_status;
        result->retry_safe = error->retry_safe;
        if (set_error(result, model_error_name(error->kind), error->message, err) < 0)
            return err->code;
    }
    drop_calls(&reply->message);
    return end_with_text(run, reply, reason, err);
}

/* ---- answers that follow a schema ---- */

static int refuse_answer(struct run *run, const struct hutch_error *problem,
                         struct hutch_error *err)
{
    run->result->exit_reason = "schema";
    return set_error(run->result, "schema", problem->message, err);
}

/* Takes the answer's JSON out of its text. Returns 0, or 1: it does not follow, *ret_problem. */
static int take_answer(struct run *run, struct hutch_error *ret_problem, struct hutch_error *err)
{
    auto_buf struct buf json = BUF_MAX(SIZE_MAX / 4);

    int code = answer_read(run->agent->schema, &run->result->answer, &json, ret_problem);
    if (code == HUTCH_ERR_INVALID)
        return 1;
    if (code < 0) {
        *err = *ret_problem;
        return code;
    }
    return agent_result_set_answer(run->result, json.data, json.length, err);
}

static const char *reason_of(const struct reply *reply)
{
    if (reply->refused)
        return "refusal";
    if (reply->finish == REPLY_LENGTH || reply->finish == REPLY_CONTENT_FILTER)
        return reply_finish_name(reply->finish);
    return "text";
}

/* Tells the model what is wrong and asks once more. reason: of the run, if it ends well. */
static int repair(struct run *run, const struct hutch_error *problem, const char *reason,
                  struct hutch_error *err)
{
    auto_buf struct buf text = BUF_MAX(2 * LIMIT_SCHEMA_BYTES + KIB(64));
    auto_reply struct reply reply = {.finish = REPLY_STOP};
    struct hutch_error again;
    struct model_error error;

    answer_append_repair(&text, run->agent->schema, problem);
    if (buf_check(&text, err) < 0 || conversation_add_text(&run->conversation->said, MESSAGE_USER,
                                                           text.data, text.length, err) < 0)
        return err->code;
    if (ask_last(run, &reply, &error, err) < 0)
        return err->code;
    if (error.kind != MODEL_OK)
        return end_with_error(run, &reply, &error, err);
    const char *other = reason_of(&reply);
    if (end_with_text(run, &reply, strcmp(other, "text") == 0 ? reason : other, err) < 0)
        return err->code;
    if (run->result->exit_reason != reason)
        return 0;
    int code = take_answer(run, &again, err);
    return code > 0 ? refuse_answer(run, &again, err) : code;
}

/* ---- a step ---- */

/* The model has answered. limit: why it was asked for the last time; NULL: it was not. */
static int text_step(struct run *run, struct reply *reply, const char *limit,
                     struct hutch_error *err)
{
    const char *own = reason_of(reply);
    const char *reason = limit ? limit : own;
    struct hutch_error problem;

    if (end_with_text(run, reply, reason, err) < 0)
        return err->code;
    if (!run->agent->schema || strcmp(own, "text") != 0)
        return 0;
    int code = take_answer(run, &problem, err);
    return code > 0 ? repair(run, &problem, reason, err) : code;
}

static bool has_cut_off(const struct message *message)
{
    for (size_t i = 0; i < message->call_count; i++) {
        if (message->calls[i].fault == CALL_CUT_OFF)
            return true;
    }
    return false;
}

/* A tool has ended the run, or what stops it. */
static int end_tool_step(struct run *run, const char *ended, struct hutch_error *err)
{
    struct hutch_error problem;
    const char *reason = stopped(run);

    if (!ended) {
        run->result->exit_reason = reason;
        return 0;
    }
    run->result->exit_reason = ended;
    int code = run->agent->schema ? take_answer(run, &problem, err) : 0;
    return code > 0 ? refuse_answer(run, &problem, err) : code;
}

static int tool_step(struct run *run, struct reply *reply, struct hutch_error *err)
{
    const struct tool_desk desk = {
        .agent = run->agent,
        .workspace = run->conversation->workspace,
        .token = &run->token,
        .events = &run->events,
        .result = run->result,
        .usage = &run->usage,
        .tokens = &run->tokens,
    };
    struct conversation *said = &run->conversation->said;
    const char *ended = NULL;

    run->tool_steps++;
    run->cut_off = has_cut_off(&reply->message) ? run->cut_off + 1 : 0;
    if (keep_reply(run, reply, err) < 0)
        return err->code;
    size_t at = said->count - 1;
    if (tool_calls_run(&desk, said, &ended, err) < 0 || end_tool_step(run, ended, err) < 0)
        return err->code;
    if (run->result->exit_reason || run->cut_off < CUT_OFF_MAX)
        return 0;
    run->result->exit_reason = "length";
    const struct hutch_text *text = &said->messages[at].text;
    return agent_result_set_answer(run->result, text->data, text->length, err);
}

/* Why the model may call no more tools; NULL: it may. */
static const char *used_up(const struct run *run)
{
    const struct hutch_agent *agent = run->agent;

    if (run->tool_steps >= agent->max_steps)
        return "max_agent_steps";
    if (agent->max_total_tokens > 0 && run->tokens >= agent->max_total_tokens)
        return "token_budget";
    return NULL;
}

static int step(struct run *run, struct hutch_error *err)
{
    auto_reply struct reply reply = {.finish = REPLY_STOP};
    const struct form form = {.tools = true};
    const char *limit = used_up(run);
    struct model_error error;

    int code = limit ? ask_last(run, &reply, &error, err) : ask(run, form, &reply, &error, err);
    if (code < 0)
        return code;
    if (error.kind != MODEL_OK)
        return end_with_error(run, &reply, &error, err);
    if (reply.message.call_count > 0)
        return tool_step(run, &reply, err);
    return text_step(run, &reply, limit, err);
}

/* ---- a run ---- */

/* See the head of this file. */
static int close_conversation(struct run *run, struct hutch_error *err)
{
    struct conversation *said = &run->conversation->said;
    const struct message *last = &said->messages[said->count - 1];
    const hutch_agent_result *result = run->result;
    auto_buf struct buf note = BUF_MAX(KIB(1));

    if (last->role == MESSAGE_ASSISTANT && last->call_count == 0)
        return 0;
    if (result->answer.length > 0 &&
        conversation_add_text(said, MESSAGE_ASSISTANT, result->answer.data, result->answer.length,
                              err) == 0)
        return 0;
    buf_appendf(&note, "(no answer: %s)", result->exit_reason);
    if (buf_check(&note, err) < 0)
        return err->code;
    return conversation_add_text(said, MESSAGE_ASSISTANT, note.data, note.length, err);
}

static int complete_result(struct run *run, struct hutch_error *err)
{
    auto_buf struct buf usage = BUF_MAX(SIZE_MAX / 4);
    hutch_agent_result *result = run->result;

    if (run->usage)
        json_append_value(&usage, run->usage);
    else
        buf_append_text(&usage, "{}");
    if (buf_check(&usage, err) < 0 ||
        conversation_write(run->conversation, &result->messages, err) < 0)
        return err->code;
    result->token_usage = TAKE_BUF(usage).data;
    result->state_lost = workspace_take_state_lost(run->conversation->workspace);
    result->latency_ms = (double)(clock_now_ns() - run->begun_ns) / NS_PER_MS;
    return 0;
}

static int end_at_bounds(struct run *run, struct hutch_error *err)
{
    run->result->exit_reason = "model_error";
    return set_error(run->result, model_error_name(MODEL_INVALID),
                     "the conversation has as many messages, or bytes, as it may have; begin "
                     "another one",
                     err);
}

/* A step; or the end, where the conversation is too long for one or becomes it. */
static int bounded_step(struct run *run, struct hutch_error *err)
{
    const struct conversation *said = &run->conversation->said;

    if (said->count > LIMIT_MESSAGES - MESSAGES_OF_A_STEP || conversation_is_full(said))
        return end_at_bounds(run, err);
    int code = step(run, err);
    return code == HUTCH_ERR_INVALID ? end_at_bounds(run, err) : code;
}

static int go(struct run *run, const char *question, size_t length, struct hutch_error *err)
{
    struct conversation *said = &run->conversation->said;

    if (conversation_add_text(said, MESSAGE_USER, question, length, err) < 0)
        return err->code;
    while (!run->result->exit_reason) {
        if (bounded_step(run, err) < 0)
            return err->code;
    }
    if (close_conversation(run, err) < 0)
        return err->code;
    return complete_result(run, err);
}

static int run_begin(struct run *run, struct hutch_agent *agent,
                     const struct hutch_agent_run_options *options, struct hutch_error *err)
{
    *run = (struct run){.agent = agent, .begun_ns = clock_now_ns(), .token = STOP_TOKEN_NONE};
    events_init(&run->events, options->on_event, options->user);
    uint64_t deadline_ns = clock_after_ns(agent->timeout_ns);
    if (stop_token_init(&run->token, options->cancel, deadline_ns, err) < 0 ||
        agent_result_new(&agent->tools, &run->result, err) < 0 ||
        agent_take_client(agent, &run->client, err) < 0)
        return err->code;
    return 0;
}

static void run_end(struct run *run)
{
    if (run->client)
        agent_return_client(run->agent, run->client);
    stop_token_done(&run->token);
    events_done(&run->events);
    hutch_agent_result_free(run->result);
    json_decref(run->usage);
}

/* After an error the conversation is as it was before. */
static int run_in(struct hutch_conversation *conversation, struct hutch_agent *agent,
                  const struct hutch_agent_run_options *options, const struct hutch_text *question,
                  hutch_agent_result **ret_result, struct hutch_error *err)
{
    size_t before = conversation->said.count;
    struct run run;

    int code = run_begin(&run, agent, options, err);
    run.conversation = conversation;
    if (code == 0)
        code = go(&run, question->data, question->length, err);
    if (code == 0)
        *ret_result = TAKE_POINTER(run.result);
    else
        conversation_cut(&conversation->said, before);
    run_end(&run);
    return code;
}

static int load_options(const struct hutch_agent_run_options *given,
                        struct hutch_agent_run_options *ret_options, struct hutch_error *err)
{
    *ret_options = (struct hutch_agent_run_options){.size = sizeof(*ret_options)};
    if (!given)
        return 0;
    if (request_check_size("agent_run_options", given, given->size, sizeof(*given), sizeof(*given),
                           err) < 0)
        return err->code;
    *ret_options = *given;
    return 0;
}

static int check_question(const char *question, size_t length, struct hutch_error *err)
{
    if (!question || length < 1 || length > LIMIT_QUESTION_BYTES)
        return err_set(err, HUTCH_ERR_INVALID, "question: %zu bytes; allowed are 1 to %llu",
                       question ? length : 0, (unsigned long long)LIMIT_QUESTION_BYTES);
    size_t bad = utf8_bad_at(question, length);
    if (bad < length)
        return err_set(err, HUTCH_ERR_INVALID, "question: not UTF-8 at byte %zu", bad);
    return 0;
}

int hutch_agent_run(hutch_agent *agent, const char *question, size_t length,
                    const struct hutch_agent_run_options *run_options,
                    hutch_agent_result **ret_result, struct hutch_error *err)
{
    const struct hutch_text text = {(char *)question, length}; /* is not changed */
    struct hutch_agent_run_options options;
    hutch_conversation *own = NULL;
    struct hutch_error local;
    err = err ? err : &local;

    if (!agent || !ret_result)
        return err_set(err, HUTCH_ERR_INVALID, "%s: NULL", agent ? "ret_result" : "agent");
    if (check_question(question, length, err) < 0 || load_options(run_options, &options, err) < 0)
        return err->code;
    if (!options.conversation && hutch_conversation_new(&own, err) < 0)
        return err->code;
    hutch_conversation *conversation = own ? own : options.conversation;
    int code = conversation_take(conversation, agent->engine, err);
    if (code == 0) {
        code = run_in(conversation, agent, &options, &text, ret_result, err);
        conversation_release(conversation);
    }
    hutch_conversation_free(own);
    return code;
}
