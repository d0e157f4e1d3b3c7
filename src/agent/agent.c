/* SPDX-License-Identifier: Apache-2.0 */
/* An agent: what its options say, checked and copied; and its clients. */
#include "agent.h"

#include "answer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "environment.h"
#include "prompt.h"
#include "sandbox/request.h"
#include "schema.h"

#include <string.h>

/* ---- numbers ---- */

static int check_real(const char *field, double value, double min, double max,
                      struct hutch_error *err)
{
    if (value >= min && value <= max)
        return 0;
    return err_set(err, HUTCH_ERR_INVALID, "%s: %s; allowed is %s to %s", field,
                   number_text(value).text, number_text(min).text, number_text(max).text);
}

static int check_number(const char *field, uint64_t value, uint64_t min, uint64_t max,
                        struct hutch_error *err)
{
    if (value >= min && value <= max)
        return 0;
    return err_set(err, HUTCH_ERR_INVALID, "%s: %llu; allowed is %llu to %llu", field,
                   (unsigned long long)value, (unsigned long long)min, (unsigned long long)max);
}

static int check_numbers(const struct hutch_agent_options *options, struct hutch_error *err)
{
    const struct {
        const char *field;
        double value, min, max;
    } reals[] = {
        {"connect_seconds", options->connect_seconds, 0.1, LIMIT_WAIT_SECONDS_MAX},
        {"silence_seconds", options->silence_seconds, 0.1, LIMIT_WAIT_SECONDS_MAX},
        {"timeout_seconds", options->timeout_seconds, 0.1, LIMIT_RUN_SECONDS_MAX},
    };
    const struct {
        const char *field;
        uint64_t value, min, max;
    } numbers[] = {
        {"retries", options->retries, 0, 100},
        {"max_steps", options->max_steps, 1, LIMIT_STEPS},
        {"tool_concurrency", options->tool_concurrency, 1, LIMIT_TOOL_CONCURRENCY},
        {"max_answer_bytes", options->max_answer_bytes, KIB(1), LIMIT_CALL_ANSWER_BYTES},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(reals); i++) {
        if (check_real(reals[i].field, reals[i].value, reals[i].min, reals[i].max, err) < 0)
            return err->code;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++) {
        if (check_number(numbers[i].field, numbers[i].value, numbers[i].min, numbers[i].max, err) <
            0)
            return err->code;
    }
    if (!(options->temperature <= 2))
        return err_set(err, HUTCH_ERR_INVALID,
                       "temperature: %s; allowed is 0 to 2, and negative to send none",
                       number_text(options->temperature).text);
    return 0;
}

static void take_numbers(struct hutch_agent *agent, const struct hutch_agent_options *options)
{
    agent->temperature = options->temperature;
    agent->max_tokens = options->max_tokens;
    agent->strict = options->strict;
    agent->stream = options->stream;
    agent->max_steps = options->max_steps;
    agent->tool_concurrency = options->tool_concurrency;
    agent->timeout_ns = (uint64_t)(options->timeout_seconds * NS_PER_SECOND);
    agent->max_total_tokens = options->max_total_tokens;
    agent->max_answer_bytes = options->max_answer_bytes;
    agent->client.connect_ms = (unsigned)(options->connect_seconds * 1000 + 0.5);
    agent->client.idle_ms = (unsigned)(options->silence_seconds * 1000 + 0.5);
    agent->client.first_byte_ms = agent->client.idle_ms;
    agent->client.retries = options->retries;
}

/* ---- the model ---- */

static int copy_headers(struct hutch_agent *agent, const char *const *headers,
                        struct hutch_error *err)
{
    for (size_t i = 0; headers && headers[i]; i++) {
        if (i == LIMIT_HEADERS)
            return err_set(err, HUTCH_ERR_INVALID, "headers: more than %d", LIMIT_HEADERS);
        agent->headers[i] = strdup(headers[i]);
        if (!agent->headers[i])
            return err_no_memory(err);
    }
    agent->client.headers = (const char *const *)agent->headers;
    return 0;
}

static int copy_settings(struct hutch_agent *agent, const struct model_settings *settings,
                         struct hutch_error *err)
{
    if (!utf8_valid(settings->model, strlen(settings->model)))
        return err_set(err, HUTCH_ERR_INVALID, "model: its name is not UTF-8");
    agent->model = strdup(settings->model);
    agent->base_url = strdup(settings->base_url);
    agent->ca_file = settings->ca_file ? strdup(settings->ca_file) : NULL;
    if (!agent->model || !agent->base_url || (settings->ca_file && !agent->ca_file))
        return err_no_memory(err);
    agent->client.base_url = agent->base_url;
    agent->client.ca_file = agent->ca_file;
    agent->client.key = &agent->key;
    return 0;
}

/* Also makes the first client, which checks the rest. */
static int take_model(struct hutch_agent *agent, const struct hutch_agent_options *options,
                      struct hutch_error *err)
{
    const struct model_choice choice = {options->model, options->base_url, options->key_file};
    struct model_settings settings = MODEL_SETTINGS_NONE;
    char *const nothing[] = {NULL};
    struct client *client;

    if (model_settings_read(&choice, options->environment ? options->environment : nothing,
                            &settings, err) < 0)
        return err->code;
    agent->key = settings.key;
    settings.key = SECRET_NONE;
    int code = copy_settings(agent, &settings, err);
    model_settings_done(&settings);
    if (code < 0 || copy_headers(agent, options->headers, err) < 0 ||
        agent_take_client(agent, &client, err) < 0)
        return err->code;
    agent_return_client(agent, client);
    return 0;
}

static int read_json(const char *field, const char *text, size_t max, json_t **ret_value,
                     struct hutch_error *err)
{
    if (text && json_read(text, strlen(text), max, ret_value, err) < 0)
        return err_context(err, "%s", field);
    return 0;
}

/* Whether the members of extra are further ones is for chat_request_check to say. */
static int take_extra(struct hutch_agent *agent, const char *text, struct hutch_error *err)
{
    struct message hello = {.role = MESSAGE_USER};
    const struct conversation conversation = {.messages = &hello, .count = 1, .capacity = 1};
    struct chat_request request = CHAT_REQUEST_EMPTY;

    if (read_json("extra", text, LIMIT_EXTRA_BYTES, &agent->extra, err) < 0)
        return err->code;
    request.model = agent->model;
    request.conversation = &conversation;
    request.extra = agent->extra;
    request.response_format = agent->schema;
    return chat_request_check(&request, err);
}

/* ---- tools and texts ---- */

static int take_tools(struct hutch_agent *agent, const struct hutch_agent_options *options,
                      struct hutch_error *err)
{
    const char *names = options->builtin_tools ? options->builtin_tools : "python_executor";

    if (names[0] && !options->engine)
        return err_set(err, HUTCH_ERR_INVALID, "engine: NULL; the built-in tools need one");
    if (names[0] && cell_tools_new(options->engine, options->cells, names, &agent->tools,
                                   &agent->cell_tools, err) < 0)
        return err->code;
    if (options->tool_count > 0 && !options->tools)
        return err_set(err, HUTCH_ERR_INVALID, "tools: %zu at NULL", options->tool_count);
    for (size_t i = 0; i < options->tool_count; i++) {
        if (!options->tools[i])
            return err_set(err, HUTCH_ERR_INVALID, "tools[%zu]: NULL", i);
        if (tool_set_add(&agent->tools, options->tools[i], err) < 0)
            return err_context(err, "tools[%zu]", i);
    }
    if (agent->tools.count == 0)
        return 0;
    agent->tool_list = tool_set_describe(&agent->tools, agent->strict);
    agent->no_call = json_string("none");
    return agent->tool_list && agent->no_call ? 0 : err_no_memory(err);
}

static int take_schema(struct hutch_agent *agent, const char *text, struct hutch_error *err)
{
    if (!text)
        return 0;
    if (read_json("schema", text, LIMIT_SCHEMA_BYTES, &agent->schema, err) < 0)
        return err->code;
    if (schema_accept(agent->schema, err) < 0)
        return err_context(err, "schema");
    return answer_format(agent->schema, agent->strict, &agent->response_format, err);
}

static int take_prompt(struct hutch_agent *agent, const char *text, struct hutch_error *err)
{
    auto_buf struct buf prompt = BUF_MAX(LIMIT_PROMPT_BYTES + 2 * LIMIT_SCHEMA_BYTES);

    if (text && (strlen(text) > LIMIT_PROMPT_BYTES || !utf8_valid(text, strlen(text))))
        return err_set(err, HUTCH_ERR_INVALID, "system_prompt: %s",
                       strlen(text) > LIMIT_PROMPT_BYTES ? "longer than 256 KiB" : "not UTF-8");
    if (text)
        buf_append_text(&prompt, text);
    else if (prompt_append(&prompt, &agent->tools, agent->schema, err) < 0)
        return err->code;
    buf_append(&prompt, "", 0);
    if (buf_check(&prompt, err) < 0)
        return err_context(err, "system_prompt");
    agent->system_prompt = TAKE_BUF(prompt).data;
    return 0;
}

/* ---- making and freeing ---- */

static int fill(struct hutch_agent *agent, const struct hutch_agent_options *options,
                struct hutch_error *err)
{
    if (check_numbers(options, err) < 0)
        return err->code;
    agent->engine = options->engine;
    take_numbers(agent, options);
    if (take_model(agent, options, err) < 0 || take_tools(agent, options, err) < 0 ||
        take_schema(agent, options->schema, err) < 0 ||
        take_extra(agent, options->extra, err) < 0 ||
        take_prompt(agent, options->system_prompt, err) < 0)
        return err->code;
    return 0;
}

static int check_options(const struct hutch_agent_options *options, hutch_agent **ret_agent,
                         struct hutch_error *err)
{
    if (strcmp(hutch_version(), HUTCH_VERSION) != 0)
        return err_set(err, HUTCH_ERR_SYSTEM,
                       "libhutch is of version %s and libhutch-agent of " HUTCH_VERSION
                       "; both have to be of one",
                       hutch_version());
    if (!options || !ret_agent)
        return err_set(err, HUTCH_ERR_INVALID, "%s: NULL", options ? "ret_agent" : "options");
    return request_check_size("agent_options", options, options->size, sizeof(*options),
                              sizeof(*options), err);
}

int hutch_agent_new(const struct hutch_agent_options *options, hutch_agent **ret_agent,
                    struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;

    if (check_options(options, ret_agent, err) < 0)
        return err->code;
    struct hutch_agent *agent = calloc(1, sizeof(*agent));
    if (!agent)
        return err_no_memory(err);
    client_options_init(&agent->client);
    pthread_mutex_init(&agent->lock, NULL);
    if (fill(agent, options, err) < 0) {
        hutch_agent_free(agent);
        return err->code;
    }
    *ret_agent = agent;
    return 0;
}

void hutch_agent_free(hutch_agent *agent)
{
    if (!agent)
        return;
    while (agent->idle_count > 0)
        client_free(agent->idle[--agent->idle_count]);
    for (char **header = agent->headers; *header; header++) {
        explicit_bzero(*header, strlen(*header));
        free(*header);
    }
    secret_done(&agent->key);
    pthread_mutex_destroy(&agent->lock);
    tool_set_done(&agent->tools);
    cell_tools_free(agent->cell_tools);
    json_decref(agent->tool_list);
    json_decref(agent->no_call);
    json_decref(agent->extra);
    json_decref(agent->schema);
    json_decref(agent->response_format);
    free(agent->system_prompt);
    free(agent->model);
    free(agent->base_url);
    free(agent->ca_file);
    free(agent);
}

/* ---- clients ---- */

int agent_take_client(struct hutch_agent *agent, struct client **ret_client,
                      struct hutch_error *err)
{
    struct client *client = NULL;

    pthread_mutex_lock(&agent->lock);
    if (agent->idle_count > 0)
        client = agent->idle[--agent->idle_count];
    pthread_mutex_unlock(&agent->lock);
    if (!client)
        return client_new(&agent->client, ret_client, err);
    *ret_client = client;
    return 0;
}

void agent_return_client(struct hutch_agent *agent, struct client *client)
{
    pthread_mutex_lock(&agent->lock);
    if (agent->idle_count < LIMIT_IDLE_CLIENTS) {
        agent->idle[agent->idle_count++] = client;
        client = NULL;
    }
    pthread_mutex_unlock(&agent->lock);
    client_free(client);
}
