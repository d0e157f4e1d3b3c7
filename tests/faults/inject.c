/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inject REPORT ROLE N COMMAND...
 *
 * Runs COMMAND, a program that holds an engine, and lets the Nth fallible system
 * call of one ROLE fail with an error that the call may well have; with N 0, or
 * beyond the last, none. It is the programs' tracer, so they are the ones that
 * are installed, and what runs between clone and exec is within its reach.
 * Allocations are calls too: see memory.c.
 *
 *     engine      the program, between its marks (mark.h)
 *     spawn       the child that becomes hutch-supervisor, up to its exec
 *     supervisor  hutch-supervisor
 *     worker      a child that it forks: to build a tree, to start a process
 *     ask         a child of a worker, up to its exec
 *     setup       the child that becomes hutch-init, up to its exec
 *     init        hutch-init
 *     launch      the child that becomes the interpreter, up to its exec
 *
 * Only a process that has the role, or may have a child that will, is traced, and
 * after the fault none is: being traced shows in little, but it shows.
 *
 * The file REPORT says in the end, in one line: how many calls there were up to
 * the fault, and the call that failed with its error; "- -" when none did. The
 * exit status is that of COMMAND, or 128 and the number of its signal.
 */
#include "base/parse.h"
#include "mark.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES_MAX 256
#define FOLLOW (PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE)
#define ALWAYS (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)
#define SYSCALL_STOP (SIGTRAP | 0x80)

enum role {
    ROLE_UNKNOWN, /* stopped before its parent said what it is */
    ROLE_OTHER,
    ROLE_ENGINE,
    ROLE_SPAWN,
    ROLE_SUPERVISOR,
    ROLE_WORKER,
    ROLE_ASK,
    ROLE_SETUP,
    ROLE_INIT,
    ROLE_LAUNCH,
    ROLE_COUNT
};

static const struct {
    const char *name;
    enum role after_exec;
    unsigned may_lead_to; /* roles of its future, and of its children's */
} roles[ROLE_COUNT] = {
    [ROLE_ENGINE] = {"engine", ROLE_ENGINE, ~0u},
    [ROLE_SPAWN] = {"spawn", ROLE_SUPERVISOR, ~0u & ~(1u << ROLE_ENGINE)},
    [ROLE_SUPERVISOR] = {"supervisor", ROLE_SUPERVISOR,
                         1u << ROLE_WORKER | 1u << ROLE_ASK | 1u << ROLE_SETUP | 1u << ROLE_INIT |
                             1u << ROLE_LAUNCH},
    [ROLE_WORKER] = {"worker", ROLE_OTHER, 1u << ROLE_ASK | 1u << ROLE_LAUNCH},
    [ROLE_ASK] = {"ask", ROLE_OTHER, 0},
    [ROLE_SETUP] = {"setup", ROLE_INIT, 1u << ROLE_INIT},
    [ROLE_INIT] = {"init", ROLE_OTHER, 0},
    [ROLE_LAUNCH] = {"launch", ROLE_OTHER, 0},
};

struct process {
    pid_t pid; /* 0: free */
    enum role role;
    bool failing; /* in the call that is to fail */
};

struct injection {
    enum role target;
    uint64_t nth, seen;
    bool marked; /* between the engine's marks */
    bool over;   /* nobody is traced any more */
    struct process processes[PROCESSES_MAX];
    char call[64];
    int error;
};

/* ---- which calls fail, and how ----------------------------------------- */

/* Calls that cannot fail, or whose failure would leave a state that no kernel
 * leaves: a descriptor that is still open, a child that is dead and still there,
 * a living child that cannot be killed, an errno of brk, which has none. */
static const int infallible[] = {
    SYS_exit,        SYS_exit_group,      SYS_rt_sigreturn,    SYS_restart_syscall,
    SYS_close,       SYS_munmap,          SYS_wait4,           SYS_waitid,
    SYS_kill,        SYS_tgkill,          SYS_futex,           SYS_pidfd_send_signal,
    SYS_getpid,      SYS_gettid,          SYS_getppid,         SYS_getuid,
    SYS_geteuid,     SYS_getgid,          SYS_getegid,         SYS_umask,
    SYS_alarm,       SYS_set_tid_address, SYS_set_robust_list, SYS_rseq,
    SYS_sched_yield, SYS_rt_sigprocmask,  SYS_rt_sigaction,    SYS_sysinfo,
    SYS_brk,
#ifdef __SANITIZE_ADDRESS__ /* which ends a process that has no memory for it */
    SYS_mmap,        SYS_mprotect,        SYS_mremap,
#endif
};

static const struct {
    int call;
    int error;
} errors[] = {
    {SYS_open, EMFILE},
    {SYS_openat, EMFILE},
    {SYS_openat2, EMFILE},
    {SYS_open_tree, EMFILE},
    {SYS_socket, EMFILE},
    {SYS_socketpair, EMFILE},
    {SYS_pipe2, EMFILE},
    {SYS_eventfd2, EMFILE},
    {SYS_signalfd4, EMFILE},
    {SYS_timerfd_create, EMFILE},
    {SYS_epoll_create1, EMFILE},
    {SYS_memfd_create, EMFILE},
    {SYS_pidfd_open, EMFILE},
    {SYS_dup, EMFILE},
    {SYS_landlock_create_ruleset, EMFILE},
    {SYS_clone, EAGAIN},
    {SYS_clone3, EAGAIN},
    {SYS_fork, EAGAIN},
    {SYS_vfork, EAGAIN},
    {SYS_mmap, ENOMEM},
    {SYS_mremap, ENOMEM},
    {SYS_mprotect, ENOMEM},
    {SYS_epoll_ctl, ENOSPC},
    {SYS_execve, ENOMEM},
    {SYS_execveat, ENOMEM},
    {SYS_setsockopt, ENOMEM},
    {SYS_read, EIO},
    {SYS_pread64, EIO},
    {SYS_getdents64, EIO},
    {SYS_newfstatat, EIO},
    {SYS_readlink, EIO},
    {SYS_readlinkat, EIO},
    {SYS_write, ENOSPC},
    {SYS_mkdir, ENOSPC},
    {SYS_mkdirat, ENOSPC},
    {SYS_mknod, ENOSPC},
    {SYS_mknodat, ENOSPC},
    {SYS_symlinkat, ENOSPC},
    {SYS_linkat, ENOSPC},
    {SYS_rename, EIO},
    {SYS_renameat, EIO},
    {SYS_renameat2, EIO},
    {SYS_unlink, EIO},
    {SYS_unlinkat, EBUSY},
    {SYS_rmdir, EBUSY},
    {SYS_copy_file_range, ENOSPC},
    {SYS_sendfile, ENOSPC},
    {SYS_ftruncate, ENOSPC},
    {SYS_fallocate, ENOSPC},
    {SYS_sendto, ENOBUFS},
    {SYS_sendmsg, ENOBUFS},
    {SYS_recvfrom, ENOMEM},
    {SYS_recvmsg, ENOMEM},
    {SYS_poll, EINTR},
    {SYS_ppoll, EINTR},
    {SYS_epoll_wait, EINTR},
    {SYS_epoll_pwait, EINTR},
    {SYS_getrandom, EAGAIN},
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* The error of a call; 0 when it is none of ours. */
static int error_of(const struct user_regs_struct *registers)
{
    int call = (int)registers->orig_rax;

    if (call == SYS_prctl && registers->rdi == MARK)
        return registers->rsi == MARK_MEMORY ? ENOMEM : 0;
    for (size_t i = 0; i < LENGTH(infallible); i++) {
        if (infallible[i] == call)
            return 0;
    }
    for (size_t i = 0; i < LENGTH(errors); i++) {
        if (errors[i].call == call)
            return errors[i].error;
    }
    return EPERM;
}

static void note_call(struct injection *injection, const struct user_regs_struct *registers)
{
    if (registers->orig_rax == SYS_prctl && registers->rdi == MARK) {
        snprintf(injection->call, sizeof(injection->call), "malloc");
        return;
    }
    char *name = seccomp_syscall_resolve_num_arch(seccomp_arch_native(), (int)registers->orig_rax);
    snprintf(injection->call, sizeof(injection->call), "%s", name ? name : "?");
    free(name);
}

/* ---- processes --------------------------------------------------------- */

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "inject: %s: %s\n", what, strerrordesc_np(errno));
    exit(99);
}

static struct process *find(struct injection *injection, pid_t pid)
{
    for (size_t i = 0; i < PROCESSES_MAX; i++) {
        if (injection->processes[i].pid == pid)
            return &injection->processes[i];
    }
    return NULL;
}

static struct process *add(struct injection *injection, pid_t pid, enum role role)
{
    struct process *process = find(injection, 0);
    if (!process)
        give_up("too many processes");
    *process = (struct process){.pid = pid, .role = role};
    return process;
}

static bool is_wanted(const struct injection *injection, enum role role)
{
    return role == injection->target || (roles[role].may_lead_to & 1u << injection->target) != 0;
}

static void detach(struct process *process, int signal)
{
    /* ESRCH: it was killed meanwhile */
    if (ptrace(PTRACE_DETACH, process->pid, NULL, (long)signal) < 0 && errno != ESRCH)
        give_up("detach");
    process->pid = 0;
}

/* A stopped process goes on, traced only as far as it has to be. */
static void go_on(struct injection *injection, struct process *process, int signal)
{
    bool is_target = process->role == injection->target;

    if (injection->over || !is_wanted(injection, process->role)) {
        detach(process, signal);
        return;
    }
    bool follow = (roles[process->role].may_lead_to & 1u << injection->target) != 0;
    ptrace(PTRACE_SETOPTIONS, process->pid, NULL,
           (long)(follow && process->role != injection->target ? ALWAYS | FOLLOW : ALWAYS));
    if (ptrace(is_target ? PTRACE_SYSCALL : PTRACE_CONT, process->pid, NULL, (long)signal) < 0 &&
        errno != ESRCH)
        give_up("continue");
}

static void finish(struct injection *injection)
{
    injection->over = true;
    for (size_t i = 0; i < PROCESSES_MAX; i++) {
        if (injection->processes[i].pid != 0)
            ptrace(PTRACE_INTERRUPT, injection->processes[i].pid, NULL, NULL);
    }
}

/* ---- what happens ------------------------------------------------------ */

static uint64_t clone_flags(pid_t parent)
{
    struct user_regs_struct registers;

    if (ptrace(PTRACE_GETREGS, parent, NULL, &registers) < 0)
        return 0;
    if (registers.orig_rax == SYS_clone3)
        return (uint64_t)ptrace(PTRACE_PEEKDATA, parent, (void *)registers.rdi, NULL);
    return registers.orig_rax == SYS_clone ? registers.rdi : 0;
}

static enum role role_of_child(enum role parent, uint64_t flags)
{
    if (parent == ROLE_ENGINE)
        return ROLE_SPAWN;
    if (parent == ROLE_WORKER)
        return flags & CLONE_PIDFD ? ROLE_LAUNCH : ROLE_ASK;
    if (parent != ROLE_SUPERVISOR)
        return ROLE_OTHER;
    if (flags & CLONE_NEWPID)
        return ROLE_SETUP;
    return flags & CLONE_PIDFD ? ROLE_LAUNCH : ROLE_WORKER;
}

static void on_child(struct injection *injection, struct process *parent)
{
    unsigned long pid;

    if (ptrace(PTRACE_GETEVENTMSG, parent->pid, NULL, &pid) < 0)
        return;
    enum role role = role_of_child(parent->role, clone_flags(parent->pid));
    struct process *child = find(injection, (pid_t)pid);
    if (child) { /* it has stopped already */
        child->role = role;
        go_on(injection, child, 0);
    } else {
        add(injection, (pid_t)pid, role);
    }
    /* The engine starts one supervisor: then it need not be looked at any more. */
    if (parent->role == ROLE_ENGINE)
        parent->role = ROLE_OTHER;
}

/* At the entry of a call: counts it, and makes it none at all when it is the one. */
static void on_entry(struct injection *injection, struct process *process,
                     struct user_regs_struct registers)
{
    if (registers.orig_rax == SYS_prctl && registers.rdi == MARK && registers.rsi != MARK_MEMORY)
        injection->marked = registers.rsi == MARK_BEGIN;
    int error = error_of(&registers);
    if (error == 0 || (process->role == ROLE_ENGINE && !injection->marked) ||
        ++injection->seen != injection->nth)
        return;
    note_call(injection, &registers);
    injection->error = error;
    process->failing = true;
    registers.orig_rax = (unsigned long long)-1;
    if (ptrace(PTRACE_SETREGS, process->pid, NULL, &registers) < 0)
        give_up("let a call fail");
}

static void on_call(struct injection *injection, struct process *process)
{
    struct __ptrace_syscall_info info;
    struct user_regs_struct registers;

    if (ptrace(PTRACE_GET_SYSCALL_INFO, process->pid, (void *)sizeof(info), &info) < 0 ||
        ptrace(PTRACE_GETREGS, process->pid, NULL, &registers) < 0)
        return; /* it was killed meanwhile */
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        on_entry(injection, process, registers);
    } else if (process->failing) {
        registers.rax = (unsigned long long)-injection->error;
        if (ptrace(PTRACE_SETREGS, process->pid, NULL, &registers) < 0)
            give_up("let a call fail");
        finish(injection);
    }
}

static void on_stop(struct injection *injection, struct process *process, int status)
{
    int signal = WSTOPSIG(status);
    int event = status >> 16;

    if (signal == SYSCALL_STOP) {
        on_call(injection, process);
    } else if (event == PTRACE_EVENT_EXEC) {
        process->role = roles[process->role].after_exec;
    } else if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK ||
               event == PTRACE_EVENT_CLONE) {
        on_child(injection, process);
    } else if (event == 0) {
        go_on(injection, process, signal);
        return;
    }
    if (process->role != ROLE_UNKNOWN || injection->over)
        go_on(injection, process, 0);
}

/* Until the program has ended; returns its exit status. */
static int watch(struct injection *injection, pid_t program)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0)
            give_up("wait");
        struct process *process = find(injection, pid);
        if (!WIFSTOPPED(status)) {
            if (process)
                process->pid = 0;
            if (pid == program)
                return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        on_stop(injection, process ? process : add(injection, pid, ROLE_UNKNOWN), status);
    }
}

static pid_t start(char **command)
{
    pid_t pid = fork();

    if (pid == 0) {
        raise(SIGSTOP);
        execv(command[0], command);
        _exit(127);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, WUNTRACED) != pid ||
        ptrace(PTRACE_SEIZE, pid, NULL, (long)ALWAYS) < 0 || kill(pid, SIGCONT) < 0)
        give_up("start the program");
    return pid;
}

int main(int argc, char **argv)
{
    struct injection injection = {.target = ROLE_UNKNOWN};

    struct hutch_error err;

    for (int role = ROLE_ENGINE; argc > 4 && role < ROLE_COUNT; role++) {
        if (strcmp(argv[2], roles[role].name) == 0)
            injection.target = (enum role)role;
    }
    if (injection.target == ROLE_UNKNOWN ||
        parse_u64(argv[3], 0, UINT32_MAX, &injection.nth, &err) < 0) {
        fprintf(stderr, "usage: inject REPORT ROLE N COMMAND...\n");
        return 99;
    }
    FILE *report = fopen(argv[1], "we");
    if (!report)
        give_up("open the report");
    pid_t program = start(argv + 4);
    add(&injection, program, ROLE_ENGINE);
    int status = watch(&injection, program);
    fprintf(report, "%" PRIu64 " %s %s\n", injection.seen, injection.call[0] ? injection.call : "-",
            injection.error ? strerrorname_np(injection.error) : "-");
    return fclose(report) == 0 ? status : 99;
}
