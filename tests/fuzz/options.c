/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines of any words, for a command with every type of option: values that
 * are taken are in their range, a problem is one line, and where an option's value
 * stands in the next word, it may as well stand behind "=".
 *
 * Input: the words, each on a line.
 */
#include "fuzz.h"

#include "base/utf8.h"
#include "cli/options.h"

#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 64
#define NUMBER_LEAST 0.5
#define NUMBER_MOST 300
#define WHOLE_LEAST 16
#define WHOLE_MOST 4096

struct values {
    bool flag, quiet;
    const char *text, *choice, *operand, *other;
    double number;
    uint64_t whole;
    struct text_list list;
};

static const char *const choices[] = {"python", "shell", NULL};
static const char *const later[] = {"microvm", NULL};

static double whole_most(void)
{
    return WHOLE_MOST;
}

#define PLACE(member) .offset = offsetof(struct values, member)
static const struct option_spec specs[] = {
    {.name = "flag", .letter = 'f', .type = OPTION_FLAG, PLACE(flag)},
    {.name = "quiet", .letter = 'q', .type = OPTION_FLAG, PLACE(quiet)},
    {.name = "text", .letter = 't', .type = OPTION_TEXT, .argument = "TEXT", PLACE(text)},
    {.name = "choice",
     .letter = 'c',
     .type = OPTION_CHOICE,
     .argument = "CHOICE",
     .choices = choices,
     .later = later,
     PLACE(choice)},
    {.name = "number",
     .letter = 'n',
     .type = OPTION_NUMBER,
     .argument = "NUMBER",
     .minimum = NUMBER_LEAST,
     .maximum = NUMBER_MOST,
     PLACE(number)},
    {.name = "whole",
     .letter = 'w',
     .type = OPTION_WHOLE,
     .argument = "N",
     .minimum = WHOLE_LEAST,
     .host_maximum = whole_most,
     PLACE(whole)},
    {.name = "list", .letter = 'l', .type = OPTION_LIST, .argument = "ITEM", PLACE(list)},
    {.type = OPTION_OPERAND, .argument = "FILE", PLACE(operand)},
    {.type = OPTION_OPERAND, .argument = "OTHER", PLACE(other)},
    OPTION_HELP_ROW,
};
static const struct command command = {
    .name = "run", .options = specs, .option_count = ARRAY_LENGTH(specs)};

/* The lines of a text as words; it is changed. */
static void split(char *text, char *words[WORDS_MAX + 1])
{
    size_t count = 0;

    while (*text && count < WORDS_MAX) {
        words[count++] = text;
        text += strcspn(text, "\n");
        if (*text)
            *text++ = '\0';
    }
    words[count] = NULL;
}

static int read_words(const char *text, struct values *values, struct problem *problem,
                      char **ret_memory)
{
    char *words[WORDS_MAX + 1];
    char *copy = strdup(text);

    assert(copy);
    *ret_memory = copy;
    *values = (struct values){.choice = choices[0], .number = 1, .whole = WHOLE_LEAST};
    split(copy, words);
    return options_read(&command, words, values, problem);
}

static void check_values(const struct values *values)
{
    assert(strcmp(values->choice, "python") == 0 || strcmp(values->choice, "shell") == 0 ||
           strcmp(values->choice, "microvm") == 0);
    assert(values->number >= NUMBER_LEAST && values->number <= NUMBER_MOST);
    assert(values->whole >= WHOLE_LEAST && values->whole <= WHOLE_MOST);
    assert(values->operand || !values->other);
    for (size_t i = 0; i < values->list.count; i++)
        assert(values->list.items[i]);
}

static void check_problem(int code, const struct problem *problem)
{
    size_t length = strnlen(problem->text, sizeof(problem->text));

    assert(code == HUTCH_ERR_INVALID && problem->code == code);
    assert(length > 0 && length < sizeof(problem->text));
    assert(utf8_valid(problem->text, length) && !strchr(problem->text, '\n'));
}

/* "--text=VALUE" and "--text", "VALUE" are the same. */
static void check_forms(const char *value)
{
    const char *const forms[] = {"--text=%s", "--text\n%s", "-t%s", "-t\n%s", "-fqt\n%s"};
    size_t from = value[0] ? 0 : 5; /* an empty word cannot be written here */

    for (size_t i = from; i < ARRAY_LENGTH(forms); i++) {
        struct values values;
        struct problem problem;
        auto_free char *memory = NULL;
        auto_buf struct buf line = BUF_MAX(strlen(value) + 16);
        const char *gap = strchr(forms[i], '%');
        buf_append(&line, forms[i], (size_t)(gap - forms[i]));
        buf_append_text(&line, value);
        int code = read_words(buf_text(&line), &values, &problem, &memory);
        assert(code == OPTIONS_READ && strcmp(values.text, value) == 0);
        text_list_done(&values.list);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    auto_free char *text = input_text(&input);
    auto_free char *memory = NULL;
    struct values values;
    struct problem problem;

    int code = read_words(text, &values, &problem, &memory);
    if (code == OPTIONS_READ)
        check_values(&values);
    else if (code != OPTIONS_HELP)
        check_problem(code, &problem);
    text_list_done(&values.list);
    text[strcspn(text, "\n")] = '\0';
    check_forms(text);
    return 0;
}
