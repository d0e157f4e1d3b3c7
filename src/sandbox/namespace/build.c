/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a cell: the plan, the cgroup, the uid, and the two children of
 * plan.h. Everything that needs memory or privilege happens here, before
 * clone; what is left for the children is a walk through the plan.
 */
#include "cell.h"

#include "base/clock.h"
#include "base/fd.h"
#include "kernel.h"
#include "maker.h"
#include "namespaces.h"
#include "process.h"
#include "runtime.h"
#include "sandbox/layers.h"
#include "tree_tables.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define CPU_QUOTA_PERIOD 1000u /* cpu_millis of one processor */
#define OPEN_FILES 4096
#define STACK_BYTES MIB(8)
#define STACK_BYTES_MAX MIB(64)
#define INODES_PER_CELL 65536
#define MESSENGER_LIMIT_NS (10 * NS_PER_SECOND)
#define NODE_THREADS 6 /* two of node and four of libuv; --v8-pool-size comes to it */

/* Descriptors of one build; the end of the build closes them, whatever the
 * children still hold. */
struct build {
    struct cell_plan plan;
    int report[2], ready[2], mapped[2], attendant[2];
    int park[2];
    struct id_maps maps;
};

/* A pid is that of the host. */
struct messenger_answer {
    pid_t pid;
    int error;
};

static void build_done(struct build *build)
{
    int *const fds[] = {
        &build->report[0], &build->report[1], &build->ready[0],     &build->ready[1],
        &build->mapped[0], &build->mapped[1], &build->attendant[0], &build->attendant[1],
        &build->park[0],   &build->park[1],
    };
    for (size_t i = 0; i < ARRAY_LENGTH(fds); i++)
        fd_close(fds[i]);
    for (size_t i = 0; i < PLAN_NS_COUNT; i++)
        fd_close(&build->plan.ns_fds[i]);
}

/* ---- the plan ---------------------------------------------------------- */

static unsigned count_cpus(const struct supervisor *supervisor, const struct sandbox_cell *cell)
{
    unsigned want = (cell->start.cpu_millis + CPU_QUOTA_PERIOD - 1) / CPU_QUOTA_PERIOD;
    return want < supervisor->cpu_count ? want : supervisor->cpu_count;
}

/* Threads that node starts for itself, whatever the program does, are not on the
 * program's account. */
uint32_t cell_limit_processes(const struct supervisor *supervisor, const struct sandbox_cell *cell)
{
    uint32_t limit = cell->start.max_processes;
    if (cell->start.language == PROTO_JAVASCRIPT)
        limit += NODE_THREADS + count_cpus(supervisor, cell);
    return limit;
}

/* The least used processors, so that cells of one processor each do not share
 * one while another is idle. */
static void choose_cpus(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    unsigned want = count_cpus(supervisor, cell);
    for (unsigned taken = 0; taken < want; taken++) {
        unsigned best = CPU_SETSIZE;
        for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!CPU_ISSET(cpu, &supervisor->cpus) || CPU_ISSET(cpu, &cell->cpus))
                continue;
            if (best == CPU_SETSIZE || supervisor->cpu_load[cpu] < supervisor->cpu_load[best])
                best = cpu;
        }
        CPU_SET(best, &cell->cpus);
        supervisor->cpu_load[best]++;
    }
}

/* Which processors the interpreters took that had the choice. */
static void settle_cpus(struct supervisor *supervisor)
{
    for (size_t i = 0, seen = 0; i < LIMIT_CELLS && seen < supervisor->cell_count; i++) {
        struct sandbox_cell *cell = supervisor->cells[i];
        cpu_set_t taken;
        seen += cell != NULL;
        if (!cell || cell->state != CELL_RUNNING || CPU_COUNT(&cell->offered_cpus) == 0 ||
            sched_getaffinity(cell->run_pid, sizeof(taken), &taken) < 0)
            continue;
        CPU_AND(&taken, &taken, &cell->offered_cpus);
        if (CPU_COUNT(&taken) != 1)
            continue;
        cell->cpus = taken;
        CPU_ZERO(&cell->offered_cpus);
        for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
            supervisor->cpu_load[cpu] += CPU_ISSET(cpu, &taken) != 0;
    }
}

/* All of the least used processors: an interpreter that is there already should not
 * have to move to another one that is as good. */
static void offer_cpus(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    unsigned least = UINT_MAX;

    settle_cpus(supervisor);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &supervisor->cpus) || supervisor->cpu_load[cpu] > least)
            continue;
        if (supervisor->cpu_load[cpu] < least)
            CPU_ZERO(&cell->offered_cpus);
        least = supervisor->cpu_load[cpu];
        CPU_SET(cpu, &cell->offered_cpus);
    }
}

int cell_check_limits(const struct proto_start *start, struct hutch_error *err)
{
    /* node takes address space by the gigabyte, whatever memory it uses. */
    bool is_node = start->language == PROTO_JAVASCRIPT;
    const struct {
        __rlimit_resource_t resource;
        rlim_t needed;
        const char *what, *option, *field;
    } limits[] = {
        {RLIMIT_AS, is_node ? RLIM_INFINITY : start->memory_bytes, "address space", "v",
         "memory_mb"},
        {RLIMIT_DATA, start->memory_bytes, "data", "d", "memory_mb"},
        {RLIMIT_FSIZE, start->disk_bytes, "file size", "f", "disk_mb"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(limits); i++) {
        struct rlimit own;
        if (getrlimit(limits[i].resource, &own) == 0 && own.rlim_max < limits[i].needed)
            return err_set(err, HUTCH_ERR_SYSTEM,
                           "hutch itself is limited to %ju MB of %s, which is less than %s of the "
                           "request needs: raise ulimit -H%s",
                           (uintmax_t)own.rlim_max >> 20, limits[i].what, limits[i].field,
                           limits[i].option);
    }
    return 0;
}

/* A limit can be no higher than it is, but for CAP_SYS_RESOURCE, which even
 * root may lack. */
static void clip_rlimits(struct plan_rlimit *rlimits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct rlimit own;
        struct rlimit *limit = &rlimits[i].limit;
        if (getrlimit((__rlimit_resource_t)rlimits[i].resource, &own) < 0)
            continue;
        limit->rlim_max = limit->rlim_max < own.rlim_max ? limit->rlim_max : own.rlim_max;
        limit->rlim_cur = limit->rlim_cur < limit->rlim_max ? limit->rlim_cur : limit->rlim_max;
    }
}

/* The limits that come from the request. */
static void request_rlimits(const struct sandbox_cell *cell,
                            struct plan_rlimit rlimits[PARK_RLIMITS])
{
    const struct proto_start *start = &cell->start;
    bool processes_by_cgroup = (cell->layers & HUTCH_LAYER_CGROUP_PIDS) != 0;
    bool memory_by_cgroup = (cell->layers & HUTCH_LAYER_CGROUP_MEMORY) != 0;
    /* Whole seconds, and late enough that the wall clock speaks first. */
    rlim_t cpu = start->timeout_ns / NS_PER_MS * start->cpu_millis / CPU_QUOTA_PERIOD / 1000 + 2;
    /* The kernel asks this limit before the cgroup, which alone counts how
     * often it was met: so the cgroup, where there is one, has to be lower. */
    rlim_t processes = cell->max_processes + 1 + (processes_by_cgroup ? 16 : 0);
    /* Of node from 24 on each thread maps 512 MiB for code as if it used them. */
    bool limit_data = !memory_by_cgroup && start->language != PROTO_JAVASCRIPT;
    rlim_t data = limit_data ? start->memory_bytes : RLIM_INFINITY;

    rlimits[0] = (struct plan_rlimit){RLIMIT_CPU, 0, {cpu, cpu + 1}};
    if (start->session) /* it would count all execs together; each has its time */
        rlimits[0].limit = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    rlimits[1] = (struct plan_rlimit){RLIMIT_NPROC, 0, {processes, processes}};
    rlimits[2] = (struct plan_rlimit){RLIMIT_DATA, 0, {data, data}};
    clip_rlimits(rlimits, PARK_RLIMITS);
}

static void plan_rlimits(struct cell_plan *plan, const struct sandbox_cell *cell)
{
    static const struct plan_rlimit fixed[] = {
        /* Not 0: the kernel ignores that where a core handler is a pipe, and
         * starts the handler, a root process of the host, on a core that the
         * cell controls. At 1 it starts none. */
        {RLIMIT_CORE, 0, {1, 1}},
        {RLIMIT_NOFILE, 0, {OPEN_FILES, OPEN_FILES}},
        {RLIMIT_STACK, 0, {STACK_BYTES, STACK_BYTES_MAX}},
        {RLIMIT_MEMLOCK, 0, {MIB(8), MIB(8)}},
        {RLIMIT_MSGQUEUE, 0, {819200, 819200}},
        /* Counted with those of whoever started hutch, above all namespaces. */
        {RLIMIT_SIGPENDING, 0, {256, 256}},
        {RLIMIT_AS, 0, {RLIM_INFINITY, RLIM_INFINITY}},
        {RLIMIT_FSIZE, 0, {RLIM_INFINITY, RLIM_INFINITY}},
        {RLIMIT_NICE, 0, {0, 0}},
        {RLIMIT_RTPRIO, 0, {0, 0}},
    };
    _Static_assert(ARRAY_LENGTH(fixed) + PARK_RLIMITS == PLAN_RLIMITS, "a limit is missing");

    memcpy(plan->rlimits, fixed, sizeof(fixed));
    clip_rlimits(plan->rlimits, ARRAY_LENGTH(fixed));
    plan->rlimit_count = ARRAY_LENGTH(fixed);
    /* A parked cell, and a zygote for all of its cells, could not raise the
     * others again: they come with the request. */
    if (cell_parks(cell) || cell->zygote_of)
        return;
    request_rlimits(cell, plan->rlimits + plan->rlimit_count);
    plan->rlimit_count += PARK_RLIMITS;
}

void cell_plan_go(struct supervisor *supervisor, struct sandbox_cell *cell, struct park_go *ret_go)
{
    offer_cpus(supervisor, cell);
    ret_go->cpus = cell->offered_cpus;
    request_rlimits(cell, ret_go->rlimits);
}

static void plan_environment(struct cell_plan *plan, unsigned cpus)
{
    static const char *const fixed[] = {
        "PATH=/usr/local/bin:/usr/bin:/bin",
        ("HOME=" CELL_HOME),
        "TMPDIR=/tmp",
        "USER=user",
        "LOGNAME=user",
        "SHELL=/bin/bash",
        "LANG=C.UTF-8",
        "PYTHONUTF8=1",
        "MPLCONFIGDIR=/tmp/matplotlib",
        "MPLBACKEND=agg", /* or matplotlib looks for one with windows */
    };
    static const char *const counts[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                         "MKL_NUM_THREADS"};
    size_t count = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(fixed); i++)
        plan->envp[count++] = fixed[i];
    for (size_t i = 0; i < ARRAY_LENGTH(counts); i++) {
        snprintf(plan->cpu_env[i], sizeof(plan->cpu_env[i]), "%s=%u", counts[i], cpus);
        plan->envp[count++] = plan->cpu_env[i];
    }
    plan->envp[count] = NULL;
}

/* Node's heap has to fit into the cell, or it would grow where collecting would
 * do, up to the end by the kernel. The rest is for node itself, for buffers and
 * for other processes; those that use more meet the cell's own limit. */
static void plan_node(struct cell_plan *plan, const struct proto_start *start, unsigned cpus)
{
    unsigned long long heap_mb = start->memory_bytes / MIB(8) * 7 - 16;

    snprintf(plan->node_options[0], sizeof(plan->node_options[0]), "--max-heap-size=%llu", heap_mb);
    snprintf(plan->node_options[1], sizeof(plan->node_options[1]), "--v8-pool-size=%u", cpus);
}

static void plan_command(struct cell_plan *plan, const struct runtime *runtime)
{
    const char *const python[] = {"-I", "-B", "-X", "utf8", TREE_RUNNER, WIRE_PYTHON_FILE, NULL};
    const char *const shell[] = {"--norc", "--noprofile", TREE_SHELL_RUNNER, NULL};
    /* The flag: or import() in an exec fails in some releases of node 18 and 20. */
    const char *const node[] = {plan->node_options[0],
                                plan->node_options[1],
                                "--experimental-vm-modules",
                                "-r",
                                TREE_NODE_RUNNER,
                                WIRE_NODE_LINK,
                                NULL};
    const char *const *const arguments[] = {[PROTO_PYTHON] = python,
                                            [PROTO_SHELL] = plan->session ? shell : NULL,
                                            [PROTO_JAVASCRIPT] = node};
    size_t count = 0;

    plan->argv[count++] = runtime->interpreter;
    const char *const *next = arguments[runtime->language];
    while (next && *next)
        plan->argv[count++] = *next++;
    plan->argv[count] = NULL;
}

/* What the interpreter is started with. */
static void plan_exec(struct cell_plan *plan, const struct runtime *runtime,
                      const struct proto_start *start, unsigned cpus)
{
    plan_environment(plan, cpus);
    if (plan->language == PROTO_JAVASCRIPT)
        plan_node(plan, start, cpus);
    plan_command(plan, runtime);
}

/* What lies in the tmpfs is memory that only a cgroup counts. */
static uint64_t disk_bytes_of(const struct proto_start *start, uint32_t layers)
{
    bool counted = (layers & HUTCH_LAYER_CGROUP_MEMORY) || start->disk_bytes <= start->memory_bytes;
    return counted ? start->disk_bytes : start->memory_bytes;
}

bool cell_can_wait(const struct supervisor *supervisor, const struct proto_start *start)
{
    /* Python's are forked, in a user namespace of the zygote's. One processor: what
     * a cell shows of them, and the environment, stand before the request. */
    bool can_be_made =
        start->language == PROTO_JAVASCRIPT ||
        (start->language == PROTO_PYTHON && (supervisor->namespaces & CLONE_NEWUSER));
    return start->kind == PROTO_RUN && can_be_made && start->cpu_millis <= CPU_QUOTA_PERIOD;
}

bool cell_can_fork(const struct supervisor *supervisor, const struct proto_start *start)
{
    return start->language == PROTO_PYTHON && cell_can_wait(supervisor, start);
}

bool cell_fits(const struct sandbox_cell *cell, const struct proto_start *start)
{
    /* The size of node's heap stands in its command line. */
    return cell->disk_bytes == disk_bytes_of(start, cell->layers) &&
           (start->language != PROTO_JAVASCRIPT || cell->start.memory_bytes == start->memory_bytes);
}

bool cell_parks(const struct sandbox_cell *cell)
{
    return (cell->zygote || cell->pool) && !cell->session; /* whose interpreters are started */
}

static void plan_cell(struct supervisor *supervisor, struct sandbox_cell *cell, struct build *build)
{
    struct cell_plan *plan = &build->plan;
    unsigned cpus = count_cpus(supervisor, cell);

    if (cell->zygote_of)
        cpus = 1; /* as its cells have */
    else if (!cell_parks(cell) && CPU_COUNT(&cell->cpus) == 0)
        choose_cpus(supervisor, cell);
    plan->kind = cell->start.kind;
    plan->forked = cell->zygote && cell_parks(cell);
    plan->session = cell->start.session;
    plan->has_request = !cell->pool;
    plan->language = cell->start.language;
    plan->require = cell->start.require;
    plan->landlock_abi = supervisor->landlock_abi;
    plan->clear_groups = supervisor->is_root;
    plan->cpus = cell->zygote_of || cell_parks(cell) ? supervisor->cpus : cell->cpus;
    if (cpus != 1)
        snprintf(plan->cpu_dir, sizeof(plan->cpu_dir), "cpu/%u", cpus);
    cell->disk_bytes = disk_bytes_of(&cell->start, cell->layers);
    snprintf(plan->tmpfs_options, sizeof(plan->tmpfs_options), "size=%llu,nr_inodes=%d,mode=755",
             (unsigned long long)cell->disk_bytes, INODES_PER_CELL);
    if (plan->kind == PROTO_PROBE)
        plan_note_namespaces(plan);
    plan_rlimits(plan, cell);
    if (!plan->forked)
        plan_exec(plan, &supervisor->runtimes[cell->start.language], &cell->start, cpus);

    plan->report_fd = build->report[1];
    plan->ready_fds[0] = build->ready[0];
    plan->ready_fds[1] = build->ready[1];
    plan->mapped_fds[0] = build->mapped[0];
    plan->mapped_fds[1] = build->mapped[1];
    plan->attendant_fd = build->attendant[0];
}

/* ---- what the cell stands on ------------------------------------------- */

static int open_pipes(struct build *build, struct hutch_error *err)
{
    if (fd_pipe(build->report) < 0 || fd_pipe(build->ready) < 0 || fd_pipe(build->mapped) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, build->attendant) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make the cell's pipes");
    if (fcntl(build->report[0], F_SETFL, O_NONBLOCK) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "prepare the report pipe");
    return 0;
}

/* A user of the host that no other cell has at the same time, where the host
 * offers us such users at all. */
static int take_uid(struct supervisor *supervisor, struct sandbox_cell *cell,
                    struct hutch_error *err)
{
    if (slots_count(supervisor->slots) == 0)
        return 0;
    if (slots_acquire(supervisor->slots, &cell->uid, err) < 0)
        return err->code;
    cell->layers |= HUTCH_LAYER_DISTINCT_UID;
    return 0;
}

int cell_own_pipes(const struct sandbox_cell *cell, struct hutch_error *err)
{
    if (cell->uid != 0 && (fchown(cell->fds[PROTO_FD_STDOUT], cell->uid, cell->uid) < 0 ||
                           fchown(cell->fds[PROTO_FD_STDERR], cell->uid, cell->uid) < 0))
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "give the cell its pipes");
    return 0;
}

struct cgroup_limits cell_cgroup_limits(const struct sandbox_cell *cell)
{
    return (struct cgroup_limits){
        .memory_bytes = cell->start.memory_bytes,
        .max_processes = cell->max_processes + 1, /* hutch-init */
        .cpu_millis = cell->start.cpu_millis,
        .one_by_one = cell->start.session, /* it goes on, with hutch-init and the copy */
    };
}

static int make_cgroup(struct supervisor *supervisor, struct sandbox_cell *cell,
                       struct hutch_error *err)
{
    const struct cgroup_limits limits = cell_cgroup_limits(cell);

    if (cgroup_cell_create(supervisor->cgroups, &limits, &cell->cgroup, err) < 0)
        return err->code;
    cell->layers |= cgroup_cell_layers(cell->cgroup);
    return 0;
}

/* What a child joins by itself; one that is cloned by the supervisor is born into
 * its group of v2. */
static void plan_joining(const struct sandbox_cell *cell, struct cell_plan *plan, bool born_inside)
{
    born_inside = born_inside && cgroup_cell_clone_fd(cell->cgroup) >= 0;
    plan->join_count = cgroup_cell_join_fds(cell->cgroup, born_inside, plan->join_fds);
}

/* ---- the children ------------------------------------------------------ */

/* An ordinary user may not come back into the host's pid namespace. So a messenger goes
 * into a cell's and clones there; the child becomes the supervisor's: CLONE_PARENT. */
NORETURN static void run_errand(struct build *build, int cgroup_fd, int answer_fd)
{
    struct messenger_answer answer = {.pid = -1};
    int pidfd = -1;

    if (setns(build->plan.ns_fds[PLAN_NS_PID], 0) == 0)
        answer.pid = process_clone(CLONE_PARENT, cgroup_fd, &pidfd);
    if (answer.pid == 0) {
        close(answer_fd); /* or the end of a messenger that dies would not be seen */
        launch_child(&build->plan);
    }
    answer.error = errno;
    IGNORE_RESULT(write(answer_fd, &answer, sizeof(answer)) != (ssize_t)sizeof(answer));
    _exit(0);
}

/* What the messenger says before it ends. */
static struct messenger_answer hear_messenger(pid_t messenger, int answer_fd)
{
    struct messenger_answer answer = {.pid = -1, .error = ECHILD};

    if (fd_wait(answer_fd, POLLIN, clock_after_ns(MESSENGER_LIMIT_NS)) <= 0 ||
        read(answer_fd, &answer, sizeof(answer)) != (ssize_t)sizeof(answer))
        answer = (struct messenger_answer){.pid = -1, .error = ECHILD};
    kill(messenger, SIGKILL);
    IGNORE_RESULT(waitpid(messenger, NULL, 0) < 0);
    return answer;
}

/* Returns the child's pid and its pidfd, or -1 with errno. */
static pid_t send_messenger(struct supervisor *supervisor, struct build *build, int cgroup_fd,
                            int *ret_pidfd)
{
    struct messenger_answer answer = {.pid = -1};
    int fds[2];

    if (fd_pipe(fds) < 0)
        return -1;
    pid_t messenger = fork();
    if (messenger == 0)
        run_errand(build, cgroup_fd, fds[1]);
    answer.error = errno;
    close(fds[1]);
    if (messenger > 0)
        answer = hear_messenger(messenger, fds[0]);
    close(fds[0]);
    if (answer.pid > 0)
        *ret_pidfd = pidfd_open(answer.pid, 0);
    if (answer.pid > 0 && *ret_pidfd < 0) { /* nobody would see its end */
        answer.error = errno;
        kill(answer.pid, SIGKILL);
        answer.pid = -1;
    }
    if (answer.pid < 0) /* one may have been made all the same */
        supervisor->has_strays = true;
    errno = answer.error;
    return answer.pid;
}

/* ---- ids --------------------------------------------------------------- */

/* One user and one group of the cell stand for one of the host each; nothing
 * else is mapped, not even root. A zygote's are those that its cells get. */
static int plan_ids(struct supervisor *supervisor, const struct sandbox_cell *cell,
                    struct build *build, struct hutch_error *err)
{
    uid_t uid = cell->uid != 0 ? cell->uid : getuid();
    gid_t gid = cell->uid != 0 ? (gid_t)uid : getgid();
    bool is_zygote = cell->start.kind == PROTO_ZYGOTE;
    uint32_t count = is_zygote && cell->uid != 0 ? slots_count(supervisor->slots) : 1;
    uint32_t base = is_zygote && cell->uid != 0 ? slots_base(supervisor->slots) : 0;

    /* The kernel lets its own root write system settings by uid alone. */
    if (uid == 0 && supervisor->uid_0_is_root)
        return err_set(err, HUTCH_ERR_ISOLATION,
                       "a cell would run as the host's root; run hutch as an ordinary user, or "
                       "give root CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID");
    build->maps.deny_setgroups = !supervisor->is_root;
    build->plan.uid = is_zygote ? uid : CELL_UID;
    build->plan.gid = is_zygote ? gid : CELL_GID;
    snprintf(build->maps.uid, sizeof(build->maps.uid), "%u %u %u\n", base ? base : build->plan.uid,
             base ? base : uid, count);
    snprintf(build->maps.gid, sizeof(build->maps.gid), "%u %u %u\n", base ? base : build->plan.gid,
             base ? base : gid, count);
    if (!(supervisor->namespaces & CLONE_NEWUSER)) {
        build->plan.uid = uid;
        build->plan.gid = gid;
    }
    return 0;
}

/* ---- hutch-init's process ---------------------------------------------- */

static pid_t clone_init_by_stepping(struct supervisor *supervisor, struct sandbox_cell *cell,
                                    struct build *build)
{
    if (setns(supervisor->runtimes[cell->start.language].mount_ns_fd, CLONE_NEWNS) < 0)
        return -1;
    pid_t pid = process_clone(supervisor->namespaces, cgroup_cell_clone_fd(cell->cgroup),
                              &cell->init_pidfd);
    if (pid == 0)
        setup_child(&build->plan);
    namespaces_return(supervisor->mount_ns_fd, CLONE_NEWNS);
    if (pid > 0 && (supervisor->namespaces & CLONE_NEWUSER) &&
        process_write_maps("/proc", pid, &build->maps) < 0) {
        cell->init_pid = pid;
        return -1;
    }
    return pid;
}

/* A cell whose interpreter a zygote forks lies in the zygote's namespaces: only
 * there has the zygote the power to put a process into it. */
static pid_t clone_init_by_maker(struct supervisor *supervisor, struct sandbox_cell *cell,
                                 const struct build *build)
{
    struct maker_order order = {
        .plan = build->plan,
        .maps = build->maps,
        .flags = supervisor->namespaces & ~(cell->net_used ? CLONE_NEWNET : 0u),
    };

    pid_t pid = maker_clone(&cell->zygote->maker, &order, cell->net_used ? cell->net.ns_fd : -1,
                            &cell->init_pidfd);
    if (pid < 0) { /* one may have been made all the same */
        int error = errno;
        supervisor->has_strays = true;
        if (cell->zygote->maker.socket < 0)
            zygote_lose(supervisor, cell->zygote);
        errno = error;
    }
    return pid;
}

static pid_t clone_init(struct supervisor *supervisor, struct sandbox_cell *cell,
                        struct build *build)
{
    build->plan.namespaces = supervisor->namespaces;
    build->plan.cgroup_ns = supervisor->cgroup_ns;
    build->plan.layers = cell->layers | namespaces_layers(supervisor);
    return cell->zygote ? clone_init_by_maker(supervisor, cell, build)
                        : clone_init_by_stepping(supervisor, cell, build);
}

/* For the interpreter's process to enter. Before hutch-init goes on: once it is
 * exec'd, an ordinary user may not look at it any more. */
int cell_open_namespaces(const struct supervisor *supervisor, pid_t pid, int ret_fds[PLAN_NS_COUNT],
                         struct hutch_error *err)
{
    static const struct {
        const char *name;
        unsigned flag;
    } kinds[PLAN_NS_COUNT] = {
        [PLAN_NS_USER] = {"user", CLONE_NEWUSER}, [PLAN_NS_IPC] = {"ipc", CLONE_NEWIPC},
        [PLAN_NS_UTS] = {"uts", CLONE_NEWUTS},    [PLAN_NS_NET] = {"net", CLONE_NEWNET},
        [PLAN_NS_MOUNT] = {"mnt", CLONE_NEWNS},   [PLAN_NS_PID] = {"pid", CLONE_NEWPID},
    };

    for (size_t i = 0; i < PLAN_NS_COUNT; i++) {
        char path[48];
        if (!(supervisor->namespaces & kinds[i].flag))
            continue;
        snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kinds[i].name);
        ret_fds[i] = open(path, O_RDONLY | O_CLOEXEC);
        if (ret_fds[i] < 0)
            return err_errno(err, HUTCH_ERR_ISOLATION, errno, "open '%s'", path);
    }
    return 0;
}

static int start_init(struct supervisor *supervisor, struct sandbox_cell *cell, struct build *build,
                      struct hutch_error *err)
{
    if (plan_ids(supervisor, cell, build, err) < 0)
        return err->code;
    plan_joining(cell, &build->plan, !cell->zygote);
    if (cell->zygote)
        cell->net_used = net_take(&cell->zygote->nets, cell->start.owner, &cell->net);
    build->plan.net_used = cell->net_used;
    pid_t pid = clone_init(supervisor, cell, build);
    if (pid < 0 && cell->init_pid == 0 && !cell->zygote && (errno == EPERM || errno == EINVAL)) {
        if (namespaces_probe(supervisor, err) < 0)
            return err->code;
        if (plan_ids(supervisor, cell, build, err) < 0)
            return err->code;
        pid = clone_init(supervisor, cell, build);
    }
    if (pid < 0)
        return cell->init_pid
                   ? err_errno(err, HUTCH_ERR_ISOLATION, errno, "map the cell's ids")
                   : err_fork(err, HUTCH_ERR_ISOLATION, errno, "clone into new namespaces");
    cell->init_pid = pid;
    if (supervisor_watch(supervisor, cell->init_pidfd, WATCH_CELL_INIT, cell->index, err) < 0 ||
        cell_open_namespaces(supervisor, pid, build->plan.ns_fds, err) < 0)
        return err->code;
    if (cell->zygote && !cell->net_used)
        IGNORE_RESULT(net_open(pid, &cell->net)); /* or it is not used again */
    char mapped = 1;
    if (write(build->mapped[1], &mapped, 1) != 1)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "release hutch-init");
    return 0;
}

/* ---- the interpreter's process ----------------------------------------- */

/* The clone lands in the cell's pid namespace; the supervisor comes back. */
static pid_t clone_run_by_stepping(struct supervisor *supervisor, struct sandbox_cell *cell,
                                   struct build *build)
{
    if (setns(build->plan.ns_fds[PLAN_NS_PID], CLONE_NEWPID) < 0)
        return -1;
    pid_t pid = process_clone(0, cgroup_cell_clone_fd(cell->cgroup), &cell->run_pidfd);
    if (pid == 0)
        launch_child(&build->plan);
    namespaces_return(supervisor->pid_ns_fd, CLONE_NEWPID);
    return pid;
}

static int clone_run(struct supervisor *supervisor, struct sandbox_cell *cell, struct build *build,
                     struct hutch_error *err)
{
    pid_t pid = supervisor->can_step
                    ? clone_run_by_stepping(supervisor, cell, build)
                    : send_messenger(supervisor, build, cgroup_cell_clone_fd(cell->cgroup),
                                     &cell->run_pidfd);
    if (pid < 0)
        return err_fork(err, HUTCH_ERR_ISOLATION, errno, "clone the interpreter's process");
    cell->run_pid = pid;
    return supervisor_watch(supervisor, cell->run_pidfd, WATCH_CELL_RUN, cell->index, err);
}

static int start_run(struct supervisor *supervisor, struct sandbox_cell *cell, struct build *build,
                     struct hutch_error *err)
{
    cell->deadline_ns = clock_after_ns(cell->zygote ? ZYGOTE_ANSWER_NS : CELL_START_LIMIT_NS);
    if (cell->zygote)
        return zygote_order(cell->zygote, cell, &build->plan, err);
    return clone_run(supervisor, cell, build, err);
}

/* An interpreter that parks waits for its request at a socket of its own; else it gets the engine's
 * descriptors at once. */
static int plan_descriptors(struct supervisor *supervisor, struct sandbox_cell *cell,
                            struct build *build, struct hutch_error *err)
{
    struct cell_plan *plan = &build->plan;

    if (!cell_parks(cell)) {
        plan->stdin_fd = cell->fds[PROTO_FD_STDIN];
        plan->stdout_fd = cell->fds[PROTO_FD_STDOUT];
        plan->stderr_fd = cell->fds[PROTO_FD_STDERR];
        plan->channel_fd = cell->fds[PROTO_FD_CHANNEL];
        return cell->zygote_of ? 0 : cell_own_pipes(cell, err);
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, build->park) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make the socket of a parked cell");
    plan->stdin_fd = plan->stdout_fd = plan->stderr_fd = -1;
    plan->channel_fd = build->park[1];
    cell->park_fd = TAKE_FD(build->park[0]);
    return cell->pool
               ? supervisor_watch(supervisor, cell->park_fd, WATCH_CELL_PARK, cell->index, err)
               : 0;
}

static int build_with(struct supervisor *supervisor, struct sandbox_cell *cell, struct build *build,
                      struct hutch_error *err)
{
    cell->max_processes = cell_limit_processes(supervisor, cell);
    if (open_pipes(build, err) < 0 || take_uid(supervisor, cell, err) < 0 ||
        plan_descriptors(supervisor, cell, build, err) < 0 ||
        make_cgroup(supervisor, cell, err) < 0)
        return err->code;
    plan_cell(supervisor, cell, build);
    cell->report_fd = TAKE_FD(build->report[0]);
    cell->attendant_fd = TAKE_FD(build->attendant[1]);
    int oom_fd = cgroup_cell_oom_fd(cell->cgroup);
    if (supervisor_watch(supervisor, cell->report_fd, WATCH_CELL_REPORT, cell->index, err) < 0 ||
        (oom_fd >= 0 &&
         supervisor_watch(supervisor, oom_fd, WATCH_CELL_MEMORY, cell->index, err) < 0))
        return err->code;
    if (start_init(supervisor, cell, build, err) < 0 || start_run(supervisor, cell, build, err) < 0)
        return err->code;
    if (!cell_parks(cell)) /* else they come with the request */
        cell_pass_files(cell, 0);
    cgroup_cell_joined(cell->cgroup); /* the children have their own copies */
    if (cell->start.kind == PROTO_ZYGOTE)
        zygote_take_namespaces(cell->zygote_of, &build->plan);
    cell->layers = 0; /* until they confirm */
    return 0;
}

#define BUILD_NONE                                                                                 \
    {                                                                                              \
        .plan.ns_fds = {-1, -1, -1, -1, -1, -1}, .report = {-1, -1}, .ready = {-1, -1},            \
        .mapped = {-1, -1}, .attendant = {-1, -1}, .park = {-1, -1},                               \
    }

/* hutch-init stands already, and will not say so again. */
static int plan_relaunch(struct supervisor *supervisor, struct sandbox_cell *cell,
                         struct build *build, const int ns_fds[PLAN_NS_COUNT],
                         struct hutch_error *err)
{
    char word = 1;

    if (open_pipes(build, err) < 0 || cell_own_pipes(cell, err) < 0 ||
        cgroup_cell_rejoin(cell->cgroup, err) < 0)
        return err->code;
    for (size_t i = 0; i < PLAN_NS_COUNT; i++) {
        build->plan.ns_fds[i] = ns_fds[i] >= 0 ? fcntl(ns_fds[i], F_DUPFD_CLOEXEC, 0) : -1;
        if (ns_fds[i] >= 0 && build->plan.ns_fds[i] < 0)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "keep the cell's namespaces");
    }
    if (write(build->ready[1], &word, 1) != 1)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "prepare the new interpreter");
    fd_close(&build->ready[1]);
    if (plan_ids(supervisor, cell, build, err) < 0)
        return err->code;
    return 0;
}

int cell_relaunch(struct supervisor *supervisor, struct sandbox_cell *cell,
                  const int ns_fds[PLAN_NS_COUNT], struct hutch_error *err)
{
    __attribute__((cleanup(build_done))) struct build build = BUILD_NONE;
    struct cell_plan *plan = &build.plan;

    if (plan_relaunch(supervisor, cell, &build, ns_fds, err) < 0)
        return err->code;
    plan->namespaces = supervisor->namespaces;
    plan->cgroup_ns = supervisor->cgroup_ns;
    plan->layers = cell->layers; /* that were in force before */
    plan_cell(supervisor, cell, &build);
    plan_joining(cell, plan, true);
    plan->stdout_fd = cell->fds[PROTO_FD_STDOUT];
    plan->stderr_fd = cell->fds[PROTO_FD_STDERR];
    plan->channel_fd = cell->fds[PROTO_FD_CHANNEL];
    plan->stdin_fd = -1;
    cell->report_fd = TAKE_FD(build.report[0]);
    cell->layers = 0; /* until it confirms */
    cell->error.code = 0;
    int code = supervisor_watch(supervisor, cell->report_fd, WATCH_CELL_REPORT, cell->index, err);
    if (code == 0)
        code = clone_run(supervisor, cell, &build, err);
    cgroup_cell_joined(cell->cgroup);
    cell_close_handed_on(cell);
    return code;
}

int cell_build(struct supervisor *supervisor, struct sandbox_cell *cell, struct hutch_error *err)
{
    __attribute__((cleanup(build_done))) struct build build = BUILD_NONE;
    int code = cell->zygote_of ? 0 : cell_check_limits(&cell->start, err);
    if (code == 0)
        code = build_with(supervisor, cell, &build, err);
    /* A child that failed says why, which the failure here may only follow from.
     * Soon, with the pipes, the other one fails in its turn. */
    if (code < 0) {
        cell_take_reports(cell);
        if (cell->error.code != 0)
            *err = cell->error;
    }
    if (!cell_parks(cell))
        cell_close_handed_on(cell);
    return code;
}

/* ---- reports ----------------------------------------------------------- */

static const char *const step_texts[] = {
#define STEP(name, text) [name] = text,
    CHILD_STEPS(STEP)
#undef STEP
};

void cell_report_error(const struct sandbox_cell *cell, const struct child_report *report,
                       struct hutch_error *err)
{
    static const char *const packages[] = {
        [PROTO_PYTHON] = "python3",
        [PROTO_SHELL] = "bash",
        [PROTO_JAVASCRIPT] = "nodejs",
    };

    if (report->step == CHILD_REQUIRE) {
        auto_buf struct buf names = BUF_MAX(256);
        layers_append_names(&names, report->layers);
        err_set(err, HUTCH_ERR_LAYER, "require: %s: not in force on this host", buf_text(&names));
        return;
    }
    if (report->step == CHILD_EXEC) {
        err_errno(err, HUTCH_ERR_RUNTIME, report->error, "exec the interpreter of package '%s'",
                  packages[cell->start.language]);
        return;
    }
    const char *text =
        report->step < ARRAY_LENGTH(step_texts) ? step_texts[report->step] : "unknown step";
    err_errno(err, HUTCH_ERR_ISOLATION, report->error, "%s", text);
}
