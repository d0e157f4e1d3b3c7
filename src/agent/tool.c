/* SPDX-License-Identifier: Apache-2.0 */
/* See tool.h. Here: the set; call.c has calls. */
#include "tool.h"

#include "base/error.h"
#include "base/json.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "schema.h"

#include <string.h>

#define TOOL_SIZE_MIN sizeof(struct hutch_tool) /* of the first version */
#define TOOL_SIZE_MAX 4096

static const char no_parameters[] =
    "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}";

static void tool_done(struct tool *tool)
{
    free(tool->name);
    free(tool->description);
    json_decref(tool->parameters);
    *tool = (struct tool){.name = NULL};
}
#define auto_tool __attribute__((cleanup(tool_done)))

void tool_set_done(struct tool_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        tool_done(&set->tools[i]);
    set->count = 0;
}

const struct tool *tool_set_find(const struct tool_set *set, const char *name)
{
    for (size_t i = 0; i < set->count; i++) {
        if (strcmp(set->tools[i].name, name) == 0)
            return &set->tools[i];
    }
    return NULL;
}

/* ---- adding ---- */

static int check_name(const struct tool_set *set, const char *name, struct hutch_error *err)
{
    size_t length = name ? strnlen(name, TOOL_NAME_BYTES + 1) : 0;

    if (length < 1 || length > TOOL_NAME_BYTES || strspn(name, TOOL_NAME_CHARACTERS) != length)
        return err_set(err, HUTCH_ERR_INVALID, "name: %s is not 1 to %d of a-z A-Z 0-9 _ -",
                       quote_text(name).text, TOOL_NAME_BYTES);
    if (tool_set_find(set, name))
        return err_set(err, HUTCH_ERR_INVALID, "name: there is a tool of this name already");
    return 0;
}

/* Who reads an exit_reason has to know whether a tool ended the run. */
static int check_ending(const char *name, struct hutch_error *err)
{
    static const char *const reasons[] = {
        "text",           "refusal", "max_agent_steps", "token_budget", "length",
        "content_filter", "schema",  "timeout",         "cancelled",    "model_error",
    };

    for (size_t i = 0; i < ARRAY_LENGTH(reasons); i++) {
        if (strcmp(name, reasons[i]) == 0)
            return err_set(err, HUTCH_ERR_INVALID,
                           "name: is an exit_reason of hutch, and no name for a tool with "
                           "ends_run; allowed is any other");
    }
    return 0;
}

static int check_description(const char *description, struct hutch_error *err)
{
    size_t length = description ? strnlen(description, LIMIT_DESCRIPTION_BYTES + 1) : 0;

    if (length < 1 || length > LIMIT_DESCRIPTION_BYTES)
        return err_set(err, HUTCH_ERR_INVALID, "description: 1 byte to %d KiB of text expected",
                       (int)(LIMIT_DESCRIPTION_BYTES >> 10));
    if (!utf8_valid(description, length))
        return err_set(err, HUTCH_ERR_INVALID, "description: is no UTF-8");
    return 0;
}

static int read_parameters(const char *text, json_t **ret_parameters, struct hutch_error *err)
{
    auto_json json_t *value = NULL;

    if (!text)
        text = no_parameters;
    if (json_read(text, strlen(text), LIMIT_SCHEMA_BYTES, &value, err) < 0 ||
        schema_accept(value, err) < 0)
        return err_context(err, "parameters");
    const char *type = json_string_value(json_object_get(value, "type"));
    if (!type || strcmp(type, "object") != 0)
        return err_set(err, HUTCH_ERR_INVALID,
                       "parameters.type: \"object\" expected: arguments have names");
    *ret_parameters = TAKE_POINTER(value);
    return 0;
}

/* As that of other structs of callers, request_check_size in sandbox/request.h. */
static int check_size(const struct hutch_tool *tool, struct hutch_error *err)
{
    const char *bytes = (const char *)tool;

    if (tool->size < TOOL_SIZE_MIN || tool->size > TOOL_SIZE_MAX)
        return err_set(err, HUTCH_ERR_INVALID, "size: %zu is not sizeof(struct hutch_tool), %zu",
                       tool->size, sizeof(*tool));
    for (size_t i = sizeof(*tool); i < tool->size; i++) {
        if (bytes[i] != 0)
            return err_set(err, HUTCH_ERR_INVALID,
                           "size: the tool uses a member that libhutch-agent " HUTCH_VERSION
                           " does not know");
    }
    return 0;
}

static int read_tool(const struct tool_set *set, const struct hutch_tool *given,
                     struct tool *ret_tool, struct hutch_error *err)
{
    auto_tool struct tool tool = {
        .run = given->run, .user = given->user, .ends_run = given->ends_run};

    if (check_size(given, err) < 0)
        return err->code;
    if (!given->run)
        return err_set(err, HUTCH_ERR_INVALID, "run: is NULL; allowed is a function");
    if (check_name(set, given->name, err) < 0 || check_description(given->description, err) < 0 ||
        read_parameters(given->parameters, &tool.parameters, err) < 0 ||
        (given->ends_run && check_ending(given->name, err) < 0))
        return err->code;
    tool.name = strdup(given->name);
    tool.description = strdup(given->description);
    if (!tool.name || !tool.description)
        return err_no_memory(err);
    *ret_tool = tool;
    tool = (struct tool){.name = NULL};
    return 0;
}

int tool_set_add(struct tool_set *set, const struct hutch_tool *tool, struct hutch_error *err)
{
    if (set->count == LIMIT_TOOLS)
        return err_set(err, HUTCH_ERR_INVALID, "tools: more than %d", LIMIT_TOOLS);
    if (read_tool(set, tool, &set->tools[set->count], err) < 0)
        return err_context(err, "tool %s", quote_text(tool->name).text);
    set->count++;
    return 0;
}

/* ---- describing ---- */

/* NULL: no memory. */
static json_t *describe(const struct tool *tool, bool strict)
{
    auto_json json_t *strict_parameters = NULL;
    struct hutch_error err;
    int end = strict ? schema_strict(tool->parameters, &strict_parameters, &err) : 1;

    if (end < 0)
        return NULL;
    if (strict_parameters)
        return json_pack("{s:s, s:s, s:O, s:b}", "name", tool->name, "description",
                         tool->description, "parameters", strict_parameters, "strict", 1);
    auto_json json_t *parameters = json_copy(tool->parameters);
    if (!parameters)
        return NULL;
    json_object_del(parameters, "additionalProperties");
    return json_pack("{s:s, s:s, s:O}", "name", tool->name, "description", tool->description,
                     "parameters", parameters);
}

json_t *tool_set_describe(const struct tool_set *set, bool strict)
{
    auto_json json_t *tools = json_array();

    for (size_t i = 0; i < set->count; i++) {
        if (json_array_append_new(tools, describe(&set->tools[i], strict)) < 0)
            return NULL;
    }
    return TAKE_POINTER(tools);
}
