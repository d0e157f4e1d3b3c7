/* SPDX-License-Identifier: Apache-2.0 */
/* hutch agent in the program hutch: finds hutch-agent and becomes it; see agent_program.h. */
#include "agent_program.h"

#include "base/error.h"
#include "cli.h"
#include "sandbox/namespace/helper_dir.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int fail(const struct command *command, const struct hutch_error *err, bool json)
{
    struct problem problem;

    problem_take(&problem, err);
    return problem_report(&problem, command->name, json);
}

int agent_program_become(const struct settings *settings, const struct command *command,
                         char **argv)
{
    struct hutch_error err;
    char path[PATH_MAX + 16];
    size_t count = 0;
    auto_free char *dir = NULL;
    bool json = options_want_json(argv);

    while (argv[count])
        count++;
    auto_free const char **words = calloc(AGENT_PROGRAM_REST + count + 1, sizeof(*words));
    if (!words) {
        err_set(&err, HUTCH_ERR_NO_MEMORY, "out of memory");
        return fail(command, &err, json);
    }
    if (helper_dir_find(&dir, &err) < 0)
        return fail(command, &err, json);
    snprintf(path, sizeof(path), "%s/%s", dir, AGENT_PROGRAM);
    words[0] = path;
    words[AGENT_PROGRAM_VERSION] = hutch_version();
    words[AGENT_PROGRAM_COMMAND] = command->name;
    memcpy(words + AGENT_PROGRAM_REST, argv, count * sizeof(*words));
    execve(path, (char *const *)words, settings->environment);
    err_errno(&err, HUTCH_ERR_HELPER, errno,
              "start '%s', which belongs to hutch and should be installed with it", path);
    return fail(command, &err, json);
}

int agent_main(const struct settings *settings, char **argv)
{
    return agent_program_become(settings, &agent_command, argv);
}
