/* SPDX-License-Identifier: Apache-2.0 */
/* See load.h. */
#include "load.h"

#include "base/buf.h"
#include "base/limits.h"
#include "load_text.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES 8192            /* of memory.stat, the longest file that is read here */
#define MOUNTINFO_BYTES_MAX MIB(8) /* a host with many containers has thousands of mounts */
#define NUMBER_BYTES 32
#define PACE_BYTES 256
#define PATH_BYTES (2 * CGROUP_PATH_BYTES + 64)

uint64_t load_reserve(uint64_t total_bytes)
{
    uint64_t wanted = total_bytes / 20 > MIB(256) ? total_bytes / 20 : MIB(256);

    return wanted < total_bytes / 8 ? wanted : total_bytes / 8;
}

/* ---- files ------------------------------------------------------------- */

/* openat() takes no notice of its folder for an absolute path. */
static const char *below_root(const struct load_host *host, const char *path)
{
    return host->root_fd == AT_FDCWD ? path : path + 1;
}

/* The beginning of a file; "" for one that cannot be read. */
static const char *read_text(const struct load_host *host, const char *path, char *text,
                             size_t size)
{
    auto_close int fd = openat(host->root_fd, below_root(host, path), O_RDONLY | O_CLOEXEC);
    size_t length = 0;

    while (fd >= 0 && length < size - 1) {
        ssize_t count = read(fd, text + length, size - 1 - length);
        if (count <= 0)
            break;
        length += (size_t)count;
    }
    text[length] = '\0';
    return text;
}

static const char *read_group_text(const struct load_host *host, const char *group,
                                   const char *file, char *text, size_t size)
{
    char path[PATH_BYTES];

    int length = snprintf(path, sizeof(path), "%s/%s", group, file);
    text[0] = '\0';
    return length < (int)sizeof(path) ? read_text(host, path, text, size) : text;
}

/* ---- the group --------------------------------------------------------- */

static bool exists(const struct load_host *host, const char *top, const char *place)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof(path), "%s/%s", top, place);
    return faccessat(host->root_fd, below_root(host, path), F_OK, 0) == 0;
}

/* The place of the cells in one hierarchy: false where they are not in it. */
static bool find_place(const struct load_host *host, const struct cgroup_mount *mount,
                       const char *own_groups, const char *cgroup, struct load_group *group)
{
    char own[CGROUP_PATH_BYTES];

    if (cgroup && cgroup[0] == '/')
        cgroup++;
    if (cgroup && cgroup[0] != '\0' && cgroup_text_relative(cgroup) &&
        exists(host, mount->point, cgroup)) {
        snprintf(group->place, sizeof(group->place), "%s", cgroup);
        return true;
    }
    return cgroup_text_own(own_groups, mount->v2 ? NULL : "memory", own, sizeof(own)) &&
           cgroup_text_below(mount->root, own, group->place, sizeof(group->place));
}

/* Memory is in a v1 hierarchy, or else in that of v2. */
static void find_group(struct load_host *host, const char *mounts, const char *own_groups,
                       const char *cgroup)
{
    struct cgroup_mount mount;
    struct load_group *group = &host->group;

    while (cgroup_text_next_mount(&mounts, &mount)) {
        bool is_memory_v1 = !mount.v2 && (mount.controllers & CGROUP_BIT(CGROUP_MEMORY)) != 0;
        struct load_group found = {.is_known = true, .v2 = mount.v2};
        if (!(is_memory_v1 || (mount.v2 && !group->is_known)) ||
            !find_place(host, &mount, own_groups, cgroup, &found))
            continue;
        memcpy(found.top, mount.point, sizeof(found.top));
        *group = found;
        if (is_memory_v1)
            return;
    }
}

void load_host_init(struct load_host *ret_host, int root_fd, const char *cgroup)
{
    auto_buf struct buf own = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    auto_buf struct buf mounts = BUF_MAX(MOUNTINFO_BYTES_MAX);
    struct hutch_error ignored;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    *ret_host = (struct load_host){
        .root_fd = root_fd,
        .processors = processors > 0 ? (uint32_t)processors : 1,
    };
    if (buf_read_file(&own, root_fd, below_root(ret_host, "/proc/self/cgroup"), &ignored) == 0 &&
        buf_read_file(&mounts, root_fd, below_root(ret_host, "/proc/self/mountinfo"), &ignored) ==
            0)
        find_group(ret_host, buf_text(&mounts), buf_text(&own), cgroup);
}

/* ---- memory ------------------------------------------------------------ */

static uint64_t room_in(const struct load_memory *place)
{
    uint64_t reserve = load_reserve(place->total_bytes);

    return place->available_bytes > reserve ? place->available_bytes - reserve : 0;
}

static struct load_memory read_machine(const struct load_host *host)
{
    struct load_memory machine = {.total_bytes = LOAD_UNKNOWN, .available_bytes = LOAD_UNKNOWN};
    char text[TEXT_BYTES];
    uint64_t total, available;

    read_text(host, "/proc/meminfo", text, sizeof(text));
    if (load_text_memory(text, "MemTotal", &total) &&
        load_text_memory(text, "MemAvailable", &available)) {
        machine.total_bytes = total;
        machine.available_bytes = available;
    }
    return machine;
}

/* "max" is none. */
static uint64_t read_number(const struct load_host *host, const char *group, const char *file)
{
    char text[NUMBER_BYTES];
    uint64_t number;

    read_group_text(host, group, file, text, sizeof(text));
    return cgroup_text_number(text, &number) ? number : LOAD_UNKNOWN;
}

/* Beyond memory.high a group is slowed down until it is of no use. */
static uint64_t read_limit(const struct load_host *host, const char *group)
{
    if (!host->group.v2)
        return read_number(host, group, "memory.limit_in_bytes");
    uint64_t most = read_number(host, group, "memory.max");
    uint64_t high = read_number(host, group, "memory.high");
    return most < high ? most : high;
}

/* Most groups have no limit of their own, or none that the machine could meet:
 * false for them. */
static bool read_group(const struct load_host *host, const char *group, uint64_t machine_bytes,
                       struct load_memory *ret_memory)
{
    char text[TEXT_BYTES];
    bool v2 = host->group.v2;
    uint64_t inactive_file = 0;
    uint64_t limit = read_limit(host, group);

    if (limit >= machine_bytes)
        return false;
    uint64_t usage = read_number(host, group, v2 ? "memory.current" : "memory.usage_in_bytes");
    read_group_text(host, group, "memory.stat", text, sizeof(text));
    if (usage == LOAD_UNKNOWN ||
        !cgroup_text_value(text, v2 ? "inactive_file" : "total_inactive_file", &inactive_file))
        return false;
    *ret_memory = (struct load_memory){
        .total_bytes = limit,
        .available_bytes = load_headroom(limit, usage, inactive_file),
        .in_group = true,
    };
    return true;
}

/* Makes path that of the group above; false for the top. */
static bool go_up(const struct load_host *host, char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash || slash < path + strlen(host->group.top))
        return false;
    *slash = '\0';
    return true;
}

static void group_path(const struct load_host *host, char path[PATH_BYTES])
{
    const char *place = host->group.place;

    snprintf(path, PATH_BYTES, "%s%s%s", host->group.top, place[0] ? "/" : "", place);
}

void load_read_memory(const struct load_host *host, struct load_memory *ret_memory)
{
    struct load_memory machine = read_machine(host);
    struct load_memory tightest = machine;
    struct load_memory place;
    char path[PATH_BYTES];

    group_path(host, path);
    for (bool more = host->group.is_known; more; more = go_up(host, path)) {
        if (read_group(host, path, machine.total_bytes, &place) &&
            room_in(&place) < room_in(&tightest))
            tightest = place;
    }
    *ret_memory = tightest;
}

/* ---- pace -------------------------------------------------------------- */

/* Of the whole machine, or of the cells' own group where that has more. */
static uint32_t read_pressure(const struct load_host *host)
{
    char path[PATH_BYTES];
    char text[PACE_BYTES];
    uint32_t machine = 0, group = 0;

    read_text(host, "/proc/pressure/memory", text, sizeof(text));
    if (!load_text_pressure(text, &machine))
        machine = 0;
    if (!host->group.is_known || !host->group.v2)
        return machine;
    group_path(host, path);
    read_group_text(host, path, "memory.pressure", text, sizeof(text));
    if (!load_text_pressure(text, &group))
        group = 0;
    return machine > group ? machine : group;
}

void load_read_pace(const struct load_host *host, struct load_pace *ret_pace)
{
    struct load_pace pace = {.processors = host->processors, .pressure = read_pressure(host)};
    char text[PACE_BYTES];

    read_text(host, "/proc/loadavg", text, sizeof(text));
    if (!load_text_runnable(text, &pace.runnable))
        pace.runnable = 0;
    *ret_pace = pace;
}
