/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See tool_calls.h. The calls wait in an array; each thread takes the next one until none is
 * left. Calls that keep state in the conversation are one piece of work: who takes the first of
 * them runs them all, in their order. All that a call makes stays in its own place until the
 * threads have ended; then the caller's thread puts it where it belongs, in the order of the calls.
 */
#include "tool_calls.h"

#include "agent_result.h"
#include "base/error.h"
#include "base/json.h"
#include "usage.h"

#include <limits.h>
#include <signal.h>
#include <string.h>

#define STACK_BYTES MIB(1) /* frames of ours are small, those of callers' tools may not be */

struct slot {
    const struct tool_desk *desk;
    const struct tool_call *call;
    const struct tool *tool;   /* NULL: not to be run */
    const char *name;          /* of the tool, as long as the result lives */
    struct hutch_call running; /* its answer is the call's */
    const char *text;          /* what the model is told, here or in running; NULL: not yet */
    size_t length;
    bool failed;
    struct hutch_agent_cell *cells;
    size_t cell_count;
    double unlisted_ms; /* of cells that are not listed */
    json_t *usage;      /* of an agent that is a tool; NULL for none */
    int code;           /* of a run that could not be made */
    struct hutch_error err;
};

struct batch {
    struct slot *slots;
    size_t count, first_in_order; /* count: none is */
    atomic_size_t next;
};

/* ---- a call ---- */

static void tell(const struct slot *slot, struct hutch_agent_event event)
{
    event.id = slot->call->id;
    event.name = slot->call->name;
    if (event.kind == HUTCH_AGENT_TOOL_OUTPUT)
        events_tell_bytes(slot->desk->events, &event);
    else
        events_tell(slot->desk->events, &event);
}

static void on_output(void *user, enum hutch_stream stream, const char *data, size_t length)
{
    tell(user,
         (struct hutch_agent_event){
             .kind = HUTCH_AGENT_TOOL_OUTPUT, .stream = stream, .text = data, .length = length});
}

static int add_cell(struct slot *slot, struct hutch_agent_cell cell, struct hutch_error *err)
{
    if (slot->cell_count == LIMIT_CALL_CELLS) {
        slot->unlisted_ms += cell.duration_ms;
        return 0;
    }
    struct hutch_agent_cell *cells =
        reallocarray(slot->cells, slot->cell_count + 1, sizeof(*slot->cells));
    if (!cells)
        return err_no_memory(err);
    slot->cells = cells;
    cell.tool = slot->name;
    cell.step = slot->desk->events->step;
    slot->cells[slot->cell_count++] = cell;
    return 0;
}

static int on_cell(void *user, const struct hutch_agent_cell *cell, struct hutch_error *err)
{
    return add_cell(user, *cell, err);
}

/* The cells and the tokens of an agent that is a tool count as those of the call. */
static int on_agent(void *user, const hutch_agent_result *result, struct hutch_error *err)
{
    size_t length = strlen(result->token_usage);
    auto_json json_t *usage = NULL;
    struct slot *slot = user;
    double listed_ms = 0;

    for (size_t i = 0; i < result->cell_count; i++) {
        listed_ms += result->cells[i].duration_ms;
        if (add_cell(slot, result->cells[i], err) < 0)
            return err->code;
    }
    if (result->execution_time_ms > listed_ms)
        slot->unlisted_ms += result->execution_time_ms - listed_ms;
    if (json_read(result->token_usage, length, length, &usage, err) < 0)
        return err->code;
    return usage_add(&slot->usage, usage, err);
}

static void answer(struct slot *slot, bool failed, const char *text, size_t length)
{
    slot->failed = failed;
    slot->text = text;
    slot->length = length;
    tell(slot, (struct hutch_agent_event){.kind = HUTCH_AGENT_TOOL_RESULT,
                                          .failed = failed,
                                          .text = text,
                                          .length = length,
                                          .result = slot->running.last_cell});
}

static void prepare(struct slot *slot)
{
    const struct tool_desk *desk = slot->desk;

    slot->running = (struct hutch_call){
        .tool = slot->tool,
        .arguments = slot->call->arguments,
        .text = slot->call->text,
        .length = strlen(slot->call->text),
        .cancel = &desk->token->cancel,
        .deadline_ns = desk->token->cancel.deadline_ns,
        .state = desk->workspace,
        .max_answer_bytes = desk->agent->max_answer_bytes,
        .listener = {.on_output = on_output,
                     .on_cell = on_cell,
                     .on_agent = on_agent,
                     .user = slot},
        .answer = BUF_MAX(LIMIT_CALL_ANSWER_BYTES),
    };
}

static void run_call(struct slot *slot)
{
    static const char cancelled[] = "Error: not executed: the run was cancelled.";
    static const char late[] = "Error: not executed: the time of the run is over.";

    if (stop_token_is_cancelled(slot->desk->token)) {
        answer(slot, true, cancelled, strlen(cancelled));
        return;
    }
    if (stop_token_is_late(slot->desk->token)) {
        answer(slot, true, late, strlen(late));
        return;
    }
    prepare(slot);
    slot->code = tool_run(&slot->running, &slot->err);
    if (slot->code >= 0)
        answer(slot, slot->code > 0, slot->running.answer.data, slot->running.answer.length);
}

static bool is_in_order(const struct slot *slot)
{
    return slot->tool && slot->tool->in_order;
}

static void run_in_order(struct batch *batch)
{
    for (size_t i = batch->first_in_order; i < batch->count; i++) {
        if (is_in_order(&batch->slots[i]))
            run_call(&batch->slots[i]);
    }
}

static void *work(void *user)
{
    struct batch *batch = user;

    for (;;) {
        size_t number = atomic_fetch_add(&batch->next, 1);
        if (number >= batch->count)
            return NULL;
        if (number == batch->first_in_order)
            run_in_order(batch);
        else if (batch->slots[number].tool && !batch->slots[number].tool->in_order)
            run_call(&batch->slots[number]);
    }
}

/* ---- threads ---- */

/* With all signals blocked: those of the host program are for its own threads. */
static bool start_thread(struct batch *batch, pthread_t *ret_thread)
{
    pthread_attr_t attributes;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int code = pthread_create(ret_thread, &attributes, work, batch);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code == 0;
}

/* A thread that cannot be made is done without. */
static void run_all(struct batch *batch, size_t concurrency)
{
    pthread_t threads[LIMIT_TOOL_CONCURRENCY];
    size_t started = 0, to_run = 0;

    batch->first_in_order = batch->count;
    for (size_t i = batch->count; i-- > 0;) {
        if (is_in_order(&batch->slots[i]))
            batch->first_in_order = i;
    }
    for (size_t i = 0; i < batch->count; i++)
        to_run +=
            batch->slots[i].tool && (i == batch->first_in_order || !is_in_order(&batch->slots[i]));
    size_t wanted = to_run < concurrency ? to_run : concurrency;
    while (started + 1 < wanted && start_thread(batch, &threads[started]))
        started++;
    work(batch);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* ---- before and after ---- */

static int fill_slot(const struct tool_desk *desk, const struct tool_call *call, struct slot *slot,
                     struct hutch_error *err)
{
    *slot = (struct slot){.desk = desk, .call = call};
    if (agent_result_count(desk->result, call->name, &slot->name, err) < 0)
        return err->code;
    slot->tool = call->fault == CALL_GOOD ? tool_set_find(&desk->agent->tools, call->name) : NULL;
    return 0;
}

/* Tells of all calls before the first one begins, and answers those that are not to be run. */
static void announce(struct batch *batch)
{
    static const char unknown[] = "Error: there is no such tool.";

    for (size_t i = 0; i < batch->count; i++)
        tell(&batch->slots[i],
             (struct hutch_agent_event){.kind = HUTCH_AGENT_TOOL_CALL,
                                        .text = batch->slots[i].call->text,
                                        .length = strlen(batch->slots[i].call->text)});
    for (size_t i = 0; i < batch->count; i++) {
        struct slot *slot = &batch->slots[i];
        const char *problem = slot->call->problem ? slot->call->problem : unknown;
        if (!slot->tool)
            answer(slot, true, problem, strlen(problem));
    }
}

static int take_slot(const struct tool_desk *desk, const struct slot *slot,
                     struct conversation *said, const char **ended, struct hutch_error *err)
{
    if (slot->code < 0) {
        *err = slot->err;
        return err->code;
    }
    for (size_t i = 0; i < slot->cell_count; i++) {
        if (agent_result_add_cell(desk->result, &slot->cells[i], err) < 0)
            return err->code;
    }
    desk->result->execution_time_ms += slot->unlisted_ms;
    if (slot->usage) {
        uint64_t tokens = usage_total(slot->usage);
        *desk->tokens = tokens > UINT64_MAX - *desk->tokens ? UINT64_MAX : *desk->tokens + tokens;
        if (usage_add(desk->usage, slot->usage, err) < 0)
            return err->code;
    }
    if (slot->tool && slot->tool->ends_run && !slot->failed && !*ended) {
        *ended = slot->name;
        if (agent_result_set_answer(desk->result, slot->text, slot->length, err) < 0)
            return err->code;
    }
    return conversation_add_tool(said, slot->call->id, slot->text, slot->length, err);
}

static int run_batch(const struct tool_desk *desk, struct batch *batch, struct conversation *said,
                     const char **ret_ended, struct hutch_error *err)
{
    const struct message *message = &said->messages[said->count - 1];
    const char *ended = NULL;

    for (size_t i = 0; i < batch->count; i++) {
        if (fill_slot(desk, &message->calls[i], &batch->slots[i], err) < 0)
            return err->code;
    }
    announce(batch);
    run_all(batch, desk->agent->tool_concurrency);
    for (size_t i = 0; i < batch->count; i++) {
        if (take_slot(desk, &batch->slots[i], said, &ended, err) < 0)
            return err->code;
    }
    *ret_ended = ended;
    return 0;
}

int tool_calls_run(const struct tool_desk *desk, struct conversation *said, const char **ret_ended,
                   struct hutch_error *err)
{
    size_t count = said->messages[said->count - 1].call_count;
    struct batch batch = {.slots = calloc(count, sizeof(struct slot)), .count = count};

    if (!batch.slots)
        return err_no_memory(err);
    int code = run_batch(desk, &batch, said, ret_ended, err);
    for (size_t i = 0; i < count; i++) {
        tool_call_end(&batch.slots[i].running);
        free(batch.slots[i].cells);
        json_decref(batch.slots[i].usage);
    }
    free(batch.slots);
    return code;
}
