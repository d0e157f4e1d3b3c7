/* SPDX-License-Identifier: Apache-2.0 */
/* See tree_python.h. */
#include "tree_python.h"

#include "tree_ask.h"

#include <errno.h>
#include <string.h>

static const char wanted[] = "CPython 3.9 or later";

/* Prints NUL-ended strings, an empty one as their end, then the .pyc file. The
 * header of that says: valid without a look at the source. */
static const char script[] =
    "import sys\n"
    "if sys.version_info < (3, 9) or sys.implementation.name != 'cpython': sys.exit(99)\n"
    "import importlib.util as u, marshal, os\n"
    "source = sys.stdin.buffer.read()\n"
    "code = compile(source, '<hutch>', 'exec', dont_inherit=True, optimize=2)\n"
    "facts = ['%d.%d' % sys.version_info[:2], sys.executable, sys.prefix, sys.base_prefix]\n"
    "facts += [entry for entry in sys.path if entry]\n"
    "out = sys.stdout.buffer\n"
    "out.write(b''.join(os.fsencode(fact) + b'\\0' for fact in facts) + b'\\0')\n"
    "out.write(u.MAGIC_NUMBER + (1).to_bytes(4, 'little') + u.source_hash(source))\n"
    "out.write(marshal.dumps(code))\n"
    "out.flush()\n";

void python_info_done(struct python_info *info)
{
    int saved = errno;
    free(info->version);
    free(info->executable);
    free(info->prefix);
    free(info->base_prefix);
    string_list_done(&info->path);
    buf_done(&info->runner);
    *info = (struct python_info){0};
    errno = saved;
}

static int parse(const struct buf *output, struct python_info *info, struct hutch_error *err)
{
    char **const named[] = {&info->version, &info->executable, &info->prefix, &info->base_prefix};
    size_t at = 0;
    const char *fact = "";

    for (size_t i = 0; i < ARRAY_LENGTH(named); i++) {
        if (!ask_next_fact(output, &at, &fact) || fact[0] == '\0')
            return err_set(err, HUTCH_ERR_RUNTIME, "not %s", wanted);
        *named[i] = strdup(fact);
        if (!*named[i])
            return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    }
    if (ask_list(output, &at, &info->path, err) < 0)
        return err->code;
    if (at >= output->length)
        return err_set(err, HUTCH_ERR_RUNTIME, "its answer is incomplete");
    buf_append(&info->runner, output->data + at, output->length - at);
    return buf_check(&info->runner, err);
}

int python_ask(const char *interpreter, int runner_fd, uint64_t deadline_ns,
               struct python_info *ret_info, struct hutch_error *err)
{
    /* isolated, and without writing to __pycache__ */
    static const char *const arguments[] = {"-IBc", script, NULL};
    const struct question question = {interpreter, arguments, wanted, runner_fd, deadline_ns};
    auto_python_info struct python_info info = {.runner = BUF_MAX(ASK_OUTPUT_MAX)};
    auto_buf struct buf output = BUF_MAX(ASK_OUTPUT_MAX);

    if (access(interpreter, F_OK) < 0)
        return err_set(err, HUTCH_ERR_RUNTIME,
                       "python interpreter '%s' not found: install the package python3",
                       interpreter);
    int error = ask_interpreter(&question, &output, err);
    if (error >= 0)
        error = parse(&output, &info, err);
    if (error < 0)
        return err_context(err, "python interpreter '%s'", interpreter);
    *ret_info = info;
    info = (struct python_info){0};
    return 0;
}
