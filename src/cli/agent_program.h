/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-agent: the program of the commands that talk to model servers. hutch itself is not
 * linked to libcurl, whose libraries every start would pay for, and becomes this program where a
 * command needs it (docs/decisions/0017-agent-program.md).
 *
 * Its arguments are the version of the hutch that starts it, the name of the command, and what
 * stands behind that; the environment is hutch's own.
 */
#pragma once

#include "options.h"

#define AGENT_PROGRAM "hutch-agent"

enum { AGENT_PROGRAM_VERSION = 1, AGENT_PROGRAM_COMMAND, AGENT_PROGRAM_REST };

/* Becomes hutch-agent. Returns only where that fails: the exit status, when it has been said
 * why. argv is what stands behind the command's name. */
int agent_program_become(const struct settings *settings, const struct command *command,
                         char **argv);
