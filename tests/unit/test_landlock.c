/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock, in children that restrict themselves: what a set of rules allows
 * and what it denies under each ABI up to the kernel's, and the rules of cells
 * in a root made to look like a cell's.
 */
#include "sandbox/namespace/landlock.h"

#include "sandbox/namespace/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* What a child is given, and where it leaves the line of its first failure. */
struct trial {
    int abi;
    int outside_fd; /* a directory that no rule covers */
    pid_t outside_process;
    struct sockaddr_un outside_name; /* of an abstract socket */
    socklen_t outside_name_length;
    int failed_line;
};

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            trial->failed_line = __LINE__;                                                         \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#define DENIED(call) ((call) < 0 && errno == EACCES)

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    static const char *const below[] = {"", "/free", "/free/deep", "/fixed"};
    snprintf(folder, sizeof(folder), "/tmp/hutch-landlock-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    for (size_t i = 1; i < ARRAY_LENGTH(below); i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s%s", folder, below[i]);
        if (mkdir(path, 0700) < 0)
            return -1;
    }
    char path[128];
    snprintf(path, sizeof(path), "%s/fixed/file", folder);
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof(path), "%s/fixed/file", folder);
    unlink(path);
    static const char *const below[] = {"/free/deep", "/free", "/fixed", ""};
    for (size_t i = 0; i < ARRAY_LENGTH(below); i++) {
        snprintf(path, sizeof(path), "%s%s", folder, below[i]);
        if (rmdir(path) < 0)
            return -1;
    }
    return 0;
}

/* Runs function in a child and asserts here that it found nothing wrong. */
static void run_in_child(void (*function)(struct trial *trial), struct trial given)
{
    struct trial *trial =
        mmap(NULL, sizeof(*trial), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(trial, MAP_FAILED);
    *trial = given;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        function(trial);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    if (trial->failed_line != 0)
        fail_msg("ABI %d: the check in line %d failed", trial->abi, trial->failed_line);
    munmap(trial, sizeof(*trial));
}

static int try_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd;
}

static int touch(const char *path)
{
    return try_open(path, O_WRONLY | O_CREAT | O_TRUNC);
}

/* ---- one free folder, one to read, all else denied */

static void in_two_folders(struct trial *trial)
{
    const int abi = trial->abi;
    char free_folder[80], fixed[80];
    snprintf(free_folder, sizeof(free_folder), "%s/free", folder);
    snprintf(fixed, sizeof(fixed), "%s/fixed", folder);
    const uint64_t reading = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    const struct landlock_rule rules[] = {
        {free_folder, ~(uint64_t)0}, /* whatever the ABI knows */
        {fixed, reading},
    };
    CHECK(chdir(folder) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(landlock_restrict(rules, ARRAY_LENGTH(rules), abi) == 0);

    CHECK(touch("free/file") >= 0);
    CHECK(try_open("free", O_RDONLY | O_DIRECTORY) >= 0);
    CHECK(mkdir("free/made", 0700) == 0 && symlink("x", "free/link") == 0);
    CHECK(mkfifo("free/fifo", 0600) == 0 && unlink("free/fifo") == 0);
    CHECK(rename("free/file", "free/renamed") == 0);
    if (abi >= 2)
        CHECK(rename("free/renamed", "free/deep/file") == 0 && unlink("free/deep/file") == 0);
    else
        CHECK(rename("free/renamed", "free/deep/file") < 0 && errno == EXDEV &&
              unlink("free/renamed") == 0);
    CHECK(rmdir("free/made") == 0 && unlink("free/link") == 0);

    CHECK(try_open("fixed/file", O_RDONLY) >= 0 && try_open("fixed", O_RDONLY) >= 0);
    CHECK(DENIED(try_open("fixed/file", O_WRONLY)) && DENIED(try_open("fixed/file", O_RDWR)));
    CHECK(DENIED(touch("fixed/new")) && DENIED(mkdir("fixed/new", 0700)));
    CHECK(DENIED(unlink("fixed/file")) && DENIED(rename("fixed/file", "fixed/new")));
    CHECK(DENIED(mkfifo("fixed/fifo", 0600)) && DENIED(symlink("x", "fixed/link")));
    CHECK(truncate("fixed/file", 0) == 0 ? abi < 3 : errno == EACCES && abi >= 3);

    CHECK(DENIED(try_open(".", O_RDONLY)) && DENIED(try_open("/", O_RDONLY)));
    CHECK(DENIED(try_open("/etc/passwd", O_RDONLY)) && DENIED(touch("outside")));
    CHECK(DENIED(execl("/bin/true", "true", NULL)));
    /* not by way of a descriptor from before either */
    CHECK(DENIED(openat(trial->outside_fd, "passwd", O_RDONLY | O_CLOEXEC)));
}

static void test_files_under_each_abi(void **state)
{
    (void)state;
    int newest = landlock_abi();
    assert_true(newest >= 1);
    auto_close int outside_fd = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(outside_fd >= 0);
    for (int abi = 1; abi <= newest; abi++)
        run_in_child(in_two_folders, (struct trial){.abi = abi, .outside_fd = outside_fd});
}

/* ---- devices, signals, sockets */

static void behind_scopes(struct trial *trial)
{
    const int abi = trial->abi;
    const struct landlock_rule rules[] = {
        {"/", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE},
    };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(landlock_restrict(rules, ARRAY_LENGTH(rules), abi) == 0);

    auto_close int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(null >= 0 && !isatty(null) && errno == (abi >= 5 ? EACCES : ENOTTY));

    /* What lies in no file system stays open: a program's input, its pipes. */
    char path[32];
    int pair[2];
    auto_close int memory = memfd_create("input", MFD_CLOEXEC);
    CHECK(memory >= 0 && pipe2(pair, O_CLOEXEC) == 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
    CHECK(try_open(path, O_RDONLY) >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", pair[1]);
    CHECK(try_open(path, O_WRONLY) >= 0);

    CHECK(kill(getpid(), 0) == 0);
    bool may_signal = kill(trial->outside_process, 0) == 0;
    CHECK(abi >= 6 ? !may_signal && errno == EPERM : may_signal);

    auto_close int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(sock >= 0);
    bool connected =
        connect(sock, (struct sockaddr *)&trial->outside_name, trial->outside_name_length) == 0;
    CHECK(abi >= 6 ? !connected && errno == EPERM : connected);
    /* an own one is near enough */
    auto_close int own = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto_close int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t length = sizeof(sa_family_t); /* the kernel chooses an abstract name */
    CHECK(own >= 0 && other >= 0 && bind(own, (struct sockaddr *)&name, length) == 0);
    length = sizeof(name);
    CHECK(listen(own, 1) == 0 && getsockname(own, (struct sockaddr *)&name, &length) == 0);
    CHECK(connect(other, (struct sockaddr *)&name, length) == 0);
}

static void test_scopes_under_each_abi(void **state)
{
    (void)state;
    auto_close int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct trial given = {.outside_process = getpid(), .outside_name = {.sun_family = AF_UNIX}};
    struct sockaddr *name = (struct sockaddr *)&given.outside_name;
    given.outside_name_length = sizeof(given.outside_name);
    assert_int_equal(bind(listener, name, sizeof(sa_family_t)), 0);
    assert_int_equal(listen(listener, 16), 0);
    assert_int_equal(getsockname(listener, name, &given.outside_name_length), 0);
    for (given.abi = 1; given.abi <= landlock_abi(); given.abi++)
        run_in_child(behind_scopes, given);
}

static void with_missing_path(struct trial *trial)
{
    const struct landlock_rule rules[] = {{"/", 1}, {"/no/such/path", 1}};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(landlock_restrict(rules, ARRAY_LENGTH(rules), 1) == -ENOENT);
    CHECK(try_open("/etc/passwd", O_RDONLY) >= 0);
}

static void test_missing_path(void **state)
{
    (void)state;
    run_in_child(with_missing_path, (struct trial){.abi = 1});
}

/* ---- the rules of cells */

static const char *const cell_folders[] = {"home",    "home/user", "tmp",  "dev",
                                           "dev/shm", "run",       "proc", "usr"};

static int make_cell(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/hutch-landlock-XXXXXX");
    if (!mkdtemp(folder) || chdir(folder) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LENGTH(cell_folders); i++)
        if (mkdir(cell_folders[i], 0700) < 0)
            return -1;
    return touch("usr/file") < 0 || touch("dev/null") < 0 || touch("proc/comm") < 0 ? -1 : 0;
}

static int remove_cell(void **state)
{
    (void)state;
    unlink("usr/file");
    unlink("dev/null");
    unlink("proc/comm");
    for (size_t i = ARRAY_LENGTH(cell_folders); i > 0; i--)
        if (rmdir(cell_folders[i - 1]) < 0)
            return -1;
    return chdir("/") < 0 ? -1 : rmdir(folder);
}

static bool is_free(const char *below)
{
    if (chdir(below) < 0 || touch("file") < 0 || mkdir("dir", 0700) < 0 ||
        mkfifo("dir/fifo", 0600) < 0 || symlink("file", "link") < 0)
        return false;
    if (rename("file", "dir/file") < 0 || truncate("dir/file", 4) < 0)
        return false;
    return unlink("dir/file") == 0 && unlink("dir/fifo") == 0 && unlink("link") == 0 &&
           rmdir("dir") == 0 && DENIED(mknod("null", S_IFCHR | 0600, 0x103));
}

static void in_cell_root(struct trial *trial)
{
    /* Entering a root takes a capability, which a user has in a namespace. */
    CHECK(geteuid() == 0 || unshare(CLONE_NEWUSER) == 0);
    CHECK(chroot(".") == 0 && chdir("/") == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(landlock_confine_cell(trial->abi) == 0);

    CHECK(is_free("/home/user") && is_free("/tmp") && is_free("/dev/shm") && is_free("/run"));

    CHECK(try_open("/", O_RDONLY) >= 0 && try_open("/usr/file", O_RDONLY) >= 0);
    CHECK(DENIED(touch("/new")) && DENIED(touch("/usr/new")) && DENIED(touch("/home/new")));
    CHECK(DENIED(try_open("/usr/file", O_WRONLY)) && DENIED(unlink("/usr/file")));
    CHECK(DENIED(mkdir("/usr/new", 0700)) && DENIED(rename("/usr/file", "/tmp/file")));

    CHECK(touch("/dev/null") >= 0 && touch("/proc/comm") >= 0);
    CHECK(DENIED(touch("/dev/new")) && DENIED(unlink("/dev/null")));
    CHECK(DENIED(touch("/proc/new")) && DENIED(unlink("/proc/comm")));

    CHECK(DENIED(openat(trial->outside_fd, "passwd", O_RDONLY | O_CLOEXEC)));
}

static void test_rules_of_cells(void **state)
{
    (void)state;
    auto_close int outside_fd = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(outside_fd >= 0);
    for (int abi = 2; abi <= landlock_abi(); abi++)
        run_in_child(in_cell_root, (struct trial){.abi = abi, .outside_fd = outside_fd});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files_under_each_abi, make_folder, remove_folder),
        cmocka_unit_test(test_scopes_under_each_abi),
        cmocka_unit_test(test_missing_path),
        cmocka_unit_test_setup_teardown(test_rules_of_cells, make_cell, remove_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
