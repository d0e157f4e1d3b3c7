/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a question of an agent that has two tools: one of this program, which knows what is in
 * stock, and another agent, which computes by running Python in a cell.
 *
 *     cc agent.c $(pkg-config --cflags --libs libhutch-agent) -o agent
 *     OPENAI_API_KEY=... ./agent 'Is the number of all screws and nails a prime?'
 */
#include <hutch-agent.h>

#include <stdio.h>
#include <string.h>

extern char **environ;

/* ---- a tool of this program ---- */

static const char stock[] = "{\"screws\": 120, \"nails\": 77, \"hinges\": 6}";

static int look_up(void *user, hutch_call *call, struct hutch_error *err)
{
    (void)user;
    return hutch_call_answer(call, stock, strlen(stock), err);
}

static const struct hutch_tool stock_tool = {
    .size = sizeof(stock_tool),
    .name = "stock",
    .description = "What is in stock, as a JSON object of names and numbers.",
    .run = look_up,
};

/* ---- what happens ---- */

static void on_event(void *user, const struct hutch_agent_event *event)
{
    (void)user;
    if (event->kind == HUTCH_AGENT_TOOL_CALL)
        fprintf(stderr, "%s %s\n", event->name, event->text);
    else if (event->kind == HUTCH_AGENT_TOOL_RESULT)
        fprintf(stderr, "%s: %s\n", event->failed ? "failed" : "done", event->text);
}

static int ask(hutch_agent *agent, const char *question)
{
    const struct hutch_agent_run_options options = {.size = sizeof(options), .on_event = on_event};
    hutch_agent_result *result;
    struct hutch_error err;

    if (hutch_agent_run(agent, question, strlen(question), &options, &result, &err) < 0) {
        fprintf(stderr, "hutch: %s\n", err.message);
        return 125;
    }
    printf("%s\n", result->answer.data);
    fprintf(stderr, "%s, %u tool calls, %.0f ms in cells%s%s\n", result->exit_reason,
            result->tool_calls, result->execution_time_ms, result->error_message ? ": " : "",
            result->error_message ? result->error_message : "");
    int status = result->error_message ? 1 : 0;
    hutch_agent_result_free(result);
    return status;
}

/* ---- two agents ---- */

/* The one that computes: hutch's own prompt, and python_executor. */
static int make_computer(hutch_engine *engine, hutch_agent **ret_agent, struct hutch_error *err)
{
    struct hutch_agent_options options;

    hutch_agent_options_init(&options);
    options.engine = engine;
    options.environment = environ;
    return hutch_agent_new(&options, ret_agent, err);
}

static int make_clerk(hutch_agent *computer, hutch_agent **ret_agent, struct hutch_error *err)
{
    struct hutch_tool compute;
    const struct hutch_tool *const tools[] = {&stock_tool, &compute};
    struct hutch_agent_options options;

    hutch_agent_as_tool(computer, "compute",
                        "Computes what it is asked, by running a program, and says the result.",
                        &compute);
    hutch_agent_options_init(&options);
    options.environment = environ;
    options.system_prompt = "You answer questions about a stock. Look it up, and leave all "
                            "arithmetic to the tool compute.";
    options.builtin_tools = "";
    options.tools = tools;
    options.tool_count = 2;
    return hutch_agent_new(&options, ret_agent, err);
}

static int run(hutch_engine *engine, const char *question)
{
    hutch_agent *computer = NULL, *clerk = NULL;
    struct hutch_error err;
    int status = 125;

    if (make_computer(engine, &computer, &err) < 0 || make_clerk(computer, &clerk, &err) < 0)
        fprintf(stderr, "hutch: %s\n", err.message);
    else
        status = ask(clerk, question);
    hutch_agent_free(clerk); /* before the agent that is its tool */
    hutch_agent_free(computer);
    return status;
}

int main(int argc, char **argv)
{
    struct hutch_error err;
    hutch_engine *engine;

    if (hutch_engine_new(NULL, &engine, &err) < 0) {
        fprintf(stderr, "hutch: %s\n", err.message);
        return 125;
    }
    int status = run(engine, argc > 1 ? argv[1] : "How many screws and nails are there together?");
    hutch_engine_free(engine);
    return status;
}
