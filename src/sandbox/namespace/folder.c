/* SPDX-License-Identifier: Apache-2.0 */
/* See folder.h. */
#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

void folder_close(DIR **dir)
{
    int saved = errno;
    if (*dir)
        closedir(*dir);
    errno = saved;
}

DIR *folder_list(int fd)
{
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again >= 0 ? fdopendir(again) : NULL;
    if (!dir && again >= 0)
        close(again);
    return dir;
}

struct dirent *folder_next(DIR *dir)
{
    struct dirent *entry;

    do {
        errno = 0;
        entry = readdir(dir);
    } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    return entry;
}

int folder_seal(int dir_fd, struct hutch_error *err)
{
    auto_dir DIR *dir = folder_list(dir_fd);
    struct dirent *entry;

    while (dir && (entry = folder_next(dir))) {
        if (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN)
            continue;
        auto_close int fd =
            openat(dir_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
            continue;
        if (fd < 0)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open folder '%s'", entry->d_name);
        int error = folder_seal(fd, err);
        if (error < 0)
            return error;
    }
    if (!dir || errno != 0 || fchmod(dir_fd, 0555) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make a folder read-only");
    return 0;
}

static int remove_entries(int dir_fd, struct hutch_error *err)
{
    auto_dir DIR *dir = folder_list(dir_fd);
    struct dirent *entry;

    while (dir && (entry = folder_next(dir))) {
        int error = folder_remove(dir_fd, entry->d_name, err);
        if (error < 0)
            return error;
    }
    if (!dir || errno != 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read a folder to remove");
    return 0;
}

int folder_remove(int dir_fd, const char *name, struct hutch_error *err)
{
    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "remove '%s'", name);
    auto_close int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    /* Sealed folders do not let go of their entries, unless for root. */
    if (fd < 0 || fchmod(fd, 0700) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s' to remove it", name);
    int error = remove_entries(fd, err);
    if (error < 0)
        return error;
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "remove folder '%s'", name);
    return 0;
}
