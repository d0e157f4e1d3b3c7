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
#include "namespaces.h"
#include "runtime.h"
#include "sandbox/layers.h"
#include "tree_tables.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define CPU_QUOTA_PERIOD 1000u /* cpu_millis of one processor */
#define OPEN_FILES 4096
#define STACK_BYTES MIB(8)
#define STACK_BYTES_MAX MIB(64)
#define INODES_PER_CELL 65536
#define NODE_THREADS 6 /* two of node and four of libuv; --v8-pool-size comes to it */

/* Descriptors of one build; the end of the build closes them, whatever the
 * children still hold. */
struct build {
    struct cell_plan plan;
    int report[2], ready[2], mapped[2], lifeline[2];
    int mount_ns_fd;
};

static void build_done(struct build *build)
{
    int *const fds[] = {
        &build->report[0],   &build->report[1],   &build->ready[0],
        &build->ready[1],    &build->mapped[0],   &build->mapped[1],
        &build->lifeline[0], &build->lifeline[1], &build->mount_ns_fd,
    };
    for (size_t i = 0; i < ARRAY_LENGTH(fds); i++)
        fd_close(fds[i]);
}

/* ---- the plan ---------------------------------------------------------- */

static unsigned count_cpus(const struct supervisor *supervisor, const struct sandbox_cell *cell)
{
    unsigned want = (cell->start.cpu_millis + CPU_QUOTA_PERIOD - 1) / CPU_QUOTA_PERIOD;
    return want < supervisor->cpu_count ? want : supervisor->cpu_count;
}

/* Threads that node starts for itself, whatever the program does, are not on the
 * program's account. */
static uint32_t limit_processes(const struct supervisor *supervisor,
                                const struct sandbox_cell *cell)
{
    uint32_t limit = cell->start.max_processes;
    if (cell->start.language == PROTO_JAVASCRIPT)
        limit += NODE_THREADS + count_cpus(supervisor, cell);
    return limit;
}

/* The least used processors, so that cells of one processor each do not share
 * one while another is idle. */
static unsigned choose_cpus(struct supervisor *supervisor, struct sandbox_cell *cell)
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
    return want;
}

/* The limits that hutch was started with bind its cells too. Where one of them is
 * below what the request allows, a program would fail for a reason that nobody
 * told it. */
static int check_own_limits(const struct proto_start *start, struct hutch_error *err)
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

static void plan_rlimits(struct cell_plan *plan, const struct sandbox_cell *cell)
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
    const struct plan_rlimit rlimits[PLAN_RLIMITS] = {
        /* Not 0: the kernel ignores that where a core handler is a pipe, and
         * starts the handler, a root process of the host, on a core that the
         * cell controls. At 1 it starts none. */
        {RLIMIT_CORE, {1, 1}},
        {RLIMIT_CPU, {cpu, cpu + 1}},
        {RLIMIT_NOFILE, {OPEN_FILES, OPEN_FILES}},
        {RLIMIT_NPROC, {processes, processes}},
        {RLIMIT_STACK, {STACK_BYTES, STACK_BYTES_MAX}},
        {RLIMIT_MEMLOCK, {MIB(8), MIB(8)}},
        {RLIMIT_MSGQUEUE, {819200, 819200}},
        /* Counted with those of whoever started hutch, above all namespaces. */
        {RLIMIT_SIGPENDING, {256, 256}},
        {RLIMIT_DATA, {data, data}},
        {RLIMIT_AS, {RLIM_INFINITY, RLIM_INFINITY}},
        {RLIMIT_FSIZE, {RLIM_INFINITY, RLIM_INFINITY}},
        {RLIMIT_NICE, {0, 0}},
        {RLIMIT_RTPRIO, {0, 0}},
    };
    memcpy(plan->rlimits, rlimits, sizeof(rlimits));
    /* A limit can be no higher than it is, but for CAP_SYS_RESOURCE, which even
     * root may lack. */
    for (size_t i = 0; i < PLAN_RLIMITS; i++) {
        struct rlimit own;
        struct rlimit *limit = &plan->rlimits[i].limit;
        if (getrlimit((__rlimit_resource_t)plan->rlimits[i].resource, &own) < 0)
            continue;
        limit->rlim_max = limit->rlim_max < own.rlim_max ? limit->rlim_max : own.rlim_max;
        limit->rlim_cur = limit->rlim_cur < limit->rlim_max ? limit->rlim_cur : limit->rlim_max;
    }
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
    const char *const node[] = {plan->node_options[0], plan->node_options[1], "-r",
                                TREE_NODE_RUNNER,      WIRE_NODE_LINK,        NULL};
    const char *const *const arguments[] = {[PROTO_PYTHON] = python, [PROTO_JAVASCRIPT] = node};
    size_t count = 0;

    plan->argv[count++] = runtime->interpreter;
    const char *const *next = arguments[runtime->language];
    while (next && *next)
        plan->argv[count++] = *next++;
    plan->argv[count] = NULL;
}

static void plan_cell(struct supervisor *supervisor, struct sandbox_cell *cell, struct build *build)
{
    struct cell_plan *plan = &build->plan;
    unsigned cpus = choose_cpus(supervisor, cell);

    plan->kind = cell->start.kind;
    plan->language = cell->start.language;
    plan->require = cell->start.require;
    plan->landlock_abi = supervisor->landlock_abi;
    plan->clear_groups = supervisor->is_root;
    plan->cpus = cell->cpus;
    if (cpus != 1)
        snprintf(plan->cpu_dir, sizeof(plan->cpu_dir), "cpu/%u", cpus);
    uint64_t disk_bytes = cell->start.disk_bytes;
    /* What lies in the tmpfs is memory that only a cgroup counts. */
    if (!(cell->layers & HUTCH_LAYER_CGROUP_MEMORY) && disk_bytes > cell->start.memory_bytes)
        disk_bytes = cell->start.memory_bytes;
    snprintf(plan->tmpfs_options, sizeof(plan->tmpfs_options), "size=%llu,nr_inodes=%d,mode=755",
             (unsigned long long)disk_bytes, INODES_PER_CELL);
    if (plan->kind == PROTO_PROBE)
        plan_note_namespaces(plan);
    plan_rlimits(plan, cell);
    plan_environment(plan, cpus);
    if (plan->language == PROTO_JAVASCRIPT)
        plan_node(plan, &cell->start, cpus);
    plan_command(plan, &supervisor->runtimes[cell->start.language]);

    plan->report_fd = build->report[1];
    plan->ready_fds[0] = build->ready[0];
    plan->ready_fds[1] = build->ready[1];
    plan->mapped_fds[0] = build->mapped[0];
    plan->mapped_fds[1] = build->mapped[1];
    plan->lifeline_fd = build->lifeline[0];
    plan->stdin_fd = cell->fds[PROTO_FD_STDIN];
    plan->stdout_fd = cell->fds[PROTO_FD_STDOUT];
    plan->stderr_fd = cell->fds[PROTO_FD_STDERR];
    plan->channel_fd = cell->fds[PROTO_FD_CHANNEL];
}

/* ---- what the cell stands on ------------------------------------------- */

static int open_pipes(struct build *build, struct hutch_error *err)
{
    if (fd_pipe(build->report) < 0 || fd_pipe(build->ready) < 0 || fd_pipe(build->mapped) < 0 ||
        fd_pipe(build->lifeline) < 0)
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

/* The program's own user owns its pipes, or it could not open /dev/stdout. */
static int own_pipes(const struct sandbox_cell *cell, struct hutch_error *err)
{
    if (cell->uid != 0 && (fchown(cell->fds[PROTO_FD_STDOUT], cell->uid, cell->uid) < 0 ||
                           fchown(cell->fds[PROTO_FD_STDERR], cell->uid, cell->uid) < 0))
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "give the cell its pipes");
    return 0;
}

static int make_cgroup(struct supervisor *supervisor, struct sandbox_cell *cell,
                       struct build *build, struct hutch_error *err)
{
    const struct cgroup_limits limits = {
        .memory_bytes = cell->start.memory_bytes,
        .max_processes = cell->max_processes + 1, /* hutch-init */
        .cpu_millis = cell->start.cpu_millis,
    };

    if (cgroup_cell_create(supervisor->cgroups, &limits, &cell->cgroup, err) < 0)
        return err->code;
    cell->layers |= cgroup_cell_layers(cell->cgroup);
    bool born_inside = cgroup_cell_clone_fd(cell->cgroup) >= 0;
    build->plan.join_count = cgroup_cell_join_fds(cell->cgroup, born_inside, build->plan.join_fds);
    return 0;
}

/* ---- the children ------------------------------------------------------ */

/* fork with flags, a pidfd, and on cgroup v2 straight into the cell's group.
 * The child returns 0. Both processes are single-threaded. */
static pid_t clone_child(uint64_t flags, int cgroup_fd, int *ret_pidfd)
{
    struct clone_args args = {
        .flags = flags | CLONE_PIDFD | (cgroup_fd >= 0 ? CLONE_INTO_CGROUP : 0ULL),
        .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
        .exit_signal = flags & CLONE_PARENT ? 0 : SIGCHLD, /* then the parent's counts */
        .cgroup = cgroup_fd >= 0 ? (unsigned)cgroup_fd : 0,
    };
    return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static int write_map(pid_t pid, const char *file, const char *text, struct hutch_error *err)
{
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    if (fd_write_file(path, text) < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "write '%s'", path);
    return 0;
}

/* One user and one group of the cell stand for one of the host each; nothing
 * else is mapped, not even root. */
static int map_ids(struct supervisor *supervisor, struct sandbox_cell *cell,
                   struct hutch_error *err)
{
    char text[64];
    uid_t uid = cell->uid != 0 ? cell->uid : getuid();
    gid_t gid = cell->uid != 0 ? (gid_t)uid : getgid();

    /* The kernel lets its own root write system settings by uid alone. */
    if (uid == 0 && supervisor->uid_0_is_root)
        return err_set(err, HUTCH_ERR_ISOLATION,
                       "a cell would run as the host's root; run hutch as an ordinary user, or "
                       "give root CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID");

    snprintf(text, sizeof(text), "%d %u 1\n", CELL_UID, uid);
    if (write_map(cell->init_pid, "uid_map", text, err) < 0)
        return err->code;
    if (!supervisor->is_root && write_map(cell->init_pid, "setgroups", "deny", err) < 0)
        return err->code;
    snprintf(text, sizeof(text), "%d %u 1\n", CELL_GID, gid);
    return write_map(cell->init_pid, "gid_map", text, err);
}

static void plan_namespaces(struct supervisor *supervisor, struct sandbox_cell *cell,
                            struct cell_plan *plan)
{
    plan->namespaces = supervisor->namespaces;
    plan->cgroup_ns = supervisor->cgroup_ns;
    plan->layers = cell->layers | namespaces_layers(supervisor);
    plan->uid = CELL_UID;
    plan->gid = CELL_GID;
    if (!(supervisor->namespaces & CLONE_NEWUSER)) {
        plan->uid = cell->uid;
        plan->gid = plan->uid;
    }
}

/* The clone starts out in the mount namespace of its runtime. */
static pid_t clone_init(struct supervisor *supervisor, struct sandbox_cell *cell,
                        struct build *build)
{
    plan_namespaces(supervisor, cell, &build->plan);
    if (setns(supervisor->runtimes[cell->start.language].mount_ns_fd, CLONE_NEWNS) < 0)
        return -1;
    pid_t pid =
        clone_child(supervisor->namespaces, cgroup_cell_clone_fd(cell->cgroup), &cell->init_pidfd);
    if (pid == 0)
        setup_child(&build->plan);
    namespaces_return(supervisor->mount_ns_fd, CLONE_NEWNS);
    return pid;
}

static int start_init(struct supervisor *supervisor, struct sandbox_cell *cell, struct build *build,
                      struct hutch_error *err)
{
    pid_t pid = clone_init(supervisor, cell, build);
    if (pid < 0 && (errno == EPERM || errno == EINVAL)) {
        if (namespaces_probe(supervisor, err) < 0)
            return err->code;
        pid = clone_init(supervisor, cell, build);
    }
    if (pid < 0)
        return err_fork(err, HUTCH_ERR_ISOLATION, errno, "clone into new namespaces");
    cell->init_pid = pid;
    if (supervisor_watch(supervisor, cell->init_pidfd, WATCH_CELL_INIT, cell->index, err) < 0)
        return err->code;
    if ((supervisor->namespaces & CLONE_NEWUSER) && map_ids(supervisor, cell, err) < 0)
        return err->code;
    char mapped = 1;
    if (write(build->mapped[1], &mapped, 1) != 1)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "release hutch-init");
    return 0;
}

/* The clone lands in the cell's pid namespace; the supervisor comes back. */
static pid_t clone_run_by_stepping(struct supervisor *supervisor, struct sandbox_cell *cell,
                                   struct build *build)
{
    if (setns(cell->init_pidfd, CLONE_NEWPID) < 0)
        return -1;
    pid_t pid = clone_child(0, cgroup_cell_clone_fd(cell->cgroup), &cell->run_pidfd);
    if (pid == 0)
        launch_child(&build->plan);
    namespaces_return(supervisor->pid_ns_fd, CLONE_NEWPID);
    return pid;
}

/* An ordinary user may not come back into the host's pid namespace: a process
 * of its own goes, and gives its child to the supervisor. */
static pid_t clone_run_by_messenger(struct sandbox_cell *cell, struct build *build)
{
    struct {
        pid_t pid;
        int error;
    } answer = {.pid = -1, .error = ECHILD};
    int fds[2];

    if (fd_pipe(fds) < 0)
        return -1;
    pid_t messenger = fork();
    if (messenger == 0) {
        int pidfd;
        if (setns(cell->init_pidfd, CLONE_NEWPID) == 0)
            answer.pid = clone_child(CLONE_PARENT, cgroup_cell_clone_fd(cell->cgroup), &pidfd);
        if (answer.pid == 0) {
            close(fds[1]); /* or a messenger that dies would be waited for */
            launch_child(&build->plan);
        }
        answer.error = errno;
        IGNORE_RESULT(write(fds[1], &answer, sizeof(answer)) != (ssize_t)sizeof(answer));
        _exit(0);
    }
    if (messenger < 0)
        answer.error = errno;
    close(fds[1]);
    if (messenger > 0) {
        IGNORE_RESULT(read(fds[0], &answer, sizeof(answer)) != (ssize_t)sizeof(answer));
        IGNORE_RESULT(waitpid(messenger, NULL, 0) < 0);
    }
    close(fds[0]);
    if (answer.pid > 0)
        cell->run_pidfd = pidfd_open(answer.pid, 0);
    if (answer.pid > 0 && cell->run_pidfd < 0) { /* nobody would see its end */
        answer.error = errno;
        kill(answer.pid, SIGKILL);
        IGNORE_RESULT(waitpid(answer.pid, NULL, 0) < 0);
        answer.pid = -1;
    }
    errno = answer.error;
    return answer.pid;
}

static int start_run(struct supervisor *supervisor, struct sandbox_cell *cell, struct build *build,
                     struct hutch_error *err)
{
    char path[48];

    /* Opened here: once it is in the cell's user namespace, the child may not
     * look at hutch-init any more, which nobody may trace. */
    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)cell->init_pid);
    build->mount_ns_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (build->mount_ns_fd < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "open '%s'", path);
    build->plan.mount_ns_fd = build->mount_ns_fd;
    build->plan.init_pidfd = cell->init_pidfd;
    cell->deadline_ns = clock_after_ns(CELL_START_LIMIT_NS);
    pid_t pid = supervisor->can_step ? clone_run_by_stepping(supervisor, cell, build)
                                     : clone_run_by_messenger(cell, build);
    if (pid < 0)
        return err_fork(err, HUTCH_ERR_ISOLATION, errno, "clone the interpreter's process");
    cell->run_pid = pid;
    return supervisor_watch(supervisor, cell->run_pidfd, WATCH_CELL_RUN, cell->index, err);
}

static int build_with(struct supervisor *supervisor, struct sandbox_cell *cell, struct build *build,
                      struct hutch_error *err)
{
    cell->max_processes = limit_processes(supervisor, cell);
    if (open_pipes(build, err) < 0 || take_uid(supervisor, cell, err) < 0 ||
        own_pipes(cell, err) < 0 || make_cgroup(supervisor, cell, build, err) < 0)
        return err->code;
    plan_cell(supervisor, cell, build);
    cell->report_fd = TAKE_FD(build->report[0]);
    cell->lifeline_fd = TAKE_FD(build->lifeline[1]);
    int oom_fd = cgroup_cell_oom_fd(cell->cgroup);
    if (supervisor_watch(supervisor, cell->report_fd, WATCH_CELL_REPORT, cell->index, err) < 0 ||
        (oom_fd >= 0 &&
         supervisor_watch(supervisor, oom_fd, WATCH_CELL_MEMORY, cell->index, err) < 0))
        return err->code;
    if (start_init(supervisor, cell, build, err) < 0 || start_run(supervisor, cell, build, err) < 0)
        return err->code;
    cgroup_cell_joined(cell->cgroup); /* the children have their own copies */
    cell->layers = 0;                 /* until they confirm */
    return 0;
}

int cell_build(struct supervisor *supervisor, struct sandbox_cell *cell, struct hutch_error *err)
{
    __attribute__((cleanup(build_done))) struct build build = {
        .report = {-1, -1},
        .ready = {-1, -1},
        .mapped = {-1, -1},
        .lifeline = {-1, -1},
        .mount_ns_fd = -1,
    };
    int code = check_own_limits(&cell->start, err);
    if (code == 0)
        code = build_with(supervisor, cell, &build, err);
    /* A child that failed says why, which the failure here may only follow from.
     * Soon, with the pipes, the other one fails in its turn. */
    if (code < 0) {
        cell_take_reports(cell);
        if (cell->error.code != 0)
            *err = cell->error;
    }
    for (size_t i = PROTO_FD_STDOUT; i < ARRAY_LENGTH(cell->fds); i++)
        fd_close(&cell->fds[i]);
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
