/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program hutch: prepares the process, finds the command, and ends with
 * its exit status.
 */
#include "cli.h"

#include "base/quote.h"
#include "output.h"

#include <string.h>
#include <unistd.h>

const struct command *const commands[] = {
    &run_command,   &session_command, &agent_command, &doctor_command,
    &bench_command, &version_command, &help_command,  NULL,
};

static int dispatch(const struct settings *settings, char **argv)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_CLI_TEXT_BYTES);
    const char *word = argv[0] ? argv[1] : NULL;

    if (!word)
        return command_refuse("usage: hutch COMMAND [OPTION]...; COMMAND is one of %s\n",
                              command_names().text);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        help_overview_text(&text);
        return output_print(&text, 0);
    }
    if (strcmp(word, "--version") == 0)
        word = version_command.name;
    if (word[0] == '-')
        return command_refuse("hutch: option %s: is unknown; 'hutch --help' lists the commands\n",
                              quote_text(word).text);
    const struct command *command = command_find(word);
    if (!command)
        return command_unknown(word);
    return command->main(settings, argv + 2);
}

int main(int argc, char **argv)
{
    const struct settings settings = settings_of_process();

    (void)argc;
    if (!command_prepare_process())
        return 125;
    return dispatch(&settings, argv);
}
