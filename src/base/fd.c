/* SPDX-License-Identifier: Apache-2.0 */
/* See fd.h. */
#include "fd.h"

#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

ssize_t fd_read_at(int fd, void *data, size_t length, uint64_t offset)
{
    size_t have = 0;

    while (have < length) {
        ssize_t count = pread(fd, (char *)data + have, length - have, (off_t)(offset + have));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -1;
        if (count == 0)
            break;
        have += (size_t)count;
    }
    return (ssize_t)have;
}

int fd_write_all(int fd, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t count = write(fd, data, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -1;
        data += count;
        length -= (size_t)count;
    }
    return 0;
}

int fd_write_file(const char *path, const char *text)
{
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

int fd_wait(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd entry = {.fd = fd, .events = events};

    for (;;) {
        int ready = poll(&entry, 1, clock_poll_timeout(deadline_ns));
        if (ready > 0)
            return entry.revents;
        if (ready < 0 && errno != EINTR)
            return -1;
        if (ready == 0 && clock_now_ns() >= deadline_ns)
            return 0;
    }
}

int fd_pipe(int ret_fds[2])
{
    return pipe2(ret_fds, O_CLOEXEC);
}

union control {
    char bytes[CMSG_SPACE(sizeof(int) * FD_SEND_MAX)];
    struct cmsghdr align;
};

static int send_with(int socket, const void *data, size_t length, const int *fds, size_t count,
                     int flags)
{
    union control control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (count > FD_SEND_MAX) {
        errno = EINVAL;
        return -1;
    }
    memset(&control, 0, sizeof(control));
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | flags);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

int fd_send(int socket, const void *data, size_t length, const int *fds, size_t count)
{
    return send_with(socket, data, length, fds, count, 0);
}

int fd_send_now(int socket, const void *data, size_t length, const int *fds, size_t count)
{
    return send_with(socket, data, length, fds, count, MSG_DONTWAIT);
}

/* Collects received descriptors; more than room are closed. */
static size_t collect(struct msghdr *message, int *ret_fds, size_t room)
{
    size_t count = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t received = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < received; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
            if (count < room)
                ret_fds[count++] = fd;
            else
                close(fd);
        }
    }
    return count;
}

ssize_t fd_receive(int socket, void *data, size_t length, int *ret_fds, size_t *count)
{
    union control control;
    struct iovec part = {.iov_base = data, .iov_len = length};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t received;

    do
        received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    if (received < 0)
        return -1;
    *count = collect(&message, ret_fds, *count);
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        for (size_t i = 0; i < *count; i++)
            close(TAKE_FD(ret_fds[i]));
        *count = 0;
        errno = EMSGSIZE;
        return -1;
    }
    return received;
}
