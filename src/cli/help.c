/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch help: the option tables as text for people (help_text.c) and as JSON for the test
 * that compares them with the manual pages.
 */
#include "cli.h"

#include "base/json.h"
#include "output.h"

#include <string.h>

static json_t *names_json(const char *const *names)
{
    json_t *array = json_array();
    for (; names && *names; names++)
        json_array_append_new(array, json_string(*names));
    return array;
}

static json_t *option_json(const struct option_spec *spec, const void *values)
{
    static const char *const types[] = {
        [OPTION_FLAG] = "flag",       [OPTION_TEXT] = "text",   [OPTION_CHOICE] = "choice",
        [OPTION_NUMBER] = "number",   [OPTION_WHOLE] = "whole", [OPTION_LIST] = "list",
        [OPTION_OPERAND] = "operand", [OPTION_HELP] = "help",
    };
    const char letter[] = {spec->letter, '\0'};
    bool bounded = spec->type == OPTION_NUMBER || spec->type == OPTION_WHOLE;
    char standard[64];

    help_default_of(spec, values, standard, sizeof(standard));
    return json_pack(
        "{s:s?, s:s?, s:s, s:s?, s:o, s:o?, s:o?, s:s?, s:s, s:b}", "name", spec->name, "letter",
        spec->letter ? letter : NULL, "type", types[spec->type], "argument", spec->argument,
        "choices", names_json(spec->choices), "minimum", bounded ? json_real(spec->minimum) : NULL,
        "maximum", bounded && !spec->host_maximum ? json_real(spec->maximum) : NULL, "default",
        standard[0] ? standard : NULL, "help", spec->help, "repeatable", spec->type == OPTION_LIST);
}

static json_t *command_json(const struct command *command)
{
    json_t *options = json_array();
    json_t *exits = json_array();
    auto_free void *values = help_default_values(command);

    for (size_t i = 0; values && i < command->option_count; i++)
        json_array_append_new(options, option_json(&command->options[i], values));
    for (const struct exit_row *row = command->exits; row->status; row++)
        json_array_append_new(
            exits, json_pack("{s:s, s:s}", "status", row->status, "meaning", row->meaning));
    return json_pack("{s:s, s:s, s:s, s:o, s:o}", "name", command->name, "synopsis",
                     command->synopsis, "summary", command->summary, "options", options,
                     "exit_statuses", exits);
}

static void dump_json(struct buf *text)
{
    json_t *list = json_array();
    for (size_t i = 0; commands[i]; i++)
        json_array_append_new(list, command_json(commands[i]));
    auto_json json_t *dump = json_pack("{s:s, s:o}", "version", hutch_version(), "commands", list);
    auto_free char *line = dump ? json_dumps(dump, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    if (line)
        buf_appendf(text, "%s\n", line);
    else
        text->failure = BUF_NO_MEMORY;
}

/* ---- the command ---- */

struct help_values {
    const char *command;
    bool json;
};

static int help_main(const struct settings *settings, char **argv)
{
    struct help_values values = {.json = false};
    auto_buf struct buf text = BUF_MAX(LIMIT_CLI_TEXT_BYTES);

    (void)settings;
    int status = command_begin(&help_command, argv, &values);
    if (status >= 0)
        return status;
    const struct command *command = values.command ? command_find(values.command) : NULL;
    if (values.command && !command)
        return command_unknown(values.command);
    if (values.json)
        dump_json(&text);
    else if (command)
        help_command_text(command, &text);
    else
        help_overview_text(&text);
    return output_print(&text, 0);
}

static const struct option_spec help_options[] = {
    {.type = OPTION_OPERAND,
     .argument = "COMMAND",
     .help = "the command to explain",
     .offset = offsetof(struct help_values, command)},
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "all commands, options and exit statuses as one JSON object",
     .offset = offsetof(struct help_values, json)},
    OPTION_HELP_ROW,
};

static const struct exit_row help_exits[] = {
    {"0", "done"}, EXIT_ROW_USAGE, EXIT_ROW_FAILURE, {NULL, NULL}};

const struct command help_command = {
    .name = "help",
    .synopsis = "[COMMAND] [--json]",
    .summary = "Explain a command, or list them all.",
    .options = help_options,
    .option_count = ARRAY_LENGTH(help_options),
    .exits = help_exits,
    .values_size = sizeof(struct help_values),
    .main = help_main,
};
