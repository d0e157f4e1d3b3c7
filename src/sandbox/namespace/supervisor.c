/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-supervisor: makes and ends cells for one engine.
 *
 *   engine --control socket--> supervisor --clone--> hutch-init   (PID 1 of a cell)
 *   engine --event socket----> (one a cell) --clone--> interpreter (in that cell)
 *
 * One thread, one epoll loop. It parses fixed frames of the engine and nothing
 * else: the code, its input and its output never pass through it. It owns what
 * is privileged and what must be true: namespaces, uids, cgroups, deadlines,
 * wait statuses.
 *
 * It ends when the control socket ends or the engine's pidfd says that the
 * process is gone. Whatever way it ends, its children get SIGKILL by
 * PR_SET_PDEATHSIG, and each hutch-init takes its cell along; the cgroups that
 * a killed supervisor leaves are swept by the next one (slots.h).
 */
#include "supervisor.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "cell.h"
#include "landlock.h"
#include "namespaces.h"
#include "pool.h"
#include "proc_text.h"
#include "process.h"
#include "runtime.h"
#include "scope.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define EVENTS_PER_ROUND 64
#define FILES_MIN 1024                   /* WIRE_CHANNEL_FD is a descriptor that cells need */
#define FILE_BYTES_MIN MIB(128)          /* the largest file of a tree, and more */
#define SWEEP_AGAIN_NS NS_PER_SECOND     /* where processes of a dead one were still dying */
#define END_LIMIT_NS (4 * NS_PER_SECOND) /* for taking all cells down at the end */

int supervisor_watch(struct supervisor *supervisor, int fd, enum watch_kind kind, size_t index,
                     struct hutch_error *err)
{
    struct epoll_event event = {
        .events = EPOLLIN,
        .data.u64 = (uint64_t)index << 8 | (uint64_t)kind,
    };
    if (epoll_ctl(supervisor->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "watch a descriptor");
    return 0;
}

void supervisor_unwatch(struct supervisor *supervisor, int fd)
{
    epoll_ctl(supervisor->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void supervisor_close(struct supervisor *supervisor, int *fd)
{
    if (*fd >= 0)
        supervisor_unwatch(supervisor, *fd);
    fd_close(fd);
}

void supervisor_bury(struct supervisor *supervisor, int *pidfd)
{
    struct hutch_error ignored;

    if (*pidfd >= 0 && !process_reap(*pidfd, NULL, NULL) &&
        supervisor_watch(supervisor, *pidfd, WATCH_DYING, (size_t)*pidfd, &ignored) == 0)
        *pidfd = -1;
    fd_close(pidfd);
}

static void handle_dying(struct supervisor *supervisor, int pidfd)
{
    if (process_reap(pidfd, NULL, NULL))
        supervisor_close(supervisor, &pidfd);
}

/* ---- starting ---------------------------------------------------------- */

/* With too few descriptors a start packet would arrive without its own. */
static int limit_cells(struct supervisor *supervisor, struct hutch_error *err)
{
    struct rlimit files, size;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || getrlimit(RLIMIT_FSIZE, &size) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read the own limits");
    if (files.rlim_max < FILES_MIN)
        return err_set(err, HUTCH_ERR_SYSTEM,
                       "open files are limited to %ju, hutch-supervisor needs %d: raise ulimit -Hn",
                       (uintmax_t)files.rlim_max, FILES_MIN);
    if (size.rlim_max < FILE_BYTES_MIN)
        return err_set(err, HUTCH_ERR_SYSTEM,
                       "files are limited to %ju bytes, hutch-supervisor needs %ju: raise ulimit "
                       "-Hf",
                       (uintmax_t)size.rlim_max, (uintmax_t)FILE_BYTES_MIN);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    size.rlim_cur = size.rlim_max;
    setrlimit(RLIMIT_FSIZE, &size);
    uint64_t cells = (files.rlim_max - LIMIT_SUPERVISOR_FILES) / LIMIT_CELL_FILES;
    supervisor->cell_limit = cells < LIMIT_CELLS ? (size_t)cells : LIMIT_CELLS;
    return 0;
}

/* The C library keeps two signals to itself, which posix_spawn does not reset:
 * an engine that was started with them ignored would hand that on to cells. */
static void reset_library_signals(void)
{
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } by_default = {0};

    for (int number = 32; number < SIGRTMIN; number++)
        syscall(SYS_rt_sigaction, number, &by_default, NULL, sizeof(by_default.mask));
}

/* An ordinary user is master of a user namespace of its own: in there the rest
 * goes the same way as for root, but for what only the host can give. */
static int enter_user_namespace(struct hutch_error *err)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    char uid_map[48], gid_map[48];
    const struct {
        const char *path, *text;
    } files[] = {
        {"/proc/self/setgroups", "deny"},
        {"/proc/self/uid_map", uid_map},
        {"/proc/self/gid_map", gid_map},
    };

    snprintf(uid_map, sizeof(uid_map), "%u %u 1\n", uid, uid);
    snprintf(gid_map, sizeof(gid_map), "%u %u 1\n", gid, gid);
    if (unshare(CLONE_NEWUSER) < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "make a user namespace");
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        if (fd_write_file(files[i].path, files[i].text) < 0)
            return err_errno(err, HUTCH_ERR_ISOLATION, errno, "write '%s'", files[i].path);
    }
    return 0;
}

/* Root in name only, as in many containers, is an ordinary user to us. */
static int find_privilege(struct supervisor *supervisor, struct hutch_error *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {{0}};
    const uint32_t needed = 1u << CAP_SYS_ADMIN | 1u << CAP_SETUID | 1u << CAP_SETGID;

    if (syscall(SYS_capget, &header, sets) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read the own capabilities");
    supervisor->is_root = geteuid() == 0 && (sets[0].effective & needed) == needed;
    return 0;
}

/* Whether uid 0 is the host's root. */
static bool uid_0_is_root(void)
{
    auto_buf struct buf map = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    struct hutch_error ignored;

    if (buf_read_file(&map, AT_FDCWD, "/proc/self/uid_map", &ignored) < 0)
        return true;
    return proc_text_uid_0_is_root(buf_text(&map));
}

/* A mount namespace of our own, so that nothing we mount reaches the host. */
static int enter_mount_namespace(struct hutch_error *err)
{
    if (unshare(CLONE_NEWNS) < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "make the supervisor's mount namespace");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "make the supervisor's mounts private");
    return 0;
}

static int find_cpus(struct supervisor *supervisor, struct hutch_error *err)
{
    if (sched_getaffinity(0, sizeof(supervisor->cpus), &supervisor->cpus) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read the allowed processors");
    supervisor->cpu_count = (unsigned)CPU_COUNT(&supervisor->cpus);
    return 0;
}

static int open_host(struct supervisor *supervisor, struct hutch_error *err)
{
    if (chdir("/") < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "leave the working folder");
    if (find_privilege(supervisor, err) < 0)
        return err->code;
    supervisor->uid_0_is_root = uid_0_is_root();
    if (!supervisor->is_root && enter_user_namespace(err) < 0)
        return err->code;
    if (find_cpus(supervisor, err) < 0 || enter_mount_namespace(err) < 0)
        return err->code;
    supervisor->pid_ns_fd = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    supervisor->mount_ns_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (supervisor->pid_ns_fd < 0 || supervisor->mount_ns_fd < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "open the own namespaces");
    supervisor->can_step = setns(supervisor->pid_ns_fd, CLONE_NEWPID) == 0;
    supervisor->landlock_abi = landlock_abi();
    return 0;
}

/* uids and cgroups, after cleaning up behind supervisors that were killed. */
static int open_resources(struct supervisor *supervisor, const char *uid_base,
                          const char *uid_count, struct hutch_error *err)
{
    uint64_t base, count;
    const char *named = supervisor->cgroup_parent[0] ? supervisor->cgroup_parent : NULL;
    const char *parent = supervisor->scope[0] ? supervisor->scope : named;

    if (parse_u64(uid_base, 0, UINT32_MAX, &base, err) < 0 ||
        parse_u64(uid_count, 0, UINT32_MAX, &count, err) < 0)
        return err->code;
    supervisor->run_dir = slots_run_dir_open(NULL, err);
    if (supervisor->run_dir < 0)
        return err->code;
    int left = slots_sweep(supervisor->run_dir, err);
    if (left < 0)
        return err->code;
    supervisor->sweep_ns = left > 0 ? clock_after_ns(SWEEP_AGAIN_NS) : NO_DEADLINE;
    if (slots_open(supervisor->run_dir, (uint32_t)base, (uint32_t)count, NULL, &supervisor->slots,
                   err) < 0 ||
        slots_record_create(supervisor->run_dir, &supervisor->record, err) < 0 ||
        cgroup_host_open(&supervisor->record, parent, NULL, &supervisor->cgroups, err) < 0)
        return err->code;
    if (named && supervisor->cgroups->count == 0)
        return err_set(err, HUTCH_ERR_INVALID, "cgroup: '%.80s' cannot be used: %.100s", named,
                       supervisor->cgroups->status[CGROUP_MEMORY].reason);
    return 0;
}

static int open_loop(struct supervisor *supervisor, struct hutch_error *err)
{
    supervisor->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (supervisor->epoll_fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make the event loop");
    if (fcntl(PROTO_CONTROL_FD, F_SETFD, FD_CLOEXEC) < 0 ||
        fcntl(PROTO_ENGINE_PIDFD, F_SETFD, FD_CLOEXEC) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "find the engine's descriptors");
    supervisor->control_fd = PROTO_CONTROL_FD;
    if (supervisor_watch(supervisor, PROTO_CONTROL_FD, WATCH_CONTROL, 0, err) < 0 ||
        supervisor_watch(supervisor, PROTO_ENGINE_PIDFD, WATCH_ENGINE, 0, err) < 0)
        return err->code;
    return 0;
}

/* ---- the loop ---------------------------------------------------------- */

static void abandon_all(struct supervisor *supervisor)
{
    supervisor_close(supervisor, &supervisor->control_fd);
    for (size_t i = 0; i < LIMIT_CELLS; i++) {
        if (supervisor->cells[i])
            cell_abandon(supervisor, supervisor->cells[i]);
    }
}

static void handle_control(struct supervisor *supervisor)
{
    struct proto_start start;
    int fds[PROTO_FDS_MAX];
    size_t fd_count = PROTO_FDS_MAX;

    if (supervisor->control_fd < 0)
        return;
    ssize_t count = fd_receive(supervisor->control_fd, &start, sizeof(start), fds, &fd_count);
    if (count < 0 && errno == EMSGSIZE)
        return;
    if (count <= 0)
        abandon_all(supervisor);
    else
        cell_create(supervisor, &start, (size_t)count, fds, fd_count);
}

static void handle_build(struct supervisor *supervisor, size_t index)
{
    struct hutch_error error;
    struct runtime *runtime = &supervisor->runtimes[index];
    if (runtime->build_fd < 0)
        return;
    int code = runtime_finish(supervisor, runtime, &error);

    for (size_t i = 0; i < LIMIT_CELLS; i++) {
        struct sandbox_cell *cell = supervisor->cells[i];
        if (cell && cell->state == CELL_WAITING && cell->start.language == runtime->language)
            cell_continue(supervisor, cell, code < 0 ? &error : NULL);
    }
}

static void handle_event(struct supervisor *supervisor, uint64_t tag)
{
    enum watch_kind kind = (enum watch_kind)(tag & 0xff);
    size_t index = tag >> 8;

    switch (kind) {
    case WATCH_CONTROL:
        handle_control(supervisor);
        break;
    case WATCH_ENGINE:
        supervisor_unwatch(supervisor, PROTO_ENGINE_PIDFD);
        abandon_all(supervisor);
        break;
    case WATCH_BUILD:
        handle_build(supervisor, index);
        break;
    case WATCH_CELL_EVENTS:
    case WATCH_CELL_REPORT:
    case WATCH_CELL_RUN:
    case WATCH_CELL_INIT:
    case WATCH_CELL_MEMORY:
    case WATCH_CELL_PARK:
    case WATCH_CELL_LIFELINE:
    case WATCH_CELL_COPIES:
    case WATCH_ZYGOTE:
    case WATCH_ZYGOTE_LOG:
        if (supervisor->cells[index])
            cell_handle(supervisor, supervisor->cells[index], kind);
        break;
    case WATCH_DYING:
        handle_dying(supervisor, (int)index);
        break;
    }
}

static uint64_t tick_cells(struct supervisor *supervisor)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t next_ns = NO_DEADLINE;

    /* A cell may take another along when it goes, and another may come for it. */
    for (size_t i = 0; i < LIMIT_CELLS; i++) {
        if (!supervisor->cells[i])
            continue;
        cell_tick(supervisor, supervisor->cells[i], now_ns);
        if (supervisor->cells[i]) {
            next_ns = clock_sooner_ns(next_ns, cell_next_tick(supervisor->cells[i]));
        }
    }
    return next_ns;
}

/* What the sweep at the start had to leave; returns when to come again. */
static uint64_t tick_sweep(struct supervisor *supervisor)
{
    struct hutch_error ignored;

    if (clock_now_ns() >= supervisor->sweep_ns)
        supervisor->sweep_ns = slots_sweep(supervisor->run_dir, &ignored) > 0
                                   ? clock_after_ns(SWEEP_AGAIN_NS)
                                   : NO_DEADLINE;
    return supervisor->sweep_ns;
}

static void run_loop(struct supervisor *supervisor)
{
    uint64_t end_ns = NO_DEADLINE; /* once the engine is gone */

    for (;;) {
        uint64_t next_ns = pool_tick(supervisor); /* first: it makes and ends cells */
        next_ns = clock_sooner_ns(next_ns, zygote_reap_strays(supervisor));
        next_ns = clock_sooner_ns(next_ns, tick_cells(supervisor));
        next_ns = clock_sooner_ns(next_ns, tick_sweep(supervisor));
        if (supervisor->control_fd < 0) {
            if (end_ns == NO_DEADLINE)
                end_ns = clock_after_ns(END_LIMIT_NS);
            if (supervisor->cell_count == 0 || clock_now_ns() >= end_ns)
                return;
            next_ns = clock_sooner_ns(next_ns, end_ns);
        }
        struct epoll_event events[EVENTS_PER_ROUND];
        int count =
            epoll_wait(supervisor->epoll_fd, events, EVENTS_PER_ROUND, clock_poll_timeout(next_ns));
        for (int i = 0; i < count; i++)
            handle_event(supervisor, events[i].data.u64);
    }
}

/* A supervisor that replaced a killed one does not leave before its cells, which
 * may still be dying, are swept; for two seconds at most. */
static void finish_sweep(struct supervisor *supervisor)
{
    uint64_t end_ns = clock_after_ns(2 * NS_PER_SECOND);
    struct hutch_error ignored;

    if (supervisor->sweep_ns == NO_DEADLINE)
        return;
    while (slots_sweep(supervisor->run_dir, &ignored) > 0 && clock_now_ns() < end_ns)
        fd_wait(-1, 0, clock_after_ns(20 * NS_PER_MS));
}

/* ---- main -------------------------------------------------------------- */

static int read_warmth(struct supervisor *supervisor, char **argv, struct hutch_error *err)
{
    uint64_t warmth, parked;

    if (parse_u64(argv[PROTO_ARG_WARMTH], 0, HUTCH_COLD, &warmth, err) < 0 ||
        parse_u64(argv[PROTO_ARG_PARKED], 0, LIMIT_PARKED_CELLS, &parked, err) < 0)
        return err->code;
    supervisor->warmth = (enum hutch_warmth)warmth;
    supervisor->parked_cells = parked;
    supervisor->zygotes_are_owners = strcmp(argv[PROTO_ARG_OWNERS], "yes") == 0;
    supervisor->runtimes[PROTO_PYTHON].preload = argv[PROTO_ARG_PRELOAD];
    return 0;
}

static int start(struct supervisor *supervisor, char **argv, struct hutch_error *err)
{
    struct hutch_error ignored;

    supervisor->helper_dir = argv[PROTO_ARG_HELPER_DIR];
    supervisor->cache_dir = argv[PROTO_ARG_CACHE_DIR];
    supervisor->cgroup_parent = argv[PROTO_ARG_CGROUP];
    runtime_init(&supervisor->runtimes[PROTO_PYTHON], PROTO_PYTHON, argv[PROTO_ARG_PYTHON]);
    runtime_init(&supervisor->runtimes[PROTO_SHELL], PROTO_SHELL, argv[PROTO_ARG_BASH]);
    runtime_init(&supervisor->runtimes[PROTO_JAVASCRIPT], PROTO_JAVASCRIPT, argv[PROTO_ARG_NODE]);
    /* A scope that cannot be used leaves the host's cgroups, like no scope. */
    if (strcmp(argv[PROTO_ARG_IN_SCOPE], "yes") == 0)
        IGNORE_RESULT(scope_enter(supervisor->scope, sizeof(supervisor->scope), &ignored));
    if (limit_cells(supervisor, err) < 0 || open_loop(supervisor, err) < 0 ||
        open_host(supervisor, err) < 0 ||
        open_resources(supervisor, argv[PROTO_ARG_UID_BASE], argv[PROTO_ARG_UID_COUNT], err) < 0)
        return err->code;
    namespaces_assume(supervisor);
    return read_warmth(supervisor, argv, err);
}

int main(int argc, char **argv)
{
    struct proto_hello hello = {.version = PROTO_VERSION};
    struct supervisor *supervisor = calloc(1, sizeof(*supervisor));

    if (!supervisor) {
        err_set(&hello.error, HUTCH_ERR_NO_MEMORY, "no memory for hutch-supervisor");
        IGNORE_RESULT(send(PROTO_CONTROL_FD, &hello, sizeof(hello), MSG_NOSIGNAL) < 0);
        return 1;
    }
    supervisor->record = SLOTS_RECORD_NONE;
    prctl(PR_SET_NAME, "hutch-superv");
    reset_library_signals();
    umask(022);
    /* Another version may pass others: it shall read ours in the hello. */
    int code = argc == PROTO_ARG_END ? start(supervisor, argv, &hello.error)
                                     : err_set(&hello.error, HUTCH_ERR_HELPER,
                                               "hutch-supervisor got %d arguments", argc - 1);
    if (code == 0)
        memset(&hello.error, 0, sizeof(hello.error));
    memcpy(hello.scope, supervisor->scope, sizeof(hello.scope));
    bool told = send(PROTO_CONTROL_FD, &hello, sizeof(hello), MSG_NOSIGNAL) > 0;
    if (told && code == 0) {
        run_loop(supervisor);
        finish_sweep(supervisor);
    }
    bool all_gone = cgroup_host_close(supervisor->cgroups);
    slots_record_close(&supervisor->record, all_gone);
    slots_close(supervisor->slots);
    return code < 0;
}
