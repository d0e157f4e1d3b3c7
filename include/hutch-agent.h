/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch agents: questions answered by a language model that runs code in cells.
 *
 * This is the whole public API of libhutch-agent, on top of <hutch.h>; the rules at the
 * head of that file hold here too. It compiles as C99 and as C++11.
 *
 *     struct hutch_agent_options options;
 *     hutch_agent_options_init(&options);
 *     options.engine = engine;
 *     options.environment = environ;          // where model, server and key are named
 *     if (hutch_agent_new(&options, &agent, &err) < 0)
 *         ...
 *     if (hutch_agent_run(agent, "2**100?", 7, NULL, &result, &err) < 0)
 *         ...                                 // hutch failed: see err
 *     else
 *         puts(result->answer.data);          // result->exit_reason says how it ended
 *     hutch_agent_result_free(result);
 *     hutch_agent_free(agent);
 *
 * What a run did is a *result*, also where the model could not be reached, refused, or
 * the time ran out: everything that happened until then is in it.
 *
 * Threads: an agent may run any number of questions at once, each on the thread of its
 * caller and up to tool_concurrency threads for tools.
 */
#ifndef HUTCH_AGENT_H
#define HUTCH_AGENT_H

#include <hutch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tools ------------------------------------------------------------- */

/* A call of a tool while it runs: valid until the function returns, and used by any thread
 * of it, but by one at a time. */
typedef struct hutch_call hutch_call;

/* The arguments as JSON: always an object, and valid by the schema of the tool.
 * NUL-terminated; they live as long as the call. ret_length may be NULL. */
HUTCH_PUBLIC const char *hutch_call_arguments(const hutch_call *call, size_t *ret_length);

/* Triggered when the run is cancelled or out of time: to be passed to hutch_run and its kin.
 * The run's; not to be freed, and not to be triggered. */
HUTCH_PUBLIC hutch_cancel *hutch_call_cancel(hutch_call *call);

/* What is left of the run's time, 0 or more. */
HUTCH_PUBLIC double hutch_call_seconds_left(const hutch_call *call);

/* Shows output as it comes: an event HUTCH_AGENT_TOOL_OUTPUT. The model does not see it. */
HUTCH_PUBLIC void hutch_call_output(hutch_call *call, enum hutch_stream stream, const char *data,
                                    size_t length);

/* Appends to what the model is answered; bytes that are no UTF-8 become U+FFFD. Of more than
 * 4 MiB it gets the beginning. Errors: NO_MEMORY. */
HUTCH_PUBLIC int hutch_call_answer(hutch_call *call, const char *text, size_t length,
                                   struct hutch_error *err);

/* Notes that a cell ran, for code_executed, execution_time_ms and cells. The result becomes the
 * call's, also after an error: it is valid until the next one is recorded or the function returns,
 * and not to be freed. Errors: NO_MEMORY. */
HUTCH_PUBLIC int hutch_call_record(hutch_call *call, hutch_result *result, struct hutch_error *err);

/* What a tool does. Returns 0; or negative with *err filled: the call failed, and the model is
 * told "Error: " with that message, and what hutch_call_answer was given. It should end soon
 * when the call's cancel token is triggered; the run waits for it. It is called on the thread of
 * the run or on one that the run has made, with a stack of 1 MiB and all signals blocked; several
 * calls may be under way at once. */
typedef int (*hutch_tool_fn)(void *user, hutch_call *call, struct hutch_error *err);

/* A tool. Copied when it is given to an agent, but for user. */
struct hutch_tool {
    size_t size;             /* sizeof(struct hutch_tool) */
    const char *name;        /* 1 to 64 of a-z A-Z 0-9 _ -, unique in an agent */
    const char *description; /* for the model; at most 16 KiB of UTF-8 */
    const char *parameters;  /* the arguments, as JSON Schema of type object (see below);
                                at most 256 KiB; NULL: none are taken */
    hutch_tool_fn run;
    void *user;    /* passed to run; has to live as long as the agent */
    bool ends_run; /* a call that does not fail ends the run, with its answer; the exit_reason
                    is its name, which is then none of those of hutch_agent_result */
};

/* Of JSON Schema (2020-12) these keywords are checked: type, enum, const, properties,
 * required, additionalProperties, items, minItems, maxItems, uniqueItems, minLength, maxLength,
 * pattern (POSIX extended), minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf,
 * minProperties, maxProperties, anyOf, oneOf, allOf, not, $ref within the schema ("#/...").
 * Title, description, default, examples, format, $schema, $id, $comment, $defs and definitions
 * are let through. A schema with any other keyword is refused by name. */

/* ---- agents ------------------------------------------------------------ */

typedef struct hutch_agent hutch_agent;

/* What an agent is told at its birth. All strings are copied. */
struct hutch_agent_options {
    size_t size; /* set by hutch_agent_options_init */

    /* the model */
    char *const *environment; /* "NAME=value", ended by NULL: HUTCH_MODEL, OPENAI_BASE_URL,
                                 OPENROUTER_BASE_URL, OPENAI_API_KEY, OPENROUTER_API_KEY,
                                 CURL_CA_BUNDLE, SSL_CERT_FILE; what is said below goes first.
                                 NULL: nothing. Proxies are always those of the process */
    const char *model;        /* default openai/gpt-4o-mini on OpenRouter, gpt-4o-mini elsewhere */
    const char *base_url;     /* such as http://127.0.0.1:11434/v1 */
    const char *key_file;     /* a file that holds the key */
    const char *const *headers; /* more of the request, "Name: value", ended by NULL; at most 32 */
    double temperature;         /* 0 to 2, default 0.1; negative: not sent */
    uint32_t max_tokens;        /* of one reply, default 4096; 0: not sent */
    const char *extra;          /* a JSON object of further members of the request, such as
                                   {"top_p": 0.9}; default NULL */
    bool strict;                /* ask for strict following of the tools' schemas; default false:
                                   not every server takes it */
    bool stream;                /* ask for replies token by token; default false */
    double connect_seconds;     /* 0.1 to 600, default 10: until there is a connection */
    double silence_seconds;     /* 0.1 to 600, default 120: without a byte of the answer */
    uint32_t retries;           /* 0 to 100, default 5 */

    /* the run */
    uint32_t max_steps;        /* 1 to 100, default 10: replies of the model with tool calls.
                                  Behind the last of them the model is asked once more, without
                                  tools, so that there is an answer */
    uint32_t tool_concurrency; /* 1 to 16, default 4: tool calls of one reply at once; but those
                                  of built-in tools that keep state, all but python_executor, run
                                  one after the other in the order of the calls */
    double timeout_seconds;    /* 0.1 to 86400, default 600, for all of a run */
    uint64_t max_total_tokens; /* of a run, as its server counts; when they are used up the model
                                  is asked once more, without tools; default 0: no limit */
    const char *system_prompt; /* default NULL: the one of hutch, made for the tools that there
                                  are; "": none. At most 256 KiB of UTF-8 */
    const char *schema;        /* JSON Schema that the answer has to follow, see above; the
                                  answer is then that JSON. The server is asked for it by
                                  response_format where no tool may be called, and an answer that
                                  does not follow is repaired once. Default NULL: free text */

    /* tools */
    hutch_engine *engine;      /* for the cells of the built-in tools; has to live as long as the
                                  agent. NULL where tools is "" */
    const char *builtin_tools; /* of python_executor, code_interpreter, shell, read_file,
                              write_file, list_files, with commas; default "python_executor";
                              "": none */
    const struct hutch_request *cells;     /* limits of the built-in tools' cells: timeout_seconds,
                                  memory_mb, cpus, max_processes, disk_mb, max_output_bytes, backend,
                                  require, owner and gate count; NULL: the defaults, and the default
                                  gate for python_executor */
    const struct hutch_tool *const *tools; /* the caller's own; copied; tool_count of them */
    size_t tool_count;                     /* at most 128 together with the built-in ones */
    uint64_t max_answer_bytes; /* 1024 to 4 MiB, default 32 KiB: what the model is told of
                         one tool call; of more it gets the head and the tail */
};

/* Fills *options with defaults. Cannot fail. */
HUTCH_PUBLIC void hutch_agent_options_init(struct hutch_agent_options *options);

/* Makes an agent; nothing is sent and nothing started. The error names the option.
 * Errors: INVALID, NO_MEMORY, SYSTEM. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_agent_new(const struct hutch_agent_options *options,
                                                  hutch_agent **ret_agent, struct hutch_error *err);

/* Frees an agent. No run may be active. NULL is ignored. */
HUTCH_PUBLIC void hutch_agent_free(hutch_agent *agent);

/* ---- conversations ----------------------------------------------------- */

/* What was said, so that a later run goes on from it; and the sessions of the built-in tools
 * that keep state. It belongs to one run at a time, and to agents of one engine. The system
 * prompt is the agent's and no part of it. However a run ended, each tool call has its answer and
 * the last message is a text of the assistant, "(no answer: timeout)" where there was none. */
typedef struct hutch_conversation hutch_conversation;

/* Makes an empty one. Errors: NO_MEMORY. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_conversation_new(hutch_conversation **ret_conversation,
                                                         struct hutch_error *err);

/* Reads messages: a JSON array as hutch_conversation_to_json wrote it, or as the "messages" of
 * a request to a model; at most 64 MiB. Tool calls without an answer are given one. Errors:
 * INVALID names the message and the member; NO_MEMORY. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int
hutch_conversation_from_json(const char *json, size_t length, hutch_conversation **ret_conversation,
                             struct hutch_error *err);

/* The messages as a JSON array on one line. *ret_json is the caller's, to be freed by
 * hutch_free. Errors: NO_MEMORY. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_conversation_to_json(const hutch_conversation *conversation,
                                                             char **ret_json,
                                                             struct hutch_error *err);

/* Ends its sessions, and frees it. To be called before the engine is freed. NULL is ignored. */
HUTCH_PUBLIC void hutch_conversation_free(hutch_conversation *conversation);

/* ---- runs -------------------------------------------------------------- */

enum hutch_agent_event_kind {
    HUTCH_AGENT_MODEL_TEXT = 1,  /* text: the next piece of a reply; of an agent with stream as
                                    it comes, else the whole */
    HUTCH_AGENT_REASONING = 2,   /* text: what the model says of its reasoning, likewise */
    HUTCH_AGENT_TOOL_CALL = 3,   /* id, name; text: the arguments as JSON. Of all calls of a
                                    reply in their order, before the first begins */
    HUTCH_AGENT_TOOL_OUTPUT = 4, /* id, name, stream; text: the next piece of it */
    HUTCH_AGENT_TOOL_RESULT = 5, /* id, name, failed; text: what the model is told. As they end;
                                    with result where a cell ran */
    HUTCH_AGENT_STEP = 6         /* a step begins: the model is about to be asked */
};

/* Something that happened. All pointers are valid during the call only. */
struct hutch_agent_event {
    size_t size;
    enum hutch_agent_event_kind kind;
    uint32_t step;    /* from 1 */
    const char *id;   /* of the tool call, else NULL */
    const char *name; /* of the tool, else NULL */
    const char *text; /* NUL-terminated too; may be NULL when length is 0 */
    size_t length;
    enum hutch_stream stream;
    bool failed;
    const hutch_result *result; /* the last cell of this call; NULL for none */
};

/* Is told of events: from threads of the run, never two at once. It may trigger the run's
 * cancel token and call nothing else that concerns the run. */
typedef void (*hutch_agent_event_fn)(void *user, const struct hutch_agent_event *event);

/* All members but the size may be zero. */
struct hutch_agent_run_options {
    size_t size;
    hutch_agent_event_fn on_event;
    void *user;
    hutch_cancel *cancel;             /* ends the run at any moment, and kills its cells */
    hutch_conversation *conversation; /* is gone on from, and takes what is said */
};

/* A cell that ran. Of one that was killed by the run's end the time alone is known, with the wait
 * for its start; its exit_code is -1, and its error_type "timeout", or NULL if it was cancelled. */
struct hutch_agent_cell {
    const char *tool; /* its name; lives as long as the result */
    uint32_t step;    /* from 1 */
    int32_t exit_code;
    const char *error_type; /* as that of hutch_result; static */
    double duration_ms;
    uint64_t peak_memory_bytes; /* 0 where it is not known */
    bool state_lost;
};

struct hutch_tool_count {
    const char *tool; /* lives as long as the result */
    uint32_t calls;
};

/* What a run did. Everything but answer is counted by hutch, not claimed by the model. */
typedef struct hutch_agent_result {
    size_t size;
    struct hutch_text answer; /* UTF-8; what there is of it where the run ended early */

    /* "text"; "refusal" (the model's own); the name of the tool that ended the run;
     * "max_agent_steps" and "token_budget": the answer is that of the last call, without tools;
     * "length" and "content_filter": the model's reply was ended by its server; "schema": the
     * answer does not follow the schema; "timeout"; "cancelled"; "model_error". Lives as long
     * as the result. */
    const char *exit_reason;

    /* Of a model_error, and of a schema what is wrong; else NULL and 0. */
    const char *error_code; /* "rate_limit" ...: static; see docs/errors.md */
    char *error_message;    /* one line that says what to do */
    int32_t http_status;    /* of a model_error: of the last answer; 0: none */
    bool retry_safe;        /* the same question may do later */

    uint32_t step_count; /* replies of the model */
    uint32_t tool_calls; /* all that the model made, failed and refused ones too */
    struct hutch_tool_count *tool_call_counts; /* of each tool that there is, from 0, and of
                                                  unknown ones that were called */
    size_t tool_call_count_length;
    bool code_executed;             /* a cell ran */
    double execution_time_ms;       /* the sum of the cells' durations */
    double latency_ms;              /* wall time of the run */
    struct hutch_agent_cell *cells; /* of one call the first 1000; all count in the sum */
    size_t cell_count;
    bool state_lost;   /* a session of the conversation lost its state */
    char *token_usage; /* JSON object: the sums of what the server counted; "{}" for nothing */
    char *messages;    /* JSON array: the conversation as it is now, see
                          hutch_conversation_to_json */
} hutch_agent_result;

/* Answers a question: UTF-8, 1 byte to 4 MiB. run_options may be NULL. *ret_result is the
 * caller's, to be freed by hutch_agent_result_free.
 * Errors: INVALID, NO_MEMORY, SYSTEM. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_agent_run(hutch_agent *agent, const char *question,
                                                  size_t length,
                                                  const struct hutch_agent_run_options *run_options,
                                                  hutch_agent_result **ret_result,
                                                  struct hutch_error *err);

/* NULL is ignored. */
HUTCH_PUBLIC void hutch_agent_result_free(hutch_agent_result *result);

/* The result as one JSON object on one line: answer, code_executed, tool_calls,
 * execution_time_ms, latency_ms, exit_reason, step_count, tool_call_counts, token_usage,
 * cells, state_lost, error, messages. *ret_json is the caller's, to be freed by hutch_free.
 * Errors: NO_MEMORY. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_agent_result_to_json(const hutch_agent_result *result,
                                                             char **ret_json,
                                                             struct hutch_error *err);

/* Makes *ret_tool a tool of other agents that asks this one: its only argument is "question",
 * its answer this agent's. The cells and the tokens of this agent count in the other's result,
 * what its tools print is output of the call. The name and the description stay the caller's; the
 * agent has to live as long as those that have the tool. */
HUTCH_PUBLIC void hutch_agent_as_tool(hutch_agent *agent, const char *name, const char *description,
                                      struct hutch_tool *ret_tool);

#ifdef __cplusplus
}
#endif

#endif
