/* SPDX-License-Identifier: Apache-2.0 */
/* The program hutch-agent; see agent_program.h. */
#include "agent_program.h"

#include "base/quote.h"
#include "cli.h"

#include <string.h>

const struct command *const commands[] = {&agent_command, &bench_command, NULL};

/* Says that this is not the program of the hutch that started it. */
static int refuse_version(const char *version, bool json)
{
    struct problem problem;

    problem_set(&problem, HUTCH_ERR_HELPER,
                "%s is of version %s, but hutch of %s; install them together", AGENT_PROGRAM,
                hutch_version(), quote_text(version).text);
    return problem_report(&problem, "", json);
}

static int dispatch(const struct settings *settings, char **argv)
{
    size_t count = 0;

    while (argv[count])
        count++;
    if (count < AGENT_PROGRAM_REST)
        return command_refuse("hutch: " AGENT_PROGRAM " is started by 'hutch agent'\n");
    char **rest = argv + AGENT_PROGRAM_REST;
    if (strcmp(argv[AGENT_PROGRAM_VERSION], hutch_version()) != 0)
        return refuse_version(argv[AGENT_PROGRAM_VERSION], options_want_json(rest));
    const struct command *command = command_find(argv[AGENT_PROGRAM_COMMAND]);
    if (!command)
        return command_unknown(argv[AGENT_PROGRAM_COMMAND]);
    return command->main(settings, rest);
}

int main(int argc, char **argv)
{
    const struct settings settings = settings_of_process();

    (void)argc;
    if (!command_prepare_process())
        return 125;
    return dispatch(&settings, argv);
}
