/* SPDX-License-Identifier: Apache-2.0 */
/* See cell.h. */
#include "cell.h"

#include "base/clock.h"
#include "base/fd.h"
#include "pool.h"
#include "proc_text.h"
#include "process.h"
#include "runtime.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define CLOSE_LIMIT_NS (10 * NS_PER_SECOND) /* for the kernel to take a dead cell down */
#define CLOSE_RETRY_NS (2 * NS_PER_MS)
#define PARK_LIMIT_NS (60 * NS_PER_SECOND)   /* for loading what it is to have */
#define SERVE_LIMIT_NS (120 * NS_PER_SECOND) /* for the engine to read the files of a run */

static bool start_cold(struct supervisor *supervisor, struct sandbox_cell *from);
static bool hand_over(struct supervisor *supervisor, struct sandbox_cell *cell);
static bool conclude_start(struct supervisor *supervisor, struct sandbox_cell *cell);
static void begin_sampling(struct sandbox_cell *cell);

/* ---- telling the engine ------------------------------------------------ */

/* The engine reads little and gets few packets: a full socket is a dead peer. An
 * event that is not told would make the rest wrong, so it is the last: the end of
 * the socket tells the engine, and the cell has no time left. */
void cell_tell(struct sandbox_cell *cell, const struct proto_event *event)
{
    if (cell->event_fd >= 0 &&
        send(cell->event_fd, event, sizeof(*event), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        shutdown(cell->event_fd, SHUT_RDWR);
        cell->deadline_ns = 0;
    }
}

static void tell_failed(struct sandbox_cell *cell, const struct hutch_error *error)
{
    struct proto_event event = {.type = PROTO_FAILED, .error = *error};
    cell_tell(cell, &event);
}

/* ---- taking down ------------------------------------------------------- */

/* What an interpreter's runner puts into the cell's tmpfs itself. */
static const uint64_t runner_files[] = {
    [PROTO_PYTHON] = 1, [PROTO_SHELL] = 1, [PROTO_JAVASCRIPT] = 2};

/* Whether more files, of any kind, are there than when the cell was built. The descriptor
 * goes before the cell does: who has the last one frees all that lies in the tmpfs, and that
 * takes time. Where nothing can be said, there may be some. */
void cell_note_disk(struct sandbox_cell *cell)
{
    struct setup_disk disk;
    struct statfs status;
    int fd = -1;
    size_t count = 1;

    if (cell->attendant_fd < 0 || cell->has_disk_state)
        return;
    cell->has_disk_state = cell->made_files = true;
    if (fd_receive(cell->attendant_fd, &disk, sizeof(disk), &fd, &count) != (ssize_t)sizeof(disk))
        return;
    if (count == 1 && fstatfs(fd, &status) == 0)
        cell->made_files = disk.free_inodes > status.f_ffree + runner_files[cell->start.language];
    if (count == 1)
        fd_close(&fd);
}

/* PID 1 of the cell takes every process of the cell with it. */
static void kill_cell(struct sandbox_cell *cell)
{
    cell_note_disk(cell);
    if (cell->init_pidfd >= 0)
        pidfd_send_signal(cell->init_pidfd, SIGKILL, NULL, 0);
    if (cell->run_pidfd >= 0)
        pidfd_send_signal(cell->run_pidfd, SIGKILL, NULL, 0);
}

/* Only a cell without memory goes at once: of another one the files may be wanted, and
 * what is left of it goes when its program is dead. */
void cell_stop_program(struct sandbox_cell *cell, enum proto_end end)
{
    bool has_program = cell->state == CELL_RUNNING && cell->run_pidfd >= 0;

    if (cell->end == PROTO_END_EXIT)
        cell->end = end;
    if (cell->session || (has_program && end != PROTO_END_MEMORY)) {
        if (cell->run_pidfd >= 0)
            pidfd_send_signal(cell->run_pidfd, SIGKILL, NULL, 0);
    } else {
        kill_cell(cell);
    }
}

static void release_cpus(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &cell->cpus))
            supervisor->cpu_load[cpu]--;
    }
    CPU_ZERO(&cell->cpus);
    CPU_ZERO(&cell->offered_cpus);
}

/* All but the pidfds, which the end of their processes closes. */
static void close_descriptors(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    supervisor_close(supervisor, &cell->event_fd);
    supervisor_close(supervisor, &cell->park_fd);
    supervisor_close(supervisor, &cell->report_fd);
    supervisor_close(supervisor, &cell->attendant_fd);
    session_close(supervisor, cell->session);
    cell->session = NULL;
    fd_close(&cell->sampler.proc_fd);
    cell_close_handed_on(cell);
}

void cell_close_handed_on(struct sandbox_cell *cell)
{
    for (size_t i = PROTO_FD_STDOUT; i < ARRAY_LENGTH(cell->fds); i++)
        fd_close(&cell->fds[i]);
}

/* Whether the process is gone; then its status is taken. */
static bool reap(struct supervisor *supervisor, int *pidfd, int *ret_status,
                 struct rusage *ret_usage)
{
    if (*pidfd >= 0 && !process_reap(*pidfd, ret_status, ret_usage))
        return false;
    supervisor_close(supervisor, pidfd);
    return true;
}

static void cell_free(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    release_cpus(supervisor, cell);
    if (cgroup_cell_oom_fd(cell->cgroup) >= 0)
        supervisor_unwatch(supervisor, cgroup_cell_oom_fd(cell->cgroup));
    net_close(&cell->net);
    cgroup_cell_free(cell->cgroup);
    if (cell->uid != 0)
        slots_release(supervisor->slots, cell->uid);
    supervisor->cells[cell->index] = NULL;
    supervisor->cell_count--;
    if (cell->zygote)
        zygote_leave(supervisor, cell->zygote);
    zygote_free(supervisor, cell->zygote_of);
    free(cell);
}

/* They point to the zygote, which goes with its cell. */
static bool has_guests(const struct sandbox_cell *cell)
{
    return cell->zygote_of && cell->zygote_of->guests > 0;
}

/* Frees the cell once its processes and its cgroups are gone. The uid goes
 * last: nobody else gets it before. */
static void try_free(struct supervisor *supervisor, struct sandbox_cell *cell, uint64_t now_ns)
{
    bool run_gone = reap(supervisor, &cell->run_pidfd, NULL, NULL);
    bool init_gone = reap(supervisor, &cell->init_pidfd, NULL, NULL);
    if (!run_gone || !init_gone || cell->is_ordered || has_guests(cell))
        return;
    if (!cgroup_cell_remove(cell->cgroup)) {
        if (now_ns < cell->close_deadline_ns)
            return;
        cgroup_cell_kill(cell->cgroup);
    }
    /* All its processes are dead: what is left in it would show. */
    if (cell->zygote && cell->zygote->state == ZYGOTE_READY) {
        memcpy(cell->net.owner, cell->start.owner, sizeof(cell->net.owner));
        net_put(&cell->zygote->nets, &cell->net);
    }
    cell_free(supervisor, cell);
}

static void note_end(struct supervisor *supervisor, const struct sandbox_cell *cell)
{
    if (cell->state == CELL_RUNNING && cell->start.kind == PROTO_RUN && !cell->start.session) {
        supervisor->running--;
        supervisor->ended_ns = clock_now_ns();
    }
}

static void begin_close(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    pool_forget(cell);
    note_end(supervisor, cell);
    if (cell->zygote_of) /* no more come, and those that there are keep it */
        supervisor->has_strays = true;
    cell->state = CELL_CLOSING;
    cell->deadline_ns = cell->sample_ns = NO_DEADLINE;
    cell->close_deadline_ns = clock_after_ns(CLOSE_LIMIT_NS);
    kill_cell(cell);
    close_descriptors(supervisor, cell);
    try_free(supervisor, cell, clock_now_ns());
}

/* Where a zygote or a parked cell was of no help, an interpreter that is started is. */
static void fail(struct supervisor *supervisor, struct sandbox_cell *cell,
                 const struct hutch_error *error)
{
    bool begins = cell->state == CELL_STARTING || cell->state == CELL_PARKED;
    bool is_warm = cell->zygote || cell->origin == PROTO_PARKED;
    bool again = begins && is_warm && start_cold(supervisor, cell);
    if (!again)
        tell_failed(cell, error);
    pool_log(supervisor, cell, error->message, strlen(error->message));
    cell_abandon(supervisor, cell);
}

void cell_abandon(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    if (cell->state == CELL_CLOSING)
        return;
    if (cell->zygote_of && cell->zygote_of->state != ZYGOTE_RETIRED)
        zygote_lose(supervisor, cell->zygote_of); /* comes back here when it has no guests */
    else
        begin_close(supervisor, cell);
}

/* ---- beginning --------------------------------------------------------- */

static struct sandbox_cell *cell_new(struct supervisor *supervisor, struct hutch_error *err)
{
    size_t index = 0;
    while (index < supervisor->cell_limit && supervisor->cells[index])
        index++;
    if (index == supervisor->cell_limit) {
        err_set(err, HUTCH_ERR_BUSY, "%zu cells at once are the limit%s", index,
                index < LIMIT_CELLS ? " (of open files: ulimit -Hn)" : "");
        return NULL;
    }
    struct sandbox_cell *cell = calloc(1, sizeof(*cell));
    if (!cell) {
        err_set(err, HUTCH_ERR_NO_MEMORY, "no memory for another cell");
        return NULL;
    }
    cell->index = index;
    cell->event_fd = cell->park_fd = cell->report_fd = cell->attendant_fd = -1;
    cell->init_pidfd = cell->run_pidfd = -1;
    cell->sampler = SAMPLER_NONE;
    cell->net = NET_NONE;
    cell->deadline_ns = cell->sample_ns = NO_DEADLINE;
    for (size_t i = 0; i < ARRAY_LENGTH(cell->fds); i++)
        cell->fds[i] = -1;
    supervisor->cells[index] = cell;
    supervisor->cell_count++;
    return cell;
}

static void refuse(const int *fds, size_t fd_count, struct hutch_error *error)
{
    struct sandbox_cell cell = {.event_fd = fd_count > 0 ? fds[PROTO_FD_EVENTS] : -1};
    tell_failed(&cell, error);
    fd_close(&cell.event_fd);
    for (size_t i = PROTO_FD_EVENTS + 1; i < fd_count; i++)
        close(fds[i]);
}

/* The descriptors of a start packet, each in its place: -1 for those that are not there. */
static void place_descriptors(const struct proto_start *start, const int *fds,
                              int ret_fds[PROTO_FDS_MAX])
{
    size_t next = PROTO_FD_STDIN;

    for (size_t i = 0; i < PROTO_FD_STDIN; i++)
        ret_fds[i] = fds[i];
    ret_fds[PROTO_FD_STDIN] = start->has_stdin ? fds[next++] : -1;
    ret_fds[PROTO_FD_FILES] = start->has_files ? fds[next] : -1;
}

/* Gives a cell the request and the descriptors of the engine. */
static int take_request(struct supervisor *supervisor, struct sandbox_cell *cell,
                        const struct proto_start *start, const int fds[PROTO_FDS_MAX],
                        struct hutch_error *err)
{
    cell->start = *start;
    cell->event_fd = fds[PROTO_FD_EVENTS];
    for (size_t i = PROTO_FD_STDOUT; i < PROTO_FDS_MAX; i++)
        cell->fds[i] = fds[i];
    return supervisor_watch(supervisor, cell->event_fd, WATCH_CELL_EVENTS, cell->index, err);
}

void cell_create(struct supervisor *supervisor, const struct proto_start *start, size_t length,
                 const int *fds, size_t fd_count)
{
    struct hutch_error err;

    if (!proto_is_start(start, length, fd_count)) {
        err_set(&err, HUTCH_ERR_HELPER, "malformed start packet");
        refuse(fds, fd_count, &err);
        return;
    }
    struct sandbox_cell *parked = pool_take(supervisor, start);
    struct sandbox_cell *cell = parked ? parked : cell_new(supervisor, &err);
    if (!cell) {
        refuse(fds, fd_count, &err);
        return;
    }
    int placed[PROTO_FDS_MAX];
    place_descriptors(start, fds, placed);
    if (take_request(supervisor, cell, start, placed, &err) < 0) {
        fail(supervisor, cell, &err);
        return;
    }
    if (parked) {
        cell->origin = PROTO_PARKED;
        IGNORE_RESULT(!hand_over(supervisor, cell));
        return;
    }
    struct runtime *runtime = &supervisor->runtimes[start->language];
    int ready = runtime_prepare(supervisor, runtime, &err);
    if (ready < 0)
        fail(supervisor, cell, &err);
    else if (ready > 0)
        cell_continue(supervisor, cell, NULL);
}

/* Of a cell that has a request. */
static void build(struct supervisor *supervisor, struct sandbox_cell *cell, struct zygote *zygote)
{
    struct hutch_error err;

    cell->state = CELL_STARTING;
    cell->zygote = zygote;
    cell->origin = zygote ? PROTO_FORKED : PROTO_COLD;
    if (zygote)
        zygote->guests++;
    if (cell_build(supervisor, cell, &err) < 0)
        fail(supervisor, cell, &err);
}

void cell_continue(struct supervisor *supervisor, struct sandbox_cell *cell,
                   const struct hutch_error *error)
{
    if (error)
        fail(supervisor, cell, error);
    else
        build(supervisor, cell, pool_zygote(supervisor, &cell->start));
}

/* Moves the request into a new cell, which goes without a zygote. */
static bool start_cold(struct supervisor *supervisor, struct sandbox_cell *from)
{
    struct hutch_error ignored;
    bool wanted = from->event_fd >= 0 && from->end == PROTO_END_EXIT && supervisor->control_fd >= 0;
    struct sandbox_cell *cell = wanted ? cell_new(supervisor, &ignored) : NULL;

    if (!cell)
        return false;
    supervisor_unwatch(supervisor, from->event_fd);
    int fds[PROTO_FDS_MAX] = {[PROTO_FD_EVENTS] = TAKE_FD(from->event_fd)};
    for (size_t i = PROTO_FD_STDOUT; i < PROTO_FDS_MAX; i++)
        fds[i] = TAKE_FD(from->fds[i]);
    if (take_request(supervisor, cell, &from->start, fds, &ignored) < 0)
        fail(supervisor, cell, &ignored);
    else
        build(supervisor, cell, NULL);
    return true;
}

struct sandbox_cell *cell_create_zygote(struct supervisor *supervisor,
                                        const struct proto_start *start, int fds[PROTO_FDS_MAX],
                                        struct zygote *zygote, struct hutch_error *err)
{
    struct sandbox_cell *cell = cell_new(supervisor, err);

    if (!cell)
        return NULL;
    cell->start = *start;
    cell->fds[PROTO_FD_STDOUT] = TAKE_FD(fds[PROTO_FD_STDOUT]);
    cell->fds[PROTO_FD_STDERR] = TAKE_FD(fds[PROTO_FD_STDERR]);
    cell->fds[PROTO_FD_CHANNEL] = TAKE_FD(fds[PROTO_FD_CHANNEL]);
    cell->state = CELL_STARTING;
    cell->zygote_of = zygote;
    if (supervisor_watch(supervisor, zygote->socket, WATCH_ZYGOTE, cell->index, err) < 0 ||
        supervisor_watch(supervisor, zygote->log_fd, WATCH_ZYGOTE_LOG, cell->index, err) < 0 ||
        cell_build(supervisor, cell, err) < 0) {
        cell->zygote_of = NULL; /* stays the caller's */
        begin_close(supervisor, cell);
        return NULL;
    }
    return cell;
}

void cell_park(struct supervisor *supervisor, struct pool *pool, struct zygote *zygote)
{
    struct hutch_error ignored;
    struct sandbox_cell *cell = cell_new(supervisor, &ignored);

    if (!cell)
        return;
    cell->start = pool->like;
    cell->pool = pool;
    pool->expected++;
    build(supervisor, cell, zygote);
}

void cell_take_process(struct supervisor *supervisor, struct sandbox_cell *cell, int pidfd,
                       const struct hutch_error *error)
{
    struct hutch_error err;

    cell->is_ordered = false;
    cell->run_pidfd = pidfd;
    cell->run_pid = pidfd >= 0 ? process_number("/proc", pidfd) : 0;
    if (cell->state == CELL_CLOSING) {
        kill_cell(cell);
        if (pidfd >= 0)
            IGNORE_RESULT(supervisor_watch(supervisor, pidfd, WATCH_CELL_RUN, cell->index, &err) <
                          0);
        try_free(supervisor, cell, clock_now_ns());
        return;
    }
    if (pidfd >= 0 && cell->run_pid == 0)
        err_set(&err, HUTCH_ERR_HELPER, "what the zygote made is no process");
    if (pidfd < 0 || cell->run_pid == 0)
        fail(supervisor, cell, pidfd < 0 ? error : &err);
    else if (supervisor_watch(supervisor, pidfd, WATCH_CELL_RUN, cell->index, &err) < 0)
        fail(supervisor, cell, &err);
    else if (cell->report_fd < 0) /* its children had their say before */
        conclude_start(supervisor, cell);
    else
        cell->deadline_ns = clock_after_ns(CELL_START_LIMIT_NS);
}

/* ---- the request meets the cell ---------------------------------------- */

int cell_attend(const struct sandbox_cell *cell, enum wire_attend_type type, int fd)
{
    const struct wire_attend order = {.type = (uint32_t)type};
    return fd_send_now(cell->attendant_fd, &order, sizeof(order), &fd, fd >= 0);
}

/* Where that fails, the end of the socket tells the engine. */
void cell_pass_files(struct sandbox_cell *cell, uint32_t link)
{
    const struct wire_attend order = {.type = WIRE_ATTEND_FILES, .link = link};

    if (cell->fds[PROTO_FD_FILES] >= 0)
        IGNORE_RESULT(fd_send_now(cell->attendant_fd, &order, sizeof(order),
                                  &cell->fds[PROTO_FD_FILES], 1) < 0);
    fd_close(&cell->fds[PROTO_FD_FILES]);
}

/* The time of the program begins. */
static void begin_run(struct sandbox_cell *cell)
{
    cell->begin_ns = clock_now_ns();
    cell->deadline_ns = cell->start.timeout_ns == NO_DEADLINE
                            ? NO_DEADLINE
                            : clock_after_ns(cell->start.timeout_ns);
}

static void tell_status(const struct supervisor *supervisor, const struct sandbox_cell *cell)
{
    struct proto_status status = {0};

    memcpy(status.starts, supervisor->starts, sizeof(status.starts));
    for (size_t i = 0; i < PROTO_LANGUAGE_COUNT; i++)
        pool_describe(supervisor, &supervisor->runtimes[i], &status.runtimes[i]);
    IGNORE_RESULT(send(cell->event_fd, &status, sizeof(status), MSG_NOSIGNAL | MSG_DONTWAIT) < 0);
}

void cell_tell_started(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    struct proto_event event = {
        .type = PROTO_STARTED,
        .layers = cell->layers,
        .origin = cell->origin,
        .begin_ns = cell->begin_ns,
        .pid = cell->run_pid,
        .init_pid = cell->init_pid,
    };
    cell->state = CELL_RUNNING;
    if (cell->start.kind == PROTO_RUN && !cell->start.session) {
        supervisor->running++;
        supervisor->started_ns = clock_now_ns();
    }
    cell_tell(cell, &event);
    if (cell->start.kind == PROTO_RUN)
        supervisor->starts[cell->origin]++;
    else if (cell->start.kind == PROTO_PROBE)
        tell_status(supervisor, cell);
}

/* Everything is said to the interpreter in one packet, so it has got all of it
 * or nothing. */
static int send_request(struct supervisor *supervisor, struct sandbox_cell *cell,
                        struct hutch_error *err)
{
    struct park_go go = {.rlimits = {{0}}};
    const int fds[PARK_FDS_MAX] = {cell->fds[PROTO_FD_STDOUT], cell->fds[PROTO_FD_STDERR],
                                   cell->fds[PROTO_FD_CHANNEL], cell->fds[PROTO_FD_STDIN]};

    if (cell_own_pipes(cell, err) < 0)
        return err->code;
    cell_plan_go(supervisor, cell, &go);
    begin_run(cell);
    if (fd_send(cell->park_fd, &go, sizeof(go), fds, PARK_FDS_MAX - !cell->start.has_stdin) < 0)
        return err_errno(err, HUTCH_ERR_HELPER, errno, "wake the parked cell");
    return 0;
}

/* The interpreter has what it needs. Returns whether the cell is RUNNING; if not it
 * may be gone already. */
static bool begin_program(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    struct hutch_error err;

    begin_sampling(cell);
    if (cell->start.session && session_open(supervisor, cell, &err) < 0) {
        tell_failed(cell, &err);
        cell_abandon(supervisor, cell);
        return false;
    }
    cell_tell_started(supervisor, cell);
    return true;
}

static int limit_parked(const struct supervisor *supervisor, struct sandbox_cell *cell,
                        struct hutch_error *err)
{
    cell->max_processes = cell_limit_processes(supervisor, cell);
    const struct cgroup_limits limits = cell_cgroup_limits(cell);
    return cgroup_cell_limit(cell->cgroup, &limits, err);
}

/* Returns whether the cell is RUNNING; if not it may be gone already. */
static bool hand_over(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    struct hutch_error err;
    uint32_t missing = cell->start.require & ~cell->layers;

    if (missing != 0) {
        struct child_report report = {.step = CHILD_REQUIRE, .layers = missing};
        cell_report_error(cell, &report, &err);
        tell_failed(cell, &err);
        begin_close(supervisor, cell);
        return false;
    }
    if (cell_check_limits(&cell->start, &err) < 0 || limit_parked(supervisor, cell, &err) < 0 ||
        send_request(supervisor, cell, &err) < 0) {
        fail(supervisor, cell, &err);
        return false;
    }
    supervisor_close(supervisor, &cell->park_fd);
    cell_pass_files(cell, 0);
    cell_close_handed_on(cell);
    return begin_program(supervisor, cell);
}

/* ---- events ------------------------------------------------------------ */

/* Takes one report of the children. False when there is none: *ret_end says
 * whether more can come, which ends when both have exec'd, or died. */
static bool take_report(struct sandbox_cell *cell, bool *ret_end)
{
    struct child_report report;
    ssize_t count = read(cell->report_fd, &report, sizeof(report));

    *ret_end = count == 0;
    if (count != (ssize_t)sizeof(report))
        return false;
    if (report.step == CHILD_READY) {
        cell->layers = report.layers;
        if (!cell_parks(cell)) /* else its time begins with the request */
            begin_run(cell);
    } else if (cell->error.code == 0)
        cell_report_error(cell, &report, &cell->error);
    return true;
}

/* What making the cell has taken is not the program's. */
static void note_use(struct sandbox_cell *cell)
{
    struct cgroup_usage usage;

    cgroup_cell_usage(cell->cgroup, &usage);
    cell->cpu_before_ns = usage.cpu_ns;
}

/* Without a memory cgroup. Not of a zygote: under it are the cells of others. */
static void begin_sampling(struct sandbox_cell *cell)
{
    struct hutch_error ignored; /* the cell is ending already */

    if ((cell->layers & HUTCH_LAYER_CGROUP_MEMORY) || cell->init_pidfd < 0 || cell->zygote_of)
        return;
    if (sample_open(cell->init_pid, &cell->sampler, &ignored) == 0)
        cell->sample_ns = clock_now_ns();
}

bool cell_take_reports(struct sandbox_cell *cell)
{
    bool end = false;

    while (cell->report_fd >= 0 && take_report(cell, &end)) {
    }
    return !end;
}

/* Of a pool's cell everything is there: its process is known, it has reported, and
 * waits. */
static bool enter_pool(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    note_use(cell);
    cell->deadline_ns = NO_DEADLINE;
    cell->state = CELL_PARKED;
    return pool_add(supervisor, cell);
}

/* STARTING is over: the interpreter was exec'd, or something failed. Returns
 * whether the cell is RUNNING or PARKED; if not it may be gone already. */
static bool conclude_start(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    supervisor_close(supervisor, &cell->report_fd);
    if (cell->is_ordered) /* the zygote tells which process it is; then on */
        return true;
    if (cell->error.code == 0 && cell->layers == 0)
        cell->end == PROTO_END_TIMEOUT
            ? err_set(&cell->error, HUTCH_ERR_BUSY, "the cell was not ready within 30 seconds")
            : err_set(&cell->error, HUTCH_ERR_ISOLATION, "the cell died while it was made");
    if (cell->error.code != 0) {
        fail(supervisor, cell, &cell->error);
        return false;
    }
    if (cell->pool && cell->is_ready)
        return enter_pool(supervisor, cell);
    if (cell->pool) { /* handle_park goes on */
        cell->deadline_ns = clock_after_ns(PARK_LIMIT_NS);
        return true;
    }
    if (cell->zygote) {
        note_use(cell);
        return hand_over(supervisor, cell);
    }
    return begin_program(supervisor, cell);
}

/* The interpreter of a pool's cell says that it is ready. */
static void handle_park(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    struct park_ready ready;
    ssize_t count = recv(cell->park_fd, &ready, sizeof(ready), MSG_DONTWAIT | MSG_TRUNC);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count != (ssize_t)sizeof(ready) || cell->state != CELL_STARTING || !cell->pool ||
        cell->is_ready) { /* it has ended, or is not what we made */
        cell_abandon(supervisor, cell);
        return;
    }
    supervisor_unwatch(supervisor, cell->park_fd);
    pool_log(supervisor, cell, ready.log, strnlen(ready.log, sizeof(ready.log)));
    cell->is_ready = true;
    /* It may have been faster than what tells of it. */
    if (cell->report_fd < 0 && !cell->is_ordered)
        IGNORE_RESULT(!enter_pool(supervisor, cell));
}

static void handle_report(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    if (cell_take_reports(cell))
        return;
    if (cell->session)
        session_conclude_launch(supervisor, cell);
    else
        conclude_start(supervisor, cell);
}

static bool take_order(struct supervisor *supervisor, struct sandbox_cell *cell,
                       const struct proto_order *order, int *fds, size_t fd_count)
{
    if (cell->session)
        return session_take_order(supervisor, cell, order, fds, fd_count);
    if (order->type == PROTO_FILES && cell->state == CELL_SERVING) {
        cell->fds[PROTO_FD_FILES] = TAKE_FD(fds[0]);
        cell_pass_files(cell, order->link);
        return true;
    }
    if (order->type != PROTO_STOP)
        return false;
    if (cell->state != CELL_SERVING) /* else it has ended by itself meanwhile */
        cell_stop_program(cell, (enum proto_end)order->end);
    return true;
}

static void handle_message(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    struct proto_order order;
    int fds[PROTO_ORDER_FDS_MAX] = {-1, -1, -1};
    size_t fd_count = PROTO_ORDER_FDS_MAX;

    ssize_t count = fd_receive(cell->event_fd, &order, sizeof(order), fds, &fd_count);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0 || !proto_is_order(&order, (size_t)count, fd_count) ||
        !take_order(supervisor, cell, &order, fds, fd_count)) {
        for (size_t i = 0; i < fd_count; i++)
            fd_close(&fds[i]);
        cell_abandon(supervisor, cell);
    }
}

/* PID 1 dies only by our hand, so one that is dying now was killed from
 * outside, and took the interpreter along. The kernel says so before PID 1 can
 * be waited for, which is not before we have reaped the interpreter. */
static bool init_is_dying(const struct sandbox_cell *cell)
{
    char path[32];
    auto_buf struct buf text = BUF_MAX(4096);
    struct hutch_error ignored;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)cell->init_pid);
    if (buf_read_file(&text, AT_FDCWD, path, &ignored) < 0)
        return true;
    return proc_text_is_exiting(buf_text(&text));
}

/* What the interpreter and the children that it waited for used: all that can
 * be known without a cgroup. */
static uint64_t cpu_ns_of(const struct rusage *usage)
{
    return ((uint64_t)usage->ru_utime.tv_sec + (uint64_t)usage->ru_stime.tv_sec) * NS_PER_SECOND +
           ((uint64_t)usage->ru_utime.tv_usec + (uint64_t)usage->ru_stime.tv_usec) * 1000;
}

/* The interpreter is dead, what it started is not yet: a limit that it has just
 * run into may show only now. */
static void count_processes(struct sandbox_cell *cell)
{
    if (cell->sampler.proc_fd < 0)
        return;
    uint32_t processes = sample_take(&cell->sampler, UINT64_MAX).processes + 1;
    if (processes > cell->peak.processes)
        cell->peak.processes = processes;
}

/* Whether the limit of processes was run into, where no cgroup counts that. A look
 * seldom meets the one moment at which all are there, as those that are refused
 * another end at once; so close to the limit counts. What the program says of its
 * end has to speak of it too, see outcome.c. */
static bool saw_process_limit(const struct sandbox_cell *cell)
{
    uint32_t limit = cell->start.max_processes;
    return cell->peak.processes > limit - limit / 8;
}

static struct cgroup_usage usage_of(const struct sandbox_cell *cell, const struct rusage *waited)
{
    struct cgroup_usage usage;

    cgroup_cell_usage(cell->cgroup, &usage);
    usage.cpu_ns -= usage.cpu_ns > cell->cpu_before_ns ? cell->cpu_before_ns : usage.cpu_ns;
    if (cell->session)
        session_subtract_usage(cell->session, &usage);
    if (usage.cpu_ns == 0)
        usage.cpu_ns = cpu_ns_of(waited);
    if (usage.peak_memory_bytes == 0) {
        /* Of the largest process, which may have been so between two looks. */
        uint64_t largest = KIB((uint64_t)waited->ru_maxrss);
        uint64_t seen = cell->peak.memory_bytes;
        usage.peak_memory_bytes = seen > largest ? seen : largest;
    }
    if (usage.pids_max_hits == 0 && saw_process_limit(cell))
        usage.pids_max_hits = 1;
    return usage;
}

/* Whether the kernel took memory back by killing, while the cell was far from its
 * own limit: the host has no more, or a group above. */
static bool host_ran_out(const struct sandbox_cell *cell, const struct cgroup_usage *usage)
{
    uint64_t limit = cell->start.memory_bytes;

    return usage->oom_kills > 0 && usage->peak_memory_bytes != 0 &&
           usage->peak_memory_bytes < limit - limit / 8;
}

/* Keeps hutch-init, and nobody else, where there are files that the engine may want. Those
 * of a cell without memory have no one to give them. */
static bool serve(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    if (cell->session)
        return false;
    cell_note_disk(cell);
    if (cell->end == PROTO_END_MEMORY || cell->start.kind != PROTO_RUN || cell->event_fd < 0 ||
        cell->init_pidfd < 0 || !(cell->made_files || cell->start.has_files) ||
        cell_attend(cell, WIRE_ATTEND_END, -1) < 0)
        return false;
    note_end(supervisor, cell);
    cell->state = CELL_SERVING;
    cell->sample_ns = NO_DEADLINE;
    cell->deadline_ns = clock_after_ns(SERVE_LIMIT_NS);
    return true;
}

static struct proto_event describe_exit(struct supervisor *supervisor, struct sandbox_cell *cell,
                                        int status, const struct cgroup_usage *usage)
{
    uint64_t end_ns = clock_now_ns();
    if (cell->end == PROTO_END_EXIT && usage->oom_kills > 0 && WIFSIGNALED(status))
        cell->end = PROTO_END_MEMORY;
    return (struct proto_event){
        .type = PROTO_EXITED,
        .end = cell->end,
        .files = serve(supervisor, cell),
        .wait_status = status,
        .duration_ns = end_ns - cell->begin_ns,
        .cpu_ns = usage->cpu_ns,
        .peak_memory_bytes = usage->peak_memory_bytes,
        .oom_kills = usage->oom_kills,
        .process_limit_hits = usage->pids_max_hits,
    };
}

static void handle_run_exit(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    int status = 0;
    struct rusage waited;

    if (cell->session && cell->session->promoted) { /* no child of ours */
        supervisor_close(supervisor, &cell->run_pidfd);
        session_take_death(supervisor, cell);
        return;
    }
    if (!reap(supervisor, &cell->run_pidfd, &status, &waited))
        return;
    if (cell->zygote_of) {
        zygote_lose(supervisor, cell->zygote_of);
        return;
    }
    if (cell->pool) {
        cell_abandon(supervisor, cell);
        return;
    }
    if (cell->state == CELL_STARTING) {
        /* A short program may end before hutch-init is exec'd, which still has
         * the pipe open. But the program's process is dead: what it had to
         * report is there. */
        cell_take_reports(cell);
        if (!conclude_start(supervisor, cell))
            return;
    }
    cell_conclude_run(supervisor, cell, status, &waited);
}

void cell_conclude_run(struct supervisor *supervisor, struct sandbox_cell *cell, int status,
                       const struct rusage *waited)
{
    count_processes(cell);
    struct cgroup_usage usage = usage_of(cell, waited);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    /* A v2 group that runs out of memory takes PID 1 along: no outside hand. */
    if (killed && host_ran_out(cell, &usage)) {
        struct proto_event event = {.type = PROTO_LOST};
        err_set(&event.error, HUTCH_ERR_NO_MEMORY,
                "the host, or a cgroup above the cell's, has no memory left, and the kernel killed "
                "the program");
        cell_tell(cell, &event);
    } else if (killed && cell->end == PROTO_END_EXIT && usage.oom_kills == 0 &&
               init_is_dying(cell)) {
        struct proto_event event = {.type = PROTO_LOST};
        err_set(&event.error, HUTCH_ERR_HELPER, "hutch-init was killed from outside the cell");
        cell_tell(cell, &event);
    } else {
        struct proto_event event = describe_exit(supervisor, cell, status, &usage);
        if (cell->session) {
            session_lose_interpreter(supervisor, cell, &event);
            return;
        }
        cell_tell(cell, &event);
    }
    if (cell->state != CELL_SERVING)
        begin_close(supervisor, cell);
}

static void handle_init_exit(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    if (reap(supervisor, &cell->init_pidfd, NULL, NULL) && cell->state == CELL_SERVING)
        cell_abandon(supervisor, cell);
}

static void handle_memory(struct sandbox_cell *cell)
{
    if (!cgroup_cell_take_oom(cell->cgroup) || cell->state == CELL_CLOSING)
        return;
    cell_stop_program(cell, PROTO_END_MEMORY);
}

void cell_handle(struct supervisor *supervisor, struct sandbox_cell *cell, enum watch_kind kind)
{
    switch (kind) {
    case WATCH_CELL_EVENTS:
        if (cell->event_fd >= 0)
            handle_message(supervisor, cell);
        break;
    case WATCH_CELL_REPORT:
        if (cell->report_fd >= 0)
            handle_report(supervisor, cell);
        break;
    case WATCH_CELL_RUN:
    case WATCH_CELL_INIT:
        if (cell->state == CELL_CLOSING)
            try_free(supervisor, cell, clock_now_ns());
        else if (kind == WATCH_CELL_INIT)
            handle_init_exit(supervisor, cell);
        else if (cell->run_pidfd >= 0)
            handle_run_exit(supervisor, cell);
        break;
    case WATCH_CELL_MEMORY:
        handle_memory(cell);
        break;
    case WATCH_CELL_PARK:
        if (cell->park_fd >= 0)
            handle_park(supervisor, cell);
        break;
    case WATCH_CELL_LIFELINE:
        if (cell->session)
            session_take_word(supervisor, cell);
        break;
    case WATCH_CELL_COPIES:
        if (cell->session)
            session_take_copies(supervisor, cell);
        break;
    case WATCH_ZYGOTE:
        if (cell->zygote_of)
            zygote_handle(supervisor, cell->zygote_of);
        break;
    case WATCH_ZYGOTE_LOG:
        if (cell->zygote_of)
            zygote_take_log(supervisor, cell->zygote_of);
        break;
    case WATCH_CONTROL:
    case WATCH_ENGINE:
    case WATCH_BUILD:
    case WATCH_DYING:
        break;
    }
}

/* ---- deadlines --------------------------------------------------------- */

static void tick_sample(struct sandbox_cell *cell)
{
    struct sample sample = sample_take(&cell->sampler, cell->start.memory_bytes);

    cell->sample_ns = clock_after_ns(SAMPLE_INTERVAL_NS);
    if (sample.memory_bytes > cell->peak.memory_bytes)
        cell->peak.memory_bytes = sample.memory_bytes;
    if (sample.processes > cell->peak.processes)
        cell->peak.processes = sample.processes;
    if (sample.memory_bytes > cell->start.memory_bytes && cell->end == PROTO_END_EXIT)
        cell_stop_program(cell, PROTO_END_MEMORY);
}

void cell_tick(struct supervisor *supervisor, struct sandbox_cell *cell, uint64_t now_ns)
{
    if (cell->state == CELL_CLOSING && cell->is_ordered && now_ns >= cell->close_deadline_ns) {
        zygote_lose(supervisor, cell->zygote); /* it does not answer */
        return;
    }
    if (cell->state == CELL_CLOSING) {
        try_free(supervisor, cell, now_ns);
        return;
    }
    if (now_ns >= cell->sample_ns)
        tick_sample(cell);
    if (cell->session) {
        session_tick(supervisor, cell, now_ns);
        return;
    }
    if (now_ns < cell->deadline_ns)
        return;
    /* Others are before it, and get their answers. */
    if (cell->is_ordered && now_ns < cell->zygote->stirred_ns + ZYGOTE_ANSWER_NS) {
        cell->deadline_ns = cell->zygote->stirred_ns + ZYGOTE_ANSWER_NS;
        return;
    }
    cell->deadline_ns = NO_DEADLINE;
    if (cell->state == CELL_SERVING) { /* the engine does not come, or takes too long */
        cell_abandon(supervisor, cell);
        return;
    }
    if (cell->is_ordered) { /* a zygote that does not answer */
        zygote_lose(supervisor, cell->zygote);
        return;
    }
    cell_stop_program(cell, PROTO_END_TIMEOUT);
}

uint64_t cell_next_tick(const struct sandbox_cell *cell)
{
    if (cell->state == CELL_CLOSING)
        return clock_after_ns(CLOSE_RETRY_NS);
    return clock_sooner_ns(cell->sample_ns,
                           cell->session ? session_next_tick(cell) : cell->deadline_ns);
}
