/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch help: the option tables as text for people and as JSON for the test
 * that compares them with the manual pages.
 */
#include "cli.h"

#include "base/json.h"
#include "output.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HELP_WIDTH 80
#define HELP_COLUMN 26 /* where descriptions begin */

/* ---- text ---- */

/* Appends words to a line that is at column, broken at HELP_WIDTH and indented
 * to HELP_COLUMN, and ends the last line. */
static void append_wrapped(struct buf *text, size_t column, const char *words)
{
    while (*words) {
        size_t length = strcspn(words, " ");
        if (column > HELP_COLUMN && column + 1 + length > HELP_WIDTH) {
            buf_append_text(text, "\n");
            column = 0;
        }
        if (column < HELP_COLUMN) {
            buf_appendf(text, "%*s", (int)(HELP_COLUMN - column), "");
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            buf_append_text(text, " ");
            column++;
        }
        buf_append(text, words, length);
        column += length;
        words += length + (words[length] == ' ');
    }
    buf_append_text(text, "\n");
}

/* "-t, --timeout SECONDS" */
static void label_of(const struct option_spec *spec, char *label, size_t size)
{
    const char *argument = spec->argument ? spec->argument : "";
    const char *space = spec->argument ? " " : "";

    if (spec->type == OPTION_OPERAND)
        snprintf(label, size, "%s", argument);
    else if (spec->letter)
        snprintf(label, size, "-%c, --%s%s%s", spec->letter, spec->name, space, argument);
    else
        snprintf(label, size, "    --%s%s%s", spec->name, space, argument);
}

/* The default of a number as text; "" for other options. values holds the
 * defaults of the command. */
static void default_of(const struct option_spec *spec, const void *values, char *text, size_t size)
{
    const void *place = (const char *)values + spec->offset;

    text[0] = '\0';
    if (spec->type == OPTION_NUMBER)
        snprintf(text, size, "%.15g", *(const double *)place);
    else if (spec->type == OPTION_WHOLE)
        snprintf(text, size, "%.15g", (double)*(const uint64_t *)place);
    else if (spec->type == OPTION_CHOICE && *(const char *const *)place)
        snprintf(text, size, "%s", *(const char *const *)place);
}

/* What is allowed and what holds by default: "; 0.1 to 300, default 30". */
static void append_facts(const struct option_spec *spec, const void *values, struct buf *facts)
{
    char standard[64];

    default_of(spec, values, standard, sizeof(standard));
    if (spec->type == OPTION_CHOICE)
        buf_appendf(facts, ": %s", options_join(spec->choices).text);
    if (spec->type == OPTION_NUMBER || spec->type == OPTION_WHOLE) {
        double maximum = spec->host_maximum ? spec->host_maximum() : spec->maximum;
        buf_appendf(facts, "; from %.15g to %.15g%s", spec->minimum, maximum,
                    spec->host_maximum ? " here" : "");
    }
    if (standard[0] != '\0')
        buf_appendf(facts, "; default %s", standard);
    if (spec->type == OPTION_LIST)
        buf_append_text(facts, "; may be repeated");
}

static void append_option(const struct option_spec *spec, const void *values, struct buf *text)
{
    char label[64];
    auto_buf struct buf words = BUF_MAX(1024);

    label_of(spec, label, sizeof(label));
    buf_append_text(&words, spec->help);
    append_facts(spec, values, &words);
    buf_appendf(text, "  %s", label);
    size_t column = 2 + strlen(label);
    if (column + 2 > HELP_COLUMN) { /* two blanks end a label */
        buf_append_text(text, "\n");
        column = 0;
    }
    append_wrapped(text, column, buf_text(&words));
}

/* The values of a command as they are without options; freed by the caller. */
static void *default_values(const struct command *command)
{
    void *values = calloc(1, command->values_size + 1);
    if (values && command->defaults)
        command->defaults(values);
    return values;
}

void help_command_text(const struct command *command, struct buf *text)
{
    auto_free void *values = default_values(command);

    if (!values) {
        text->failure = BUF_NO_MEMORY;
        return;
    }
    buf_appendf(text, "usage: hutch %s%s%s\n\n%s\n\n", command->name,
                command->synopsis[0] ? " " : "", command->synopsis, command->summary);
    for (size_t i = 0; i < command->option_count; i++)
        append_option(&command->options[i], values, text);
    buf_append_text(text, "\nexit status:\n");
    for (const struct exit_row *row = command->exits; row->status; row++) {
        buf_appendf(text, "  %s", row->status);
        append_wrapped(text, 2 + strlen(row->status), row->meaning);
    }
}

void help_overview_text(struct buf *text)
{
    buf_append_text(text, "usage: hutch COMMAND [OPTION]...\n\n"
                          "Run untrusted code in isolated cells.\n\n");
    for (size_t i = 0; commands[i]; i++) {
        buf_appendf(text, "  %s", commands[i]->name);
        append_wrapped(text, 2 + strlen(commands[i]->name), commands[i]->summary);
    }
    buf_append_text(text, "\n'hutch COMMAND --help' lists the options of a command.\n");
}

/* ---- JSON ---- */

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

    default_of(spec, values, standard, sizeof(standard));
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
    auto_free void *values = default_values(command);

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
