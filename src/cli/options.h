/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of hutch's commands, declared once. One table a command feeds
 * reading the command line, the help, and the JSON dump (hutch help --json)
 * that a test compares with the manual pages.
 *
 * Long options are written in full, `--name=value` or `--name value`; letters
 * `-t5` or `-t 5`, those without a value may be run together; `--` ends the
 * options; options and operands may be mixed. The last of several values wins,
 * except where the table says OPTION_LIST.
 */
#pragma once

#include "problem.h"

#include <stddef.h>

enum option_type {
    OPTION_FLAG,    /* bool */
    OPTION_TEXT,    /* const char * */
    OPTION_CHOICE,  /* const char *, one of choices or later */
    OPTION_NUMBER,  /* double */
    OPTION_WHOLE,   /* uint64_t */
    OPTION_LIST,    /* struct text_list; the option repeats */
    OPTION_OPERAND, /* const char *: an argument that belongs to no option */
    OPTION_HELP,    /* ends reading with OPTIONS_HELP */
};

struct option_spec {
    const char *name; /* the long name; NULL for an operand */
    char letter;      /* 0 for none */
    enum option_type type;
    const char *argument;       /* what help calls the value */
    const char *const *choices; /* of OPTION_CHOICE, ended by NULL */
    const char *const *later;   /* accepted here, for the command to say "not in this version" */
    double minimum;
    double maximum;
    double (*host_maximum)(void); /* instead of maximum */
    const char *help;
    size_t offset; /* of the value in the command's own struct */
};

/* The row that every table ends with. */
#define OPTION_HELP_ROW                                                                            \
    {                                                                                              \
        .name = "help", .letter = 'h', .type = OPTION_HELP, .help = "print this help"              \
    }

/* Values of a repeated option, pointing into argv. */
struct text_list {
    char **items;
    size_t count;
};
void text_list_done(struct text_list *list);

struct exit_row {
    const char *status; /* "124" */
    const char *meaning;
};

/* What a command gets from the environment, which nobody else reads; NULL
 * where a variable is not set. */
struct settings {
    char *const *environment; /* all of it, for programs that hutch bench starts */
    const char *hutch_cache_dir;
    const char *xdg_cache_home;
    const char *home;
};

struct command {
    const char *name;
    const char *synopsis; /* what stands behind the name */
    const char *summary;
    const struct option_spec *options;
    size_t option_count;
    const struct exit_row *exits;   /* ended by a row of NULL */
    size_t values_size;             /* of the struct that offset counts in */
    void (*defaults)(void *values); /* fills it; NULL: all zero */
    /* argv holds what stands behind the name. Returns the exit status. */
    int (*main)(const struct settings *settings, char **argv);
};

/* Rows of every command. */
#define EXIT_ROW_USAGE                                                                             \
    {                                                                                              \
        "2", "a wrong option, value or request; nothing was started"                               \
    }
#define EXIT_ROW_FAILURE                                                                           \
    {                                                                                              \
        "125", "hutch itself failed"                                                               \
    }

/* Those of every command that goes on until its input or its program ends. */
#define EXIT_ROWS_ENDED                                                                            \
    {"129", "hutch was ended by SIGHUP"}, {"130", "hutch was ended by SIGINT"},                    \
        {"141", "the reader of the output went away"},                                             \
    {                                                                                              \
        "143", "hutch was ended by SIGTERM"                                                        \
    }

enum { OPTIONS_READ = 0, OPTIONS_HELP = 1 };

/* Reads argv into *values, whose defaults are set. Returns OPTIONS_READ,
 * OPTIONS_HELP when help was asked for, or a negative code with *problem
 * naming the option, the value and what is allowed. Lists are the caller's, to
 * be freed by text_list_done in any case. */
MUST_CHECK int options_read(const struct command *command, char **argv, void *values,
                            struct problem *problem);

/* Whether a flag such as "--json" stands among the options, before anything is read. */
bool options_have(char **argv, const char *label);

/* Whether argv asks for JSON, also where options_read fails. */
bool options_want_json(char **argv);

/* "a, b, c" of a list ended by NULL. Used within one expression. */
struct joined {
    char text[512];
};
struct joined options_join(const char *const *names);
