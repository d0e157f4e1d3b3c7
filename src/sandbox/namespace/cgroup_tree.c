/* SPDX-License-Identifier: Apache-2.0 */
/* See cgroup_tree.h. */
#include "cgroup_tree.h"

#include "base/limits.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>

/* Without a limit on processes a fork bomb may outrun one round. */
#define KILL_ROUNDS 4
/* Ours have two levels; a cell that holds groups of its own may have more. */
#define DEPTH_MAX 8

#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW)

int cgroup_write(int dir_fd, const char *group, const char *file, const char *value)
{
    char path[CGROUP_PATH_BYTES];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", group, file) >= sizeof(path))
        return ENAMETOOLONG;
    auto_close int fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno;
    size_t length = strlen(value);
    ssize_t written;
    do
        written = write(fd, value, length);
    while (written < 0 && errno == EINTR);
    if (written < 0)
        return errno;
    return (size_t)written == length ? 0 : EIO;
}

int cgroup_read(int dir_fd, const char *group, const char *file, struct buf *text,
                struct hutch_error *err)
{
    char path[CGROUP_PATH_BYTES];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", group, file) >= sizeof(path))
        return err_errno(err, HUTCH_ERR_SYSTEM, ENAMETOOLONG, "open '%s'", file);
    return buf_read_file(text, dir_fd, path, err);
}

int cgroup_apply(int dir_fd, const char *group, bool v2, enum cgroup_controller controller,
                 const struct cgroup_limits *limits, struct hutch_error *err)
{
    struct cgroup_setting settings[CGROUP_SETTINGS_MAX];
    size_t count = cgroup_settings(v2, controller, limits, settings);

    for (size_t i = 0; i < count; i++) {
        int error = cgroup_write(dir_fd, group, settings[i].file, settings[i].value);
        if (error != 0 && error != settings[i].tolerated)
            return err_errno(err, HUTCH_ERR_SYSTEM, error, "write '%s' to '%s'", settings[i].value,
                             settings[i].file);
    }
    return 0;
}

static bool is_directory(int dir_fd, const struct dirent *entry)
{
    struct stat info;

    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
        return false;
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(dir_fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

int cgroup_each_child(int dir_fd, int (*visit)(void *user, int dir_fd, const char *name),
                      void *user)
{
    auto_close int fd = openat(dir_fd, ".", DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    DIR *dir = fdopendir(fd);
    if (!dir)
        return -errno;
    TAKE_FD(fd);
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(dir)) != NULL;) {
        if (is_directory(dir_fd, entry))
            result = visit(user, dir_fd, entry->d_name);
    }
    closedir(dir);
    return result;
}

/* Kills a process if it is in the group. The pidfd is opened first, so the
 * process that is looked at cannot be replaced by another of the same number. */
static void kill_member(pid_t pid, const char *full_name)
{
    char path[64];
    struct hutch_error ignored;
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);

    auto_close int pidfd = pidfd_open(pid, 0);
    if (pidfd < 0)
        return;
    snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
    if (buf_read_file(&text, AT_FDCWD, path, &ignored) < 0)
        return;
    if (cgroup_text_in_group(buf_text(&text), full_name))
        IGNORE_RESULT(pidfd_send_signal(pidfd, SIGKILL, NULL, 0));
}

/* One pass over cgroup.procs; whether it named any process. */
static bool kill_listed(int fd, const char *full_name)
{
    struct hutch_error ignored;
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    if (cgroup_read(fd, ".", "cgroup.procs", &text, &ignored) < 0)
        return false;

    bool any = false;
    for (const char *at = buf_text(&text); *at != '\0';) {
        size_t length = strcspn(at, "\n");
        uint64_t pid;
        /* 0 is a process outside our pid namespace */
        if (cgroup_text_digits(at, length, &pid) && pid > 0 && pid <= INT32_MAX) {
            kill_member((pid_t)pid, full_name);
            any = true;
        }
        at += length + (at[length] == '\n');
    }
    return any;
}

struct kill_walk {
    const char *full_name;
    unsigned depth;
};

static int kill_group(void *user, int dir_fd, const char *name)
{
    struct kill_walk *walk = user;

    auto_close int fd = openat(dir_fd, name, DIRECTORY | O_CLOEXEC);
    if (fd < 0 || cgroup_write(fd, ".", "cgroup.kill", "1") == 0 || walk->depth >= DEPTH_MAX)
        return 0;
    IGNORE_RESULT(cgroup_write(fd, ".", "pids.max", "0"));
    for (int round = 0; round < KILL_ROUNDS && kill_listed(fd, walk->full_name); round++)
        continue;
    walk->depth++;
    IGNORE_RESULT(cgroup_each_child(fd, kill_group, walk));
    walk->depth--;
    return 0;
}

void cgroup_tree_kill(int dir_fd, const char *group, const char *full_name)
{
    struct kill_walk walk = {full_name, 0};
    kill_group(&walk, dir_fd, group);
}

static int remove_group(int dir_fd, const char *name, unsigned depth);

/* Goes on whatever happens: the group above says whether something is left. */
static int remove_child(void *user, int dir_fd, const char *name)
{
    const unsigned *depth = user;
    IGNORE_RESULT(remove_group(dir_fd, name, *depth));
    return 0;
}

/* 0 or an errno value. A group that holds groups cannot be removed, so a
 * refusal is answered by removing those first, then trying once more. */
static int remove_group(int dir_fd, const char *name, unsigned depth)
{
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
        return 0;
    if ((errno != EBUSY && errno != ENOTEMPTY) || depth >= DEPTH_MAX)
        return errno;
    auto_close int fd = openat(dir_fd, name, DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    depth++;
    IGNORE_RESULT(cgroup_each_child(fd, remove_child, &depth));
    return unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 ? 0 : errno;
}

int cgroup_tree_remove(int dir_fd, const char *name, struct hutch_error *err)
{
    int error = remove_group(dir_fd, name, 0);
    if (error == 0 || error == ENOENT)
        return 0;
    if (error == EBUSY || error == ENOTEMPTY)
        return CGROUP_BUSY;
    return err_errno(err, HUTCH_ERR_SYSTEM, error, "remove group '%s'", name);
}

/* Opens the directory that holds the last component of an absolute path, one
 * component at a time, no symlink among them. -errno. */
static int open_holder(const char *path)
{
    auto_close int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *last = strrchr(path, '/');

    for (const char *at = path + 1; fd >= 0 && at < last;) {
        char name[NAME_MAX + 1];
        size_t length = strcspn(at, "/");
        if (length >= sizeof(name))
            return -ENAMETOOLONG;
        memcpy(name, at, length);
        name[length] = '\0';
        int next = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int error = errno;
        close(fd);
        fd = next;
        errno = error;
        at += length + 1;
    }
    return fd < 0 ? -errno : TAKE_FD(fd);
}

static bool is_cgroup_fs(int fd)
{
    struct statfs info;

    return fstatfs(fd, &info) == 0 &&
           (info.f_type == CGROUP_SUPER_MAGIC || info.f_type == CGROUP2_SUPER_MAGIC);
}

int cgroup_tree_reap(const char *path, const char *name, struct hutch_error *err)
{
    char group[NAME_MAX + 2];
    if (!cgroup_text_ends_in(path, name) || strlen(name) > NAME_MAX)
        return err_set(err, HUTCH_ERR_INVALID, "'%s' is no group of '%s'", path, name);
    auto_close int holder = open_holder(path);
    if (holder < 0)
        return holder == -ENOENT ? 0 : err_errno(err, HUTCH_ERR_SYSTEM, -holder, "open '%s'", path);
    if (!is_cgroup_fs(holder))
        return err_set(err, HUTCH_ERR_INVALID, "'%s' is not on a cgroup file system", path);

    snprintf(group, sizeof(group), "/%s", name);
    cgroup_tree_kill(holder, name, group);
    return cgroup_tree_remove(holder, name, err);
}
