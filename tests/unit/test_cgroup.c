/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cgroups without a privilege: the text that the kernel writes, and the choice
 * of places in made-up hierarchies.
 *
 * The hierarchies are plain directories. The four calls that a real cgroup file
 * system answers in its own way are wrapped by the linker, and follow
 * admin-guide/cgroup-v2.rst: a new group has its files at once, has the
 * controllers that its parent hands on, and goes away with its files; a group
 * that holds processes hands nothing on unless it is the root of the machine.
 */
#include "sandbox/namespace/cgroup.h"
#include "sandbox/namespace/slots.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include <cmocka.h>

/* ---- the made-up kernel ------------------------------------------------ */

/* Files of ours in a group, which no real one has. */
#define FAKE_ROOT "fake.root"         /* the root of the machine */
#define FAKE_READONLY "fake.readonly" /* makes no groups */
#define FAKE_V1 "fake.v1"             /* the controllers of a v1 tree */

int __real_mkdirat(int dir_fd, const char *name, mode_t mode);
int __real_unlinkat(int dir_fd, const char *name, int flags);
ssize_t __real_write(int fd, const void *data, size_t length);
int __real_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event);

static bool has_file(int dir_fd, const char *name)
{
    return faccessat(dir_fd, name, F_OK, 0) == 0;
}

static void put_file(int dir_fd, const char *name, const char *text)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(__real_write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static struct buf get_file(int dir_fd, const char *name)
{
    struct buf text = BUF_MAX(65536);
    struct hutch_error err;
    assert_int_equal(buf_read_file(&text, dir_fd, name, &err), 0);
    return text;
}

static unsigned controllers_in(int dir_fd, const char *name)
{
    auto_buf struct buf text = get_file(dir_fd, name);
    return cgroup_text_controllers(buf_text(&text));
}

static void put_controllers(int dir_fd, const char *name, unsigned mask)
{
    auto_buf struct buf text = BUF_MAX(256);
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        if ((mask & CGROUP_BIT(i)) != 0)
            buf_appendf(&text, "%s ", cgroup_controller_name(i));
    }
    put_file(dir_fd, name, buf_text(&text));
}

static void put_files(int dir_fd, const char *const *names)
{
    for (; *names; names++)
        put_file(dir_fd, *names, "");
}

static void fill_v1(int dir_fd, unsigned mask)
{
    static const char *const all[] = {"tasks", "cgroup.procs", NULL};
    static const char *const files[CGROUP_CONTROLLERS][6] = {
        [CGROUP_MEMORY] = {"memory.limit_in_bytes", "memory.oom_control", "cgroup.event_control",
                           "memory.max_usage_in_bytes"},
        [CGROUP_PIDS] = {"pids.max", "pids.events"},
        [CGROUP_CPU] = {"cpu.cfs_quota_us", "cpu.cfs_period_us"},
        [CGROUP_CPUACCT] = {"cpuacct.usage"},
    };
    put_controllers(dir_fd, FAKE_V1, mask);
    put_files(dir_fd, all);
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        if ((mask & CGROUP_BIT(i)) != 0)
            put_files(dir_fd, files[i]);
    }
}

static void fill_v2(int dir_fd, unsigned mask)
{
    static const char *const all[] = {"cgroup.procs", "cgroup.subtree_control", "cpu.stat", NULL};
    static const char *const files[CGROUP_CONTROLLERS][4] = {
        [CGROUP_MEMORY] = {"memory.max", "memory.oom.group", "memory.events"},
        [CGROUP_PIDS] = {"pids.max", "pids.events"},
        [CGROUP_CPU] = {"cpu.max"},
        [CGROUP_CPUACCT] = {NULL},
    };
    put_controllers(dir_fd, "cgroup.controllers", mask);
    put_files(dir_fd, all);
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        if ((mask & CGROUP_BIT(i)) != 0)
            put_files(dir_fd, files[i]);
    }
}

int __wrap_mkdirat(int dir_fd, const char *name, mode_t mode)
{
    bool v2 = has_file(dir_fd, "cgroup.controllers");
    if (has_file(dir_fd, FAKE_READONLY)) {
        errno = EROFS;
        return -1;
    }
    if (__real_mkdirat(dir_fd, name, mode) < 0)
        return -1;
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    if (v2)
        fill_v2(fd, controllers_in(dir_fd, "cgroup.subtree_control"));
    else if (has_file(dir_fd, FAKE_V1))
        fill_v1(fd, controllers_in(dir_fd, FAKE_V1));
    close(fd);
    return 0;
}

static bool is_empty(int dir_fd, const char *name)
{
    auto_buf struct buf text = get_file(dir_fd, name);
    return text.length == 0;
}

static int unlink_files(int dir_fd)
{
    DIR *dir = fdopendir(openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int directories = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        directories += entry->d_type == DT_DIR && entry->d_name[0] != '.';
    rewinddir(dir);
    for (struct dirent *entry; directories == 0 && (entry = readdir(dir)) != NULL;) {
        if (entry->d_type == DT_REG)
            assert_int_equal(__real_unlinkat(dir_fd, entry->d_name, 0), 0);
    }
    closedir(dir);
    return directories;
}

int __wrap_unlinkat(int dir_fd, const char *name, int flags)
{
    int fd = -1;
    if (flags == AT_REMOVEDIR)
        fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return __real_unlinkat(dir_fd, name, flags);
    bool busy = has_file(fd, "cgroup.procs") && !is_empty(fd, "cgroup.procs");
    busy = busy || unlink_files(fd) > 0;
    close(fd);
    if (!busy)
        return __real_unlinkat(dir_fd, name, flags);
    errno = EBUSY;
    return -1;
}

static int find_user(void *user, int dir_fd, const char *name)
{
    const unsigned *mask = user;
    char path[300];
    snprintf(path, sizeof(path), "%s/cgroup.subtree_control", name);
    return has_file(dir_fd, path) && (controllers_in(dir_fd, path) & *mask) != 0;
}

/* cgroup.subtree_control: 0 or an errno value. */
static int switch_one(int dir_fd, bool on, unsigned mask)
{
    unsigned now = controllers_in(dir_fd, "cgroup.subtree_control");
    if ((mask & controllers_in(dir_fd, "cgroup.controllers")) != mask)
        return ENOENT;
    if (on && !has_file(dir_fd, FAKE_ROOT) && !is_empty(dir_fd, "cgroup.procs"))
        return EBUSY;
    if (!on && cgroup_each_child(dir_fd, find_user, &mask) != 0)
        return EBUSY;
    put_controllers(dir_fd, "cgroup.subtree_control", on ? now | mask : now & ~mask);
    return 0;
}

ssize_t __wrap_write(int fd, const void *data, size_t length)
{
    static const char file[] = "/cgroup.subtree_control";
    char link[64];
    char path[4096];
    char word[32];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof(path) - 1);
    size_t tail = sizeof(file) - 1;
    if (size < (ssize_t)tail || memcmp(path + size - tail, file, tail) != 0)
        return __real_write(fd, data, length);
    path[size - (ssize_t)tail] = '\0';
    assert_true(length > 1 && length < sizeof(word));
    memcpy(word, data, length);
    word[length] = '\0';
    int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir_fd >= 0);
    errno = switch_one(dir_fd, word[0] == '+', cgroup_text_controllers(word + 1));
    int error = errno;
    close(dir_fd);
    errno = error;
    return error ? -1 : (ssize_t)length;
}

/* Plain files cannot be polled; those of a cgroup can. */
int __wrap_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event)
{
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        return 0;
    return __real_epoll_ctl(epoll_fd, operation, fd, event);
}

/* ---- a host of the test ------------------------------------------------ */

struct fake {
    char dir[64]; /* proc/, run/, and the hierarchies */
    int fd;
    struct buf mounts, own;
    struct slots_record record;
    int open_files; /* before the test */
};

static int open_below(const struct fake *fake, const char *path)
{
    int fd = openat(fake->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        fail_msg("no '%s'", path);
    return fd;
}

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

static int setup(void **state)
{
    struct fake *fake = calloc(1, sizeof(*fake));
    struct hutch_error err;

    fake->open_files = count_open_files();
    snprintf(fake->dir, sizeof(fake->dir), "/tmp/hutch-test-cgroup-XXXXXX");
    assert_non_null(mkdtemp(fake->dir));
    fake->fd = open(fake->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fake->fd >= 0);
    assert_int_equal(mkdirat(fake->fd, "proc", 0700), 0);
    assert_int_equal(mkdirat(fake->fd, "run", 0700), 0);
    fake->mounts = BUF_MAX(65536);
    fake->own = BUF_MAX(65536);
    buf_append_text(&fake->mounts, "20 1 0:20 / / rw,relatime - ext4 /dev/root rw\n");
    auto_close int run = open_below(fake, "run");
    assert_int_equal(slots_record_create(run, &fake->record, &err), 0);
    *state = fake;
    return 0;
}

static void remove_all(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fdopendir(fd);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (entry->d_type == DT_DIR)
            remove_all(fd, entry->d_name);
        else
            __real_unlinkat(fd, entry->d_name, 0);
    }
    closedir(dir);
    __real_unlinkat(dir_fd, name, AT_REMOVEDIR);
}

static int teardown(void **state)
{
    struct fake *fake = *state;
    slots_record_close(&fake->record, true);
    close(fake->fd);
    remove_all(AT_FDCWD, fake->dir);
    assert_int_equal(count_open_files(), fake->open_files);
    buf_done(&fake->mounts);
    buf_done(&fake->own);
    free(fake);
    return 0;
}

/* A mounted v1 tree whose top is at name. */
static void add_v1(struct fake *fake, const char *name, const char *options, const char *own)
{
    assert_int_equal(mkdirat(fake->fd, name, 0700), 0);
    auto_close int top = open_below(fake, name);
    fill_v1(top, cgroup_text_controllers(options));
    buf_appendf(&fake->mounts, "30 20 0:30 / %s/%s rw,nosuid - cgroup cgroup rw,%s\n", fake->dir,
                name, options);
    buf_appendf(&fake->own, "5:%s:%s\n", options, own);
}

/* A mounted v2 tree; of the machine or of a container. */
static void add_v2(struct fake *fake, const char *name, unsigned mask, bool is_root,
                   const char *own)
{
    assert_int_equal(mkdirat(fake->fd, name, 0700), 0);
    auto_close int top = open_below(fake, name);
    fill_v2(top, mask);
    put_file(top, "cgroup.procs", "1\n");
    if (is_root)
        put_file(top, FAKE_ROOT, "");
    buf_appendf(&fake->mounts, "31 20 0:31 / %s/%s rw shared:7 - cgroup2 cgroup2 rw,nsdelegate\n",
                fake->dir, name);
    buf_appendf(&fake->own, "0::%s\n", own);
}

/* A group with what its parent hands on. */
static void add_group(const struct fake *fake, const char *parent, const char *name,
                      const char *procs)
{
    auto_close int fd = open_below(fake, parent);
    assert_int_equal(__wrap_mkdirat(fd, name, 0700), 0);
    auto_close int group = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put_file(group, "cgroup.procs", procs);
}

static void hand_on(const struct fake *fake, const char *path, unsigned mask)
{
    auto_close int fd = open_below(fake, path);
    put_controllers(fd, "cgroup.subtree_control", mask);
}

static unsigned handed_on(const struct fake *fake, const char *path)
{
    auto_close int fd = open_below(fake, path);
    return controllers_in(fd, "cgroup.subtree_control");
}

static struct cgroup_host *open_host(struct fake *fake, const char *parent)
{
    auto_close int proc = open_below(fake, "proc");
    char path[128];
    struct cgroup_host *host = NULL;
    struct hutch_error err;

    put_file(proc, "mountinfo", buf_text(&fake->mounts));
    put_file(proc, "cgroup", buf_text(&fake->own));
    snprintf(path, sizeof(path), "%s/proc", fake->dir);
    if (cgroup_host_open(&fake->record, parent, path, &host, &err) < 0)
        fail_msg("%s", err.message);
    return host;
}

static unsigned usable(const struct cgroup_host *host)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
        mask |= host->status[i].usable ? CGROUP_BIT(i) : 0;
    return mask;
}

/* That the only tree in use has its group at path. */
static void assert_place(const struct fake *fake, const struct cgroup_host *host, const char *path)
{
    char expected[CGROUP_PATH_BYTES];
    struct stat info;
    snprintf(expected, sizeof(expected), "%s/%s/%s", fake->dir, path, fake->record.group);
    assert_int_equal(host->count, 1);
    assert_string_equal(host->hierarchies[0].path, expected);
    assert_int_equal(stat(expected, &info), 0);
}

static int count_ours(void *user, int dir_fd, const char *name)
{
    int *count = user;
    *count += strncmp(name, "hutch-", 6) == 0 || strncmp(name, "cell-", 5) == 0;
    auto_close int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return cgroup_each_child(fd, count_ours, user);
}

/* Closes it, and nothing of it is left. */
static void close_host(const struct fake *fake, struct cgroup_host *host)
{
    int count = 0;
    assert_true(cgroup_host_close(host));
    assert_int_equal(cgroup_each_child(fake->fd, count_ours, &count), 0);
    assert_int_equal(count, 0);
}

#define MEMORY CGROUP_BIT(CGROUP_MEMORY)
#define PIDS CGROUP_BIT(CGROUP_PIDS)
#define CPU CGROUP_BIT(CGROUP_CPU)
#define CPUACCT CGROUP_BIT(CGROUP_CPUACCT)

static const struct cgroup_limits limits = {
    .memory_bytes = 16 << 20, .max_processes = 9, .cpu_millis = 500};

/* ---- text -------------------------------------------------------------- */

static void numbers_are_whole_or_nothing(void **state)
{
    (void)state;
    uint64_t number = 7;

    assert_true(cgroup_text_number("0\n", &number));
    assert_int_equal(number, 0);
    assert_true(cgroup_text_number("18446744073709551615", &number));
    assert_true(number == UINT64_MAX);
    static const char *const bad[] = {"",
                                      "\n",
                                      "max\n",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 2",
                                      "1\n\n",
                                      "0x1",
                                      "1.5",
                                      "18446744073709551616",
                                      "99999999999999999999999999999"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_false(cgroup_text_number(bad[i], &number));
    assert_true(number == UINT64_MAX);
}

static void values_are_found_by_their_whole_key(void **state)
{
    (void)state;
    const char *events = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1";
    uint64_t number = 7;

    assert_true(cgroup_text_value(events, "oom", &number));
    assert_int_equal(number, 3);
    assert_true(cgroup_text_value(events, "oom_kill", &number));
    assert_int_equal(number, 2);
    assert_true(cgroup_text_value(events, "oom_group_kill", &number));
    assert_int_equal(number, 1);
    assert_false(cgroup_text_value(events, "oom_", &number));
    assert_false(cgroup_text_value("", "oom", &number));
    assert_false(cgroup_text_value("oom", "oom", &number));
    assert_false(cgroup_text_value("oom \n", "oom", &number));
    assert_false(cgroup_text_value("oom 99999999999999999999\n", "oom", &number));
    assert_false(cgroup_text_value("oom 1 2\n", "oom", &number));
    assert_int_equal(number, 1);
}

static void controllers_are_words(void **state)
{
    (void)state;
    assert_int_equal(cgroup_text_controllers("cpuset cpu io memory hugetlb pids\n"),
                     CPU | MEMORY | PIDS);
    assert_int_equal(cgroup_text_controllers("rw,cpu,cpuacct"), CPU | CPUACCT);
    assert_int_equal(cgroup_text_controllers("memoryx,xpids,cpu.max"), 0);
    assert_int_equal(cgroup_text_controllers(""), 0);
    assert_int_equal(cgroup_text_controllers("pids"), PIDS);
}

static void own_group_is_read_by_controller(void **state)
{
    (void)state;
    const char *text = "12:name=memory:/no\n4:cpu,cpuacct:/a:b\n3:memory:/x y\n0::/unit";
    char path[32] = "unset";

    assert_true(cgroup_text_own(text, "cpuacct", path, sizeof(path)));
    assert_string_equal(path, "/a:b");
    assert_true(cgroup_text_own(text, "memory", path, sizeof(path)));
    assert_string_equal(path, "/x y");
    assert_true(cgroup_text_own(text, NULL, path, sizeof(path)));
    assert_string_equal(path, "/unit");
    assert_false(cgroup_text_own(text, "pids", path, sizeof(path)));
    assert_false(cgroup_text_own("", NULL, path, sizeof(path)));
    assert_false(cgroup_text_own("0:", NULL, path, sizeof(path)));
    assert_false(cgroup_text_own("0::", NULL, path, sizeof(path)));
    assert_false(cgroup_text_own("0::relative", NULL, path, sizeof(path)));
    assert_false(cgroup_text_own("garbage\n\n:::\n", NULL, path, sizeof(path)));
    assert_false(cgroup_text_own("0::/longer-than-the-room-for-it-is-here\n", NULL, path, 16));
    assert_string_equal(path, "/unit");
}

static void mounts_are_read_and_unescaped(void **state)
{
    (void)state;
    struct cgroup_mount mount;
    const char *text =
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        "\n"
        "1 2 3\n"
        "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "34 31 0:31 /docker/ab\\040c /mnt/a\\040\\134b\\011c ro master:1 shared:2 - cgroup2 - rw\n"
        "35 31 0:32 / /mnt/bad\\000nul rw - cgroup2 - rw\n"
        "36 31 0:32 / relative rw - cgroup2 - rw\n"
        "37 31 0:33 / /set rw - cgroup none rw,cpuset,memory\n"
        "38 31 0:34 / /named rw - cgroup none rw,xattr,name=systemd\n"
        "39 31 0:35 / /last rw - cgroup2 none";

    assert_true(cgroup_text_next_mount(&text, &mount));
    assert_string_equal(mount.point, "/sys/fs/cgroup/cpu,cpuacct");
    assert_int_equal(mount.controllers, CPU | CPUACCT);
    assert_false(mount.v2 || mount.cpuset);
    assert_true(cgroup_text_next_mount(&text, &mount));
    assert_string_equal(mount.point, "/mnt/a \\b\tc");
    assert_string_equal(mount.root, "/docker/ab c");
    assert_true(mount.v2);
    assert_true(cgroup_text_next_mount(&text, &mount));
    assert_string_equal(mount.point, "/set");
    assert_true(mount.cpuset);
    assert_true(cgroup_text_next_mount(&text, &mount));
    assert_string_equal(mount.point, "/named");
    assert_int_equal(mount.controllers, 0);
    assert_true(cgroup_text_next_mount(&text, &mount));
    assert_string_equal(mount.point, "/last");
    assert_false(cgroup_text_next_mount(&text, &mount));
    text = "";
    assert_false(cgroup_text_next_mount(&text, &mount));
}

static void a_mount_point_that_is_too_long_is_passed_over(void **state)
{
    (void)state;
    struct cgroup_mount mount;
    auto_buf struct buf text = BUF_MAX(8192);

    buf_append_text(&text, "30 1 0:1 / /");
    for (int i = 0; i < CGROUP_PATH_BYTES; i++)
        buf_append_text(&text, "x");
    buf_append_text(&text, " rw - cgroup2 - rw\n31 1 0:1 / /b rw - cgroup2 - rw\n");
    const char *at = buf_text(&text);
    assert_true(cgroup_text_next_mount(&at, &mount));
    assert_string_equal(mount.point, "/b");
}

static void places_lie_below_the_mounted_root(void **state)
{
    (void)state;
    char place[64] = "unset";

    assert_true(cgroup_text_below("/", "/a/b", place, sizeof(place)));
    assert_string_equal(place, "a/b");
    assert_true(cgroup_text_below("/docker/1", "/docker/1", place, sizeof(place)));
    assert_string_equal(place, "");
    assert_true(cgroup_text_below("/docker/1", "/docker/1/x", place, sizeof(place)));
    assert_string_equal(place, "x");
    assert_false(cgroup_text_below("/docker/1", "/docker/12", place, sizeof(place)));
    assert_false(cgroup_text_below("/docker/1", "/", place, sizeof(place)));
    assert_false(cgroup_text_below("/", "/../x", place, sizeof(place)));
    assert_false(cgroup_text_below("/", "/a//b", place, sizeof(place)));
    assert_false(cgroup_text_below("/", "/a/", place, sizeof(place)));
    assert_string_equal(place, "x");
}

static void names_of_supervisors_are_exact(void **state)
{
    (void)state;
    assert_true(cgroup_text_token("1-0123456789abcdef"));
    static const char *const bad[] = {"",
                                      "-0123456789abcdef",
                                      "0-0123456789abcdef",
                                      "1-0123456789abcde",
                                      "1-0123456789abcdef0",
                                      "1-0123456789abcdeF",
                                      "1-0123456789abcde/",
                                      "1_0123456789abcdef",
                                      "99999999999999999999-0123456789abcdef",
                                      "2147483648-0123456789abcdef",
                                      "1-0123456789abcdef\n"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_false(cgroup_text_token(bad[i]));

    assert_true(cgroup_text_ends_in("/a/hutch-1", "hutch-1"));
    static const char *const paths[] = {"",
                                        "/",
                                        "hutch-1",
                                        "/a/hutch-1/",
                                        "/a/hutch-12",
                                        "/a/xhutch-1",
                                        "/a/../hutch-1",
                                        "/a/./hutch-1",
                                        "//hutch-1",
                                        "/hutch-1/a"};
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++)
        assert_false(cgroup_text_ends_in(paths[i], "hutch-1"));
}

static void members_are_known_by_whole_components(void **state)
{
    (void)state;
    const char *group = "/hutch-1/cell-2";

    assert_true(cgroup_text_in_group("3:pids:/\n2:memory:/a/hutch-1/cell-2\n", group));
    assert_true(cgroup_text_in_group("0::/hutch-1/cell-2/sub", group));
    assert_false(cgroup_text_in_group("0::/hutch-1/cell-23", group));
    assert_false(cgroup_text_in_group("0::/xhutch-1/cell-2", group));
    assert_false(cgroup_text_in_group("4:name=/hutch-1/cell-2:/", group));
    assert_false(cgroup_text_in_group("", group));
}

static void limits_become_writes(void **state)
{
    (void)state;
    struct cgroup_setting settings[CGROUP_SETTINGS_MAX];
    struct cgroup_limits small = {.memory_bytes = 16 << 20, .max_processes = 1, .cpu_millis = 1};

    assert_int_equal(cgroup_settings(true, CGROUP_MEMORY, &limits, settings), 3);
    assert_string_equal(settings[0].file, "memory.max");
    assert_string_equal(settings[0].value, "16777216");
    assert_string_equal(settings[1].file, "memory.swap.max");
    assert_string_equal(settings[1].value, "0");
    assert_string_equal(settings[2].file, "memory.oom.group");
    assert_string_equal(settings[2].value, "1");
    small.one_by_one = true;
    assert_int_equal(cgroup_settings(true, CGROUP_MEMORY, &small, settings), 3);
    assert_string_equal(settings[2].value, "0");
    assert_int_equal(settings[2].tolerated, ENOENT);
    assert_int_equal(cgroup_settings(false, CGROUP_MEMORY, &limits, settings), 4);
    assert_string_equal(settings[3].file, "memory.kmem.tcp.limit_in_bytes");
    assert_string_equal(settings[3].value, "16777216");
    assert_int_equal(settings[3].tolerated, ENOENT);
    assert_string_equal(settings[0].file, "memory.limit_in_bytes");
    assert_int_equal(settings[0].tolerated, 0);
    assert_string_equal(settings[1].file, "memory.memsw.limit_in_bytes");
    assert_string_equal(settings[1].value, "16777216");
    assert_int_equal(settings[1].tolerated, ENOENT);
    assert_int_equal(cgroup_settings(true, CGROUP_CPU, &limits, settings), 1);
    assert_string_equal(settings[0].value, "50000 100000");
    assert_int_equal(cgroup_settings(true, CGROUP_CPU, &small, settings), 1);
    assert_string_equal(settings[0].value, "1000 100000");
    assert_int_equal(cgroup_settings(false, CGROUP_CPU, &limits, settings), 2);
    assert_string_equal(settings[1].file, "cpu.cfs_quota_us");
    assert_string_equal(settings[1].value, "50000");
    assert_int_equal(cgroup_settings(true, CGROUP_PIDS, &limits, settings), 1);
    assert_string_equal(settings[0].value, "9");
    assert_int_equal(cgroup_settings(true, CGROUP_CPUACCT, &limits, settings), 0);
}

/* ---- places: v2 -------------------------------------------------------- */

static void v2_top_of_a_machine_without_a_manager(void **state)
{
    struct fake *fake = *state;
    add_v2(fake, "v2", MEMORY | PIDS | CPU, true, "/");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), CGROUP_ALL);
    assert_place(fake, host, "v2");
    assert_int_equal(handed_on(fake, "v2"), MEMORY | PIDS | CPU);
    close_host(fake, host);
    assert_int_equal(handed_on(fake, "v2"), 0);
}

static void v2_service_uses_the_top_and_leaves_its_slice_alone(void **state)
{
    struct fake *fake = *state;
    add_v2(fake, "v2", MEMORY | PIDS | CPU, true, "/system.slice/hutch.service");
    hand_on(fake, "v2", MEMORY | PIDS | CPU);
    add_group(fake, "v2", "system.slice", "");
    hand_on(fake, "v2/system.slice", MEMORY | PIDS);
    add_group(fake, "v2/system.slice", "hutch.service", "10\n");
    add_group(fake, "v2/system.slice", "other.service", "11\n");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), CGROUP_ALL);
    assert_place(fake, host, "v2");
    assert_int_equal(handed_on(fake, "v2/system.slice"), MEMORY | PIDS);
    assert_int_equal(handed_on(fake, "v2/system.slice/hutch.service"), 0);
    close_host(fake, host);
    assert_int_equal(handed_on(fake, "v2"), MEMORY | PIDS | CPU);
}

static void v2_slice_serves_as_it_is_when_the_top_does_not(void **state)
{
    struct fake *fake = *state;
    add_v2(fake, "v2", MEMORY | PIDS | CPU, true, "/system.slice/hutch.service");
    hand_on(fake, "v2", MEMORY | PIDS | CPU);
    add_group(fake, "v2", "system.slice", "");
    hand_on(fake, "v2/system.slice", MEMORY | PIDS);
    add_group(fake, "v2/system.slice", "hutch.service", "10\n");
    add_group(fake, "v2/system.slice", "other.service", "11\n");
    auto_close int top = open_below(fake, "v2");
    put_file(top, FAKE_READONLY, "");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), MEMORY | PIDS | CPUACCT);
    assert_place(fake, host, "v2/system.slice");
    assert_int_equal(handed_on(fake, "v2/system.slice"), MEMORY | PIDS);
    assert_non_null(strstr(host->status[CGROUP_CPU].reason, "system.slice': it is off there"));
    assert_true(host->status[CGROUP_CPU].mend[0] != '\0');
    close_host(fake, host);
}

static void v2_delegated_group_serves_when_we_are_in_a_leaf(void **state)
{
    struct fake *fake = *state;
    add_v2(fake, "v2", MEMORY | PIDS | CPU, true, "/system.slice/hutch.service/engine");
    hand_on(fake, "v2", MEMORY | PIDS | CPU);
    add_group(fake, "v2", "system.slice", "");
    hand_on(fake, "v2/system.slice", MEMORY | PIDS | CPU);
    add_group(fake, "v2/system.slice", "hutch.service", "");
    add_group(fake, "v2/system.slice/hutch.service", "engine", "10\n");
    add_group(fake, "v2/system.slice/hutch.service", "hutch-9-00000000000000ff", "");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), CGROUP_ALL);
    assert_place(fake, host, "v2/system.slice/hutch.service");
    assert_int_equal(handed_on(fake, "v2/system.slice/hutch.service"), MEMORY | PIDS | CPU);
    assert_true(cgroup_host_close(host));
    assert_int_equal(handed_on(fake, "v2/system.slice/hutch.service"), 0);
}

static void v2_container_whose_only_group_holds_processes(void **state)
{
    struct fake *fake = *state;
    add_v2(fake, "v2", MEMORY | PIDS, false, "/");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), 0);
    assert_int_equal(host->count, 0);
    assert_non_null(strstr(host->status[CGROUP_MEMORY].reason, "it holds processes"));
    assert_string_equal(host->status[CGROUP_CPU].reason, "no cgroup hierarchy offers it");
    close_host(fake, host);
}

static void v2_stays_switched_on_while_others_use_it(void **state)
{
    struct fake *fake = *state;
    add_v2(fake, "v2", MEMORY, true, "/");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), MEMORY | CPUACCT);
    add_group(fake, "v2", "somebody", "");
    close_host(fake, host);
    assert_int_equal(handed_on(fake, "v2"), MEMORY);
}

static void v2_named_group_is_used_or_missed(void **state)
{
    struct fake *fake = *state;
    struct hutch_error err;
    struct cgroup_host *host;
    add_v2(fake, "v2", MEMORY | PIDS | CPU, true, "/");
    hand_on(fake, "v2", MEMORY | PIDS | CPU);
    add_group(fake, "v2", "for hutch", "");
    add_group(fake, "v2/for hutch", "stranger", "");

    host = open_host(fake, "/for hutch");
    assert_int_equal(usable(host), CGROUP_ALL);
    assert_place(fake, host, "v2/for hutch");
    close_host(fake, host);

    host = open_host(fake, "absent");
    assert_int_equal(usable(host), 0);
    assert_non_null(strstr(host->status[CGROUP_PIDS].reason, "absent': No such file"));
    assert_true(host->status[CGROUP_PIDS].mend[0] != '\0');
    close_host(fake, host);

    static const char *const bad[] = {"../x", "a/../b", "//x", "a//b", "x/", "."};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_int_equal(cgroup_host_open(&fake->record, bad[i], fake->dir, &host, &err),
                         HUTCH_ERR_INVALID);
}

static void v2_read_only_says_so(void **state)
{
    struct fake *fake = *state;
    add_v2(fake, "v2", MEMORY | PIDS | CPU, true, "/");
    auto_close int top = open_below(fake, "v2");
    put_file(top, FAKE_READONLY, "");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), 0);
    assert_non_null(strstr(host->status[CGROUP_CPU].reason, "read-only"));
    assert_string_equal(host->status[CGROUP_CPU].mend,
                        "give the container a writable cgroup file system");
    close_host(fake, host);
    assert_int_equal(handed_on(fake, "v2"), 0);
}

static void v2_cell_has_limits_events_and_usage(void **state)
{
    struct fake *fake = *state;
    struct cgroup_cell *cell;
    struct cgroup_usage usage;
    struct hutch_error err;
    int fds[CGROUP_JOIN_MAX];
    add_v2(fake, "v2", MEMORY | PIDS | CPU, true, "/");
    struct cgroup_host *host = open_host(fake, NULL);

    assert_int_equal(cgroup_cell_create(host, &limits, &cell, &err), 0);
    assert_int_equal(cgroup_cell_layers(cell),
                     HUTCH_LAYER_CGROUP_MEMORY | HUTCH_LAYER_CGROUP_PIDS | HUTCH_LAYER_CGROUP_CPU);
    auto_close int group =
        openat(host->hierarchies[0].fd, "cell-1", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(group >= 0);
    static const char *const expected[][2] = {{"memory.max", "16777216"},
                                              {"memory.oom.group", "1"},
                                              {"pids.max", "9"},
                                              {"cpu.max", "50000 100000"}};
    for (size_t i = 0; i < ARRAY_LENGTH(expected); i++) {
        auto_buf struct buf text = get_file(group, expected[i][0]);
        assert_string_equal(buf_text(&text), expected[i][1]);
    }
    assert_true(cgroup_cell_clone_fd(cell) >= 0);
    assert_int_equal(cgroup_cell_join_fds(cell, true, fds), 0);
    assert_int_equal(cgroup_cell_join_fds(cell, false, fds), 1);
    assert_int_equal(cgroup_join(fds, 1), 0);
    auto_buf struct buf joined = get_file(group, "cgroup.procs");
    assert_string_equal(buf_text(&joined), "0");

    put_file(group, "memory.events", "low 0\nmax 5\noom 0\noom_kill 0\n");
    assert_false(cgroup_cell_take_oom(cell));
    put_file(group, "memory.events", "low 0\nmax 5\noom 1\noom_kill 4\noom_group_kill 1\n");
    put_file(group, "memory.peak", "123456\n");
    put_file(group, "cpu.stat", "usage_usec 2500\nuser_usec 1\n");
    put_file(group, "pids.events", "max 6\n");
    assert_true(cgroup_cell_take_oom(cell));
    put_file(group, "memory.events", "low 0\nmax 9\noom 1\noom_kill 4\noom_group_kill 1\n");
    assert_false(cgroup_cell_take_oom(cell)); /* of a session that goes on: the same one */
    cgroup_cell_usage(cell, &usage);
    assert_int_equal(usage.cpu_ns, 2500000);
    assert_int_equal(usage.peak_memory_bytes, 123456);
    assert_int_equal(usage.oom_kills, 4);
    assert_int_equal(usage.pids_max_hits, 6);

    put_file(group, "memory.events", "");
    put_file(group, "memory.peak", "99999999999999999999\n");
    put_file(group, "cpu.stat", "usage_usec 18446744073709551615\n");
    put_file(group, "pids.events", "max");
    assert_false(cgroup_cell_take_oom(cell));
    cgroup_cell_usage(cell, &usage);
    assert_int_equal(usage.cpu_ns, 0);
    assert_int_equal(usage.peak_memory_bytes, 0);
    assert_int_equal(usage.oom_kills, 0);
    assert_int_equal(usage.pids_max_hits, 0);

    assert_false(cgroup_cell_remove(cell)); /* it holds "0" */
    put_file(group, "cgroup.procs", "");
    cgroup_cell_joined(cell);
    assert_int_equal(cgroup_cell_join_fds(cell, false, fds), 0);
    assert_true(cgroup_cell_remove(cell));
    cgroup_cell_free(cell);
    close_host(fake, host);
}

/* ---- places: v1, hybrid, none ------------------------------------------ */

static void v1_mounted_together_and_alone_with_an_empty_v2(void **state)
{
    struct fake *fake = *state;
    struct cgroup_cell *cell;
    struct hutch_error err;
    int fds[CGROUP_JOIN_MAX];
    add_v2(fake, "unified", 0, true, "/");
    add_v1(fake, "cpu,cpuacct", "cpu,cpuacct", "/");
    add_v1(fake, "memory", "memory", "/unit/x");
    add_v1(fake, "pids", "pids", "/not/there");
    add_group(fake, "memory", "unit", "");
    add_group(fake, "memory/unit", "x", "10\n");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), CGROUP_ALL);
    assert_int_equal(host->count, 3);
    assert_ptr_equal(cgroup_host_find(host, CGROUP_CPU), cgroup_host_find(host, CGROUP_CPUACCT));
    assert_non_null(strstr(cgroup_host_find(host, CGROUP_MEMORY)->path, "/memory/unit/x/hutch-"));
    /* the group above the one that is not there */
    assert_non_null(strstr(cgroup_host_find(host, CGROUP_PIDS)->path, "/pids/hutch-"));

    assert_int_equal(cgroup_cell_create(host, &limits, &cell, &err), 0);
    assert_int_equal(cgroup_cell_clone_fd(cell), -1);
    assert_int_equal(cgroup_cell_join_fds(cell, true, fds), 3);
    assert_int_equal(cgroup_cell_join_fds(cell, false, fds), 3);
    auto_close int memory = openat(cgroup_host_find(host, CGROUP_MEMORY)->fd, "cell-1",
                                   O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_buf struct buf limit = get_file(memory, "memory.limit_in_bytes");
    assert_string_equal(buf_text(&limit), "16777216");
    assert_true(cgroup_cell_remove(cell));
    cgroup_cell_free(cell);
    close_host(fake, host);
}

static void hybrid_with_controllers_in_both(void **state)
{
    struct fake *fake = *state;
    struct cgroup_cell *cell;
    struct hutch_error err;
    int fds[CGROUP_JOIN_MAX];
    add_v2(fake, "unified", PIDS | CPU, true, "/");
    add_v1(fake, "memory", "memory", "/");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), CGROUP_ALL);
    assert_int_equal(host->count, 2);
    assert_int_equal(cgroup_cell_create(host, &limits, &cell, &err), 0);
    assert_true(cgroup_cell_clone_fd(cell) >= 0);
    assert_int_equal(cgroup_cell_join_fds(cell, true, fds), 1);
    assert_int_equal(cgroup_cell_join_fds(cell, false, fds), 2);
    assert_true(cgroup_cell_remove(cell));
    cgroup_cell_free(cell);
    close_host(fake, host);
}

static void v1_with_cpuset_is_refused(void **state)
{
    struct fake *fake = *state;
    add_v1(fake, "all", "cpuset,cpu,cpuacct,memory,pids", "/");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), 0);
    assert_non_null(strstr(host->status[CGROUP_MEMORY].reason, "cpuset is mounted with"));
    close_host(fake, host);
}

static void a_second_mount_serves_where_the_first_does_not(void **state)
{
    struct fake *fake = *state;
    add_v1(fake, "first", "memory", "/");
    add_v1(fake, "second", "memory", "/");
    auto_close int first = open_below(fake, "first");
    put_file(first, FAKE_READONLY, "");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), MEMORY);
    assert_place(fake, host, "second");
    assert_string_equal(host->status[CGROUP_MEMORY].reason, "");
    close_host(fake, host);
}

static void a_host_without_cgroups_is_no_error(void **state)
{
    struct fake *fake = *state;
    struct cgroup_cell *cell;
    struct cgroup_usage usage;
    struct hutch_error err;
    int fds[CGROUP_JOIN_MAX];

    struct cgroup_host *host = open_host(fake, NULL);
    assert_int_equal(usable(host), 0);
    assert_string_equal(host->status[CGROUP_PIDS].reason, "no cgroup file system is mounted");
    assert_int_equal(cgroup_cell_create(host, &limits, &cell, &err), 0);
    assert_int_equal(cgroup_cell_layers(cell), 0);
    assert_int_equal(cgroup_cell_join_fds(cell, false, fds), 0);
    assert_int_equal(cgroup_cell_oom_fd(cell), -1);
    assert_false(cgroup_cell_take_oom(cell));
    cgroup_cell_usage(cell, &usage);
    assert_int_equal(usage.cpu_ns, 0);
    cgroup_cell_kill(cell);
    assert_true(cgroup_cell_remove(cell));
    cgroup_cell_free(cell);
    close_host(fake, host);
}

static void every_group_is_recorded_before_it_is_made(void **state)
{
    struct fake *fake = *state;
    char name[64];
    add_v2(fake, "v2", MEMORY, true, "/unit");
    hand_on(fake, "v2", MEMORY);
    add_group(fake, "v2", "unit", "10\n");

    struct cgroup_host *host = open_host(fake, NULL);
    assert_place(fake, host, "v2");
    auto_close int run = open_below(fake, "run");
    snprintf(name, sizeof(name), "supervisor-%s", fake->record.token);
    auto_buf struct buf record = get_file(run, name);
    auto_buf struct buf expected = BUF_MAX(4096);
    buf_appendf(&expected, "%s/v2/unit/%s\n%s/v2/%s\n", fake->dir, fake->record.group, fake->dir,
                fake->record.group);
    assert_string_equal(buf_text(&record), buf_text(&expected));
    close_host(fake, host);
}

static void nothing_is_made_that_cannot_be_recorded(void **state)
{
    struct fake *fake = *state;
    struct cgroup_host *host = NULL;
    struct hutch_error err;
    char path[128];
    add_v1(fake, "memory", "memory", "/");
    close_host(fake, open_host(fake, NULL));

    int fd = fake->record.fd;
    fake->record.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    snprintf(path, sizeof(path), "%s/proc", fake->dir);
    assert_int_equal(cgroup_host_open(&fake->record, NULL, path, &host, &err), HUTCH_ERR_SYSTEM);
    assert_int_equal(err.sys_errno, ENOSPC);
    close(fake->record.fd);
    fake->record.fd = fd;
    close_host(fake, NULL);
}

#define test_with_host(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_whole_or_nothing),
        cmocka_unit_test(values_are_found_by_their_whole_key),
        cmocka_unit_test(controllers_are_words),
        cmocka_unit_test(own_group_is_read_by_controller),
        cmocka_unit_test(mounts_are_read_and_unescaped),
        cmocka_unit_test(a_mount_point_that_is_too_long_is_passed_over),
        cmocka_unit_test(places_lie_below_the_mounted_root),
        cmocka_unit_test(names_of_supervisors_are_exact),
        cmocka_unit_test(members_are_known_by_whole_components),
        cmocka_unit_test(limits_become_writes),
        test_with_host(v2_top_of_a_machine_without_a_manager),
        test_with_host(v2_service_uses_the_top_and_leaves_its_slice_alone),
        test_with_host(v2_slice_serves_as_it_is_when_the_top_does_not),
        test_with_host(v2_delegated_group_serves_when_we_are_in_a_leaf),
        test_with_host(v2_container_whose_only_group_holds_processes),
        test_with_host(v2_stays_switched_on_while_others_use_it),
        test_with_host(v2_named_group_is_used_or_missed),
        test_with_host(v2_read_only_says_so),
        test_with_host(v2_cell_has_limits_events_and_usage),
        test_with_host(v1_mounted_together_and_alone_with_an_empty_v2),
        test_with_host(hybrid_with_controllers_in_both),
        test_with_host(v1_with_cpuset_is_refused),
        test_with_host(a_second_mount_serves_where_the_first_does_not),
        test_with_host(a_host_without_cgroups_is_no_error),
        test_with_host(every_group_is_recorded_before_it_is_made),
        test_with_host(nothing_is_made_that_cannot_be_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
