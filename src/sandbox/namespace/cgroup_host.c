/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host offers; see cgroup.h.
 *
 * Every cgroup mount is tried in the order of mountinfo, for the controllers
 * that none before it gave. In a mount, every place is tried from our own group
 * upwards until one gives all that the mount offers; the best stays. A try
 * makes the supervisor's group there, and a group below it that is given
 * limits. The first thing that went wrong for a controller becomes its reason.
 */
#include "cgroup.h"
#include "slots.h"

#include "base/limits.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A host with many containers has thousands of mounts. */
#define MOUNTINFO_BYTES_MAX MIB(8)
#define PROBE_GROUP "probe"

#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW)

static const struct cgroup_limits probe_limits = {
    .memory_bytes = MIB(64), .max_processes = 64, .cpu_millis = 100};

/* What the search carries along. */
struct search {
    struct cgroup_host *host;
    struct slots_record *record;
    const char *parent;     /* named by the caller, without the leading slash; or NULL */
    const char *own_groups; /* /proc/self/cgroup */
    struct cgroup_mount mount;
    int top_fd;       /* of the mount */
    unsigned offered; /* by the mount, of what is still wanted */
};

/* One try. */
struct place {
    char path[CGROUP_PATH_BYTES]; /* below the top; "" is the top */
    char next[NAME_MAX + 1];      /* the group in it that leads to our own, or "" */
};

static const struct cgroup_hierarchy no_hierarchy = {.place_fd = -1, .fd = -1};

/* ---- reasons ----------------------------------------------------------- */

/* Not an errno: a controller is off in a place that is not ours to change. */
#define NOT_OURS 0

struct failure {
    int error;
    const char *text; /* NULL: what the C library says */
    const char *mend;
};

static const struct failure failures[] = {
    {NOT_OURS, "it is off there, and groups of others are in it",
     "name a group of its own for hutch"},
    {ENOENT, NULL, "make that group first, in each hierarchy"},
    {EROFS, "read-only", "give the container a writable cgroup file system"},
    {EACCES, NULL, "start hutch as root, or name a group that is delegated to you"},
    {EPERM, NULL, "start hutch as root, or name a group that is delegated to you"},
    {EBUSY, "it holds processes", "start hutch in a group of its own, or name one without any"},
    {EAGAIN, "too many groups", "raise cgroup.max.descendants or cgroup.max.depth above it"},
    {ENOTSUP, "groups start without a processor there", "mount cpuset on its own"},
};

/* Notes for each controller of the mask, where nothing was noted before, what
 * failed at the group path below the mount. */
static void explain(const struct search *search, unsigned mask, int error, const char *doing,
                    const char *path)
{
    struct failure failure = {error, NULL, ""};
    for (size_t i = 0; i < ARRAY_LENGTH(failures); i++) {
        if (failures[i].error == error)
            failure = failures[i];
    }
    const char *text = failure.text ? failure.text : strerrordesc_np(error);
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        struct cgroup_status *status = &search->host->status[i];
        if ((mask & CGROUP_BIT(i)) == 0 || status->reason[0] != '\0')
            continue;
        snprintf(status->reason, sizeof(status->reason), "%s '%.80s%s%.80s': %s", doing,
                 search->mount.point, path[0] ? "/" : "", path, text ? text : "unknown error");
        snprintf(status->mend, sizeof(status->mend), "%s", failure.mend);
    }
}

/* ---- trying a place ---------------------------------------------------- */

static bool is_hutch_group(const char *name)
{
    static const char prefix[] = "hutch-";
    return strncmp(name, prefix, sizeof(prefix) - 1) == 0 &&
           cgroup_text_token(name + sizeof(prefix) - 1);
}

/* Stops at a group that is neither hutch's nor the one that holds us. */
static int find_stranger(void *user, int dir_fd, const char *name)
{
    const char *next = user;
    (void)dir_fd;
    return strcmp(name, next) != 0 && !is_hutch_group(name);
}

static bool has_strangers(int place_fd, char *next)
{
    return cgroup_each_child(place_fd, find_stranger, next) != 0;
}

/* The controllers that a v2 file of a group lists. */
static unsigned listed(int dir_fd, const char *file)
{
    struct hutch_error ignored;
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);

    if (cgroup_read(dir_fd, ".", file, &text, &ignored) < 0)
        return 0;
    return cgroup_text_controllers(buf_text(&text));
}

/* Switches controllers on or off for the groups below dir_fd, one by one, so
 * that one that is refused does not spoil the others. Returns those that
 * worked; *ret_error is the last errno value of the others. */
static unsigned switch_controllers(int dir_fd, unsigned mask, bool on, int *ret_error)
{
    unsigned done = 0;

    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        char word[16];
        if ((mask & CGROUP_BIT(i)) == 0)
            continue;
        snprintf(word, sizeof(word), "%c%s", on ? '+' : '-', cgroup_controller_name(i));
        int error = cgroup_write(dir_fd, ".", "cgroup.subtree_control", word);
        if (error == 0)
            done |= CGROUP_BIT(i);
        else
            *ret_error = error;
    }
    return done;
}

/* Lets the groups below a v2 place have what is offered and the place itself
 * has, as far as that is ours to decide. */
static void prepare_place(const struct search *search, struct place *place,
                          struct cgroup_hierarchy *tree)
{
    unsigned missing = search->offered & listed(tree->place_fd, "cgroup.controllers") &
                       ~listed(tree->place_fd, "cgroup.subtree_control");
    int error = 0;

    if (missing == 0)
        return;
    if (!search->parent && place->path[0] != '\0' && has_strangers(tree->place_fd, place->next)) {
        explain(search, missing, NOT_OURS, "hand it on from", place->path);
        return;
    }
    tree->switched_on = switch_controllers(tree->place_fd, missing, true, &error);
    explain(search, missing & ~tree->switched_on, error, "hand it on from", place->path);
}

/* Makes a group with limits; returns the controllers that took them. */
static unsigned probe(const struct search *search, const struct place *place,
                      const struct cgroup_hierarchy *tree, unsigned mask)
{
    struct hutch_error err;

    if (mkdirat(tree->fd, PROBE_GROUP, 0755) < 0) {
        explain(search, mask, errno, "make a group for cells below", place->path);
        return 0;
    }
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        if ((mask & CGROUP_BIT(i)) != 0 &&
            cgroup_apply(tree->fd, PROBE_GROUP, tree->v2, i, &probe_limits, &err) < 0) {
            mask &= ~CGROUP_BIT(i);
            explain(search, CGROUP_BIT(i), err.sys_errno, "write a limit in", place->path);
        }
    }
    IGNORE_RESULT(cgroup_tree_remove(tree->fd, PROBE_GROUP, &err));
    return mask;
}

/* The controllers that work in the supervisor's group, which was just made. */
static unsigned usable_controllers(const struct search *search, const struct place *place,
                                   const struct cgroup_hierarchy *tree)
{
    if (!tree->v2)
        return probe(search, place, tree, search->offered);

    const unsigned cpuacct = CGROUP_BIT(CGROUP_CPUACCT);
    unsigned there = search->offered & listed(tree->fd, "cgroup.controllers");
    int error = 0;
    unsigned passed_on = switch_controllers(tree->fd, there, true, &error);
    explain(search, there & ~passed_on, error, "hand it to cells below", place->path);
    unsigned usable = passed_on ? probe(search, place, tree, passed_on) : 0;
    /* v2 counts processor time in every group */
    return usable ? usable | (search->offered & cpuacct) : 0;
}

/* Undoes a try. Returns whether the group is gone. */
static bool discard(struct cgroup_hierarchy *tree, const char *name)
{
    struct hutch_error ignored_error;
    int ignored;
    bool gone = true;

    if (tree->place_fd >= 0)
        gone = cgroup_tree_remove(tree->place_fd, name, &ignored_error) == 0;
    if (tree->fd >= 0)
        close(tree->fd);
    if (tree->switched_on != 0 && !has_strangers(tree->place_fd, tree->next))
        switch_controllers(tree->place_fd, tree->switched_on, false, &ignored);
    if (tree->place_fd >= 0)
        close(tree->place_fd);
    *tree = no_hierarchy;
    return gone;
}

/* Opens the place, makes the supervisor's group, finds what works in it.
 * Returns an error only when the record cannot be written. */
static int try_place(const struct search *search, struct place *place,
                     struct cgroup_hierarchy *ret_tree, struct hutch_error *err)
{
    struct cgroup_hierarchy tree = no_hierarchy;
    const char *name = search->host->name;

    int length = snprintf(tree.path, sizeof(tree.path), "%s/%s%s%s", search->mount.point,
                          place->path, place->path[0] ? "/" : "", name);
    tree.v2 = search->mount.v2;
    memcpy(tree.next, place->next, sizeof(tree.next));
    tree.place_fd =
        openat(search->top_fd, place->path[0] ? place->path : ".", DIRECTORY | O_CLOEXEC);
    if (tree.place_fd < 0 || (size_t)length >= sizeof(tree.path)) {
        explain(search, search->offered, tree.place_fd < 0 ? errno : ENAMETOOLONG, "open",
                place->path);
        discard(&tree, name);
        return 0;
    }
    if (slots_record_add(search->record, tree.path, err) < 0) {
        discard(&tree, name);
        return err->code;
    }
    if (tree.v2)
        prepare_place(search, place, &tree);
    if (mkdirat(tree.place_fd, name, 0755) < 0)
        explain(search, search->offered, errno, "make a group in", place->path);
    else if ((tree.fd = openat(tree.place_fd, name, DIRECTORY | O_CLOEXEC)) < 0)
        explain(search, search->offered, errno, "open the group made in", place->path);
    else
        tree.controllers = usable_controllers(search, place, &tree);
    if (tree.controllers == 0)
        discard(&tree, name);
    *ret_tree = tree;
    return 0;
}

/* ---- choosing ---------------------------------------------------------- */

/* The place to begin with: the named one, or our own group. A group that is
 * not below this mount leaves the top. */
static void first_place(const struct search *search, struct place *ret)
{
    const char *controller = NULL;
    char own[CGROUP_PATH_BYTES];

    memset(ret, 0, sizeof(*ret));
    if (search->parent) {
        snprintf(ret->path, sizeof(ret->path), "%s", search->parent);
        return;
    }
    if (!search->mount.v2)
        controller = cgroup_controller_name((unsigned)__builtin_ctz(search->offered));
    if (!cgroup_text_own(search->own_groups, controller, own, sizeof(own)) ||
        !cgroup_text_below(search->mount.root, own, ret->path, sizeof(ret->path)))
        ret->path[0] = '\0';
}

/* The place above; false at the top. */
static bool next_place(struct place *place)
{
    if (place->path[0] == '\0')
        return false;
    char *slash = strrchr(place->path, '/');
    const char *last = slash ? slash + 1 : place->path;
    if (strlen(last) > NAME_MAX)
        return false;
    snprintf(place->next, sizeof(place->next), "%s", last);
    *(slash ? slash : place->path) = '\0';
    return true;
}

static int count_of(unsigned mask)
{
    return __builtin_popcount(mask);
}

static void keep(struct cgroup_host *host, const struct cgroup_hierarchy *tree)
{
    host->hierarchies[host->count++] = *tree;
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        if ((tree->controllers & CGROUP_BIT(i)) != 0)
            host->status[i] = (struct cgroup_status){.usable = true};
    }
}

/* The best place of the mount. */
static int search_mount(const struct search *search, struct hutch_error *err)
{
    struct cgroup_hierarchy best = no_hierarchy;
    struct place place;

    first_place(search, &place);
    do {
        struct cgroup_hierarchy tree = no_hierarchy;
        if (try_place(search, &place, &tree, err) < 0) {
            discard(&best, search->host->name);
            return err->code;
        }
        bool better = count_of(tree.controllers) > count_of(best.controllers);
        discard(better ? &best : &tree, search->host->name);
        if (better)
            best = tree;
    } while (best.controllers != search->offered && !search->parent && next_place(&place));
    if (best.controllers != 0)
        keep(search->host, &best);
    return 0;
}

static unsigned wanted(const struct cgroup_host *host)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
        mask |= host->status[i].usable ? 0 : CGROUP_BIT(i);
    return mask;
}

static int use_mount(struct search *search, struct hutch_error *err)
{
    const struct cgroup_mount *mount = &search->mount;

    search->offered = wanted(search->host) & (mount->v2 ? CGROUP_ALL : mount->controllers);
    if (search->offered == 0)
        return 0;
    auto_close int top = open(mount->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0) {
        explain(search, search->offered, errno, "open", "");
        return 0;
    }
    search->top_fd = top;
    if (mount->v2) {
        unsigned here = search->offered & listed(top, "cgroup.controllers");
        if (here == 0)
            return 0;
        search->offered = here | (search->offered & CGROUP_BIT(CGROUP_CPUACCT));
    }
    if (mount->cpuset) {
        /* its groups start without a processor: nothing could join them */
        explain(search, search->offered, ENOTSUP, "cpuset is mounted with", "");
        return 0;
    }
    return search_mount(search, err);
}

static int search_all(struct search *search, const char *mounts, struct hutch_error *err)
{
    bool any = false;

    while (search->host->count < CGROUP_CONTROLLERS &&
           cgroup_text_next_mount(&mounts, &search->mount)) {
        any = true;
        if (use_mount(search, err) < 0)
            return err->code;
    }
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        struct cgroup_status *status = &search->host->status[i];
        if (status->usable || status->reason[0] != '\0')
            continue;
        snprintf(status->reason, sizeof(status->reason), "%s",
                 any ? "no cgroup hierarchy offers it" : "no cgroup file system is mounted");
        snprintf(status->mend, sizeof(status->mend), "%s",
                 any ? "boot a kernel that has it, without cgroup_disable"
                     : "mount -t cgroup2 cgroup2 /sys/fs/cgroup");
    }
    return 0;
}

static int read_proc(const char *proc_self, const char *file, struct buf *text,
                     struct hutch_error *err)
{
    auto_close int dir = open(proc_self, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s'", proc_self);
    return buf_read_file(text, dir, file, err);
}

int cgroup_host_open(struct slots_record *record, const char *parent, const char *proc_self,
                     struct cgroup_host **ret_host, struct hutch_error *err)
{
    auto_buf struct buf own = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    auto_buf struct buf mounts = BUF_MAX(MOUNTINFO_BYTES_MAX);

    proc_self = proc_self ? proc_self : "/proc/self";
    if (parent)
        parent += parent[0] == '/';
    if (parent && (!cgroup_text_relative(parent) || strlen(parent) >= CGROUP_PATH_BYTES))
        return err_set(err, HUTCH_ERR_INVALID, "cgroup '%s' is no path below a hierarchy", parent);
    /* a kernel without cgroups has no such file */
    if (read_proc(proc_self, "cgroup", &own, err) < 0 && err->sys_errno != ENOENT)
        return err->code;
    if (read_proc(proc_self, "mountinfo", &mounts, err) < 0)
        return err->code;

    struct cgroup_host *host = calloc(1, sizeof(*host));
    if (!host)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    snprintf(host->name, sizeof(host->name), "%s", record->group);
    struct search search = {.host = host,
                            .record = record,
                            .parent = parent,
                            .own_groups = buf_text(&own),
                            .top_fd = -1};
    if (search_all(&search, buf_text(&mounts), err) < 0) {
        cgroup_host_close(host);
        return err->code;
    }
    *ret_host = host;
    return 0;
}

const struct cgroup_hierarchy *cgroup_host_find(const struct cgroup_host *host,
                                                enum cgroup_controller controller)
{
    for (size_t i = 0; i < host->count; i++) {
        if ((host->hierarchies[i].controllers & CGROUP_BIT(controller)) != 0)
            return &host->hierarchies[i];
    }
    return NULL;
}

bool cgroup_host_close(struct cgroup_host *host)
{
    bool gone = true;

    if (!host)
        return true;
    for (size_t i = 0; i < host->count; i++)
        gone = discard(&host->hierarchies[i], host->name) && gone;
    free(host);
    return gone;
}
