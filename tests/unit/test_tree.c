/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of file trees, with the shell's tree: when it is built, found,
 * replaced and removed, and who may touch the cache. The tests run in order
 * and share one cache, because a build copies some two thousand files.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/namespace/folder.h"
#include "sandbox/namespace/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static struct {
    char path[64];
    char cache[96];
    char helpers[96];
    int fd;
    struct tree_spec shell;
    struct tree_spec python;
    struct tree_spec javascript;
} here;

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static int set_up(void **state)
{
    (void)state;
    snprintf(here.path, sizeof(here.path), "/tmp/hutch-test-tree-XXXXXX");
    if (!mkdtemp(here.path))
        return -1;
    here.fd = open(here.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(here.cache, sizeof(here.cache), "%s/deep/cache", here.path);
    snprintf(here.helpers, sizeof(here.helpers), "%s/helpers", here.path);
    here.shell = (struct tree_spec){"shell", "/bin/bash", here.helpers, here.cache};
    here.python = (struct tree_spec){"python", "/usr/bin/python3", here.helpers, here.cache};
    here.javascript = (struct tree_spec){"javascript", "/usr/bin/node", here.helpers, here.cache};
    return mkdir(here.helpers, 0755);
}

static int tear_down(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_close int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(here.fd);
    return folder_remove(tmp, strrchr(here.path, '/') + 1, &err);
}

static void prepare(const struct tree_spec *spec, struct tree *ret_tree)
{
    struct hutch_error err = {0};
    int error = tree_prepare(spec, ret_tree, &err);
    if (error < 0)
        print_error("%s\n", err.message);
    assert_int_equal(error, 0);
}

/* How many entries of trees/ begin with prefix. */
static int count_trees(const char *prefix)
{
    char path[PATH_MAX];
    const struct dirent *entry;
    int count = 0;

    snprintf(path, sizeof(path), "%s/trees", here.cache);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(dir);
    return count;
}

static mode_t mode_at(int fd, const char *path)
{
    struct stat st;
    return fstatat(fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_mode;
}

static void assert_content(int fd, const char *path, const char *text)
{
    auto_buf struct buf content = BUF_MAX(1 << 20);
    struct hutch_error err;
    assert_int_equal(buf_read_file(&content, fd, path, &err), 0);
    assert_string_equal(buf_text(&content), text);
}

/* ---- errors before anything is built ----------------------------------- */

static void bad_specs_are_refused(void **state)
{
    (void)state;
    auto_tree struct tree tree = TREE_NONE;
    struct hutch_error err;
    struct tree_spec spec = here.shell;

    spec.name = "perl";
    assert_int_equal(tree_find(&spec, &tree, &err), HUTCH_ERR_INVALID);
    spec = here.shell;
    spec.cache_dir = "relative";
    assert_int_equal(tree_build(&spec, &err), HUTCH_ERR_INVALID);
    spec = here.shell;
    spec.interpreter = "/bin/ba\nsh";
    assert_int_equal(tree_prepare(&spec, &tree, &err), HUTCH_ERR_INVALID);
    assert_int_equal(tree.fd, -1);
}

static void finding_makes_nothing(void **state)
{
    (void)state;
    auto_tree struct tree tree = TREE_NONE;
    struct hutch_error err;

    assert_int_equal(tree_find(&here.shell, &tree, &err), 0);
    assert_int_equal(access(here.cache, F_OK), -1);
}

static void missing_parts_have_clear_errors(void **state)
{
    (void)state;
    struct hutch_error err;
    struct tree_spec spec = here.shell;
    char expected[256];

    assert_int_equal(tree_build(&here.shell, &err), HUTCH_ERR_HELPER);
    assert_non_null(strstr(err.message, "hutch-init"));
    write_file(here.helpers, "hutch-init", "stand-in");
    assert_int_equal(tree_build(&here.python, &err), HUTCH_ERR_HELPER);
    assert_non_null(strstr(err.message, "runner.py"));
    write_file(here.helpers, "runner.py", "pass\n");
    assert_int_equal(tree_build(&here.javascript, &err), HUTCH_ERR_HELPER);
    assert_non_null(strstr(err.message, "runner.cjs"));
    write_file(here.helpers, "runner.cjs", "1\n");
    assert_int_equal(tree_build(&here.shell, &err), HUTCH_ERR_HELPER);
    assert_non_null(strstr(err.message, "runner.sh"));
    write_file(here.helpers, "runner.sh", ":\n");

    spec.interpreter = "/bin/no-bash";
    assert_int_equal(tree_build(&spec, &err), HUTCH_ERR_RUNTIME);
    assert_string_equal(err.message,
                        "shell interpreter '/bin/no-bash' not found: install the package bash");
    spec = here.python;
    spec.interpreter = "/bin/no-python";
    assert_int_equal(tree_build(&spec, &err), HUTCH_ERR_RUNTIME);
    assert_string_equal(err.message, "python interpreter '/bin/no-python' not found: "
                                     "install the package python3");
    spec = here.javascript;
    spec.interpreter = "/bin/no-node";
    assert_int_equal(tree_build(&spec, &err), HUTCH_ERR_RUNTIME);
    assert_string_equal(err.message, "javascript interpreter '/bin/no-node' not found: "
                                     "install the package nodejs");
    spec.interpreter = "/bin/bash";
    assert_int_equal(tree_build(&spec, &err), HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(err.message, "javascript interpreter '/bin/bash'"));

    spec = here.shell;
    spec.interpreter = "/bin/dash";
    assert_int_equal(tree_build(&spec, &err), HUTCH_ERR_RUNTIME);
    assert_string_equal(err.message, "shell interpreter '/bin/dash': not bash 4 or later");

    /* A script is no interpreter that a cell could start, whatever it is. */
    write_file(here.helpers, "script", "#!/bin/sh\nexec /bin/bash \"$@\"\n");
    snprintf(expected, sizeof(expected), "%s/script", here.helpers);
    assert_int_equal(chmod(expected, 0755), 0);
    spec = here.shell;
    spec.interpreter = expected;
    assert_int_equal(tree_build(&spec, &err), HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(err.message, "no program for this machine"));
    assert_int_equal(count_trees(".new"), 0);
    assert_int_equal(count_trees("shell-"), 0);
}

static void an_open_cache_folder_is_refused(void **state)
{
    (void)state;
    auto_tree struct tree tree = TREE_NONE;
    struct hutch_error err;
    char path[128];
    struct tree_spec spec = here.shell;

    snprintf(path, sizeof(path), "%s/open", here.path);
    spec.cache_dir = path;
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0777), 0);
    assert_int_equal(tree_find(&spec, &tree, &err), HUTCH_ERR_SYSTEM);
    assert_non_null(strstr(err.message, "can be written by others"));
    assert_int_equal(tree_build(&spec, &err), HUTCH_ERR_SYSTEM);
    assert_int_equal(chmod(path, 0720), 0);
    assert_int_equal(tree_build(&spec, &err), HUTCH_ERR_SYSTEM);

    /* trees/ itself, and links in place of either. */
    assert_int_equal(chmod(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/open/trees", here.path);
    assert_int_equal(chmod(path, 0707), 0);
    snprintf(path, sizeof(path), "%s/open", here.path);
    assert_int_equal(tree_find(&spec, &tree, &err), HUTCH_ERR_SYSTEM);
    snprintf(path, sizeof(path), "%s/link", here.path);
    assert_int_equal(symlink("open", path), 0);
    assert_int_equal(tree_build(&spec, &err), HUTCH_ERR_SYSTEM);
    assert_int_equal(err.sys_errno, ENOTDIR);
}

/* ---- building ---------------------------------------------------------- */

static pid_t build_in_child(int go_fd)
{
    pid_t pid = fork();
    if (pid == 0) {
        auto_tree struct tree tree = TREE_NONE;
        struct hutch_error err;
        char byte;
        if (go_fd >= 0 && read(go_fd, &byte, 1) < 0)
            _exit(2);
        _exit(tree_prepare(&here.shell, &tree, &err) == 0 ? 0 : 1);
    }
    assert_true(pid > 0);
    return pid;
}

static int status_of(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_killed_builder_leaves_nothing_for_long(void **state)
{
    (void)state;
    char trees[128];
    char event[sizeof(struct inotify_event) + NAME_MAX + 1];

    snprintf(trees, sizeof(trees), "%s/trees", here.cache);
    auto_close int watch = inotify_init1(IN_CLOEXEC);
    assert_true(inotify_add_watch(watch, trees, IN_CREATE) >= 0);
    pid_t pid = build_in_child(-1);
    assert_true(fd_wait(watch, POLLIN, clock_after_ns(30 * NS_PER_SECOND)) > 0);
    assert_true(read(watch, event, sizeof(event)) > 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    int status = status_of(pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(count_trees(".new"), 1);
    assert_int_equal(count_trees("shell-"), 0);

    auto_tree struct tree tree = TREE_NONE;
    prepare(&here.shell, &tree);
    assert_int_equal(count_trees(".new"), 0);
    assert_int_equal(count_trees("shell-"), 1);
}

static void a_tree_that_is_there_is_found(void **state)
{
    (void)state;
    auto_tree struct tree first = TREE_NONE;
    auto_tree struct tree second = TREE_NONE;
    struct hutch_error err;
    struct stat by_path, by_fd;

    assert_int_equal(tree_find(&here.shell, &first, &err), 1);
    assert_int_equal(tree_find(&here.shell, &second, &err), 1);
    assert_string_equal(first.path, second.path);
    assert_int_equal(stat(first.path, &by_path), 0);
    assert_int_equal(fstat(first.fd, &by_fd), 0);
    assert_int_equal(by_path.st_ino, by_fd.st_ino);
    assert_int_equal(fcntl(first.fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(first.lock_fd, F_GETFD), FD_CLOEXEC);

    /* Another interpreter, or the other runtime, is another tree. */
    auto_tree struct tree other = TREE_NONE;
    struct tree_spec spec = here.shell;
    spec.interpreter = "/usr/bin/../bin/bash";
    assert_int_equal(tree_find(&spec, &other, &err), 0);
    assert_int_equal(tree_find(&here.python, &other, &err), 0);
}

static void it_has_the_promised_layout(void **state)
{
    (void)state;
    auto_tree struct tree tree = TREE_NONE;
    char path[64];
    char text[32];

    prepare(&here.shell, &tree);
    assert_int_equal(mode_at(tree.fd, "init"), S_IFREG | 0111);
    assert_int_equal(mode_at(tree.fd, "scratch"), S_IFDIR | 0555);
    static const char *const mount_points[] = {"proc",      "dev/shm", "tmp",
                                               "home/user", "run",     "sys/devices/system/cpu"};
    for (size_t i = 0; i < ARRAY_LENGTH(mount_points); i++) {
        snprintf(path, sizeof(path), "root/%s", mount_points[i]);
        assert_int_equal(mode_at(tree.fd, path), S_IFDIR | 0555);
    }
    assert_int_equal(mode_at(tree.fd, "root/dev/null") & S_IFMT,
                     tree.has_devices ? S_IFCHR : S_IFREG);

    assert_content(tree.fd, "root/sys/devices/system/cpu/online", "0\n");
    assert_content(tree.fd, "cpu/1/present", "0\n");
    long processors = sysconf(_SC_NPROCESSORS_CONF);
    snprintf(path, sizeof(path), "cpu/%ld/possible", processors);
    snprintf(text, sizeof(text), processors > 1 ? "0-%ld\n" : "%ld\n", processors - 1);
    assert_content(tree.fd, path, text);
    snprintf(path, sizeof(path), "cpu/%ld", processors + 1);
    assert_int_equal(mode_at(tree.fd, path), 0);
}

static void what_it_tells_is_neutral(void **state)
{
    (void)state;
    auto_tree struct tree tree = TREE_NONE;
    static const char *const absent[] = {"root/etc/shadow",     "root/etc/ld.so.cache",
                                         "root/root",           "root/usr/bin/su",
                                         "root/usr/bin/mount",  "root/usr/bin/curl",
                                         "root/usr/bin/ssh",    "root/usr/lib/hutch/runner.pyc",
                                         "root/usr/bin/python3"};

    prepare(&here.shell, &tree);
    assert_content(tree.fd, "root/etc/hostname", "cell\n");
    assert_content(tree.fd, "root/etc/machine-id", "00000000000000000000000000000000\n");
    assert_content(tree.fd, "root/etc/passwd",
                   "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
                   "user:x:1000:1000:user:/home/user:/bin/bash\n"
                   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    for (size_t i = 0; i < ARRAY_LENGTH(absent); i++)
        assert_int_equal(mode_at(tree.fd, absent[i]), 0);
}

/* ---- replacing --------------------------------------------------------- */

static void a_change_makes_a_new_tree_and_spares_the_one_in_use(void **state)
{
    (void)state;
    auto_tree struct tree old = TREE_NONE;
    auto_tree struct tree new = TREE_NONE;
    struct hutch_error err;

    prepare(&here.shell, &old);
    write_file(here.helpers, "hutch-init", "another stand-in");
    assert_int_equal(tree_find(&here.shell, &new, &err), 0);
    prepare(&here.shell, &new);
    assert_string_not_equal(old.path, new.path);
    assert_int_equal(mode_at(new.fd, "scratch"), S_IFDIR | 0555);
    assert_content(old.fd, "root/etc/hostname", "cell\n");
    assert_int_equal(count_trees("shell-"), 2);
}

/* Both users are gone now: the next build removes what is outdated. */
static void two_builders_at_once_make_one_tree(void **state)
{
    (void)state;
    int go[2];

    write_file(here.helpers, "hutch-init", "a third stand-in");
    assert_int_equal(fd_pipe(go), 0);
    pid_t one = build_in_child(go[0]);
    pid_t two = build_in_child(go[0]);
    assert_int_equal(write(go[1], "xx", 2), 2);
    assert_int_equal(status_of(one), 0);
    assert_int_equal(status_of(two), 0);
    close(go[0]);
    close(go[1]);
    assert_int_equal(count_trees("shell-"), 1);
    assert_int_equal(count_trees(".new"), 0);

    auto_tree struct tree tree = TREE_NONE;
    struct hutch_error err;
    assert_int_equal(tree_find(&here.shell, &tree, &err), 1);
}

/* A tree is not taken while somebody is about to remove it, nor without its
 * manifest. */
static void a_tree_under_removal_is_not_found(void **state)
{
    (void)state;
    auto_tree struct tree tree = TREE_NONE;
    struct hutch_error err;

    assert_int_equal(tree_find(&here.shell, &tree, &err), 1);
    assert_int_equal(flock(tree.lock_fd, LOCK_EX | LOCK_NB), 0);
    auto_tree struct tree again = TREE_NONE;
    assert_int_equal(tree_find(&here.shell, &again, &err), 0);
    assert_int_equal(flock(tree.lock_fd, LOCK_UN), 0);
    assert_int_equal(tree_find(&here.shell, &again, &err), 1);
    tree_close(&again);
    assert_int_equal(unlinkat(tree.lock_fd, "manifest", 0), 0);
    assert_int_equal(tree_find(&here.shell, &again, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_specs_are_refused),
        cmocka_unit_test(finding_makes_nothing),
        cmocka_unit_test(missing_parts_have_clear_errors),
        cmocka_unit_test(an_open_cache_folder_is_refused),
        cmocka_unit_test(a_killed_builder_leaves_nothing_for_long),
        cmocka_unit_test(a_tree_that_is_there_is_found),
        cmocka_unit_test(it_has_the_promised_layout),
        cmocka_unit_test(what_it_tells_is_neutral),
        cmocka_unit_test(a_change_makes_a_new_tree_and_spares_the_one_in_use),
        cmocka_unit_test(two_builders_at_once_make_one_tree),
        cmocka_unit_test(a_tree_under_removal_is_not_found),
    };
    return cmocka_run_group_tests_name("tree", tests, set_up, tear_down);
}
