/* SPDX-License-Identifier: Apache-2.0 */
/* See tree_bash.h. */
#include "tree_bash.h"

#include "tree_ask.h"

#include <string.h>

static const char wanted[] = "bash 4 or later";

/* Of a syntax that every shell knows. */
static const char script[] = "test \"${BASH_VERSINFO:-0}\" -ge 4 || exit 99\n"
                             "printf 'bash\\0'\n";

int bash_ask(const char *interpreter, uint64_t deadline_ns, struct hutch_error *err)
{
    static const char *const arguments[] = {"-c", script, NULL};
    const struct question question = {interpreter, arguments, wanted, -1, deadline_ns};
    auto_buf struct buf output = BUF_MAX(ASK_OUTPUT_MAX);
    size_t at = 0;
    const char *fact = "";

    int error = ask_interpreter(&question, &output, err);
    if (error >= 0 && (!ask_next_fact(&output, &at, &fact) || strcmp(fact, "bash") != 0))
        error = err_set(err, HUTCH_ERR_RUNTIME, "not %s", wanted);
    return error < 0 ? err_context(err, "shell interpreter '%s'", interpreter) : 0;
}
