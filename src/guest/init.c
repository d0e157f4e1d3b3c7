/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-init: PID 1 of every cell. It holds the cell's namespaces together,
 * reaps what is left to it, serves the engine's calls for files (files.h), makes
 * the pipes of a session's execs (pipes.h), and ends, taking every process of the cell with it,
 * when the supervisor lets go of its attendant (descriptor 0, see wire.h) or dies.
 *
 * It is exec'd with no capability, no_new_privs and the system call filter in
 * force, from a file that its user may execute but not read: so the kernel
 * makes it non-dumpable, and no program of the same user can look into it or
 * steer it. As PID 1 it ignores every signal that it did not ask for.
 *
 * One thread, one poll, no allocation. When the program is dead and its files are still
 * to be read, the supervisor says so: then all other processes are killed, and calls
 * wait until they are gone, so that nothing changes what is read.
 */
#include "../sandbox/wire.h"
#include "files.h"
#include "pipes.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ATTENDANT_FD 0

/* An own descriptor on SIGCHLD, so that one poll waits for all. */
static int open_child_signal(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool tells; /* the supervisor wants to know who dies */

/* Tells the supervisor. It reads little and gets few words: a full socket loses one,
 * which it notices. */
static void tell(pid_t pid, int status)
{
    const struct wire_word word = {.type = WIRE_WORD_ORPHAN, .pid = pid, .status = status};

    if (send(ATTENDANT_FD, &word, sizeof(word), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return;
}

/* Calls that had to wait for the end of processes need not any more when there is none. */
static void reap(int signal_fd)
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
    if (pid < 0)
        files_hold(false);
}

/* The first descriptor of a message, -1 for none; others there are not. */
static int descriptor_of(struct msghdr *message)
{
    const struct cmsghdr *header = CMSG_FIRSTHDR(message);
    int fd = -1;

    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return fd;
}

/* Does what the supervisor says. Returns whether it is still there. */
static bool attend(int signal_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct wire_attend order = {.type = 0};
    struct iovec part = {.iov_base = &order, .iov_len = sizeof(order)};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };

    ssize_t count = recvmsg(ATTENDANT_FD, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0)
        return errno == EAGAIN || errno == EINTR;
    int fd = descriptor_of(&message);
    if (count != (ssize_t)sizeof(order))
        return false;
    if (order.type == WIRE_ATTEND_FILES && fd >= 0 && order.link < WIRE_FILE_LINKS) {
        files_open(order.link, fd);
    } else if (order.type == WIRE_ATTEND_TELL) {
        tells = true;
    } else if (order.type == WIRE_ATTEND_PIPES) {
        pipes_order(order.exec_id);
    } else if (order.type == WIRE_ATTEND_END) {
        files_hold(true);
        if (getpid() == 1) /* of a cell, and of nothing larger */
            kill(-1, SIGKILL);
        reap(signal_fd);
    }
    return true;
}

int main(void)
{
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int signal_fd = open_child_signal();
    if (signal_fd < 0)
        return 1;

    for (;;) {
        struct pollfd fds[] = {
            {.fd = ATTENDANT_FD, .events = (short)(POLLIN | (pipes_are_due() ? POLLOUT : 0))},
            {.fd = signal_fd, .events = POLLIN},
            {.fd = files_socket(0), .events = files_events(0)},
            {.fd = files_socket(1), .events = files_events(1)},
        };
        _Static_assert(WIRE_FILE_LINKS == 2, "each is polled");
        if (poll(fds, 2 + WIRE_FILE_LINKS, files_timeout()) < 0 && errno != EINTR)
            return 1;
        if ((fds[0].revents & ~POLLOUT) != 0 && !attend(signal_fd))
            return 0; /* the supervisor let go */
        if (pipes_are_due())
            pipes_make(ATTENDANT_FD);
        if (fds[1].revents != 0)
            reap(signal_fd);
        for (uint32_t i = 0; i < WIRE_FILE_LINKS; i++) {
            if (fds[2 + i].fd == files_socket(i))
                files_serve(i, fds[2 + i].revents);
        }
    }
}
