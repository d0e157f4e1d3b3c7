/* SPDX-License-Identifier: Apache-2.0 */
/* The option tables as text for people. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#define HELP_WIDTH 80
#define HELP_COLUMN 26 /* where descriptions begin */

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

void help_default_of(const struct option_spec *spec, const void *values, char *text, size_t size)
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

    help_default_of(spec, values, standard, sizeof(standard));
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

void *help_default_values(const struct command *command)
{
    void *values = calloc(1, command->values_size + 1);
    if (values && command->defaults)
        command->defaults(values);
    return values;
}

void help_command_text(const struct command *command, struct buf *text)
{
    auto_free void *values = help_default_values(command);

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
