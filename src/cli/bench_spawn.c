/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the programs that hutch bench compares with; see bench.h. */
#include "bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/quote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_NS (60 * NS_PER_SECOND)

/* stdin empty, stdout and stderr as given, nothing else open. Returns 0 or an
 * error number. */
static int add_actions(posix_spawn_file_actions_t *actions, int out, int err_out)
{
    int failure = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (failure == 0)
        failure = posix_spawn_file_actions_adddup2(actions, out, STDOUT_FILENO);
    if (failure == 0)
        failure = posix_spawn_file_actions_adddup2(actions, err_out, STDERR_FILENO);
    if (failure == 0)
        failure = posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
    return failure;
}

static int start(const char *const *argv, char *const *environment, int out, int err_out,
                 pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;

    int failure = posix_spawn_file_actions_init(&actions);
    if (failure != 0)
        return failure;
    failure = add_actions(&actions, out, err_out);
    if (failure == 0)
        failure = posix_spawn(ret_pid, argv[0], &actions, NULL, (char *const *)argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    return failure;
}

/* Reads what is there; closes *fd at its end. */
static int read_some(int *fd, struct buf *output, struct hutch_error *err)
{
    char chunk[4096];

    ssize_t count = read(*fd, chunk, sizeof(chunk));
    if (count < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read");
    if (count == 0) {
        close(*fd);
        *fd = -1;
        return 0;
    }
    buf_append(output, chunk, (size_t)count);
    return buf_check(output, err);
}

/* Reads both pipes to their ends, closing them. */
static int read_both(int *out, int *err_out, struct buf *output, struct buf *messages,
                     struct hutch_error *err)
{
    uint64_t deadline_ns = clock_after_ns(PATIENCE_NS);

    while (*out >= 0 || *err_out >= 0) {
        struct pollfd wait[] = {{.fd = *out, .events = POLLIN}, {.fd = *err_out, .events = POLLIN}};
        int ready = poll(wait, ARRAY_LENGTH(wait), clock_poll_timeout(deadline_ns));
        if (ready < 0 && errno != EINTR)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "poll");
        if (ready == 0)
            return err_set(err, HUTCH_ERR_SYSTEM, "no end after %u s",
                           (unsigned int)(PATIENCE_NS / NS_PER_SECOND));
        if (ready > 0 && wait[0].revents && read_some(out, output, err) < 0)
            return err->code;
        if (ready > 0 && wait[1].revents && read_some(err_out, messages, err) < 0)
            return err->code;
    }
    return 0;
}

/* Where interpreters say what was wrong. Cuts the line's end off. */
static const char *last_line(struct buf *messages)
{
    while (messages->length > 0 && messages->data[messages->length - 1] == '\n')
        messages->data[--messages->length] = '\0';
    const char *text = buf_text(messages);
    const char *line = strrchr(text, '\n');
    return line ? line + 1 : text;
}

static int reap(pid_t pid, struct buf *messages, struct hutch_error *err)
{
    int status;

    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "wait");
    }
    if (WIFSIGNALED(status))
        return err_set(err, HUTCH_ERR_SYSTEM, "killed by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return err_set(err, HUTCH_ERR_SYSTEM, "exit status %d, stderr %s", WEXITSTATUS(status),
                       quote_text(last_line(messages)).text);
    return 0;
}

int bench_spawn(const char *const *argv, char *const *environment, struct buf *output,
                uint64_t *ret_ns, struct hutch_error *err)
{
    int out_pipe[2], err_pipe[2];
    pid_t pid;
    auto_buf struct buf messages = BUF_MAX(65536);

    if (fd_pipe(out_pipe) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make a pipe");
    auto_close int out = out_pipe[0];
    auto_close int out_of_child = out_pipe[1];
    if (fd_pipe(err_pipe) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make a pipe");
    auto_close int err_out = err_pipe[0];
    auto_close int err_of_child = err_pipe[1];

    uint64_t begin_ns = clock_now_ns();
    int failure = start(argv, environment, out_of_child, err_of_child, &pid);
    if (failure != 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, failure, "start %s", quote_text(argv[0]).text);
    close(TAKE_FD(out_of_child));
    close(TAKE_FD(err_of_child));
    if (read_both(&out, &err_out, output, &messages, err) < 0) {
        struct hutch_error killed;
        kill(pid, SIGKILL);
        IGNORE_RESULT(reap(pid, &messages, &killed));
        return err_context(err, "%s", argv[0]);
    }
    if (reap(pid, &messages, err) < 0)
        return err_context(err, "%s", argv[0]);
    *ret_ns = clock_now_ns() - begin_ns;
    return 0;
}

int bench_cli_layers(char *const *environment, uint32_t *ret_layers, struct hutch_error *err)
{
    static const char *const argv[] = {BENCH_OWN, "run", "--json", "-c", "print(1)", NULL};
    auto_buf struct buf output = BUF_MAX(65536);
    auto_json json_t *result = NULL;
    uint64_t elapsed_ns;
    uint32_t layers = 0;

    if (bench_spawn(argv, environment, &output, &elapsed_ns, err) < 0 ||
        json_read(buf_text(&output), output.length, output.max, &result, err) < 0)
        return err_context(err, "hutch run --json");
    const json_t *names = json_object_get(result, "layers");
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name)
            layers |= hutch_layer_from_name(name);
    }
    *ret_layers = layers;
    return 0;
}
