/* SPDX-License-Identifier: Apache-2.0 */
/* See zygote.h. */
#include "zygote.h"

#include "base/clock.h"
#include "base/fd.h"
#include "cell.h"
#include "tree_tables.h"

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
#define ZYGOTE_FORKS_MAX 2000
#define STRAYS_AGAIN_NS (5 * NS_PER_MS)
#define ZYGOTE_START_NS (60 * NS_PER_SECOND) /* for loading what it is to have */

/* ---- its life ----------------------------------------------------------- */

static struct zygote *zygote_new(struct zygote_place *place)
{
    struct zygote *zygote = calloc(1, sizeof(*zygote));
    if (!zygote)
        return NULL;
    zygote->place = place;
    zygote->runtime = place->runtime;
    zygote->socket = zygote->log_fd = zygote->user_ns_fd = zygote->pid_ns_fd = -1;
    zygote->maker = MAKER_NONE;
    zygote->nets.limit = place == &place->runtime->zygotes ? NET_STORE_MAX : NET_STORE_OWN;
    return zygote;
}

/* As another user than the zygote: who makes a user namespace has every power over
 * it, and over the maker the zygote shall have none. An ordinary user is but one. */
static int start_maker(struct supervisor *supervisor, struct zygote *zygote,
                       struct hutch_error *err)
{
    if (zygote->cell->uid != 0 && slots_acquire(supervisor->slots, &zygote->maker_uid, err) < 0)
        return err->code;
    const struct maker_place place = {
        .can_step = supervisor->can_step,
        .pid_ns_fd = zygote->pid_ns_fd,
        .mount_ns_fd = zygote->runtime->mount_ns_fd,
        .user_ns_fd = zygote->user_ns_fd,
        .own_pid_ns_fd = supervisor->pid_ns_fd,
        .uid = zygote->maker_uid,
        .gid = zygote->maker_uid,
    };
    if (maker_start(&place, &zygote->maker) < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "start the zygote's maker");
    return 0;
}

static void end_maker(struct supervisor *supervisor, struct zygote *zygote)
{
    maker_kill(&zygote->maker);
    supervisor_bury(supervisor, &zygote->maker.pidfd);
    zygote->maker = MAKER_NONE;
    if (zygote->maker_uid != 0)
        slots_release(supervisor->slots, zygote->maker_uid);
    zygote->maker_uid = 0;
}

/* A successor takes over, ready or not. */
static void leave_place(struct zygote *zygote)
{
    struct zygote_place *place = zygote->place;

    zygote->place = NULL;
    if (place && place->zygote == zygote)
        place->zygote = place->successor;
    if (place && (place->zygote == place->successor || place->successor == zygote))
        place->successor = NULL;
}

bool zygote_is_used_up(const struct zygote *zygote)
{
    return zygote->forks >= ZYGOTE_FORKS_MAX;
}

void zygote_free(struct supervisor *supervisor, struct zygote *zygote)
{
    if (!zygote)
        return;
    leave_place(zygote);
    supervisor_close(supervisor, &zygote->socket);
    supervisor_close(supervisor, &zygote->log_fd);
    end_maker(supervisor, zygote);
    fd_close(&zygote->user_ns_fd);
    fd_close(&zygote->pid_ns_fd);
    net_store_close(&zygote->nets);
    free(zygote);
}

/* The first thing that it is told: what makes a zygote of it, and what to load. */
static int send_orders(struct zygote *zygote)
{
    char text[LIMIT_PRELOAD_BYTES + sizeof(TREE_ZYGOTE_MODULE) + 1] = TREE_ZYGOTE_MODULE;
    const size_t place = sizeof(TREE_ZYGOTE_MODULE);
    size_t names = strnlen(zygote->runtime->preload, LIMIT_PRELOAD_BYTES);
    const struct wire_header header = {
        .length = (uint32_t)(place + names),
        .type = WIRE_ZYGOTE,
        .flags = zygote->place->load_in_cells ? WIRE_ZYGOTE_LOAD_IN_CELLS : 0,
    };

    memcpy(text + place, zygote->runtime->preload, names);
    if (send(zygote->socket, &header, sizeof(header), MSG_NOSIGNAL) < 0 ||
        send(zygote->socket, text, header.length, MSG_NOSIGNAL) < 0)
        return -1;
    return 0;
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
    if (fcntl(zygote->socket, F_SETFL, O_NONBLOCK) < 0)
        return -1;
    return send_orders(zygote);
}

void zygote_start(struct supervisor *supervisor, struct zygote_place *place)
{
    const struct proto_start start = {
        .kind = PROTO_ZYGOTE,
        .language = place->runtime->language,
        .max_processes = ZYGOTE_PROCESSES,
        .cpu_millis = supervisor->cpu_count * 1000,
        .memory_bytes = ZYGOTE_MEMORY_BYTES,
        .disk_bytes = ZYGOTE_DISK_BYTES,
        .timeout_ns = ZYGOTE_START_NS,
    };
    int fds[PROTO_FDS_MAX] = {-1, -1, -1, -1, -1};
    struct zygote *zygote = zygote_new(place);
    struct hutch_error err = {.message = "no memory, pipes or sockets for a zygote"};

    if (zygote && open_ends(zygote, fds) == 0)
        zygote->cell = cell_create_zygote(supervisor, &start, fds, zygote, &err);
    if (!zygote || !zygote->cell) {
        for (size_t i = 0; i < ARRAY_LENGTH(fds); i++)
            fd_close(&fds[i]);
        zygote_free(supervisor, zygote);
        zygote_log(place, err.message, strlen(err.message));
        backoff_fail(&place->backoff);
        return;
    }
    if (place->zygote)
        place->successor = zygote;
    else
        place->zygote = zygote;
}

void zygote_take_namespaces(struct zygote *zygote, struct cell_plan *plan)
{
    zygote->user_ns_fd = TAKE_FD(plan->ns_fds[PLAN_NS_USER]);
    zygote->pid_ns_fd = TAKE_FD(plan->ns_fds[PLAN_NS_PID]);
}

/* The first of its orders is not open any more. */
static struct sandbox_cell *take_order(struct zygote *zygote)
{
    struct sandbox_cell *cell = zygote->orders[zygote->first_order];

    zygote->first_order = (zygote->first_order + 1) % ZYGOTE_ORDERS_MAX;
    zygote->order_count--;
    return cell;
}

void zygote_retire(struct supervisor *supervisor, struct zygote *zygote)
{
    struct hutch_error err;

    if (zygote->state == ZYGOTE_RETIRED)
        return;
    err_set(&err, HUTCH_ERR_HELPER, "the zygote has ended");
    zygote->state = ZYGOTE_RETIRED;
    zygote->guests++; /* so that it stays to the end of this */
    net_store_close(&zygote->nets);
    leave_place(zygote);
    end_maker(supervisor, zygote);
    supervisor_close(supervisor, &zygote->socket); /* its process ends by that */
    if (zygote->order_count > 0)                   /* it may have made a process and not said so */
        supervisor->has_strays = true;
    while (zygote->order_count > 0)
        cell_take_process(supervisor, take_order(zygote), -1, &err);
    zygote_leave(supervisor, zygote);
}

void zygote_lose(struct supervisor *supervisor, struct zygote *zygote)
{
    if (zygote->state != ZYGOTE_RETIRED) {
        zygote->place->deaths++;
        backoff_fail(&zygote->place->backoff);
        /* A module may be why: then the next one starts without. */
        if (zygote->state == ZYGOTE_STARTING)
            zygote->place->load_in_cells = true;
    }
    zygote_retire(supervisor, zygote);
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

    if (zygote->state != ZYGOTE_READY || zygote->order_count == ZYGOTE_ORDERS_MAX)
        return err_set(err, HUTCH_ERR_BUSY, "the zygote takes no order");
    for (size_t i = 0; i < count; i++)
        fds[i] = *places[i];
    if (fd_send(zygote->socket, plan, sizeof(*plan), fds, count) < 0)
        return err_errno(err, HUTCH_ERR_HELPER, errno, "send the cell to the zygote");
    if (zygote->order_count == 0)
        zygote->stirred_ns = clock_now_ns();
    zygote->orders[(zygote->first_order + zygote->order_count++) % ZYGOTE_ORDERS_MAX] = cell;
    cell->is_ordered = true;
    return 0;
}

/* It has loaded what it is to have. */
static void take_ready(struct supervisor *supervisor, struct zygote *zygote)
{
    struct hutch_error err;

    zygote->cell->deadline_ns = NO_DEADLINE;
    zygote->state = ZYGOTE_READY; /* no module can be why what follows fails */
    if (start_maker(supervisor, zygote, &err) < 0) {
        zygote_log(zygote->place, err.message, strlen(err.message));
        zygote_lose(supervisor, zygote);
        return;
    }
    if (zygote == zygote->place->successor)
        zygote_retire(supervisor, zygote->place->zygote);
}

/* To the first of its orders; pidfd is -1 where it could not. */
static void take_answer(struct supervisor *supervisor, struct zygote *zygote, int error, int pidfd)
{
    struct hutch_error err;
    struct sandbox_cell *cell = take_order(zygote);

    zygote->stirred_ns = clock_now_ns();
    err_errno(&err, HUTCH_ERR_HELPER, error, "fork in the zygote");
    if (pidfd >= 0)
        zygote->place->backoff = BACKOFF_NONE;
    cell_take_process(supervisor, cell, pidfd, &err);
    if (++zygote->forks >= 2 * ZYGOTE_FORKS_MAX) /* and no successor came */
        zygote_retire(supervisor, zygote);
}

void zygote_handle(struct supervisor *supervisor, struct zygote *zygote)
{
    struct zygote_reply reply;
    int pidfd = -1;
    size_t count = 1;

    if (zygote->socket < 0)
        return;
    ssize_t length = fd_receive(zygote->socket, &reply, sizeof(reply), &pidfd, &count);
    if (length < 0 && errno == EAGAIN)
        return;
    if (length == (ssize_t)sizeof(reply) && zygote->state == ZYGOTE_STARTING && count == 0) {
        take_ready(supervisor, zygote);
    } else if (length == (ssize_t)sizeof(reply) && zygote->order_count > 0) {
        take_answer(supervisor, zygote, reply.error, pidfd);
    } else { /* its end, or not what was agreed */
        fd_close(&pidfd);
        zygote_lose(supervisor, zygote);
    }
}

void zygote_log(struct zygote_place *place, const char *text, size_t length)
{
    const size_t room = sizeof(place->log) - 1;
    size_t added = length < room ? length : room;
    size_t before = strlen(place->log);
    size_t kept = before + added > room ? room - added : before;

    memmove(place->log, place->log + (before - kept), kept);
    for (size_t i = 0; i < added; i++) { /* it is shown as text */
        char letter = text[length - added + i];
        place->log[kept + i] = letter != '\0' ? letter : ' ';
    }
    place->log[kept + added] = '\0';
}

void zygote_take_log(struct supervisor *supervisor, struct zygote *zygote)
{
    char text[1024];
    ssize_t count = read(zygote->log_fd, text, sizeof(text));

    if (count > 0 && zygote->place)
        zygote_log(zygote->place, text, (size_t)count);
    else if (count == 0 || (count < 0 && errno != EAGAIN))
        supervisor_close(supervisor, &zygote->log_fd);
}

static bool is_known(const struct supervisor *supervisor, pid_t pid)
{
    for (size_t i = 0; i < LIMIT_CELLS; i++) {
        const struct sandbox_cell *cell = supervisor->cells[i];
        if (cell && ((cell->init_pidfd >= 0 && cell->init_pid == pid) ||
                     (cell->run_pidfd >= 0 && cell->run_pid == pid) ||
                     (cell->zygote_of && cell->zygote_of->maker.pid == pid)))
            return true;
    }
    for (size_t i = 0; i < PROTO_LANGUAGE_COUNT; i++) {
        if (supervisor->runtimes[i].build_fd >= 0 && supervisor->runtimes[i].build_pid == pid)
            return true;
    }
    return false;
}

/* Whether a zygote's cell is still dying, or one of a zygote that is no more. */
static bool may_have_strays(const struct supervisor *supervisor)
{
    for (size_t i = 0; i < LIMIT_CELLS; i++) {
        const struct sandbox_cell *cell = supervisor->cells[i];
        if (!cell || cell->state != CELL_CLOSING)
            continue;
        if (cell->zygote_of || (cell->zygote && cell->zygote->state == ZYGOTE_RETIRED))
            return true;
    }
    return false;
}

uint64_t zygote_reap_strays(struct supervisor *supervisor)
{
    siginfo_t info = {.si_pid = 0};
    bool meets_known = false; /* which hides others until it is waited for */

    if (!supervisor->has_strays)
        return NO_DEADLINE;
    while (!meets_known && waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid > 0) {
        meets_known = is_known(supervisor, info.si_pid);
        if (!meets_known)
            IGNORE_RESULT(waitpid(info.si_pid, NULL, WNOHANG) < 0);
    }
    supervisor->has_strays = meets_known || may_have_strays(supervisor);
    return supervisor->has_strays ? clock_after_ns(STRAYS_AGAIN_NS) : NO_DEADLINE;
}
