/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cells in the cgroups of this host, and what is left when their supervisor is
 * killed. Needs root and writable cgroups, and fails without them. Whatever the
 * host mounts is what is tested: v1, v2 or both.
 *
 * The program is the reaper of everything that it starts, however deep, so that
 * waiting for processes is always waitpid and never a guess.
 */
#include "base/clock.h"
#include "base/limits.h"
#include "sandbox/namespace/cgroup.h"
#include "sandbox/namespace/slots.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#define CYCLES 200
#define WAIT_NS (10 * NS_PER_SECOND)

static const struct cgroup_limits limits = {
    .memory_bytes = MIB(16), .max_processes = 5, .cpu_millis = 1000};

/* ---- one supervisor ---------------------------------------------------- */

struct supervisor {
    char dir[64];
    int run;
    int open_files;
    struct slots_record record;
    struct cgroup_host *host;
};

static int count_open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static bool begin(struct supervisor *supervisor, struct hutch_error *err)
{
    return slots_record_create(supervisor->run, &supervisor->record, err) == 0 &&
           cgroup_host_open(&supervisor->record, NULL, NULL, &supervisor->host, err) == 0;
}

static int setup_run_dir(void **state)
{
    struct supervisor *supervisor = calloc(1, sizeof(*supervisor));
    struct hutch_error err;

    supervisor->open_files = count_open_files();
    supervisor->record = SLOTS_RECORD_NONE;
    snprintf(supervisor->dir, sizeof(supervisor->dir), "/tmp/hutch-test-host-XXXXXX");
    assert_non_null(mkdtemp(supervisor->dir));
    supervisor->run = slots_run_dir_open(supervisor->dir, &err);
    assert_true(supervisor->run >= 0);
    *state = supervisor;
    return 0;
}

static int setup(void **state)
{
    struct hutch_error err;

    setup_run_dir(state);
    struct supervisor *supervisor = *state;
    if (!begin(supervisor, &err))
        fail_msg("%s", err.message);
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (!supervisor->host->status[i].usable)
            fail_msg("%s: %s", cgroup_controller_name(i), supervisor->host->status[i].reason);
    }
    return 0;
}

static int teardown(void **state)
{
    struct supervisor *supervisor = *state;

    if (supervisor->host) {
        assert_true(cgroup_host_close(supervisor->host));
        slots_record_close(&supervisor->record, true);
    }
    unlinkat(supervisor->run, "uids", 0);
    close(supervisor->run);
    /* fails when a record was left */
    assert_int_equal(rmdir(supervisor->dir), 0);
    assert_int_equal(count_open_files(), supervisor->open_files);
    free(supervisor);
    return 0;
}

static struct cgroup_cell *make_cell(const struct supervisor *supervisor,
                                     const struct cgroup_limits *cell_limits)
{
    struct cgroup_cell *cell;
    struct hutch_error err;
    if (cgroup_cell_create(supervisor->host, cell_limits, &cell, &err) < 0)
        fail_msg("%s", err.message);
    return cell;
}

static void end_cell(struct cgroup_cell *cell)
{
    assert_true(cgroup_cell_remove(cell));
    cgroup_cell_free(cell);
}

/* ---- processes --------------------------------------------------------- */

/* fork into a cell, as the supervisor does it; the child is in it. */
static pid_t fork_into(const struct cgroup_cell *cell)
{
    int fds[CGROUP_JOIN_MAX];
    int clone_fd = cgroup_cell_clone_fd(cell);
    size_t count = cgroup_cell_join_fds(cell, true, fds);
    struct clone_args args = {.exit_signal = SIGCHLD};
    if (clone_fd >= 0) {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = (unsigned)clone_fd;
    }
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0 && cgroup_join(fds, count) != 0)
        _exit(99);
    return pid;
}

static int wait_for(pid_t pid)
{
    int status = -1;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* Touches memory page by page; never returns when the limit holds. */
static void eat(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(98);
    for (size_t at = 0; at < bytes; at += 4096)
        memory[at] = 1;
}

static void burn(uint64_t wall_ns)
{
    uint64_t end = clock_after_ns(wall_ns);
    while (clock_now_ns() < end)
        continue;
}

/* ---- cells ------------------------------------------------------------- */

static int count_cells(void *user, int dir_fd, const char *name)
{
    int *count = user;
    (void)dir_fd;
    (void)name;
    (*count)++;
    return 0;
}

static void cells_come_and_go_without_a_trace(void **state)
{
    struct supervisor *supervisor = *state;
    struct cgroup_usage usage;
    int files = count_open_files();
    uint64_t cpu_ns = 0;

    for (int i = 0; i < CYCLES; i++) {
        struct cgroup_cell *cell = make_cell(supervisor, &limits);
        pid_t pid = fork_into(cell);
        if (pid == 0) {
            eat(MIB(1));
            _exit(0);
        }
        cgroup_cell_joined(cell);
        assert_int_equal(wait_for(pid), 0);
        cgroup_cell_usage(cell, &usage);
        cpu_ns += usage.cpu_ns;
        assert_true(usage.peak_memory_bytes > 0);
        assert_int_equal(usage.oom_kills, 0);
        assert_int_equal(usage.pids_max_hits, 0);
        end_cell(cell);
    }
    assert_true(cpu_ns > 0); /* in all: a machine with a coarse clock may miss one */
    for (size_t i = 0; i < supervisor->host->count; i++) {
        int cells = 0;
        assert_int_equal(
            cgroup_each_child(supervisor->host->hierarchies[i].fd, count_cells, &cells), 0);
        assert_int_equal(cells, 0);
    }
    assert_int_equal(count_open_files(), files);
}

static void a_joined_process_is_in_every_group(void **state)
{
    struct supervisor *supervisor = *state;
    struct hutch_error err;
    int pipe_fds[2];
    char path[64];
    char full_name[128];
    struct cgroup_cell *cell = make_cell(supervisor, &limits);
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);

    pid_t pid = fork_into(cell);
    if (pid == 0) {
        if (write(pipe_fds[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    char byte;
    assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
    snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    assert_int_equal(buf_read_file(&text, AT_FDCWD, path, &err), 0);
    size_t found = 0;
    snprintf(full_name, sizeof(full_name), "/%s/cell-1\n", supervisor->host->name);
    for (const char *at = buf_text(&text); (at = strstr(at, full_name)) != NULL; at++)
        found++;
    assert_int_equal(found, supervisor->host->count);

    assert_false(cgroup_cell_remove(cell));
    cgroup_cell_kill(cell);
    assert_int_equal(wait_for(pid), SIGKILL);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    end_cell(cell);
}

static void memory_limit_holds_and_is_reported(void **state)
{
    struct supervisor *supervisor = *state;
    struct cgroup_usage usage;
    struct cgroup_cell *cell = make_cell(supervisor, &limits);
    struct pollfd poll_fd = {.fd = cgroup_cell_oom_fd(cell), .events = POLLIN};

    assert_true(poll_fd.fd >= 0);
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    assert_false(cgroup_cell_take_oom(cell));
    pid_t pid = fork_into(cell);
    if (pid == 0) {
        eat(MIB(64));
        _exit(0);
    }
    bool met = false;
    for (uint64_t end = clock_after_ns(WAIT_NS); !met && clock_now_ns() < end;) {
        assert_true(poll(&poll_fd, 1, clock_poll_timeout(end)) >= 0);
        met = cgroup_cell_take_oom(cell);
    }
    assert_true(met);
    assert_int_equal(wait_for(pid), SIGKILL);
    cgroup_cell_usage(cell, &usage);
    assert_true(usage.oom_kills >= 1);
    assert_true(usage.peak_memory_bytes > MIB(15));
    assert_true(usage.peak_memory_bytes <= MIB(16));
    end_cell(cell);
}

static void a_cell_within_its_memory_is_left_alone(void **state)
{
    struct supervisor *supervisor = *state;
    struct cgroup_usage usage;
    struct cgroup_cell *hungry = make_cell(supervisor, &limits);
    struct cgroup_cell *modest = make_cell(supervisor, &limits);
    pid_t pid = fork_into(modest);

    if (pid == 0) {
        eat(MIB(8));
        _exit(0);
    }
    assert_int_equal(wait_for(pid), 0);
    pid = fork_into(hungry);
    if (pid == 0) {
        eat(MIB(64));
        _exit(0);
    }
    assert_int_equal(wait_for(pid), SIGKILL);
    assert_true(cgroup_cell_take_oom(hungry));
    assert_false(cgroup_cell_take_oom(modest));
    cgroup_cell_usage(modest, &usage);
    assert_int_equal(usage.oom_kills, 0);
    assert_true(usage.peak_memory_bytes >= MIB(8));
    end_cell(hungry);
    end_cell(modest);
}

static void process_limit_holds_and_is_counted(void **state)
{
    struct supervisor *supervisor = *state;
    struct cgroup_usage usage;
    struct cgroup_cell *cell = make_cell(supervisor, &limits);

    pid_t pid = fork_into(cell);
    if (pid == 0) {
        int children = 0;
        pid_t child;
        while (children < 50 && (child = fork()) > 0)
            children++;
        if (child == 0)
            pause();
        _exit(errno == EAGAIN ? children : 97);
    }
    int status = wait_for(pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), limits.max_processes - 1);
    cgroup_cell_usage(cell, &usage);
    assert_true(usage.pids_max_hits >= 1);
    assert_false(cgroup_cell_remove(cell));
    cgroup_cell_kill(cell);
    for (uint32_t i = 0; i < limits.max_processes - 1; i++) {
        int killed = 0;
        assert_true(wait(&killed) > 0);
        assert_int_equal(killed, SIGKILL);
    }
    end_cell(cell);
}

static void processor_limit_holds(void **state)
{
    struct supervisor *supervisor = *state;
    struct cgroup_usage usage;
    struct cgroup_limits tenth = limits;
    tenth.cpu_millis = 100;
    struct cgroup_cell *cell = make_cell(supervisor, &tenth);
    uint64_t wall_ns = 600 * NS_PER_MS;

    pid_t pid = fork_into(cell);
    if (pid == 0) {
        burn(wall_ns);
        _exit(0);
    }
    assert_int_equal(wait_for(pid), 0);
    cgroup_cell_usage(cell, &usage);
    assert_true(usage.cpu_ns > wall_ns / 50);
    assert_true(usage.cpu_ns < wall_ns / 3);
    end_cell(cell);
}

static void a_kill_reaches_those_that_went_away(void **state)
{
    struct supervisor *supervisor = *state;
    int pipe_fds[2];
    struct cgroup_cell *cell = make_cell(supervisor, &limits);
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);

    pid_t pid = fork_into(cell);
    if (pid == 0) {
        if (fork() > 0)
            _exit(0);
        setsid();
        if (fork() > 0)
            _exit(0);
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        pid = getpid();
        if (write(pipe_fds[1], &pid, sizeof(pid)) != (ssize_t)sizeof(pid))
            _exit(1);
        pause();
    }
    pid_t daemon_pid;
    assert_int_equal(read(pipe_fds[0], &daemon_pid, sizeof(daemon_pid)), sizeof(daemon_pid));
    assert_int_equal(wait_for(pid), 0);
    cgroup_cell_kill(cell);
    int status = 0;
    int daemon_status = 0;
    for (pid_t reaped; (reaped = wait(&status)) > 0;)
        daemon_status = reaped == daemon_pid ? status : daemon_status;
    assert_int_equal(daemon_status, SIGKILL);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    end_cell(cell);
}

/* ---- after a supervisor was killed ------------------------------------- */

/* What the holder tells about its life. */
struct holder_report {
    pid_t in_cell;
    size_t tree_count;
    char paths[CGROUP_CONTROLLERS][CGROUP_PATH_BYTES];
};

/* A supervisor with a cell in which a process waits. */
static void hold(struct supervisor *supervisor, int report_fd)
{
    struct hutch_error err;
    struct cgroup_cell *cell;
    struct holder_report *report = calloc(1, sizeof(*report));

    if (!begin(supervisor, &err) || cgroup_cell_create(supervisor->host, &limits, &cell, &err) < 0)
        _exit(1);
    report->tree_count = supervisor->host->count;
    for (size_t i = 0; i < supervisor->host->count; i++)
        memcpy(report->paths[i], supervisor->host->hierarchies[i].path, CGROUP_PATH_BYTES);
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) < 0)
        _exit(1);
    report->in_cell = fork_into(cell);
    if (report->in_cell == 0) {
        /* as after an exec: nothing inherited keeps the record's lock */
        if (close_range(3, (unsigned)ready[1] - 1, 0) < 0 ||
            close_range((unsigned)ready[1] + 1, ~0u, 0) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1 ||
        write(report_fd, report, sizeof(*report)) != (ssize_t)sizeof(*report))
        _exit(1);
    pause();
    _exit(1);
}

static bool is_there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

static void what_a_killed_supervisor_left_is_swept(void **state)
{
    struct supervisor *supervisor = *state;
    struct hutch_error err;
    struct holder_report report;
    int pipe_fds[2];
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);

    pid_t pid = fork();
    if (pid == 0)
        hold(supervisor, pipe_fds[1]);
    assert_int_equal(read(pipe_fds[0], &report, sizeof(report)), sizeof(report));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    assert_int_equal(report.tree_count > 0, 1);

    /* while it lives, nothing of it is touched */
    assert_int_equal(slots_sweep(supervisor->run, &err), 0);
    assert_int_equal(kill(report.in_cell, 0), 0);
    for (size_t i = 0; i < report.tree_count; i++)
        assert_true(is_there(report.paths[i]));

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(wait_for(pid), SIGKILL);
    assert_int_equal(kill(report.in_cell, 0), 0);
    int left = slots_sweep(supervisor->run, &err);
    assert_true(left == 0 || left == 1);
    assert_int_equal(wait_for(report.in_cell), SIGKILL);
    assert_int_equal(slots_sweep(supervisor->run, &err), 0);
    for (size_t i = 0; i < report.tree_count; i++)
        assert_false(is_there(report.paths[i]));
}

/* Takes every uid of a small range that it can get; the exit status says how
 * many. */
static void take_uids(const struct supervisor *supervisor, int go_fd, int taken_fd)
{
    struct slots *slots;
    struct hutch_error err;
    uid_t uids[16];
    size_t count = 0;
    char byte;

    if (slots_open(supervisor->run, 0, ARRAY_LENGTH(uids), NULL, &slots, &err) < 0 ||
        read(go_fd, &byte, 1) != 0)
        _exit(99);
    while (count < ARRAY_LENGTH(uids) && slots_acquire(slots, &uids[count], &err) == 0)
        count++;
    if (write(taken_fd, uids, count * sizeof(*uids)) != (ssize_t)(count * sizeof(*uids)))
        _exit(99);
    pause();
    _exit(99);
}

static void two_processes_never_get_the_same_uid(void **state)
{
    struct supervisor *supervisor = *state;
    int go[2], taken[2];
    pid_t pids[2];
    uid_t uids[16];
    assert_int_equal(pipe2(go, O_CLOEXEC), 0);
    assert_int_equal(pipe2(taken, O_CLOEXEC), 0);

    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            close(go[1]);
            take_uids(supervisor, go[0], taken[1]);
        }
    }
    close(go[1]); /* both start now */
    close(taken[1]);
    size_t size = 0;
    while (size < sizeof(uids)) {
        ssize_t got = read(taken[0], (char *)uids + size, sizeof(uids) - size);
        assert_true(got > 0);
        size += (size_t)got;
    }
    bool seen[ARRAY_LENGTH(uids)] = {false};
    for (size_t i = 0; i < ARRAY_LENGTH(uids); i++) {
        size_t index = uids[i] - SLOTS_DEFAULT_BASE;
        assert_true(index < ARRAY_LENGTH(seen));
        assert_false(seen[index]);
        seen[index] = true;
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kill(pids[i], SIGKILL), 0);
        assert_int_equal(wait_for(pids[i]), SIGKILL);
    }
    close(go[0]);
    close(taken[0]);
    /* the dead hold none */
    struct slots *slots;
    struct hutch_error err;
    assert_int_equal(slots_open(supervisor->run, 0, ARRAY_LENGTH(uids), NULL, &slots, &err), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(uids); i++)
        assert_int_equal(slots_acquire(slots, &uids[i], &err), 0);
    slots_close(slots);
}

static void the_default_run_directory_is_made(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct hutch_error err;
        struct stat info;
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0)
            _exit(2);
        if (slots_run_dir_open(NULL, &err) < 0 || stat("/run/hutch", &info) < 0)
            _exit(3);
        _exit((info.st_mode & 07777) == 0700 ? 0 : 4);
    }
    assert_int_equal(wait_for(pid), 0);
}

#define test_with_host(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define test_with_run_dir(test) cmocka_unit_test_setup_teardown(test, setup_run_dir, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_with_host(cells_come_and_go_without_a_trace),
        test_with_host(a_joined_process_is_in_every_group),
        test_with_host(memory_limit_holds_and_is_reported),
        test_with_host(a_cell_within_its_memory_is_left_alone),
        test_with_host(process_limit_holds_and_is_counted),
        test_with_host(processor_limit_holds),
        test_with_host(a_kill_reaches_those_that_went_away),
        test_with_run_dir(what_a_killed_supervisor_left_is_swept),
        test_with_run_dir(two_processes_never_get_the_same_uid),
        cmocka_unit_test(the_default_run_directory_is_made),
    };
    if (geteuid() != 0) {
        fprintf(stderr, "this test needs root\n");
        return 1;
    }
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
