/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of hutch, and what several of them use. */
#pragma once

#include "base/attrs.h"
#include "base/buf.h"
#include "options.h"
#include "problem.h"

#include <hutch.h>

extern const struct command run_command;
extern const struct command session_command;
extern const struct command agent_command;
extern const struct command doctor_command;
extern const struct command bench_command;
extern const struct command version_command;
extern const struct command help_command;

/* What they do where hutch and hutch-agent do different things (agent_program.h). */
int agent_main(const struct settings *settings, char **argv);
int bench_main(const struct settings *settings, char **argv);

/* Those of this program, ended by NULL. */
extern const struct command *const commands[];

/* The command of that name, or NULL. */
const struct command *command_find(const char *name);

/* One line on stderr about the command line of hutch itself. Returns 2. */
int command_refuse(const char *format, ...) PRINTF_LIKE(1, 2);

/* Their names. */
struct joined command_names(void);

/* Says that name is no command; returns the exit status. */
int command_unknown(const char *name);

/* Makes the process what commands rely on: standard descriptors that are open, signals as they
 * should be inherited. False: /dev/null cannot be opened. To be called first. */
MUST_CHECK bool command_prepare_process(void);

/* What the environment says. */
struct settings settings_of_process(void);

/* Reads the options of a command whose values are set to their defaults.
 * Returns -1 to go on; else the command ends with the status returned: its
 * help was printed, or what is wrong was said. */
MUST_CHECK int command_begin(const struct command *command, char **argv, void *values);

/* The help of one command, of hutch as a whole, and everything as JSON. */
void help_command_text(const struct command *command, struct buf *text);
void help_overview_text(struct buf *text);

/* The values of a command as they are without options; freed by the caller. NULL: no memory. */
void *help_default_values(const struct command *command);

/* The default of a number or a choice as text; "" for other options. */
void help_default_of(const struct option_spec *spec, const void *values, char *text, size_t size);

/* Makes an engine with the cache folder that the environment asks for. The engine is
 * the caller's. Returns 0 or a negative code with *problem set. */
MUST_CHECK int cli_engine_make(const struct settings *settings,
                               struct hutch_engine_options *options, hutch_engine **ret_engine,
                               struct problem *problem);

/* The same for a command that makes few runs, and has no use for warm cells. */
MUST_CHECK int cli_engine_new(const struct settings *settings, hutch_engine **ret_engine,
                              struct problem *problem);

#define LIMIT_CLI_TEXT_BYTES 65536 /* help, a table of doctor or bench */
