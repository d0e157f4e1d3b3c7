/* SPDX-License-Identifier: Apache-2.0 */
/* See maker.h. */
#include "maker.h"

#include "base/clock.h"
#include "base/fd.h"
#include "namespaces.h"
#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ANSWER_NS (2 * NS_PER_SECOND) /* nothing else is served meanwhile */
#define MAKER_FD 3
#define ORDER_FDS_MAX (5 + PLAN_JOIN_FDS)

/* Where the maker finds the host's proc, in the tree of a runtime. */
#define TREE_PROC "/root/proc"

/* The descriptors of a plan that setup_child needs, in an order that both sides find.
 * Returns how many. */
static size_t passed(struct cell_plan *plan, int *ret_places[ORDER_FDS_MAX])
{
    size_t count = 0;

    ret_places[count++] = &plan->report_fd;
    ret_places[count++] = &plan->ready_fds[1];
    ret_places[count++] = &plan->mapped_fds[0];
    ret_places[count++] = &plan->attendant_fd;
    for (size_t i = 0; i < plan->join_count && i < PLAN_JOIN_FDS; i++)
        ret_places[count++] = &plan->join_fds[i];
    return count;
}

/* ---- in the maker ------------------------------------------------------- */

static int settle(const struct maker_place *place)
{
    if (setns(place->mount_ns_fd, CLONE_NEWNS) < 0 || setns(place->user_ns_fd, CLONE_NEWUSER) < 0)
        return -1;
    if (place->uid == 0)
        return 0;
    /* Only a user of the namespace may make one inside, and only who may be
     * looked at can be given a map. */
    if (syscall(SYS_setresgid, place->gid, place->gid, place->gid) < 0 ||
        syscall(SYS_setresuid, place->uid, place->uid, place->uid) < 0)
        return -1;
    return prctl(PR_SET_DUMPABLE, 1);
}

/* Returns the child's pid, or -1 with errno. */
static pid_t make(struct maker_order *order, int net_fd, int *ret_pidfd)
{
    if (net_fd >= 0 && setns(net_fd, CLONE_NEWNET) < 0)
        return -1;
    pid_t child = process_clone(CLONE_PARENT | order->flags, -1, ret_pidfd);
    if (child == 0) {
        close(MAKER_FD);
        setup_child(&order->plan);
    }
    if (child < 0)
        return -1;
    errno = ESRCH;
    pid_t pid = process_number(TREE_PROC, *ret_pidfd);
    if (pid > 0 && process_write_maps(TREE_PROC, pid, &order->maps) == 0)
        return pid;
    int error = errno;
    pidfd_send_signal(*ret_pidfd, SIGKILL, NULL, 0);
    errno = error;
    return -1;
}

/* 0, or -1 at the end of the socket and for what is no order. */
static int receive_order(struct maker_order *order, int *ret_net_fd)
{
    int *places[ORDER_FDS_MAX];
    int fds[ORDER_FDS_MAX];
    size_t received = ORDER_FDS_MAX;

    if (fd_receive(MAKER_FD, order, sizeof(*order), fds, &received) != (ssize_t)sizeof(*order))
        return -1;
    size_t count = passed(&order->plan, places);
    if (received != count + order->enter_net)
        return -1;
    for (size_t i = 0; i < count; i++)
        *places[i] = fds[i];
    order->plan.mapped_fds[1] = order->plan.ready_fds[0] = -1;
    *ret_net_fd = order->enter_net ? fds[count] : -1;
    return 0;
}

/* Lets go of all descriptors of the supervisor but these, before anybody of the zygote's
 * namespaces could reach them. */
static int keep(int *const fds[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        *fds[i] = fcntl(*fds[i], F_DUPFD_CLOEXEC, MAKER_FD + (int)count);
        if (*fds[i] < 0)
            return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (dup3(*fds[i], MAKER_FD + (int)i, O_CLOEXEC) < 0)
            return -1;
        *fds[i] = MAKER_FD + (int)i;
    }
    return close_range(MAKER_FD + (unsigned)count, ~0U, 0);
}

static int move_in(struct maker_place *place, int *socket)
{
    int *const fds[] = {socket, &place->mount_ns_fd, &place->user_ns_fd};

    if (keep(fds, ARRAY_LENGTH(fds)) < 0)
        _exit(1);
    int settled = settle(place);
    int error = errno;
    close_range(MAKER_FD + 1, ~0U, 0);
    errno = error;
    return settled;
}

NORETURN static void serve(struct maker_place place, int socket)
{
    struct maker_order order;
    struct maker_reply reply = {.error = move_in(&place, &socket) < 0 ? errno : 0};

    int pidfd = pidfd_open(getpid(), 0);
    if (fd_send(MAKER_FD, &reply, sizeof(reply), &pidfd, pidfd >= 0) < 0 || reply.error != 0)
        _exit(1);
    fd_close(&pidfd);
    for (int net_fd; receive_order(&order, &net_fd) == 0;) {
        pidfd = -1;
        pid_t pid = make(&order, net_fd, &pidfd);
        reply = (struct maker_reply){.error = pid < 0 ? errno : 0, .pid = pid};
        int sent = fd_send(MAKER_FD, &reply, sizeof(reply), &pidfd, pidfd >= 0);
        close_range(MAKER_FD + 1, ~0U, 0);
        if (sent < 0)
            break;
    }
    _exit(0);
}

/* ---- in the supervisor -------------------------------------------------- */

/* 0, or -1 with errno. */
static int hear(const struct maker *maker, struct maker_reply *reply, int *ret_pidfd)
{
    size_t count = 1;

    *ret_pidfd = -1;
    int ready = fd_wait(maker->socket, POLLIN, clock_after_ns(ANSWER_NS));
    if (ready == 0)
        errno = ETIMEDOUT;
    if (ready <= 0)
        return -1;
    if (fd_receive(maker->socket, reply, sizeof(*reply), ret_pidfd, &count) !=
        (ssize_t)sizeof(*reply)) {
        fd_close(ret_pidfd);
        errno = EPIPE;
        return -1;
    }
    if (reply->error == 0 && count == 1)
        return 0;
    fd_close(ret_pidfd);
    errno = reply->error != 0 ? reply->error : EPROTO;
    return -1;
}

/* A process can be born into a pid namespace only. Who cannot come back from one takes
 * one more process to get there, which is gone afterwards. */
static int bear(const struct maker_place *place, int socket)
{
    if (place->can_step && setns(place->pid_ns_fd, CLONE_NEWPID) < 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        int pidfd;
        if (place->can_step)
            serve(*place, socket);
        if (setns(place->pid_ns_fd, CLONE_NEWPID) == 0 &&
            process_clone(CLONE_PARENT, -1, &pidfd) == 0)
            serve(*place, socket);
        _exit(0);
    }
    int error = errno;
    if (place->can_step)
        namespaces_return(place->own_pid_ns_fd, CLONE_NEWPID);
    else if (child > 0)
        IGNORE_RESULT(waitpid(child, NULL, 0) < 0);
    errno = error;
    return child < 0 ? -1 : 0;
}

int maker_start(const struct maker_place *place, struct maker *ret_maker)
{
    struct maker_reply reply;
    struct maker maker = MAKER_NONE;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    maker.socket = pair[0];
    int born = bear(place, pair[1]);
    close(pair[1]);
    if (born < 0 || hear(&maker, &reply, &maker.pidfd) < 0) {
        int error = errno;
        fd_close(&maker.socket); /* it ends by that */
        errno = error;
        return -1;
    }
    maker.pid = process_number("/proc", maker.pidfd);
    *ret_maker = maker;
    return 0;
}

pid_t maker_clone(struct maker *maker, const struct maker_order *order, int net_fd, int *ret_pidfd)
{
    struct maker_order sent = *order;
    struct maker_reply reply;
    int *places[ORDER_FDS_MAX];
    int fds[ORDER_FDS_MAX];
    size_t count = passed(&sent.plan, places);

    for (size_t i = 0; i < count; i++)
        fds[i] = *places[i];
    sent.enter_net = net_fd >= 0;
    if (net_fd >= 0)
        fds[count++] = net_fd;
    reply.error = 0;
    if (fd_send(maker->socket, &sent, sizeof(sent), fds, count) == 0 &&
        hear(maker, &reply, ret_pidfd) == 0)
        return reply.pid;
    int error = errno;
    if (reply.error == 0)
        maker_kill(maker);
    errno = error;
    return -1;
}

void maker_kill(struct maker *maker)
{
    fd_close(&maker->socket);
    if (maker->pidfd >= 0)
        pidfd_send_signal(maker->pidfd, SIGKILL, NULL, 0);
}
