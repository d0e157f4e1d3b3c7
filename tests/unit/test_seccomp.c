/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call filter of cells, seen from two sides: its BPF program,
 * interpreted here, against the rows of seccomp_rules.def; and the kernel's
 * answers in a child under the filter, call by call.
 */
#include "sandbox/namespace/seccomp.h"

#include "sandbox/namespace/seccomp_table.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define NOBODY 65534
#define UPPER_HALF (1ull << 32)
#define X32_BIT 0x40000000

/* ---- the program against the rows */

/* Runs a filter as the kernel does; only what libseccomp emits. */
static uint32_t interpret(const struct sock_fprog *program, const struct seccomp_data *data)
{
    uint32_t accumulator = 0;

    for (size_t at = 0; at < program->len; at++) {
        const struct sock_filter *step = &program->filter[at];
        bool jump;

        switch (step->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(step->k + sizeof(accumulator) <= sizeof(*data));
            memcpy(&accumulator, (const char *)data + step->k, sizeof(accumulator));
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            accumulator &= step->k;
            continue;
        case BPF_RET | BPF_K:
            return step->k;
        case BPF_JMP | BPF_JA:
            at += step->k;
            continue;
        case BPF_JMP | BPF_JEQ | BPF_K:
            jump = accumulator == step->k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            jump = accumulator >= step->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            jump = accumulator > step->k;
            break;
        default:
            fail_msg("instruction %zu has code %#x", at, (unsigned)step->code);
            return 0;
        }
        at += jump ? step->jt : step->jf;
    }
    fail_msg("the program has no end");
    return 0;
}

#ifdef __x86_64__
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#define FOREIGN_ARCH AUDIT_ARCH_I386
#else
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#define FOREIGN_ARCH AUDIT_ARCH_ARM
#endif

/* Of two filters the stricter answer counts, of two errors the later filter's. */
static uint32_t together(uint32_t first, uint32_t later)
{
    uint32_t action_1 = first & SECCOMP_RET_ACTION_FULL;
    uint32_t action_2 = later & SECCOMP_RET_ACTION_FULL;
    return action_1 < action_2 ? first : later;
}

/* By the filter of a cell. A child of a zygote must get the same by its two. */
static uint32_t filter_answer(const struct seccomp_data *data)
{
    uint32_t cell = interpret(seccomp_filter(SECCOMP_CELL), data);
    uint32_t forked = together(interpret(seccomp_filter(SECCOMP_ZYGOTE), data),
                               interpret(seccomp_filter(SECCOMP_FORKED), data));

    if (forked != cell)
        fail_msg("call %d(%#jx, %#jx): %#x in a cell, %#x in a forked one", data->nr,
                 (uintmax_t)data->args[0], (uintmax_t)data->args[1], (unsigned)cell,
                 (unsigned)forked);
    return cell;
}

static uint32_t filtered(int call, const uint64_t arguments[6])
{
    struct seccomp_data data = {.nr = call, .arch = NATIVE_ARCH};
    memcpy(data.args, arguments, sizeof(data.args));
    return filter_answer(&data);
}

static bool matches(const struct seccomp_rule *rule, const uint64_t arguments[6])
{
    for (unsigned i = 0; i < rule->condition_count; i++) {
        const struct seccomp_condition *condition = &rule->conditions[i];
        if ((arguments[condition->argument] & condition->mask) != condition->value)
            return false;
    }
    return true;
}

/* What the rows say; no two may contradict each other. */
static uint32_t expected(int call, const uint64_t arguments[6])
{
    const struct seccomp_rule *found = NULL;

    for (size_t i = 0; i < SECCOMP_RULES; i++) {
        const struct seccomp_rule *rule = &seccomp_rules[i];
        if (rule->call != call || !matches(rule, arguments))
            continue;
        if (found && found->action != rule->action)
            fail_msg("rows of %s contradict each other", rule->name);
        found = rule;
    }
    return found ? found->action : SECCOMP_DEFAULT;
}

static void compare(const char *name, int call, const uint64_t arguments[6])
{
    /* Neither set nor get: 0, whether it is run or not. */
    if (call == SYS_prlimit64 && arguments[2] == 0 && arguments[3] == 0)
        return;
    uint32_t want = expected(call, arguments);
    uint32_t got = filtered(call, arguments);
    if (got != want)
        fail_msg("%s(%#jx, %#jx, %#jx, %#jx): %#x, not %#x", name, (uintmax_t)arguments[0],
                 (uintmax_t)arguments[1], (uintmax_t)arguments[2], (uintmax_t)arguments[3],
                 (unsigned)got, (unsigned)want);
}

/* Arguments that a row matches, everything it does not look at filled up; then
 * all that differ from them in one bit. */
static void compare_around(const struct seccomp_rule *rule, uint64_t filler)
{
    uint64_t arguments[6];

    for (int i = 0; i < 6; i++)
        arguments[i] = filler;
    for (unsigned i = 0; i < rule->condition_count; i++) {
        const struct seccomp_condition *condition = &rule->conditions[i];
        arguments[condition->argument] = condition->value | (filler & ~condition->mask);
    }
    assert_true(matches(rule, arguments));
    compare(rule->name, rule->call, arguments);
    for (int bit = 0; bit < 6 * 64; bit++) {
        arguments[bit / 64] ^= 1ull << bit % 64;
        compare(rule->name, rule->call, arguments);
        arguments[bit / 64] ^= 1ull << bit % 64;
    }
}

static void test_program_follows_the_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < SECCOMP_RULES; i++) {
        compare_around(&seccomp_rules[i], 0);
        compare_around(&seccomp_rules[i], UINT64_MAX);
        compare_around(&seccomp_rules[i], UPPER_HALF | 0x5a5a);
    }
}

/* The zygote's calls work there, and for programs nowhere. */
static void test_zygotes_can_enter_cells(void **state)
{
    (void)state;
    for (size_t i = 0; i < SECCOMP_ZYGOTE_RULES; i++) {
        const struct seccomp_rule *rule = &seccomp_zygote_rules[i];
        struct seccomp_data data = {.nr = rule->call, .arch = NATIVE_ARCH};
        for (unsigned j = 0; j < rule->condition_count; j++)
            data.args[rule->conditions[j].argument] = rule->conditions[j].value;
        assert_int_equal(interpret(seccomp_filter(SECCOMP_ZYGOTE), &data), SECCOMP_RET_ALLOW);
        assert_int_equal(filter_answer(&data), SECCOMP_DEFAULT);
        compare_around(rule, 0);
        compare_around(rule, UINT64_MAX);
    }
}

static void test_everything_else_is_closed(void **state)
{
    (void)state;
    const uint64_t zeros[6] = {0};
    const uint64_t ones[6] = {UINT64_MAX, UINT64_MAX, UINT64_MAX,
                              UINT64_MAX, UINT64_MAX, UINT64_MAX};
    for (int call = 0; call < 4096; call++) {
        compare("number", call, zeros);
        compare("number", call, ones);
        assert_int_equal(filtered(call | X32_BIT, zeros), SECCOMP_DEFAULT);
        struct seccomp_data foreign = {.nr = call, .arch = FOREIGN_ARCH};
        assert_int_equal(filter_answer(&foreign), SECCOMP_DEFAULT);
    }
    for (int bit = 12; bit < 31; bit++)
        assert_int_equal(filtered(1 << bit, zeros), SECCOMP_DEFAULT);
    assert_int_equal(filtered(-1, zeros), SECCOMP_DEFAULT);
}

/* ---- the kernel's answers */

/* Becomes nobody, so that no call could do harm if it were open after all, and
 * goes under the filter. */
static void enter_filter(void)
{
    if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
                           setresuid(NOBODY, NOBODY, NOBODY) < 0))
        _exit(1);
    if (setsid() < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        seccomp_install(SECCOMP_CELL) < 0)
        _exit(1);
}

/* Runs function under the filter in a child. It writes what it found to shared
 * memory; the parent asserts. */
static void run_filtered(void (*function)(int *results), int *results)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        enter_filter();
        function(results);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static int *shared_results(size_t count)
{
    int *results = mmap(NULL, count * sizeof(*results), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(results, MAP_FAILED);
    return results;
}

/* The errno of a call, 0 when it succeeded. */
static int answer(long call, const uint64_t arguments[6])
{
    errno = 0;
    long result = syscall(call, arguments[0], arguments[1], arguments[2], arguments[3],
                          arguments[4], arguments[5]);
    return result == -1 ? errno : 0;
}

struct closed_call {
    const char *name;
    long call;
    int error;
    uint64_t arguments[6];
};

/* clang-format off */
#define CLOSED(call_) {.name = #call_, .call = SYS_##call_, .error = ENOSYS}
#define CLOSED_WITH(call_, error_, ...) \
    {.name = #call_ " " #__VA_ARGS__, .call = SYS_##call_, .error = error_, .arguments = {__VA_ARGS__}}
#define CLOSED_NUMBER(number) {.name = "number " #number, .call = number, .error = ENOSYS}

static const struct closed_call closed_calls[] = {
    /* mounts and roots */
    CLOSED(mount), CLOSED(umount2), CLOSED(pivot_root), CLOSED(chroot), CLOSED(fsopen),
    CLOSED(fsconfig), CLOSED(fsmount), CLOSED(fspick), CLOSED(move_mount), CLOSED(open_tree),
    CLOSED(mount_setattr), CLOSED(swapon), CLOSED(swapoff), CLOSED(quotactl), CLOSED(quotactl_fd),
    CLOSED_NUMBER(457) /* statmount */, CLOSED_NUMBER(458) /* listmount */,
    CLOSED_NUMBER(467) /* open_tree_attr */,
    /* namespaces */
    CLOSED(unshare), CLOSED_WITH(unshare, ENOSYS, CLONE_NEWUSER), CLOSED(setns), CLOSED(clone3),
    CLOSED_WITH(clone, EPERM, CLONE_NEWUSER | SIGCHLD),
    CLOSED_WITH(clone, EPERM, CLONE_NEWNS | SIGCHLD),
    CLOSED_WITH(clone, EPERM, CLONE_NEWPID | SIGCHLD),
    CLOSED_WITH(clone, EPERM, CLONE_NEWNET | SIGCHLD),
    CLOSED_WITH(clone, EPERM, CLONE_NEWIPC | SIGCHLD),
    CLOSED_WITH(clone, EPERM, CLONE_NEWUTS | SIGCHLD),
    CLOSED_WITH(clone, EPERM, CLONE_NEWCGROUP | SIGCHLD),
    CLOSED_WITH(clone, EPERM, UPPER_HALF | CLONE_NEWUSER | SIGCHLD),
    CLOSED_WITH(clone, EPERM, CLONE_PARENT | SIGCHLD),
    /* other processes */
    CLOSED(ptrace), CLOSED(process_vm_readv), CLOSED(process_vm_writev), CLOSED(process_madvise),
    CLOSED(process_mrelease), CLOSED(pidfd_getfd), CLOSED(kcmp), CLOSED(perf_event_open),
    CLOSED_WITH(prlimit64, ENOSYS, 1, RLIMIT_CPU, 1),
    /* kernel surface */
    CLOSED(bpf), CLOSED(io_uring_setup), CLOSED(io_uring_enter), CLOSED(io_uring_register),
    CLOSED(userfaultfd), CLOSED(memfd_secret), CLOSED(vmsplice), CLOSED(remap_file_pages),
    CLOSED(add_key), CLOSED(request_key), CLOSED(keyctl), CLOSED(seccomp),
    CLOSED(landlock_create_ruleset), CLOSED(landlock_add_rule), CLOSED(landlock_restrict_self),
    CLOSED(io_setup), CLOSED(io_submit), CLOSED(io_getevents), CLOSED(io_cancel),
    CLOSED(io_destroy), CLOSED(io_pgetevents), CLOSED(mq_open), CLOSED(mq_unlink),
    CLOSED(mq_timedsend), CLOSED(mq_timedreceive), CLOSED(mq_notify), CLOSED(mq_getsetattr),
    CLOSED(lookup_dcookie), CLOSED(mbind), CLOSED(set_mempolicy), CLOSED(get_mempolicy),
    CLOSED(move_pages), CLOSED(migrate_pages), CLOSED(set_mempolicy_home_node),
    CLOSED(futex_waitv),
    /* what would watch or hold up other cells through the tree they share */
    CLOSED(open_by_handle_at), CLOSED(name_to_handle_at), CLOSED(inotify_init1),
    CLOSED(inotify_add_watch), CLOSED(inotify_rm_watch), CLOSED(fanotify_init),
    CLOSED(fanotify_mark),
    CLOSED_WITH(fcntl, ENOSYS, 0, F_SETLEASE, F_RDLCK),
    CLOSED_WITH(fcntl, ENOSYS, 0, UPPER_HALF | F_SETLEASE, F_RDLCK),
    CLOSED_WITH(fcntl, ENOSYS, 0, F_NOTIFY), CLOSED_WITH(fcntl, ENOSYS, 0, F_SETOWN, 1),
    CLOSED_WITH(fcntl, ENOSYS, 0, F_SETSIG, SIGKILL), CLOSED_WITH(fcntl, ENOSYS, 0, 9999),
    /* the machine */
    CLOSED(init_module), CLOSED(finit_module), CLOSED(delete_module), CLOSED(kexec_load),
    CLOSED(reboot), CLOSED(acct), CLOSED(syslog), CLOSED(nfsservctl), CLOSED(sethostname),
    CLOSED(setdomainname), CLOSED(settimeofday), CLOSED(clock_settime), CLOSED(adjtimex),
    CLOSED(clock_adjtime), CLOSED(vhangup),
#ifdef __x86_64__
    CLOSED(iopl), CLOSED(ioperm), CLOSED(modify_ldt), CLOSED(uselib), CLOSED(ustat),
    CLOSED(sysfs), CLOSED(_sysctl), CLOSED(create_module), CLOSED(get_kernel_syms),
    CLOSED(query_module), CLOSED(kexec_file_load), CLOSED(epoll_ctl_old), CLOSED(inotify_init),
    CLOSED_WITH(arch_prctl, ENOSYS, 0x1012 /* ARCH_SET_CPUID */),
    CLOSED_WITH(arch_prctl, ENOSYS, 0x2001 /* ARCH_MAP_VDSO_X32 */),
    CLOSED_WITH(mknod, EPERM, 0, S_IFCHR | 0600), CLOSED_WITH(mknod, EPERM, 0, S_IFBLK | 0600),
    CLOSED_WITH(mknod, ENOSYS, 0, S_IFMT | 0600),
    CLOSED_NUMBER(X32_BIT | 39) /* getpid */, CLOSED_NUMBER(X32_BIT | 520) /* execve */,
#endif
    CLOSED_WITH(mknodat, EPERM, 0, 0, S_IFCHR | 0600),
    CLOSED_WITH(mknodat, EPERM, 0, 0, S_IFBLK | 0600),
    CLOSED_WITH(mknodat, EPERM, 0, 0, UPPER_HALF | S_IFBLK | 0600),
    CLOSED_WITH(personality, ENOSYS, 0x0040000 /* ADDR_NO_RANDOMIZE */),
    CLOSED_WITH(personality, ENOSYS, 8 /* PER_LINUX32 */),
    CLOSED_WITH(personality, ENOSYS, UPPER_HALF | 0x0040000),
    CLOSED_WITH(prctl, ENOSYS, PR_SET_MM, 1), CLOSED_WITH(prctl, ENOSYS, PR_SET_PTRACER, 1),
    CLOSED_WITH(prctl, ENOSYS, PR_SET_SECCOMP, SECCOMP_MODE_STRICT),
    CLOSED_WITH(prctl, ENOSYS, PR_SET_SPECULATION_CTRL), CLOSED_WITH(prctl, ENOSYS, PR_SET_TSC, 2),
    CLOSED_WITH(prctl, ENOSYS, PR_SET_KEEPCAPS, 0), CLOSED_WITH(prctl, ENOSYS, PR_CAPBSET_DROP),
    CLOSED_WITH(prctl, ENOSYS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL),
    CLOSED_WITH(prctl, ENOSYS, PR_SET_CHILD_SUBREAPER), CLOSED_WITH(prctl, ENOSYS, 62, 1, 0, 1),
    CLOSED_WITH(prctl, ENOSYS, 67 /* PR_SET_MEMORY_MERGE */, 1),
    CLOSED_WITH(prctl, ENOSYS, 59 /* PR_SET_SYSCALL_USER_DISPATCH */),
    CLOSED_WITH(prctl, ENOSYS, UPPER_HALF | PR_SET_MM, 1), CLOSED_WITH(prctl, ENOSYS, 9999),
    /* ioctl */
    CLOSED_WITH(ioctl, EPERM, 0, TIOCSTI), CLOSED_WITH(ioctl, EPERM, 0, UPPER_HALF | TIOCSTI),
    CLOSED_WITH(ioctl, EPERM, 0, TIOCLINUX), CLOSED_WITH(ioctl, EPERM, 0, UPPER_HALF | TIOCLINUX),
    CLOSED_WITH(ioctl, ENOSYS, 0, TIOCSETD), CLOSED_WITH(ioctl, ENOSYS, 0, TIOCCONS),
    CLOSED_WITH(ioctl, ENOSYS, 0, FIOSETOWN), CLOSED_WITH(ioctl, ENOSYS, 0, FS_IOC_SETFLAGS),
    CLOSED_WITH(ioctl, ENOSYS, 0, SIOCSIFADDR), CLOSED_WITH(ioctl, EOPNOTSUPP, 0, SIOCETHTOOL),
    /* sockets */
    CLOSED_WITH(socket, ENOSYS, AF_PACKET, SOCK_RAW), CLOSED_WITH(socket, ENOSYS, AF_VSOCK, SOCK_STREAM),
    CLOSED_WITH(socket, ENOSYS, AF_ALG, SOCK_SEQPACKET), CLOSED_WITH(socket, ENOSYS, AF_BLUETOOTH, SOCK_RAW),
    CLOSED_WITH(socket, ENOSYS, AF_KEY, SOCK_RAW), CLOSED_WITH(socket, ENOSYS, AF_TIPC, SOCK_STREAM),
    CLOSED_WITH(socket, ENOSYS, 44 /* AF_XDP */, SOCK_RAW),
    CLOSED_WITH(socket, ENOSYS, UPPER_HALF | AF_PACKET, SOCK_RAW),
    CLOSED_WITH(socket, ENOSYS, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER),
    CLOSED_WITH(socket, ENOSYS, AF_NETLINK, SOCK_RAW, NETLINK_XFRM),
    CLOSED_WITH(socket, ENOSYS, AF_NETLINK, SOCK_RAW, NETLINK_GENERIC),
    CLOSED_WITH(socket, ENOSYS, AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT),
    CLOSED_WITH(socket, ENOSYS, AF_INET, SOCK_RAW, IPPROTO_TCP),
    CLOSED_WITH(socket, ENOSYS, AF_INET6, SOCK_RAW, IPPROTO_ICMPV6),
    CLOSED_WITH(socket, ENOSYS, AF_INET, SOCK_STREAM, IPPROTO_SCTP),
    CLOSED_WITH(socket, ENOSYS, AF_INET, SOCK_SEQPACKET, 0),
    CLOSED_WITH(socket, ENOSYS, AF_INET, SOCK_DCCP, 0),
    CLOSED_WITH(socket, ENOSYS, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP),
    CLOSED_WITH(socketpair, ENOSYS, AF_TIPC, SOCK_STREAM),
    CLOSED_WITH(setsockopt, ENOPROTOOPT, 0, SOL_SOCKET, SO_ATTACH_FILTER),
    CLOSED_WITH(setsockopt, ENOPROTOOPT, 0, SOL_SOCKET, SO_ATTACH_BPF),
    CLOSED_WITH(setsockopt, ENOPROTOOPT, 0, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF),
    CLOSED_WITH(setsockopt, ENOPROTOOPT, 0, UPPER_HALF | SOL_SOCKET, UPPER_HALF | SO_ATTACH_FILTER),
    CLOSED_WITH(setsockopt, ENOPROTOOPT, 0, IPPROTO_TCP, TCP_ULP),
    CLOSED_WITH(setsockopt, ENOSYS, 0, IPPROTO_UDP, 100 /* UDP_ENCAP */),
    /* what no kernel has, or only a later one */
    CLOSED_NUMBER(0x1ff), CLOSED_NUMBER(1000), CLOSED_NUMBER(462) /* mseal */,
};
/* clang-format on */

static void call_closed(int *results)
{
    for (size_t i = 0; i < ARRAY_LENGTH(closed_calls); i++)
        results[i] = answer(closed_calls[i].call, closed_calls[i].arguments);
}

static void test_closed_calls(void **state)
{
    (void)state;
    int *results = shared_results(ARRAY_LENGTH(closed_calls));
    for (size_t i = 0; i < ARRAY_LENGTH(closed_calls); i++)
        results[i] = -1;
    run_filtered(call_closed, results);
    for (size_t i = 0; i < ARRAY_LENGTH(closed_calls); i++) {
        if (results[i] != closed_calls[i].error)
            fail_msg("%s: errno %d, not %d", closed_calls[i].name, results[i],
                     closed_calls[i].error);
    }
    munmap(results, ARRAY_LENGTH(closed_calls) * sizeof(*results));
}

#ifdef __x86_64__
static void call_by_interrupt(int *results)
{
    long result = 20; /* getpid of the 32-bit ABI */
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    results[0] = (int)result;
}

/* Where the kernel has no 32-bit calls, the instruction itself ends the child. */
static void test_32_bit_calls(void **state)
{
    (void)state;
    int *results = shared_results(1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        enter_filter();
        call_by_interrupt(results);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status == 0)
        assert_int_equal(results[0], -ENOSYS);
    else
        assert_int_equal(status & 0x7f, SIGSEGV);
    munmap(results, sizeof(*results));
}
#endif

/* ---- what works; CHECK leaves the line of the first failure */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            results[0] = __LINE__;                                                                 \
            return;                                                                                \
        }                                                                                          \
    } while (0)

static void *in_thread(void *argument)
{
    *(pid_t *)argument = gettid();
    return NULL;
}

static void use_processes(int *results)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);

    char name[] = "true", *const arguments[] = {name, NULL};
    CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, NULL) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    pid_t thread_id = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, &thread_id) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && thread_id != 0 && thread_id != getpid());

    CHECK(prctl(PR_SET_NAME, "filtered", 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
    CHECK(prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == SECCOMP_MODE_FILTER);
    CHECK(syscall(SYS_personality, 0xffffffffu) == 0);
    CHECK(setuid(getuid()) == 0 && setgid(getgid()) == 0);
    CHECK(kill(getpid(), 0) == 0);
}

static void use_descriptors(int *results)
{
    int fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && write(fd, "text", 4) == 4);
    CHECK(fcntl(fd, F_GETFL) >= 0 && fcntl(fd, F_DUPFD_CLOEXEC, 10) >= 10);
    struct flock lock = {.l_type = F_WRLCK};
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && fcntl(fd, F_OFD_SETLK, &lock) < 0 && errno == EAGAIN);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    int pair[2], ready = 0;
    CHECK(pipe2(pair, O_CLOEXEC) == 0 && write(pair[1], "x", 1) == 1);
    CHECK(syscall(SYS_ioctl, pair[0], FIONREAD, &ready) == 0 && ready == 1);
    errno = 0;
    CHECK(!isatty(pair[0]) && errno == ENOTTY);
    CHECK(syscall(SYS_sync) == 0 && syscall(SYS_syncfs, fd) == 0);
    char name[] = "/tmp/hutch-seccomp-XXXXXX", fifo[64];
    CHECK(mkdtemp(name));
    snprintf(fifo, sizeof(fifo), "%s/fifo", name);
    CHECK(mkfifo(fifo, 0600) == 0 && unlink(fifo) == 0);
    CHECK(mknod(fifo, 0600, 0) == 0 && unlink(fifo) == 0);
    CHECK(rmdir(name) == 0);
}

static void use_sockets(int *results)
{
    int pair[2], one = 1;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    CHECK(tcp >= 0);
    CHECK(setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0);
    CHECK(setsockopt(tcp, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof(one)) == 0);
    CHECK(setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
    int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    CHECK(udp >= 0 && bind(udp, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE) >= 0);
    CHECK(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) >= 0);
}

static void use_limits(int *results)
{
    /* One of the two would change the limit or fail, whatever it is now. */
    struct rlimit before, after, none = {0, 0}, one = {1, 1};
    CHECK(getrlimit(RLIMIT_CORE, &before) == 0);
    CHECK(setrlimit(RLIMIT_CORE, &none) == 0 && setrlimit(RLIMIT_CORE, &one) == 0);
    CHECK(syscall(SYS_prlimit64, 0, UPPER_HALF | RLIMIT_CORE, &none, NULL) == 0);
#ifdef SYS_setrlimit
    CHECK(syscall(SYS_setrlimit, UPPER_HALF | RLIMIT_CORE, &none) == 0);
#endif
    CHECK(getrlimit(RLIMIT_CORE, &after) == 0);
    CHECK(before.rlim_cur == after.rlim_cur && before.rlim_max == after.rlim_max);
    CHECK(syscall(SYS_prlimit64, 0, RLIMIT_CORE, &none, &after) == -1 && errno == ENOSYS);
    CHECK(getrlimit(RLIMIT_NPROC, &before) == 0 && setrlimit(RLIMIT_NPROC, &before) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0 && setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(getrlimit(RLIMIT_RSS, &before) == 0 && setrlimit(RLIMIT_RSS, &before) == 0);
    CHECK(getrlimit(RLIMIT_AS, &before) == 0 && setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(prlimit(getpid(), RLIMIT_CPU, NULL, &before) == 0);
}

static void run_all_checks(void (*function)(int *results))
{
    int *results = shared_results(1);
    run_filtered(function, results);
    if (results[0] != 0)
        fail_msg("the check in line %d failed", results[0]);
    munmap(results, sizeof(*results));
}

static void test_processes_work(void **state)
{
    (void)state;
    run_all_checks(use_processes);
}

static void test_descriptors_work(void **state)
{
    (void)state;
    run_all_checks(use_descriptors);
}

static void test_sockets_work(void **state)
{
    (void)state;
    run_all_checks(use_sockets);
}

static void test_limits_work(void **state)
{
    (void)state;
    run_all_checks(use_limits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program_follows_the_rows),
        cmocka_unit_test(test_zygotes_can_enter_cells),
        cmocka_unit_test(test_everything_else_is_closed),
        cmocka_unit_test(test_closed_calls),
#ifdef __x86_64__
        cmocka_unit_test(test_32_bit_calls),
#endif
        cmocka_unit_test(test_processes_work),
        cmocka_unit_test(test_descriptors_work),
        cmocka_unit_test(test_sockets_work),
        cmocka_unit_test(test_limits_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
