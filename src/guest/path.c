/* SPDX-License-Identifier: Apache-2.0 */
/* See path.h. */
#include "path.h"

#include "../sandbox/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static bool name_is_sound(const char *name, size_t length)
{
    bool dots =
        (length == 1 && name[0] == '.') || (length == 2 && name[0] == '.' && name[1] == '.');
    return length >= 1 && length <= WIRE_MAX_NAME && !dots;
}

bool path_is_sound(const char *path, size_t length)
{
    size_t begin = 0;

    if (length == 0 || length > WIRE_MAX_PATH || memchr(path, '\0', length))
        return false;
    for (size_t at = 0; at <= length; at++) {
        if (at < length && path[at] != '/')
            continue;
        if (!name_is_sound(path + begin, at - begin))
            return false;
        begin = at + 1;
    }
    return true;
}

static int enter(int folder, const char *name, bool make)
{
    int fd = openat(folder, name, FOLDER);
    if (fd < 0 && errno == ENOENT && make && (mkdirat(folder, name, 0755) == 0 || errno == EEXIST))
        fd = openat(folder, name, FOLDER);
    return fd;
}

int path_open_parent(int home_fd, const char *path, bool make, const char **ret_name)
{
    char name[WIRE_MAX_NAME + 1];
    int folder = fcntl(home_fd, F_DUPFD_CLOEXEC, 0);

    for (const char *slash; folder >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        size_t length = (size_t)(slash - path);
        memcpy(name, path, length);
        name[length] = '\0';
        int next = enter(folder, name, make);
        int error = errno;
        close(folder);
        errno = error;
        folder = next;
    }
    *ret_name = path;
    return folder;
}
