/* SPDX-License-Identifier: Apache-2.0 */
/* See agent_options.h. */
#include "agent_options.h"

#include "cli.h"

#include <hutch-agent.h>

#define TOKENS_MAX 1000000             /* of one reply */
#define TOTAL_TOKENS_MAX 1000000000000 /* of a run */
#define STEPS_MAX 100
#define RETRIES_MAX 100
#define TOTAL_SECONDS_MAX 86400

#define VALUE(member) .offset = offsetof(struct agent_values, member)

static const struct option_spec agent_options[] = {
    {.type = OPTION_OPERAND,
     .argument = "QUESTION",
     .help = "what to ask; - for standard input, which is also read where there is no QUESTION; a "
             "terminal is then asked for one question after another",
     VALUE(question)},
    {.name = "model",
     .type = OPTION_TEXT,
     .argument = "NAME",
     .help = "the model, else HUTCH_MODEL, else openai/gpt-4o-mini on OpenRouter and gpt-4o-mini "
             "elsewhere",
     VALUE(model)},
    {.name = "base-url",
     .type = OPTION_TEXT,
     .argument = "URL",
     .help = "the server, such as http://127.0.0.1:11434/v1; else OPENAI_BASE_URL, "
             "OPENROUTER_BASE_URL, else the server whose key there is",
     VALUE(base_url)},
    {.name = "key-file",
     .type = OPTION_TEXT,
     .argument = "FILE",
     .help = "a file that holds the key; else OPENAI_API_KEY or OPENROUTER_API_KEY",
     VALUE(key_file)},
    {.name = "header",
     .type = OPTION_LIST,
     .argument = "NAME:VALUE",
     .help = "one more header of the requests to the server",
     VALUE(headers)},
    {.name = "temperature",
     .type = OPTION_NUMBER,
     .argument = "T",
     .minimum = -1,
     .maximum = 2,
     .help = "of the model; below 0 none is sent",
     VALUE(temperature)},
    {.name = "max-tokens",
     .type = OPTION_WHOLE,
     .argument = "N",
     .maximum = TOKENS_MAX,
     .help = "of one reply; with 0 no limit is sent",
     VALUE(max_tokens)},
    {.name = "extra",
     .type = OPTION_TEXT,
     .argument = "JSON",
     .help = "an object of further members of the requests, such as {\"top_p\": 0.9}",
     VALUE(extra)},
    {.name = "retries",
     .type = OPTION_WHOLE,
     .argument = "N",
     .maximum = RETRIES_MAX,
     .help = "how often a request is sent again after a failure that may pass",
     VALUE(retries)},
    {.name = "max-steps",
     .type = OPTION_WHOLE,
     .argument = "N",
     .minimum = 1,
     .maximum = STEPS_MAX,
     .help = "replies with tool calls; then the model has to answer without tools",
     VALUE(max_steps)},
    {.name = "max-total-tokens",
     .type = OPTION_WHOLE,
     .argument = "N",
     .maximum = TOTAL_TOKENS_MAX,
     .help = "of a question, as the server counts; then the model has to answer without tools; 0 "
             "for no limit",
     VALUE(max_total_tokens)},
    {.name = "timeout-total",
     .type = OPTION_NUMBER,
     .argument = "SECONDS",
     .minimum = 1,
     .maximum = TOTAL_SECONDS_MAX,
     .help = "wall-clock limit of a question",
     VALUE(timeout_total_seconds)},
    {.name = "tools",
     .type = OPTION_TEXT,
     .argument = "LIST",
     .help = "tools of the model, with commas, of python_executor, code_interpreter, shell, "
             "read_file, write_file, list_files; '' for none; without the option python_executor",
     VALUE(tools)},
    {.name = "system",
     .type = OPTION_TEXT,
     .argument = "FILE",
     .help = "a system prompt of your own in place of hutch's, at most 256 KiB; none where the "
             "file is empty",
     VALUE(system_file)},
    {.name = "schema",
     .type = OPTION_TEXT,
     .argument = "FILE",
     .help = "a JSON schema that the answer has to follow; the answer is then JSON",
     VALUE(schema_file)},
    {.name = "session",
     .type = OPTION_TEXT,
     .argument = "FILE",
     .help = "a file that keeps the conversation; it is made where it does not exist, else gone on "
             "from",
     VALUE(session_file)},
    {.name = "stream",
     .type = OPTION_FLAG,
     .help = "show text, tool calls and the output of cells as they come",
     VALUE(stream)},
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "print the result as one JSON object on a line; with --stream a line for each event "
             "before it",
     VALUE(json)},
    CELL_OPTION_TIMEOUT(offsetof(struct agent_values, timeout_seconds),
                        "wall-clock limit of one program of the model"),
    CELL_OPTION_MEMORY(offsetof(struct agent_values, cell)),
    CELL_OPTION_CPUS(offsetof(struct agent_values, cell)),
    CELL_OPTION_BACKEND(offsetof(struct agent_values, cell)),
    CELL_OPTION_REQUIRE(offsetof(struct agent_values, cell),
                        "do not run programs without this layer of isolation"),
    OPTION_HELP_ROW,
};

static const struct exit_row agent_exits[] = {
    {"0", "there is an answer; where a limit cut it short, a line on stderr says so"},
    {"1", "the model refused, the server's filter ended the answer, or it does not follow the "
          "schema"},
    EXIT_ROW_USAGE,
    {"124", "the time limit of the question was over"},
    {"125", "the model could not be asked, or hutch itself failed"},
    EXIT_ROWS_ENDED,
    {NULL, NULL},
};

void agent_values_init(struct agent_values *values)
{
    struct hutch_agent_options options;
    struct hutch_request request;

    hutch_agent_options_init(&options);
    hutch_request_init(&request);
    *values = (struct agent_values){
        .temperature = options.temperature,
        .max_tokens = options.max_tokens,
        .retries = options.retries,
        .max_steps = options.max_steps,
        .max_total_tokens = options.max_total_tokens,
        .timeout_total_seconds = options.timeout_seconds,
        .timeout_seconds = request.timeout_seconds,
    };
    cell_values_init(&values->cell, &request);
}

void agent_values_done(struct agent_values *values)
{
    text_list_done(&values->headers);
    cell_values_done(&values->cell);
}

static void agent_defaults(void *memory)
{
    agent_values_init(memory);
}

const struct command agent_command = {
    .name = "agent",
    .synopsis = "[OPTION]... [QUESTION | -]",
    .summary = "Answer a question with a language model that runs code in cells.",
    .options = agent_options,
    .option_count = ARRAY_LENGTH(agent_options),
    .exits = agent_exits,
    .values_size = sizeof(struct agent_values),
    .defaults = agent_defaults,
    .main = agent_main,
};
