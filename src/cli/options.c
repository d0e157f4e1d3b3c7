/* SPDX-License-Identifier: Apache-2.0 */
/* See options.h. */
#include "options.h"

#include "base/parse.h"
#include "base/quote.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* A command line that is being read. */
struct reading {
    const struct command *command;
    char **next; /* the first argument that is not read yet */
    void *values;
    size_t operands; /* read so far */
    struct problem *problem;
};

void text_list_done(struct text_list *list)
{
    free(list->items);
    *list = (struct text_list){.items = NULL};
}

struct joined options_join(const char *const *names)
{
    struct joined joined = {.text = ""};
    size_t used = 0;

    for (size_t i = 0; names[i] && used < sizeof(joined.text); i++)
        used += (size_t)snprintf(joined.text + used, sizeof(joined.text) - used, "%s%s",
                                 i ? ", " : "", names[i]);
    return joined;
}

static bool is_among(const char *const *names, const char *value)
{
    for (; names && *names; names++) {
        if (strcmp(*names, value) == 0)
            return true;
    }
    return false;
}

static double maximum_of(const struct option_spec *spec)
{
    return spec->host_maximum ? spec->host_maximum() : spec->maximum;
}

/* Reads a number into place; the message of a wrong one names its range. */
static int store_number(struct reading *reading, const struct option_spec *spec, const char *label,
                        const char *value, void *place)
{
    struct hutch_error err;
    int done;

    if (spec->type == OPTION_WHOLE)
        done = parse_u64(value, (uint64_t)spec->minimum, (uint64_t)maximum_of(spec), place, &err);
    else
        done = parse_double(value, spec->minimum, maximum_of(spec), place, &err);
    if (done < 0)
        return problem_set(reading->problem, err.code, "option '%s': value %s", label, err.message);
    return 0;
}

static int refuse_choice(struct reading *reading, const struct option_spec *spec, const char *label,
                         const char *value)
{
    return problem_set(reading->problem, HUTCH_ERR_INVALID,
                       "option '%s': value %s is not one of %s", label, quote_text(value).text,
                       options_join(spec->choices).text);
}

static int add_to_list(struct reading *reading, struct text_list *list, char *value)
{
    char **items = reallocarray(list->items, list->count + 1, sizeof(*items));
    if (!items)
        return problem_set(reading->problem, HUTCH_ERR_NO_MEMORY, "out of memory");
    items[list->count++] = value;
    list->items = items;
    return 0;
}

/* Stores a value; label is the option as it was written, for messages. */
static int store(struct reading *reading, const struct option_spec *spec, const char *label,
                 char *value)
{
    void *place = (char *)reading->values + spec->offset;

    switch (spec->type) {
    case OPTION_CHOICE:
        if (!is_among(spec->choices, value) && !is_among(spec->later, value))
            return refuse_choice(reading, spec, label, value);
        *(const char **)place = value;
        return 0;
    case OPTION_TEXT:
    case OPTION_OPERAND:
        *(const char **)place = value;
        return 0;
    case OPTION_NUMBER:
    case OPTION_WHOLE:
        return store_number(reading, spec, label, value, place);
    case OPTION_LIST:
        return add_to_list(reading, place, value);
    case OPTION_FLAG:
    case OPTION_HELP:
        break;
    }
    return 0; /* has no value: see take_option */
}

static bool takes_value(const struct option_spec *spec)
{
    return spec->type != OPTION_FLAG && spec->type != OPTION_HELP;
}

/* Acts on an option; its value stands in inline_value, else in the next argument. */
static int take_option(struct reading *reading, const struct option_spec *spec, const char *label,
                       char *inline_value)
{
    if (spec->type == OPTION_HELP)
        return OPTIONS_HELP;
    if (spec->type == OPTION_FLAG) {
        *(bool *)((char *)reading->values + spec->offset) = true;
        return 0;
    }
    char *value = inline_value ? inline_value : *reading->next;
    if (!value)
        return problem_set(reading->problem, HUTCH_ERR_INVALID, "option '%s': needs a value, %s",
                           label, spec->argument);
    if (!inline_value)
        reading->next++;
    return store(reading, spec, label, value);
}

static int refuse_unknown(struct reading *reading, const char *label)
{
    return problem_set(reading->problem, HUTCH_ERR_INVALID,
                       "option %s: is unknown; 'hutch %s --help' lists the options",
                       quote_text(label).text, reading->command->name);
}

/* argument is "--name" or "--name=value". */
static int read_long(struct reading *reading, char *argument)
{
    char *value = strchr(argument, '=');

    if (value)
        *value++ = '\0';
    for (size_t i = 0; i < reading->command->option_count; i++) {
        const struct option_spec *spec = &reading->command->options[i];
        if (!spec->name || strcmp(spec->name, argument + 2) != 0)
            continue;
        if (value && !takes_value(spec))
            return problem_set(reading->problem, HUTCH_ERR_INVALID,
                               "option '%s': takes no value, got %s", argument,
                               quote_text(value).text);
        return take_option(reading, spec, argument, value);
    }
    return refuse_unknown(reading, argument);
}

/* argument is "-q", "-qt5" or the like. */
static int read_letters(struct reading *reading, char *argument)
{
    for (char *letter = argument + 1; *letter; letter++) {
        const char label[] = {'-', *letter, '\0'};
        const struct option_spec *spec = NULL;
        for (size_t i = 0; i < reading->command->option_count && !spec; i++) {
            if (reading->command->options[i].letter == *letter)
                spec = &reading->command->options[i];
        }
        if (!spec)
            return refuse_unknown(reading, label);
        int done = take_option(reading, spec, label, letter[1] ? letter + 1 : NULL);
        if (done != 0 || takes_value(spec))
            return done;
    }
    return 0;
}

static int read_operand(struct reading *reading, char *argument)
{
    size_t index = reading->operands;

    for (size_t i = 0; i < reading->command->option_count; i++) {
        const struct option_spec *spec = &reading->command->options[i];
        if (spec->type != OPTION_OPERAND || index-- > 0)
            continue;
        reading->operands++;
        return store(reading, spec, spec->argument, argument);
    }
    return problem_set(reading->problem, HUTCH_ERR_INVALID,
                       "argument %s: is one too many; at most %zu allowed",
                       quote_text(argument).text, reading->operands);
}

int options_read(const struct command *command, char **argv, void *values, struct problem *problem)
{
    struct reading reading = {
        .command = command, .next = argv, .values = values, .problem = problem};
    bool options_ended = false;

    while (*reading.next) {
        char *argument = *reading.next++;
        int done;
        if (options_ended || argument[0] != '-' || argument[1] == '\0') {
            done = read_operand(&reading, argument);
        } else if (strcmp(argument, "--") == 0) {
            options_ended = true;
            continue;
        } else if (argument[1] == '-') {
            done = read_long(&reading, argument);
        } else {
            done = read_letters(&reading, argument);
        }
        if (done != 0)
            return done;
    }
    return OPTIONS_READ;
}

bool options_have(char **argv, const char *label)
{
    for (; *argv && strcmp(*argv, "--") != 0; argv++) {
        if (strcmp(*argv, label) == 0)
            return true;
    }
    return false;
}

bool options_want_json(char **argv)
{
    return options_have(argv, "--json");
}
