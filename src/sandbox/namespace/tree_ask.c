/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See tree_ask.h. The interpreter writes to two memory files, whose size
 * RLIMIT_FSIZE bounds; so there is nothing to wait for but its end.
 */
#include "tree_ask.h"

#include "base/fd.h"
#include "base/quote.h"

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
#define ARGUMENTS_MAX 8

NORETURN static void run_interpreter(const struct question *question, int out, int messages)
{
    const char *argv[ARGUMENTS_MAX + 2] = {question->interpreter};
    char path[] = "PATH=/usr/bin:/bin", locale[] = "LC_ALL=C.UTF-8";
    char *envp[] = {path, locale, NULL};
    struct rlimit limit = {ASK_OUTPUT_MAX, ASK_OUTPUT_MAX};
    sigset_t none;

    for (size_t i = 0; i < ARGUMENTS_MAX && question->arguments[i]; i++)
        argv[i + 1] = question->arguments[i];
    int in = question->input_fd;
    if (in < 0)
        in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || setrlimit(RLIMIT_FSIZE, &limit) < 0 ||
        dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(messages, 2) < 0)
        _exit(EXIT_NOT_EXECUTED);
    IGNORE_RESULT(syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC));
    execve(question->interpreter, (char *const *)(uintptr_t)argv, envp);
    _exit(EXIT_NOT_EXECUTED);
}

/* Waits for the child, or ends it and its own children at the deadline. */
static int wait_for_end(pid_t pid, const struct question *question, int *ret_status,
                        struct hutch_error *err)
{
    auto_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    int ready = pidfd < 0 ? -1 : fd_wait(pidfd, POLLIN, question->deadline_ns);
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
    return ready == 0 ? err_set(err, HUTCH_ERR_RUNTIME, "does not end, so not %s", question->wanted)
                      : 0;
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

static int explain_status(const struct question *question, int status, const struct buf *messages,
                          struct hutch_error *err)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFSIGNALED(status))
        return err_set(err, HUTCH_ERR_RUNTIME, "ended by signal %d, so not %s", WTERMSIG(status),
                       question->wanted);
    if (WEXITSTATUS(status) == ASK_EXIT_UNSUITABLE)
        return err_set(err, HUTCH_ERR_RUNTIME, "not %s", question->wanted);
    if (WEXITSTATUS(status) == EXIT_NOT_EXECUTED)
        return err_set(err, HUTCH_ERR_RUNTIME, "cannot be executed, so not %s", question->wanted);
    return err_set(err, HUTCH_ERR_RUNTIME, "not %s: exit status %d%s%s", question->wanted,
                   WEXITSTATUS(status), messages->length > 0 ? ": " : "",
                   messages->length > 0 ? last_line(messages).text : "");
}

static int read_from_start(int fd, struct buf *text, struct hutch_error *err)
{
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "rewind the interpreter's output");
    return buf_read_fd(text, fd, err);
}

int ask_interpreter(const struct question *question, struct buf *output, struct hutch_error *err)
{
    auto_buf struct buf messages = BUF_MAX(ASK_OUTPUT_MAX);
    auto_close int out_fd = memfd_create("answer", MFD_CLOEXEC);
    auto_close int messages_fd = memfd_create("messages", MFD_CLOEXEC);
    if (out_fd < 0 || messages_fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make a memory file");

    int status = 0;
    pid_t pid = fork();
    if (pid < 0)
        return err_fork(err, HUTCH_ERR_SYSTEM, errno, "fork to ask it");
    if (pid == 0)
        run_interpreter(question, out_fd, messages_fd);
    int error = wait_for_end(pid, question, &status, err);
    if (error >= 0)
        error = read_from_start(messages_fd, &messages, err);
    if (error >= 0)
        error = explain_status(question, status, &messages, err);
    if (error >= 0)
        error = read_from_start(out_fd, output, err);
    return error;
}

bool ask_next_fact(const struct buf *output, size_t *at, const char **ret_fact)
{
    const char *start = output->data ? output->data + *at : NULL;
    const char *end = start ? memchr(start, '\0', output->length - *at) : NULL;
    if (!end)
        return false;
    *at += (size_t)(end - start) + 1;
    *ret_fact = start;
    return true;
}

int ask_list(const struct buf *output, size_t *at, struct string_list *list,
             struct hutch_error *err)
{
    const char *fact = "";

    while (ask_next_fact(output, at, &fact) && fact[0] != '\0') {
        int error = string_list_add(list, fact, err);
        if (error < 0)
            return error;
    }
    return 0;
}
