/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-init: PID 1 of every cell. It holds the cell's namespaces together,
 * reaps what is left to it, and ends, taking every process of the cell with
 * it, when the supervisor lets go of its lifeline (descriptor 0) or dies. When the
 * supervisor has said a word on it, it tells there who died.
 *
 * It is exec'd with no capability, no_new_privs and the system call filter in
 * force, from a file that its user may execute but not read: so the kernel
 * makes it non-dumpable, and no program of the same user can look into it or
 * steer it. As PID 1 it ignores every signal that it did not ask for.
 */
#include "../sandbox/wire.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIFELINE_FD 0

/* An own descriptor on SIGCHLD, so that one poll waits for both. */
static int open_child_signal(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Tells the supervisor, if it wants to know. It reads little and gets few words: a
 * full socket loses one, which it notices. */
static void tell(pid_t pid, int status)
{
    const struct wire_orphan word = {.pid = pid, .status = status};

    if (send(LIFELINE_FD, &word, sizeof(word), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return;
}

static void reap(int signal_fd, int tells)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    while (read(signal_fd, &info, sizeof(info)) > 0) {
    }
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (tells)
            tell(pid, status);
    }
}

/* Whether the supervisor is still there. */
static int hear(int *tells)
{
    char word;

    errno = 0;
    if (recv(LIFELINE_FD, &word, sizeof(word), MSG_DONTWAIT) > 0) {
        *tells = 1;
        return 1;
    }
    return errno == EAGAIN || errno == EINTR;
}

int main(void)
{
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int signal_fd = open_child_signal();
    if (signal_fd < 0)
        return 1;

    struct pollfd fds[] = {
        {.fd = LIFELINE_FD, .events = POLLIN},
        {.fd = signal_fd, .events = POLLIN},
    };
    int tells = 0;
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return 1;
        if (fds[0].revents != 0 && !hear(&tells))
            return 0;
        if (fds[1].revents != 0)
            reap(signal_fd, tells);
    }
}
