/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs of the command line have in common: finding a command, beginning it, and the
 * state of the process. The one place that reads the environment.
 */
#include "cli.h"

#include "base/quote.h"
#include "output.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct command *command_find(const char *name)
{
    for (size_t i = 0; commands[i]; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

int command_refuse(const char *format, ...)
{
    char line[512];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    IGNORE_RESULT(output_write(STDERR_FILENO, line, strlen(line)));
    return 2;
}

struct joined command_names(void)
{
    const char *names[16] = {NULL};

    for (size_t i = 0; commands[i]; i++) {
        assert(i + 1 < ARRAY_LENGTH(names));
        names[i] = commands[i]->name;
    }
    return options_join(names);
}

int command_unknown(const char *name)
{
    return command_refuse("hutch: command %s is not one of %s\n", quote_text(name).text,
                          command_names().text);
}

int command_begin(const struct command *command, char **argv, void *values)
{
    struct problem problem;
    auto_buf struct buf text = BUF_MAX(LIMIT_CLI_TEXT_BYTES);

    bool json = options_want_json(argv);
    int done = options_read(command, argv, values, &problem);
    if (done == OPTIONS_READ)
        return -1;
    if (done < 0)
        return problem_report(&problem, command->name, json);
    help_command_text(command, &text);
    return output_print(&text, 0);
}

/* A descriptor below 3 that the caller left closed would be taken by the next
 * open, and output would go there. Standard output is then one that cannot be written to, so
 * that no answer is lost without a word; what would go to standard error is dropped. */
static bool open_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int mode = fd == STDOUT_FILENO ? O_RDONLY : O_RDWR;
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        if (open("/dev/null", mode) != fd) /* without O_CLOEXEC, like the standard ones */
            return false;
    }
    return true;
}

static void on_sigpipe(int number)
{
    (void)number;
}

/* A reader that goes away is seen as EPIPE by whoever writes. It is a handler
 * and not SIG_IGN, because that would be inherited by what hutch starts; for
 * the same reason a SIGCHLD that the caller ignores is reset. */
static void prepare_signals(void)
{
    const struct sigaction no_death = {.sa_handler = on_sigpipe, .sa_flags = SA_RESTART};
    const struct sigaction standard = {.sa_handler = SIG_DFL};

    sigaction(SIGPIPE, &no_death, NULL);
    sigaction(SIGCHLD, &standard, NULL);
}

bool command_prepare_process(void)
{
    if (!open_standard_descriptors())
        return false;
    prepare_signals();
    return true;
}

struct settings settings_of_process(void)
{
    return (struct settings){
        .environment = environ,
        .hutch_cache_dir = getenv("HUTCH_CACHE_DIR"),
        .xdg_cache_home = getenv("XDG_CACHE_HOME"),
        .home = getenv("HOME"),
    };
}
