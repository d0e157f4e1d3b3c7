/* SPDX-License-Identifier: Apache-2.0 */
/* hutch version: the version of the library that is running. */
#include "cli.h"

#include "output.h"

static int version_main(const struct settings *settings, char **argv)
{
    char none;
    auto_buf struct buf text = BUF_MAX(LIMIT_CLI_TEXT_BYTES);

    (void)settings;
    int status = command_begin(&version_command, argv, &none);
    if (status >= 0)
        return status;
    buf_appendf(&text, "hutch %s\n", hutch_version());
    return output_print(&text, 0);
}

static const struct option_spec version_options[] = {OPTION_HELP_ROW};

static const struct exit_row version_exits[] = {
    {"0", "done"}, EXIT_ROW_USAGE, EXIT_ROW_FAILURE, {NULL, NULL}};

const struct command version_command = {
    .name = "version",
    .synopsis = "",
    .summary = "Print the version.",
    .options = version_options,
    .option_count = ARRAY_LENGTH(version_options),
    .exits = version_exits,
    .main = version_main,
};
