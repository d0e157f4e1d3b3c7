/* SPDX-License-Identifier: Apache-2.0 */
/* See pipes.h. */
#include "pipes.h"

#include "../sandbox/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS 10

static const char *const stems[2] = {WIRE_STDOUT_PIPE, WIRE_STDERR_PIPE};

struct name {
    char path[sizeof(WIRE_STDOUT_PIPE) + DIGITS];
};

static struct {
    uint32_t next, last; /* are due where next <= last */
} due = {.next = 1};

static struct name name_of(const char *stem, uint32_t exec_id)
{
    struct name name;
    char digits[DIGITS];
    size_t length = strlen(stem), count = 0;

    do
        digits[count++] = (char)('0' + exec_id % 10);
    while ((exec_id /= 10) > 0);
    memcpy(name.path, stem, length);
    while (count > 0)
        name.path[length++] = digits[--count];
    name.path[length] = '\0';
    return name;
}

static void remove_names(uint32_t exec_id)
{
    for (size_t i = 0; i < 2; i++) {
        const struct name name = name_of(stems[i], exec_id);
        unlink(name.path);
    }
}

/* The end to read. It does not block, whoever writes. */
static int make(const char *stem, uint32_t exec_id)
{
    const struct name name = name_of(stem, exec_id);
    struct stat status;

    if (mkfifo(name.path, 0600) < 0)
        return -1;
    int fd = open(name.path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &status) < 0 || !S_ISFIFO(status.st_mode))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Whether the word, with the two descriptors or none, went out; else it is for later. */
static bool tell(int socket, uint32_t exec_id, const int fds[2], bool has_fds)
{
    const struct wire_word word = {.type = WIRE_WORD_PIPES, .exec_id = exec_id};
    union {
        char bytes[CMSG_SPACE(sizeof(int) * 2)];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)&word, .iov_len = sizeof(word)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (has_fds) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * 2);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * 2);
    }
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ||
           (errno != EAGAIN && errno != EINTR && errno != ENOBUFS);
}

void pipes_order(uint32_t exec_id)
{
    if (due.next > due.last)
        due.next = exec_id;
    due.last = exec_id;
}

bool pipes_are_due(void)
{
    return due.next <= due.last;
}

void pipes_make(int socket)
{
    bool told = true;

    while (told && pipes_are_due()) {
        uint32_t exec_id = due.next;
        if (exec_id > WIRE_PIPES_AHEAD + 1) /* of the one before that which has begun */
            remove_names(exec_id - WIRE_PIPES_AHEAD - 1);
        remove_names(exec_id); /* of an attempt that was not told, or a program's */
        const int fds[2] = {make(stems[0], exec_id), make(stems[1], exec_id)};
        bool has_fds = fds[0] >= 0 && fds[1] >= 0;
        if (!has_fds)
            remove_names(exec_id);
        told = tell(socket, exec_id, fds, has_fds);
        for (size_t i = 0; i < 2; i++) {
            if (fds[i] >= 0)
                close(fds[i]);
        }
        due.next += told;
    }
}
