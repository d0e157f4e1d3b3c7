/* SPDX-License-Identifier: Apache-2.0 */
/* See walk.h. */
#include "walk.h"

#include "../sandbox/wire.h"
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_NAMES 1000 /* looked at in one step */

static void push(struct walk *walk, int fd, size_t prefix)
{
    struct walk_level *level = &walk->levels[walk->depth++];

    level->fd = fd;
    level->prefix = prefix;
    level->at = level->length = 0;
}

static void pop(struct walk *walk)
{
    close(walk->levels[--walk->depth].fd);
}

void walk_begin(struct walk *walk, enum walk_kind kind, int folder_fd, struct timespec after)
{
    walk_end(walk);
    walk->kind = kind;
    walk->after = after;
    walk->count = walk->bytes = 0;
    walk->cut = false;
    push(walk, folder_fd, 0);
}

void walk_end(struct walk *walk)
{
    while (walk->depth > 0)
        pop(walk);
}

/* The next entry of the deepest directory; NULL at its end. */
static const struct dirent64 *next_entry(struct walk *walk, struct walk_level *level)
{
    if (level->at >= level->length) {
        ssize_t count = getdents64(level->fd, level->entries, sizeof(level->entries));
        if (count < 0)
            walk->cut = true;
        level->at = 0;
        level->length = count > 0 ? (size_t)count : 0;
        if (level->length == 0)
            return NULL;
    }
    const struct dirent64 *entry = (const struct dirent64 *)(level->entries + level->at);
    level->at += entry->d_reclen;
    return entry;
}

static bool is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static bool is_later(const struct timespec *time, const struct timespec *than)
{
    return time->tv_sec > than->tv_sec ||
           (time->tv_sec == than->tv_sec && time->tv_nsec > than->tv_nsec);
}

/* Goes down into a directory, whose path of length bytes is there. */
static void descend(struct walk *walk, const struct walk_level *level, const char *name,
                    size_t length)
{
    if (walk->depth == WIRE_MAX_DEPTH || length + 1 > WIRE_MAX_PATH) {
        walk->cut = true;
        return;
    }
    int fd = openat(level->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        walk->cut = walk->cut || errno != ENOENT;
        return;
    }
    walk->path[length] = '/';
    push(walk, fd, length + 1);
}

/* Whether it is an entry to be told; a directory of CHANGES is gone into. */
static bool is_told(struct walk *walk, const struct walk_level *level, const char *name,
                    size_t length, const struct stat *status)
{
    if (walk->kind == WALK_LIST)
        return true;
    if (S_ISDIR(status->st_mode)) {
        descend(walk, level, name, length);
        return false;
    }
    return S_ISREG(status->st_mode) && length <= WIRE_MAX_PATH &&
           is_later(&status->st_ctim, &walk->after);
}

static size_t append(struct walk *walk, char *entries, size_t length, const struct stat *status)
{
    struct wire_entry entry = {
        .size = status->st_size > 0 ? (uint64_t)status->st_size : 0,
        .name_length = (uint16_t)length,
        .flags = S_ISDIR(status->st_mode) ? WIRE_ENTRY_DIRECTORY : 0,
    };

    memcpy(entries, &entry, sizeof(entry));
    memcpy(entries + sizeof(entry), walk->path, length);
    walk->count++;
    walk->bytes += (uint32_t)(sizeof(entry) + length);
    return sizeof(entry) + length;
}

/* Looks at one name. Returns the bytes that its entry takes, 0 for none. */
static size_t look(struct walk *walk, struct walk_level *level, const char *name, char *entries)
{
    struct stat status;
    size_t name_length = strnlen(name, WIRE_MAX_NAME + 1);
    size_t length = level->prefix + name_length;

    if (is_dots(name) || name_length > WIRE_MAX_NAME || files_is_temporary(name) ||
        fstatat(level->fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    memcpy(walk->path + level->prefix, name, name_length);
    return is_told(walk, level, name, length, &status) ? append(walk, entries, length, &status) : 0;
}

static bool is_full(const struct walk *walk)
{
    return walk->count >= WIRE_MAX_ENTRIES ||
           walk->bytes + sizeof(struct wire_entry) + WIRE_MAX_PATH > WIRE_MAX_ENTRY_BYTES;
}

size_t walk_step(struct walk *walk, char *entries, bool *ret_end, bool *ret_cut)
{
    const size_t room = WIRE_MAX_DATA - sizeof(struct wire_entry) - WIRE_MAX_PATH;
    size_t used = 0;

    for (unsigned names = 0; names < STEP_NAMES && used <= room && walk->depth > 0; names++) {
        struct walk_level *level = &walk->levels[walk->depth - 1];
        const struct dirent64 *entry = next_entry(walk, level);
        if (!entry) {
            pop(walk);
            continue;
        }
        if (is_full(walk) && !is_dots(entry->d_name)) {
            walk->cut = true;
            walk_end(walk);
            break;
        }
        used += look(walk, level, entry->d_name, entries + used);
    }
    *ret_end = walk->depth == 0;
    *ret_cut = walk->cut;
    return used;
}
