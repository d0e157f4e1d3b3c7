/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts as folders of files: which blocker is named, and with which mend. */
#include "sandbox/namespace/blocker.h"

#include "base/attrs.h"
#include "base/fd.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define MAX_USER_NS "proc/sys/user/max_user_namespaces"
#define CLONE_SWITCH "proc/sys/kernel/unprivileged_userns_clone"
#define APPARMOR_RULE "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
#define STATUS "proc/self/status"
#define MOUNTINFO "proc/self/mountinfo"
#define ROOT_MOUNT "21 1 254:1 / / rw,relatime - ext4 /dev/vda rw\n"

struct host {
    char dir[64];
    int fd;
};

static int setup(void **state)
{
    struct host *host = calloc(1, sizeof(*host));

    snprintf(host->dir, sizeof(host->dir), "/tmp/hutch-test-blocker-XXXXXX");
    assert_non_null(mkdtemp(host->dir));
    host->fd = open(host->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(host->fd >= 0);
    *state = host;
    return 0;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static int teardown(void **state)
{
    struct host *host = *state;

    close(host->fd);
    assert_int_equal(nftw(host->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
    free(host);
    return 0;
}

static void put(const struct host *host, const char *path, const char *text)
{
    char parent[128];

    for (const char *slash = path; (slash = strchr(slash, '/')) != NULL; slash++) {
        snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
        IGNORE_RESULT(mkdirat(host->fd, parent, 0755));
    }
    auto_close int fd = openat(host->fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static void expect_blocker(const struct host *host, bool is_root, const char *failure,
                           const char *reason, const char *mend)
{
    struct blocker blocker;

    blocker_find(host->fd, is_root, failure, &blocker);
    if (!strstr(blocker.reason, reason) || !strstr(blocker.mend, mend))
        fail_msg("'%s', '%s'", blocker.reason, blocker.mend);
    assert_null(strchr(blocker.mend, '\n'));
}

static void a_host_that_tells_nothing_has_no_mend(void **state)
{
    struct blocker blocker;
    const struct host *host = *state;

    blocker_find(host->fd, false, "", &blocker);
    assert_string_equal(blocker.reason, "the kernel refuses namespaces");
    assert_string_equal(blocker.mend, "");
}

static void switches_of_the_kernel(void **state)
{
    put(*state, MOUNTINFO, ROOT_MOUNT);
    put(*state, APPARMOR_RULE, "1\n");
    expect_blocker(*state, false, "", "AppArmor",
                   "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
    expect_blocker(*state, true, "", "the kernel refuses", "");
    put(*state, APPARMOR_RULE, "0\n");
    expect_blocker(*state, false, "", "the kernel refuses", "");
    put(*state, CLONE_SWITCH, "0\n");
    expect_blocker(*state, false, "", "unprivileged_userns_clone is 0",
                   "sysctl -w kernel.unprivileged_userns_clone=1");
    expect_blocker(*state, true, "", "the kernel refuses", "");
    put(*state, MAX_USER_NS, "0\n");
    expect_blocker(*state, true, "", "max_user_namespaces is 0",
                   "sysctl -w user.max_user_namespaces=");
    put(*state, MAX_USER_NS, "01\n");
    expect_blocker(*state, true, "", "the kernel refuses", "");
}

static void a_root_that_is_no_mount_is_a_chroot(void **state)
{
    put(*state, MOUNTINFO, "21 1 254:1 / /proc rw,relatime - proc proc rw\n");
    expect_blocker(*state, true, "", "chroot", "pivot_root");
}

static void containers(void **state)
{
    put(*state, MOUNTINFO, ROOT_MOUNT);
    put(*state, ".dockerenv", "");
    expect_blocker(*state, true, "", "capability", "--cap-add SYS_ADMIN");
    put(*state, STATUS, "CapEff:\t0000000000000000\nSeccomp:\t0\n");
    expect_blocker(*state, true, "", "no capabilities", "as an ordinary user");
    expect_blocker(*state, false, "", "capability", "--cap-add SYS_ADMIN");
    put(*state, STATUS, "Name:\tx\nSeccomp:\t2\n");
    expect_blocker(*state, true, "make a user namespace: Operation not permitted", "seccomp filter",
                   "seccomp=unconfined");
    put(*state, MOUNTINFO, ROOT_MOUNT "22 21 0:5 /null /proc/keys rw - devtmpfs dev rw\n");
    expect_blocker(*state, true, "make a user namespace: Operation not permitted", "seccomp filter",
                   "seccomp=unconfined");
    expect_blocker(*state, true, "mount proc: Operation not permitted", "/proc are masked",
                   "systempaths=unconfined");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_host_that_tells_nothing_has_no_mend, setup, teardown),
        cmocka_unit_test_setup_teardown(switches_of_the_kernel, setup, teardown),
        cmocka_unit_test_setup_teardown(a_root_that_is_no_mount_is_a_chroot, setup, teardown),
        cmocka_unit_test_setup_teardown(containers, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
