/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See tree_python.h. The interpreter writes to two memory files, whose size
 * RLIMIT_FSIZE bounds; so there is nothing to wait for but its end.
 */
#include "tree_python.h"

#include "base/fd.h"
#include "base/quote.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define EXIT_NOT_EXECUTED 126 /* of the child, when exec fails */
#define EXIT_UNSUITABLE 99    /* of the script, for another Python */

/* Prints NUL-ended strings, an empty one as their end, then the .pyc file. The
 * header of that says: valid without a look at the source. */
static char script[] =
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

NORETURN static void run_interpreter(const char *interpreter, int in, int out, int messages)
{
    char options[] = "-IBc"; /* isolated, and without writing to __pycache__ */
    char *argv[] = {NULL, options, script, NULL};
    char path[] = "PATH=/usr/bin:/bin", locale[] = "LC_ALL=C.UTF-8";
    char *envp[] = {path, locale, NULL};
    struct rlimit limit = {PYTHON_OUTPUT_MAX, PYTHON_OUTPUT_MAX};
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    argv[0] = (char *)(uintptr_t)interpreter;
    if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || setrlimit(RLIMIT_FSIZE, &limit) < 0 ||
        dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(messages, 2) < 0)
        _exit(EXIT_NOT_EXECUTED);
    IGNORE_RESULT(syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC));
    execve(interpreter, argv, envp);
    _exit(EXIT_NOT_EXECUTED);
}

/* Waits for the child, or ends it and its own children at the deadline. */
static int wait_for_end(pid_t pid, uint64_t deadline_ns, int *ret_status, struct hutch_error *err)
{
    auto_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    int ready = pidfd < 0 ? -1 : fd_wait(pidfd, POLLIN, deadline_ns);
    int error = errno;
    int count;
    kill(-pid, SIGKILL);
    if (ready <= 0)
        kill(pid, SIGKILL);
    do
        count = waitpid(pid, ret_status, 0);
    while (count < 0 && errno == EINTR);
    if (ready < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, error, "wait for the interpreter");
    if (count < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "wait for the interpreter");
    return ready == 0 ? err_set(err, HUTCH_ERR_RUNTIME, "it does not end") : 0;
}

/* The last line that the interpreter wrote to its stderr. */
static struct quote last_line(const struct buf *text)
{
    size_t end = text->length;
    while (end > 0 && text->data[end - 1] == '\n')
        end--;
    size_t start = end;
    while (start > 0 && text->data[start - 1] != '\n')
        start--;
    return quote_bytes(buf_text(text) + start, end - start);
}

static int explain_status(int status, const struct buf *messages, struct hutch_error *err)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFSIGNALED(status))
        return err_set(err, HUTCH_ERR_RUNTIME, "ended by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == EXIT_UNSUITABLE)
        return err_set(err, HUTCH_ERR_RUNTIME, "not CPython 3.9 or later");
    if (WEXITSTATUS(status) == EXIT_NOT_EXECUTED)
        return err_set(err, HUTCH_ERR_RUNTIME, "cannot be executed");
    return err_set(err, HUTCH_ERR_RUNTIME, "exit status %d: %s", WEXITSTATUS(status),
                   last_line(messages).text);
}

static int read_from_start(int fd, struct buf *text, struct hutch_error *err)
{
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "rewind the interpreter's output");
    return buf_read_fd(text, fd, err);
}

static int run(const char *interpreter, int runner_fd, uint64_t deadline_ns, struct buf *output,
               struct hutch_error *err)
{
    auto_buf struct buf messages = BUF_MAX(PYTHON_OUTPUT_MAX);
    auto_close int out_fd = memfd_create("answer", MFD_CLOEXEC);
    auto_close int messages_fd = memfd_create("messages", MFD_CLOEXEC);
    if (out_fd < 0 || messages_fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make a memory file");

    int status = 0;
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "fork");
    if (pid == 0)
        run_interpreter(interpreter, runner_fd, out_fd, messages_fd);
    int error = wait_for_end(pid, deadline_ns, &status, err);
    if (error >= 0)
        error = read_from_start(messages_fd, &messages, err);
    if (error >= 0)
        error = explain_status(status, &messages, err);
    if (error >= 0)
        error = read_from_start(out_fd, output, err);
    return error;
}

static int next_fact(const struct buf *output, size_t *at, const char **ret_fact)
{
    const char *start = output->data ? output->data + *at : NULL;
    const char *end = start ? memchr(start, '\0', output->length - *at) : NULL;
    if (!end)
        return -1;
    *at += (size_t)(end - start) + 1;
    *ret_fact = start;
    return 0;
}

static int parse(const struct buf *output, struct python_info *info, struct hutch_error *err)
{
    char **const named[] = {&info->version, &info->executable, &info->prefix, &info->base_prefix};
    size_t at = 0;
    const char *fact = "";

    for (size_t i = 0; i < ARRAY_LENGTH(named); i++) {
        if (next_fact(output, &at, &fact) < 0 || fact[0] == '\0')
            return err_set(err, HUTCH_ERR_RUNTIME, "not CPython 3.9 or later");
        *named[i] = strdup(fact);
        if (!*named[i])
            return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    }
    while (next_fact(output, &at, &fact) == 0 && fact[0] != '\0') {
        int error = string_list_add(&info->path, fact, err);
        if (error < 0)
            return error;
    }
    if (at >= output->length)
        return err_set(err, HUTCH_ERR_RUNTIME, "its answer is incomplete");
    buf_append(&info->runner, output->data + at, output->length - at);
    return buf_check(&info->runner, err);
}

int python_ask(const char *interpreter, int runner_fd, uint64_t deadline_ns,
               struct python_info *ret_info, struct hutch_error *err)
{
    auto_python_info struct python_info info = {.runner = BUF_MAX(PYTHON_OUTPUT_MAX)};
    auto_buf struct buf output = BUF_MAX(PYTHON_OUTPUT_MAX);

    if (access(interpreter, F_OK) < 0)
        return err_set(err, HUTCH_ERR_RUNTIME,
                       "python interpreter '%s' not found: install the package python3",
                       interpreter);
    int error = run(interpreter, runner_fd, deadline_ns, &output, err);
    if (error >= 0)
        error = parse(&output, &info, err);
    if (error < 0)
        return err_context(err, "python interpreter '%s'", interpreter);
    *ret_info = info;
    info = (struct python_info){0};
    return 0;
}
