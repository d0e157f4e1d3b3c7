/* SPDX-License-Identifier: Apache-2.0 */
/* Cells; see cgroup.h. The host's part is in cgroup_host.c. */
#include "cgroup.h"

#include "base/fd.h"
#include "base/limits.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

/* memory.events and memory.oom_control have under ten short lines. */
#define EVENTS_BYTES_MAX 1024
#define LIMIT_SLACK_BYTES KIB(64)

struct cgroup_cell {
    struct cgroup_host *host;
    char name[32]; /* cell-N */
    struct cgroup_limits limits;
    int join_fds[CGROUP_JOIN_MAX]; /* that of v2 comes last */
    size_t join_count;
    int clone_fd;  /* v2, else -1 */
    int oom_fd;    /* v1: an eventfd; v2: an epoll instance that holds events_fd */
    int events_fd; /* v2: memory.events, else -1 */
    uint64_t ooms; /* v2: of those that were taken */
};

/* ---- making a cell ----------------------------------------------------- */

static int open_in(const struct cgroup_hierarchy *tree, const char *cell, const char *file,
                   int flags)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", cell, file);
    return openat(tree->fd, path, flags | O_CLOEXEC | O_NOFOLLOW);
}

static int make_group(const struct cgroup_hierarchy *tree, const char *cell,
                      const struct cgroup_limits *limits, struct hutch_error *err)
{
    if (mkdirat(tree->fd, cell, 0755) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make group in '%s'", tree->path);
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        if ((tree->controllers & CGROUP_BIT(i)) != 0 &&
            cgroup_apply(tree->fd, cell, tree->v2, i, limits, err) < 0)
            return err->code;
    }
    return 0;
}

static int open_join(struct cgroup_cell *cell, const struct cgroup_hierarchy *tree,
                     struct hutch_error *err)
{
    const char *file = tree->v2 ? "cgroup.procs" : "tasks";
    int fd = open_in(tree, cell->name, file, O_WRONLY);
    if (fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s' in '%s'", file, tree->path);
    cell->join_fds[cell->join_count++] = fd;
    if (!tree->v2)
        return 0;
    cell->clone_fd = open_in(tree, cell->name, ".", O_RDONLY | O_DIRECTORY);
    if (cell->clone_fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open group in '%s'", tree->path);
    return 0;
}

/* The groups and join descriptors in the trees of one version. */
static int make_groups(struct cgroup_cell *cell, bool v2, const struct cgroup_limits *limits,
                       struct hutch_error *err)
{
    for (size_t i = 0; i < cell->host->count; i++) {
        const struct cgroup_hierarchy *tree = &cell->host->hierarchies[i];
        if (tree->v2 == v2 &&
            (make_group(tree, cell->name, limits, err) < 0 || open_join(cell, tree, err) < 0))
            return err->code;
    }
    return 0;
}

/* v1: an eventfd that the kernel writes when the group is out of memory. Real
 * time kernels have no such events. */
static int watch_v1(struct cgroup_cell *cell, const struct cgroup_hierarchy *tree,
                    struct hutch_error *err)
{
    char line[32];

    auto_close int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    auto_close int control = open_in(tree, cell->name, "memory.oom_control", O_RDONLY);
    if (event < 0 || control < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open memory events in '%s'", tree->path);
    snprintf(line, sizeof(line), "%d %d", event, control);
    int error = cgroup_write(tree->fd, cell->name, "cgroup.event_control", line);
    if (error == ENOENT || error == EOPNOTSUPP)
        return 0;
    if (error != 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, error, "ask for memory events in '%s'", tree->path);
    cell->oom_fd = TAKE_FD(event);
    return 0;
}

/* Reads an event file from its start, which also tells the kernel that all
 * changes up to now were seen. */
static bool read_events(int fd, char text[EVENTS_BYTES_MAX + 1])
{
    ssize_t length = pread(fd, text, EVENTS_BYTES_MAX, 0);
    if (length < 0)
        return false;
    text[length] = '\0';
    return true;
}

/* v2: memory.events tells of a change by EPOLLPRI, and is readable all the
 * time; an epoll instance around it is readable only after a change. */
static int watch_v2(struct cgroup_cell *cell, const struct cgroup_hierarchy *tree,
                    struct hutch_error *err)
{
    char text[EVENTS_BYTES_MAX + 1];
    struct epoll_event event = {.events = EPOLLPRI};

    auto_close int events = open_in(tree, cell->name, "memory.events", O_RDONLY);
    auto_close int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (events < 0 || epoll < 0 || !read_events(events, text) ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, events, &event) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open memory events in '%s'", tree->path);
    cell->events_fd = TAKE_FD(events);
    cell->oom_fd = TAKE_FD(epoll);
    return 0;
}

static int watch_memory(struct cgroup_cell *cell, struct hutch_error *err)
{
    const struct cgroup_hierarchy *tree = cgroup_host_find(cell->host, CGROUP_MEMORY);
    if (!tree)
        return 0;
    return tree->v2 ? watch_v2(cell, tree, err) : watch_v1(cell, tree, err);
}

int cgroup_cell_create(struct cgroup_host *host, const struct cgroup_limits *limits,
                       struct cgroup_cell **ret_cell, struct hutch_error *err)
{
    assert(limits->memory_bytes > 0 && limits->max_processes > 0 && limits->cpu_millis > 0);
    struct cgroup_cell *cell = malloc(sizeof(*cell));
    if (!cell)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    *cell = (struct cgroup_cell){.host = host,
                                 .limits = *limits,
                                 .join_fds = {-1, -1, -1, -1},
                                 .clone_fd = -1,
                                 .oom_fd = -1,
                                 .events_fd = -1};
    snprintf(cell->name, sizeof(cell->name), "cell-%" PRIu64, ++host->cells_made);

    if (make_groups(cell, false, limits, err) == 0 && make_groups(cell, true, limits, err) == 0 &&
        watch_memory(cell, err) == 0) {
        *ret_cell = cell;
        return 0;
    }
    IGNORE_RESULT(cgroup_cell_remove(cell)); /* nothing has joined yet */
    cgroup_cell_free(cell);
    return err_context(err, "cgroup of the cell");
}

/* Only what differs: mostly nothing does. */
static unsigned differing(const struct cgroup_limits *one, const struct cgroup_limits *other)
{
    return (one->memory_bytes != other->memory_bytes || one->one_by_one != other->one_by_one
                ? CGROUP_BIT(CGROUP_MEMORY)
                : 0) |
           (one->max_processes != other->max_processes ? CGROUP_BIT(CGROUP_PIDS) : 0) |
           (one->cpu_millis != other->cpu_millis ? CGROUP_BIT(CGROUP_CPU) : 0);
}

int cgroup_cell_limit(struct cgroup_cell *cell, const struct cgroup_limits *limits,
                      struct hutch_error *err)
{
    unsigned changed = cell ? differing(&cell->limits, limits) : 0;

    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        const struct cgroup_hierarchy *tree =
            changed & CGROUP_BIT(i) ? cgroup_host_find(cell->host, i) : NULL;
        /* v1: memory alone may not be more than memory and swap together. */
        if (tree && !tree->v2 && i == CGROUP_MEMORY &&
            limits->memory_bytes > cell->limits.memory_bytes) {
            char value[24];
            snprintf(value, sizeof(value), "%" PRIu64, limits->memory_bytes);
            IGNORE_RESULT(cgroup_write(tree->fd, cell->name, "memory.memsw.limit_in_bytes", value));
        }
        if (tree && cgroup_apply(tree->fd, cell->name, tree->v2, i, limits, err) < 0)
            return err->code;
    }
    if (cell)
        cell->limits = *limits;
    return 0;
}

uint32_t cgroup_cell_layers(const struct cgroup_cell *cell)
{
    static const uint32_t layers[CGROUP_CONTROLLERS] = {
        [CGROUP_MEMORY] = HUTCH_LAYER_CGROUP_MEMORY,
        [CGROUP_PIDS] = HUTCH_LAYER_CGROUP_PIDS,
        [CGROUP_CPU] = HUTCH_LAYER_CGROUP_CPU,
    };
    uint32_t mask = 0;

    for (unsigned i = 0; cell && i < CGROUP_CONTROLLERS; i++)
        mask |= cell->host->status[i].usable ? layers[i] : 0;
    return mask;
}

/* ---- joining ----------------------------------------------------------- */

int cgroup_cell_clone_fd(const struct cgroup_cell *cell)
{
    return cell ? cell->clone_fd : -1;
}

size_t cgroup_cell_join_fds(const struct cgroup_cell *cell, bool born_inside,
                            int ret_fds[CGROUP_JOIN_MAX])
{
    if (!cell)
        return 0;
    size_t count = cell->join_count;
    if (born_inside && cell->clone_fd >= 0)
        count--;
    memcpy(ret_fds, cell->join_fds, count * sizeof(*ret_fds));
    return count;
}

int cgroup_cell_rejoin(struct cgroup_cell *cell, struct hutch_error *err)
{
    cgroup_cell_joined(cell);
    for (int v2 = 0; cell && v2 <= 1; v2++) { /* that of v2 comes last */
        for (size_t i = 0; i < cell->host->count; i++) {
            const struct cgroup_hierarchy *tree = &cell->host->hierarchies[i];
            if (tree->v2 == v2 && open_join(cell, tree, err) < 0)
                return err->code;
        }
    }
    return 0;
}

void cgroup_cell_joined(struct cgroup_cell *cell)
{
    if (!cell)
        return;
    for (size_t i = 0; i < cell->join_count; i++)
        fd_close(&cell->join_fds[i]);
    cell->join_count = 0;
    fd_close(&cell->clone_fd);
}

/* ---- what it did ------------------------------------------------------- */

static uint64_t value_or_0(const char *text, const char *key)
{
    uint64_t value;
    return cgroup_text_value(text, key, &value) ? value : 0;
}

static uint64_t number_or_0(const char *text)
{
    uint64_t number;
    return cgroup_text_number(text, &number) ? number : 0;
}

int cgroup_cell_oom_fd(const struct cgroup_cell *cell)
{
    return cell ? cell->oom_fd : -1;
}

/* The content of a file of the cell in the tree of a controller; "" where the
 * controller is not in use or the kernel has no such file. Borrowed from
 * *text. */
static const char *read_of(const struct cgroup_cell *cell, enum cgroup_controller controller,
                           const char *file_v1, const char *file_v2, struct buf *text)
{
    const struct cgroup_hierarchy *tree = cgroup_host_find(cell->host, controller);
    struct hutch_error ignored;

    buf_clear(text);
    if (!tree ||
        cgroup_read(tree->fd, cell->name, tree->v2 ? file_v2 : file_v1, text, &ignored) < 0)
        return "";
    return buf_text(text);
}

/* v1 has a file of nanoseconds, v2 a line of microseconds. */
static uint64_t cpu_ns_of(const char *text)
{
    uint64_t us = value_or_0(text, "usage_usec");
    return us > 0 && us <= UINT64_MAX / 1000 ? us * 1000 : number_or_0(text);
}

void cgroup_cell_usage(const struct cgroup_cell *cell, struct cgroup_usage *ret_usage)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);

    *ret_usage = (struct cgroup_usage){0};
    if (!cell)
        return;
    ret_usage->cpu_ns =
        cpu_ns_of(read_of(cell, CGROUP_CPUACCT, "cpuacct.usage", "cpu.stat", &text));
    ret_usage->peak_memory_bytes = number_or_0(
        read_of(cell, CGROUP_MEMORY, "memory.max_usage_in_bytes", "memory.peak", &text));
    ret_usage->oom_kills = value_or_0(
        read_of(cell, CGROUP_MEMORY, "memory.oom_control", "memory.events", &text), "oom_kill");
    ret_usage->pids_max_hits =
        value_or_0(read_of(cell, CGROUP_PIDS, "pids.events", "pids.events", &text), "max");
}

/* v1 wakes the cells too when a group above them is out of memory. Meant is one
 * that was at its own limit, or lost a process. The event comes before the kill
 * is counted; an allocation that ends in it is at most 8 pages large. */
static bool was_at_its_limit(const struct cgroup_cell *cell)
{
    struct cgroup_usage usage;
    cgroup_cell_usage(cell, &usage);
    return usage.oom_kills > 0 ||
           usage.peak_memory_bytes + LIMIT_SLACK_BYTES >= cell->limits.memory_bytes;
}

bool cgroup_cell_take_oom(struct cgroup_cell *cell)
{
    uint64_t count;
    char text[EVENTS_BYTES_MAX + 1];

    if (!cell || cell->oom_fd < 0)
        return false;
    if (cell->events_fd < 0)
        return read(cell->oom_fd, &count, sizeof(count)) == (ssize_t)sizeof(count) &&
               was_at_its_limit(cell);
    if (!read_events(cell->events_fd, text))
        return false;
    /* A session outlives it, and other events of the file come later. */
    count = value_or_0(text, "oom") + value_or_0(text, "oom_kill");
    bool is_new = count > cell->ooms;
    cell->ooms = is_new ? count : cell->ooms;
    return is_new;
}

/* ---- its end ----------------------------------------------------------- */

void cgroup_cell_kill(const struct cgroup_cell *cell)
{
    char full_name[sizeof(cell->host->name) + sizeof(cell->name) + 2];

    if (!cell)
        return;
    snprintf(full_name, sizeof(full_name), "/%s/%s", cell->host->name, cell->name);
    /* First no more forks; then the trees in any order. */
    const struct cgroup_hierarchy *pids = cgroup_host_find(cell->host, CGROUP_PIDS);
    if (pids)
        IGNORE_RESULT(cgroup_write(pids->fd, cell->name, "pids.max", "0"));
    for (size_t i = 0; i < cell->host->count; i++)
        cgroup_tree_kill(cell->host->hierarchies[i].fd, cell->name, full_name);
}

bool cgroup_cell_remove(struct cgroup_cell *cell)
{
    struct hutch_error ignored;
    bool gone = true;

    if (!cell)
        return true;
    /* v1 signals the eventfd of a group that goes away. */
    fd_close(&cell->oom_fd);
    fd_close(&cell->events_fd);
    for (size_t i = 0; i < cell->host->count; i++)
        gone = cgroup_tree_remove(cell->host->hierarchies[i].fd, cell->name, &ignored) == 0 && gone;
    return gone;
}

void cgroup_cell_free(struct cgroup_cell *cell)
{
    if (!cell)
        return;
    cgroup_cell_joined(cell);
    fd_close(&cell->oom_fd);
    fd_close(&cell->events_fd);
    free(cell);
}
