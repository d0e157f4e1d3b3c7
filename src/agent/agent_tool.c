/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent as a tool of another one. Its run is a part of the other's: it ends with the call's
 * token and time, its cells and tokens are counted there, and what its tools print is shown there
 * as this call's output.
 */
#include "agent.h"

#include "base/error.h"
#include "base/json.h"

#include <string.h>

static const char parameters[] =
    "{\"type\":\"object\",\"properties\":{\"question\":{\"type\":\"string\",\"minLength\":1,"
    "\"description\":\"What to find out, with all that is needed to know for it.\"}},"
    "\"required\":[\"question\"]}";

static void on_event(void *user, const struct hutch_agent_event *event)
{
    if (event->kind == HUTCH_AGENT_TOOL_OUTPUT)
        hutch_call_output(user, event->stream, event->text, event->length);
}

/* Whether the answer is one that was given in full. */
static bool is_good(const hutch_agent_result *result)
{
    static const char *const bad[] = {"length",  "content_filter", "schema",
                                      "timeout", "cancelled",      "model_error"};

    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        if (strcmp(result->exit_reason, bad[i]) == 0)
            return false;
    }
    return true;
}

static int tell(hutch_call *call, const hutch_agent_result *result, struct hutch_error *err)
{
    const struct call_listener *listener = &call->listener;

    if (listener->on_agent && listener->on_agent(listener->user, result, err) < 0)
        return err->code;
    if (hutch_call_answer(call, result->answer.data, result->answer.length, err) < 0)
        return err->code;
    if (is_good(result))
        return 0;
    return err_set(err, HUTCH_ERR_SYSTEM, "the agent gave no full answer: %s%s%s",
                   result->exit_reason, result->error_message ? ": " : "",
                   result->error_message ? result->error_message : "");
}

static int run(void *user, hutch_call *call, struct hutch_error *err)
{
    const json_t *question = json_object_get(call->arguments, "question");
    const struct hutch_agent_run_options options = {
        .size = sizeof(options),
        .on_event = on_event,
        .user = call,
        .cancel = hutch_call_cancel(call),
    };
    hutch_agent_result *result;

    if (hutch_agent_run(user, json_string_value(question), json_string_length(question), &options,
                        &result, err) < 0)
        return err->code;
    int code = tell(call, result, err);
    hutch_agent_result_free(result);
    return code;
}

void hutch_agent_as_tool(hutch_agent *agent, const char *name, const char *description,
                         struct hutch_tool *ret_tool)
{
    *ret_tool = (struct hutch_tool){
        .size = sizeof(*ret_tool),
        .name = name,
        .description = description,
        .parameters = parameters,
        .run = run,
        .user = agent,
    };
}
