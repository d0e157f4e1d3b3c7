/* SPDX-License-Identifier: Apache-2.0 */
/* See zygote.h. */
#include "zygote.h"

#include "base/clock.h"
#include "base/fd.h"
#include "cell.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define ZYGOTE_MEMORY_BYTES MIB(2048)
#define ZYGOTE_DISK_BYTES MIB(64) /* for what modules write when they are loaded */
#define ZYGOTE_PROCESSES 64
#define ZYGOTE_FORKS_MAX 2000 /* then it is replaced: cells of one share their address layout */
#define STRAYS_AGAIN_NS (5 * NS_PER_MS)
#define ZYGOTE_START_NS (60 * NS_PER_SECOND) /* for loading what it is to have */
#define RETRY_FIRST_NS (NS_PER_SECOND / 4)
#define RETRY_MOST_NS (60 * NS_PER_SECOND)

/* ---- its life ----------------------------------------------------------- */

static struct zygote *zygote_new(struct runtime *runtime)
{
    struct zygote *zygote = calloc(1, sizeof(*zygote));
    if (!zygote)
        return NULL;
    zygote->runtime = runtime;
    zygote->socket = zygote->log_fd = zygote->user_ns_fd = zygote->pid_ns_fd = -1;
    return zygote;
}

void zygote_free(struct zygote *zygote)
{
    if (!zygote)
        return;
    if (zygote->runtime->zygote == zygote)
        zygote->runtime->zygote = NULL;
    fd_close(&zygote->socket);
    fd_close(&zygote->log_fd);
    fd_close(&zygote->user_ns_fd);
    fd_close(&zygote->pid_ns_fd);
    net_store_close(&zygote->nets);
    free(zygote);
}

static void try_later(struct runtime *runtime)
{
    uint64_t wait_ns = runtime->zygote_wait_ns ? runtime->zygote_wait_ns * 2 : RETRY_FIRST_NS;

    runtime->zygote_wait_ns = wait_ns < RETRY_MOST_NS ? wait_ns : RETRY_MOST_NS;
    runtime->zygote_after_ns = clock_after_ns(runtime->zygote_wait_ns);
}

static int open_ends(struct zygote *zygote, int ret_fds[PROTO_FDS_MAX])
{
    int pair[2], pipe[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    zygote->socket = pair[0];
    ret_fds[PROTO_FD_CHANNEL] = pair[1];
    if (fd_pipe(pipe) < 0)
        return -1;
    zygote->log_fd = pipe[0];
    ret_fds[PROTO_FD_STDOUT] = pipe[1];
    ret_fds[PROTO_FD_STDERR] = fcntl(pipe[1], F_DUPFD_CLOEXEC, 0);
    if (ret_fds[PROTO_FD_STDERR] < 0 || fcntl(zygote->log_fd, F_SETFL, O_NONBLOCK) < 0)
        return -1;
    return fcntl(zygote->socket, F_SETFL, O_NONBLOCK);
}

void zygote_start(struct supervisor *supervisor, struct runtime *runtime)
{
    const struct proto_start start = {
        .kind = PROTO_ZYGOTE,
        .language = runtime->language,
        .max_processes = ZYGOTE_PROCESSES,
        .cpu_millis = supervisor->cpu_count * 1000,
        .memory_bytes = ZYGOTE_MEMORY_BYTES,
        .disk_bytes = ZYGOTE_DISK_BYTES,
        .timeout_ns = ZYGOTE_START_NS,
    };
    int fds[PROTO_FDS_MAX] = {-1, -1, -1, -1, -1};
    struct zygote *zygote = zygote_new(runtime);

    if (zygote && open_ends(zygote, fds) == 0)
        zygote->cell = cell_create_zygote(supervisor, &start, fds, zygote);
    if (!zygote || !zygote->cell) {
        for (size_t i = 0; i < ARRAY_LENGTH(fds); i++)
            fd_close(&fds[i]);
        zygote_free(zygote);
        try_later(runtime);
        return;
    }
    runtime->zygote = zygote;
}

void zygote_take_namespaces(struct zygote *zygote, struct cell_plan *plan)
{
    zygote->user_ns_fd = TAKE_FD(plan->ns_fds[PLAN_NS_USER]);
    zygote->pid_ns_fd = TAKE_FD(plan->ns_fds[PLAN_NS_PID]);
}

void zygote_retire(struct supervisor *supervisor, struct zygote *zygote)
{
    struct hutch_error err;

    if (zygote->state == ZYGOTE_RETIRED)
        return;
    err_set(&err, HUTCH_ERR_HELPER, "the zygote has ended");
    if (zygote->state == ZYGOTE_STARTING)
        try_later(zygote->runtime);
    zygote->state = ZYGOTE_RETIRED;
    zygote->guests++; /* so that it stays to the end of this */
    net_store_close(&zygote->nets);
    zygote->runtime->zygote = NULL;
    fd_close(&zygote->socket);   /* its process ends by that */
    if (zygote->order_count > 0) /* it may have made a process and not said so */
        supervisor->has_strays = true;
    while (zygote->order_count > 0) {
        struct sandbox_cell *cell = zygote->orders[zygote->first_order];
        zygote->first_order = (zygote->first_order + 1) % ZYGOTE_ORDERS_MAX;
        zygote->order_count--;
        cell_take_process(supervisor, cell, -1, &err);
    }
    zygote_leave(supervisor, zygote);
}

void zygote_leave(struct supervisor *supervisor, struct zygote *zygote)
{
    if (--zygote->guests == 0 && zygote->state == ZYGOTE_RETIRED)
        cell_abandon(supervisor, zygote->cell);
}

/* ---- orders ------------------------------------------------------------- */

int zygote_order(struct zygote *zygote, struct sandbox_cell *cell, struct cell_plan *plan,
                 struct hutch_error *err)
{
    int *places[PLAN_PASSED_MAX];
    int fds[PLAN_PASSED_MAX];
    size_t count = plan_passed(plan, places);
    struct cell_plan sent = *plan;

    /* What points into this process is nothing for cells to know. */
    memset(sent.argv, 0, sizeof(sent.argv));
    memset(sent.envp, 0, sizeof(sent.envp));
    if (zygote->state != ZYGOTE_READY || zygote->order_count == ZYGOTE_ORDERS_MAX)
        return err_set(err, HUTCH_ERR_BUSY, "the zygote takes no order");
    for (size_t i = 0; i < count; i++)
        fds[i] = *places[i];
    if (fd_send(zygote->socket, &sent, sizeof(sent), fds, count) < 0)
        return err_errno(err, HUTCH_ERR_HELPER, errno, "send the cell to the zygote");
    zygote->orders[(zygote->first_order + zygote->order_count++) % ZYGOTE_ORDERS_MAX] = cell;
    cell->is_ordered = true;
    return 0;
}

void zygote_handle(struct supervisor *supervisor, struct zygote *zygote)
{
    struct zygote_reply reply;
    struct hutch_error err;
    int pidfd = -1;
    size_t count = 1;

    if (zygote->socket < 0)
        return;
    ssize_t length = fd_receive(zygote->socket, &reply, sizeof(reply), &pidfd, &count);
    if (length < 0 && errno == EAGAIN)
        return;
    if (length != (ssize_t)sizeof(reply)) {
        zygote_retire(supervisor, zygote);
        return;
    }
    if (zygote->state == ZYGOTE_STARTING && count == 0) {
        zygote->state = ZYGOTE_READY;
        zygote->cell->deadline_ns = NO_DEADLINE;
        zygote->runtime->zygote_wait_ns = 0;
        return;
    }
    if (zygote->order_count == 0) { /* not what was agreed */
        fd_close(&pidfd);
        zygote_retire(supervisor, zygote);
        return;
    }
    struct sandbox_cell *cell = zygote->orders[zygote->first_order];
    zygote->first_order = (zygote->first_order + 1) % ZYGOTE_ORDERS_MAX;
    zygote->order_count--;
    err_errno(&err, HUTCH_ERR_HELPER, reply.error, "fork in the zygote");
    cell_take_process(supervisor, cell, count == 1 ? pidfd : -1, &err);
    if (++zygote->forks >= ZYGOTE_FORKS_MAX && zygote->order_count == 0)
        zygote_retire(supervisor, zygote);
}

void zygote_take_log(struct zygote *zygote)
{
    char *log = zygote->runtime->zygote_log;
    const size_t room = sizeof(zygote->runtime->zygote_log) - 1;
    char text[1024];
    ssize_t count = read(zygote->log_fd, text, room);

    if (count <= 0) {
        if (count == 0 || errno != EAGAIN)
            fd_close(&zygote->log_fd);
        return;
    }
    size_t length = strlen(log), added = (size_t)count;
    size_t kept = length + added > room ? room - added : length;
    memmove(log, log + (length - kept), kept);
    for (size_t i = 0; i < added; i++) /* it is shown as text */
        log[kept + i] = text[i] != '\0' ? text[i] : ' ';
    log[kept + added] = '\0';
}

static bool is_known(const struct supervisor *supervisor, pid_t pid)
{
    for (size_t i = 0; i < LIMIT_CELLS; i++) {
        const struct sandbox_cell *cell = supervisor->cells[i];
        if (cell && ((cell->init_pidfd >= 0 && cell->init_pid == pid) ||
                     (cell->run_pidfd >= 0 && cell->run_pid == pid)))
            return true;
    }
    for (size_t i = 0; i < PROTO_LANGUAGE_COUNT; i++) {
        if (supervisor->runtimes[i].build_fd >= 0 && supervisor->runtimes[i].build_pid == pid)
            return true;
    }
    return false;
}

/* Whether a cell of a zygote that is no more is still dying. */
static bool may_have_strays(const struct supervisor *supervisor)
{
    for (size_t i = 0; i < LIMIT_CELLS; i++) {
        const struct sandbox_cell *cell = supervisor->cells[i];
        if (cell && cell->state == CELL_CLOSING && cell->zygote &&
            cell->zygote->state == ZYGOTE_RETIRED)
            return true;
    }
    return false;
}

uint64_t zygote_reap_strays(struct supervisor *supervisor)
{
    siginfo_t info = {.si_pid = 0};

    if (!supervisor->has_strays)
        return NO_DEADLINE;
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0 &&
           !is_known(supervisor, info.si_pid))
        IGNORE_RESULT(waitpid(info.si_pid, NULL, WNOHANG) < 0);
    supervisor->has_strays = may_have_strays(supervisor);
    return supervisor->has_strays ? clock_after_ns(STRAYS_AGAIN_NS) : NO_DEADLINE;
}
