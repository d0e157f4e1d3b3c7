/* SPDX-License-Identifier: Apache-2.0 */
/* See tree_node.h. */
#include "tree_node.h"

#include "tree_ask.h"

#include <errno.h>
#include <string.h>

static const char wanted[] = "node 18 or later";

/* Prints NUL-ended strings, an empty one as their end. Of a syntax that old
 * versions know too. */
static const char script[] =
    "var versions = process.versions;\n"
    "if (process.release.name !== 'node' || parseInt(versions.node) < 18) process.exit(99);\n"
    "var facts = [process.execPath].concat(require('module').globalPaths, '', '');\n"
    "require('fs').writeSync(1, facts.join('\\0'));\n";

void node_info_done(struct node_info *info)
{
    int saved = errno;
    free(info->executable);
    string_list_done(&info->path);
    *info = (struct node_info){0};
    errno = saved;
}

static int parse(const struct buf *output, struct node_info *info, struct hutch_error *err)
{
    size_t at = 0;
    const char *fact = "";

    if (!ask_next_fact(output, &at, &fact) || fact[0] != '/')
        return err_set(err, HUTCH_ERR_RUNTIME, "not %s", wanted);
    info->executable = strdup(fact);
    if (!info->executable)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    return ask_list(output, &at, &info->path, err);
}

int node_ask(const char *interpreter, uint64_t deadline_ns, struct node_info *ret_info,
             struct hutch_error *err)
{
    static const char *const arguments[] = {"-e", script, NULL};
    const struct question question = {interpreter, arguments, wanted, -1, deadline_ns};
    auto_node_info struct node_info info = {0};
    auto_buf struct buf output = BUF_MAX(ASK_OUTPUT_MAX);

    int error = ask_interpreter(&question, &output, err);
    if (error >= 0)
        error = parse(&output, &info, err);
    if (error < 0)
        return err_context(err, "javascript interpreter '%s'", interpreter);
    *ret_info = info;
    info = (struct node_info){0};
    return 0;
}
