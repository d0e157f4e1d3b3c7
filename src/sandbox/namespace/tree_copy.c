/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See tree_copy.h.
 *
 * The new root lies in a folder that only its owner can enter and nobody else
 * writes to, so a path below root_fd that was made a moment ago still is what
 * it was made as. The host's side is read by descriptor: a folder is opened
 * once, its entries relative to it, without following links.
 */
#include "tree_copy.h"

#include "base/fd.h"
#include "base/limits.h"
#include "folder.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BLOCK_BYTES (256 << 10)
#define LINKS_MAX 40    /* symbolic links on one path, as in the kernel */
#define DEPTH_MAX 64    /* folders below a copied folder */
#define LEAVING_MAX 2   /* folders entered, one in the other, by links that leave */
#define SMALL_FILE 8192 /* read and write beat copy_file_range up to here */

/* A path that grows and shrinks while folders are walked. */
struct walk {
    char path[PATH_MAX];
    size_t length;
    int depth;   /* below the copied folder */
    int leaving; /* links out of a copied folder that led here */
};

static int too_long(struct hutch_error *err, const char *path)
{
    return err_set(err, HUTCH_ERR_INVALID, "path is too long: '%.80s...'", path);
}

/* ---- bookkeeping ------------------------------------------------------- */

void copier_init(struct copier *copier, int root_fd, const char *const *excluded)
{
    *copier = (struct copier){
        .root_fd = root_fd,
        .excluded = excluded,
        .as_root = geteuid() == 0,
        .parent = SIZE_MAX,
    };
}

void copier_done(struct copier *copier)
{
    int saved = errno;
    for (size_t i = 0; i < copier->object_count; i++)
        free(copier->objects[i].path);
    free(copier->objects);
    free(copier->block);
    *copier = (struct copier){.root_fd = -1};
    errno = saved;
}

static int count_entry(struct copier *copier, struct hutch_error *err)
{
    if (copier->files >= LIMIT_FILES_OF_TREE)
        return err_set(err, HUTCH_ERR_RUNTIME, "more than %d files in the cell's file tree",
                       LIMIT_FILES_OF_TREE);
    copier->files++;
    return 0;
}

static bool is_excluded(const struct copier *copier, const char *path)
{
    for (const char *const *pattern = copier->excluded; pattern && *pattern; pattern++) {
        if (fnmatch(*pattern, path, 0) == 0)
            return true;
    }
    return false;
}

/* Remembers the copies that elf_read is worth trying on. */
static int note_object(struct copier *copier, const char *path, mode_t mode,
                       struct hutch_error *err)
{
    if (!(mode & 0111) && !strstr(path, ".so"))
        return 0;
    size_t count = copier->object_count;
    if ((count & (count - 1)) == 0) {
        size_t capacity = count > 0 ? count * 2 : 64;
        struct copied_object *objects =
            realloc(copier->objects, capacity * sizeof(*copier->objects));
        if (!objects)
            return err_no_memory(err);
        copier->objects = objects;
    }
    char *copy = strdup(path);
    if (!copy)
        return err_no_memory(err);
    copier->objects[copier->object_count++] =
        (struct copied_object){.path = copy, .parent = copier->parent};
    return 0;
}

/* Whether the user of a cell could read this on the host. A user who runs
 * hutch proves it by opening; root can open everything. */
static bool is_readable(const struct copier *copier, const struct stat *st)
{
    mode_t need = S_ISDIR(st->st_mode) ? S_IROTH | S_IXOTH : S_IROTH;
    return !copier->as_root || (st->st_mode & need) == need;
}

/* Errors of opening a source that mean: leave it out. */
static bool is_unreadable(int error)
{
    return error == ENOENT || error == ENOTDIR || error == EACCES || error == ELOOP ||
           error == ENXIO || error == ENAMETOOLONG;
}

/* ---- folders ----------------------------------------------------------- */

static bool walk_push(struct walk *walk, const char *name)
{
    size_t length = strlen(name);
    if (walk->length + 1 + length >= sizeof(walk->path))
        return false;
    walk->path[walk->length] = '/';
    memcpy(walk->path + walk->length + 1, name, length + 1);
    walk->length += 1 + length;
    return true;
}

static void walk_cut(struct walk *walk, size_t length)
{
    walk->length = length;
    walk->path[length] = '\0';
}

static void walk_pop(struct walk *walk)
{
    size_t length = walk->length;
    while (length > 0 && walk->path[length - 1] != '/')
        length--;
    walk_cut(walk, length > 0 ? length - 1 : 0);
}

/* The path as openat below root_fd wants it. */
static const char *below_root(const char *path)
{
    while (*path == '/')
        path++;
    return *path ? path : ".";
}

/* What stands at the walk's path: in the new root, or else, made there now, a
 * link or a folder as on the host. Returns 1 and its target for a link, 0 for
 * a folder. */
static int make_step(struct copier *copier, const struct walk *walk, char target[PATH_MAX],
                     struct hutch_error *err)
{
    const char *path = below_root(walk->path);
    ssize_t length = readlinkat(copier->root_fd, path, target, PATH_MAX - 1);
    if (length < 0 && errno == EINVAL)
        return 0;
    if (length >= 0) {
        target[length] = '\0';
        return 1;
    }
    if (errno != ENOENT)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "look at '%s' in the cell's file tree",
                         walk->path);
    int error = count_entry(copier, err);
    if (error < 0)
        return error;
    length = readlink(walk->path, target, PATH_MAX - 1);
    if (length < 0 && errno != EINVAL && errno != ENOENT && errno != ENOTDIR)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "look at '%s'", walk->path);
    target[length > 0 ? length : 0] = '\0';
    int made = length > 0 ? symlinkat(target, copier->root_fd, path)
                          : mkdirat(copier->root_fd, path, 0755);
    if (made < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make '%s' in the cell's file tree",
                         walk->path);
    return length > 0;
}

/* Makes path "FIRST/REST", where REST may be a part of path. */
static int join_paths(char path[PATH_MAX], const char *first, const char *rest,
                      struct hutch_error *err)
{
    size_t first_length = strlen(first);
    size_t rest_length = strlen(rest);
    if (first_length + 1 + rest_length >= PATH_MAX)
        return too_long(err, first);
    memmove(path + first_length + 1, rest, rest_length + 1);
    memcpy(path, first, first_length);
    path[first_length] = '/';
    return 0;
}

/* Takes the next name off *path, skipping slashes; false at the end. */
static bool next_name(const char **path, char ret_name[NAME_MAX + 1])
{
    const char *start = *path + strspn(*path, "/");
    size_t length = strcspn(start, "/");
    if (length == 0 || length > NAME_MAX)
        return false;
    memcpy(ret_name, start, length);
    ret_name[length] = '\0';
    *path = start + length;
    return true;
}

/* Walks the first length bytes of path, making what is not there yet. */
static int walk_folder(struct copier *copier, const char *path, size_t length, struct walk *walk,
                       struct hutch_error *err)
{
    char rest[PATH_MAX];
    char name[NAME_MAX + 1];
    int links = 0;

    if (length >= sizeof(rest))
        return too_long(err, path);
    memcpy(rest, path, length);
    rest[length] = '\0';
    const char *at = rest;
    while (next_name(&at, name)) {
        if (strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0) {
            walk_pop(walk);
            continue;
        }
        if (!walk_push(walk, name))
            return too_long(err, path);
        char target[PATH_MAX];
        int is_link = make_step(copier, walk, target, err);
        if (is_link < 0)
            return is_link;
        if (!is_link)
            continue;
        if (++links > LINKS_MAX)
            return err_errno(err, HUTCH_ERR_SYSTEM, ELOOP, "follow '%s'", path);
        if (target[0] == '/')
            walk_cut(walk, 0);
        else
            walk_pop(walk);
        if (join_paths(rest, target, at, err) < 0)
            return err->code;
        at = rest;
    }
    return 0;
}

static int open_folder(struct copier *copier, const char *path, size_t length, struct walk *walk,
                       struct hutch_error *err)
{
    int error = walk_folder(copier, path, length, walk, err);
    if (error < 0)
        return error;
    int fd = openat(copier->root_fd, below_root(walk->path),
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s' in the cell's file tree",
                         walk->path);
    return fd;
}

int copier_folder(struct copier *copier, const char *path, char ret_path[PATH_MAX],
                  struct hutch_error *err)
{
    struct walk walk = {0};
    auto_close int fd = open_folder(copier, path, strlen(path), &walk, err);
    if (fd < 0)
        return fd;
    if (ret_path)
        memcpy(ret_path, walk.path, walk.length + 1);
    return TAKE_FD(fd);
}

/* Opens (and makes) the folder of a file in the new root, and gives the file's
 * path without links but for the last name. */
static int open_parent(struct copier *copier, const char *path, struct walk *walk,
                       const char **ret_name, struct hutch_error *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash || slash[1] == '\0')
        return err_set(err, HUTCH_ERR_INVALID, "not an absolute path of a file: '%.80s'", path);
    auto_close int fd = open_folder(copier, path, (size_t)(slash - path), walk, err);
    if (fd < 0)
        return fd;
    if (!walk_push(walk, slash + 1))
        return too_long(err, path);
    *ret_name = slash + 1;
    return TAKE_FD(fd);
}

/* ---- files ------------------------------------------------------------- */

/* 0, or -1 with errno. */
static int copy_by_block(int in, int out, char *block, uint64_t *bytes)
{
    for (;;) {
        ssize_t count = read(in, block, BLOCK_BYTES);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return (int)count;
        if (fd_write_all(out, block, (size_t)count) < 0)
            return -1;
        *bytes += (uint64_t)count;
    }
}

/* The kernel shares the blocks where the file system can, and else copies
 * without a detour through our memory. Not all pairs of file systems do. */
static int copy_bytes(int in, int out, off_t size, char *block, uint64_t *bytes)
{
    while (size > SMALL_FILE) {
        ssize_t count = copy_file_range(in, NULL, out, NULL, (size_t)1 << 30, 0);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
            return -1;
        if (count <= 0)
            break;
        *bytes += (uint64_t)count;
    }
    return copy_by_block(in, out, block, bytes);
}

/* Copies what in gives to a new file. 1 copied, 0 there was one already. */
static int copy_open_file(struct copier *copier, int in, const struct stat *st, int dir_fd,
                          const char *name, mode_t mode, struct hutch_error *err)
{
    if (!copier->block && !(copier->block = malloc(BLOCK_BYTES)))
        return err_no_memory(err);
    auto_close int out =
        openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (out < 0 && errno == EEXIST)
        return 0;
    if (out < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "create '%s' in the cell's file tree", name);
    const struct timespec times[2] = {st->st_mtim, st->st_mtim};
    if (copy_bytes(in, out, st->st_size, copier->block, &copier->bytes) < 0 ||
        futimens(out, times) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "copy '%s' to the cell's file tree", name);
    return 1;
}

/* The same, for a file of the host with everything that belongs to it. */
static int add_open_file(struct copier *copier, int in, const struct stat *st, int dir_fd,
                         const char *name, const char *path, struct hutch_error *err)
{
    if (!S_ISREG(st->st_mode) || !is_readable(copier, st))
        return 0;
    int error = count_entry(copier, err);
    if (error < 0)
        return error;
    mode_t mode = st->st_mode & 0111 ? 0555 : 0444;
    int copied = copy_open_file(copier, in, st, dir_fd, name, mode, err);
    if (copied > 0 && (error = note_object(copier, path, mode, err)) < 0)
        return error;
    return copied;
}

int copier_file(struct copier *copier, const char *source, const char *path,
                struct hutch_error *err)
{
    auto_close int in = open(source, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (in < 0 && is_unreadable(errno))
        return 0;
    struct stat st;
    if (in < 0 || fstat(in, &st) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s'", source);

    struct walk walk = {0};
    const char *name;
    auto_close int dir_fd = open_parent(copier, path, &walk, &name, err);
    if (dir_fd < 0)
        return dir_fd;
    return add_open_file(copier, in, &st, dir_fd, name, walk.path, err);
}

/* Whether every folder on the way to a canonical path, and what stands at its
 * end, may be read by everyone; -1 with errno where it cannot be known. */
static int is_public(const char *path)
{
    char part[PATH_MAX];
    struct stat st;

    if (stat(path, &st) < 0)
        return is_unreadable(errno) ? 0 : -1;
    if (!(st.st_mode & S_IROTH))
        return 0;
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        if (stat(part, &st) < 0)
            return is_unreadable(errno) ? 0 : -1;
        if (!(st.st_mode & S_IXOTH))
            return 0;
    }
    return 1;
}

/* ---- whole folders ----------------------------------------------------- */

static int copy_entries(struct copier *copier, struct walk *walk, int in_fd, int out_fd,
                        struct hutch_error *err);

/* Whether a link of the folder at this depth stays in the copied folder. */
static bool stays_inside(const char *target, int depth)
{
    char name[NAME_MAX + 1];

    if (target[0] == '/')
        return false;
    while (next_name(&target, name)) {
        if (strcmp(name, "..") == 0 && --depth < 0)
            return false;
        if (strcmp(name, "..") != 0 && strcmp(name, ".") != 0)
            depth++;
    }
    return true;
}

static int copy_subfolder(struct copier *copier, struct walk *walk, int in_fd, int out_parent,
                          const char *name, struct hutch_error *err)
{
    struct stat st;
    if (fstat(in_fd, &st) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "stat '%s'", walk->path);
    if (!is_readable(copier, &st))
        return 0;
    if (walk->depth >= DEPTH_MAX)
        return err_set(err, HUTCH_ERR_RUNTIME, "more than %d folders deep: '%s'", DEPTH_MAX,
                       walk->path);
    int error = count_entry(copier, err);
    if (error < 0)
        return error;
    if (mkdirat(out_parent, name, 0755) < 0 && errno != EEXIST)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make '%s' in the cell's file tree",
                         walk->path);
    auto_close int out_fd =
        openat(out_parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (out_fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s' in the cell's file tree",
                         walk->path);
    walk->depth++;
    error = copy_entries(copier, walk, in_fd, out_fd, err);
    walk->depth--;
    return error;
}

/* Whether the canonical path real is a folder that contains the entry called
 * name at the walk's path; -1 with errno where it cannot be known. */
static int leads_up(struct walk *walk, const char *name, const char *real)
{
    size_t length = strlen(real);

    walk_pop(walk);
    auto_free char *inner = realpath(walk->path, NULL);
    int error = errno;
    bool restored = walk_push(walk, name);
    errno = error;
    if (!inner)
        return -1;
    return !restored || strcmp(real, "/") == 0 ||
           (strncmp(inner, real, length) == 0 && (inner[length] == '/' || inner[length] == '\0'));
}

/* Whether the neighbour that a link called name names is left out, so that the
 * link would lead nowhere. */
static bool leads_to_excluded(const struct copier *copier, struct walk *walk, const char *name,
                              const char *target)
{
    walk_pop(walk);
    size_t length = walk->length;
    bool excluded = walk_push(walk, target) && is_excluded(copier, walk->path);
    walk_cut(walk, length);
    return !walk_push(walk, name) || excluded;
}

/* A link that leaves the copied folder: what it leads to takes its place. Not
 * a folder that contains the link itself. */
static int copy_leaving(struct copier *copier, struct walk *walk, int out_fd, const char *name,
                        struct hutch_error *err)
{
    auto_free char *real = realpath(walk->path, NULL);
    if (!real && is_unreadable(errno))
        return 0;
    int public = real ? is_public(real) : -1;
    if (public < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "follow the link '%s'", walk->path);
    if (public == 0 || is_excluded(copier, real))
        return 0;
    auto_close int in = open(real, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (in < 0 && is_unreadable(errno))
        return 0;
    struct stat st;
    if (in < 0 || fstat(in, &st) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s'", real);
    if (!S_ISDIR(st.st_mode))
        return add_open_file(copier, in, &st, out_fd, name, walk->path, err);

    if (walk->leaving >= LEAVING_MAX)
        return 0;
    int up = leads_up(walk, name, real);
    if (up != 0)
        return up > 0 ? 0 : err_errno(err, HUTCH_ERR_SYSTEM, errno, "resolve '%s'", walk->path);
    int depth = walk->depth;
    walk->leaving++;
    walk->depth = 0;
    int error = copy_subfolder(copier, walk, in, out_fd, name, err);
    walk->depth = depth;
    walk->leaving--;
    return error;
}

static int copy_link(struct copier *copier, struct walk *walk, int in_fd, int out_fd,
                     const char *name, struct hutch_error *err)
{
    char target[PATH_MAX];
    struct stat st;

    ssize_t length = readlinkat(in_fd, name, target, sizeof(target) - 1);
    if (length <= 0 || fstatat(in_fd, name, &st, 0) < 0)
        return length == 0 || is_unreadable(errno)
                   ? 0
                   : err_errno(err, HUTCH_ERR_SYSTEM, errno, "look at the link '%s'", name);
    target[length] = '\0';
    if (!stays_inside(target, walk->depth - 1))
        return copy_leaving(copier, walk, out_fd, name, err);

    if (!is_readable(copier, &st) || leads_to_excluded(copier, walk, name, target))
        return 0;
    int error = count_entry(copier, err);
    if (error < 0)
        return error;
    if (symlinkat(target, out_fd, name) < 0 && errno != EEXIST)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "link '%s' in the cell's file tree",
                         walk->path);
    return 0;
}

static int copy_entry(struct copier *copier, struct walk *walk, int in_fd, int out_fd,
                      const struct dirent *entry, struct hutch_error *err)
{
    struct stat st;

    if (is_excluded(copier, walk->path))
        return 0;
    if (entry->d_type == DT_LNK)
        return copy_link(copier, walk, in_fd, out_fd, entry->d_name, err);
    auto_close int in =
        openat(in_fd, entry->d_name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (in < 0 && errno == ELOOP)
        return copy_link(copier, walk, in_fd, out_fd, entry->d_name, err);
    if (in < 0 && is_unreadable(errno))
        return 0;
    if (in < 0 || fstat(in, &st) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s'", walk->path);
    if (S_ISDIR(st.st_mode))
        return copy_subfolder(copier, walk, in, out_fd, entry->d_name, err);
    return add_open_file(copier, in, &st, out_fd, entry->d_name, walk->path, err);
}

static int copy_entries(struct copier *copier, struct walk *walk, int in_fd, int out_fd,
                        struct hutch_error *err)
{
    auto_dir DIR *dir = folder_list(in_fd);
    struct dirent *entry;
    int error = 0;

    while (error >= 0 && dir && (entry = folder_next(dir))) {
        size_t length = walk->length;
        if (!walk_push(walk, entry->d_name))
            return too_long(err, walk->path);
        error = copy_entry(copier, walk, in_fd, out_fd, entry, err);
        walk_cut(walk, length);
    }
    if (error < 0)
        return error;
    if (!dir || errno != 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read folder '%s'", walk->path);
    return 0;
}

int copier_tree(struct copier *copier, const char *path, struct hutch_error *err)
{
    auto_close int in_fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (in_fd < 0 && is_unreadable(errno))
        return 0;
    if (in_fd < 0 || fstat(in_fd, &st) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s'", path);
    if (!S_ISDIR(st.st_mode))
        return copier_file(copier, path, path, err);
    if (!is_readable(copier, &st))
        return 0;

    struct walk walk = {.depth = 1};
    auto_close int out_fd = copier_folder(copier, path, walk.path, err);
    if (out_fd < 0)
        return out_fd;
    walk.length = strlen(walk.path);
    return copy_entries(copier, &walk, in_fd, out_fd, err);
}

/* ---- single things ----------------------------------------------------- */

static bool is_there(const struct copier *copier, const char *path)
{
    struct stat st;
    return fstatat(copier->root_fd, below_root(path), &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int copier_program(struct copier *copier, const char *path, struct hutch_error *err)
{
    char at[PATH_MAX];

    if (access(path, X_OK) < 0)
        return is_unreadable(errno)
                   ? 0
                   : err_errno(err, HUTCH_ERR_SYSTEM, errno, "look for '%s'", path);
    if (join_paths(at, "", path, err) < 0)
        return err->code;
    for (int links = 0; links < LINKS_MAX; links++) {
        struct walk walk = {0};
        const char *name;
        char target[PATH_MAX];
        auto_close int dir_fd = open_parent(copier, at, &walk, &name, err);
        if (dir_fd < 0)
            return dir_fd;
        ssize_t length = readlink(walk.path, target, sizeof(target) - 1);
        if (length < 0 && errno != EINVAL && !is_unreadable(errno))
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "look at '%s'", walk.path);
        if (length <= 0) {
            int copied = copier_file(copier, walk.path, walk.path, err);
            return copied != 0 ? copied : is_there(copier, walk.path);
        }
        target[length] = '\0';
        int error = count_entry(copier, err);
        if (error < 0)
            return error;
        if (symlinkat(target, dir_fd, name) < 0 && errno != EEXIST)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "link '%s' in the cell's file tree", at);
        walk_pop(&walk);
        if (join_paths(at, target[0] == '/' ? "" : walk.path, target, err) < 0)
            return err->code;
    }
    return err_errno(err, HUTCH_ERR_SYSTEM, ELOOP, "follow '%s'", path);
}

/* The folder for a new entry at path, which counts from now on, and the name
 * that it gets there. */
static int open_place(struct copier *copier, const char *path, const char **ret_name,
                      struct hutch_error *err)
{
    struct walk walk = {0};
    auto_close int dir_fd = open_parent(copier, path, &walk, ret_name, err);
    if (dir_fd < 0)
        return dir_fd;
    int error = count_entry(copier, err);
    return error < 0 ? error : TAKE_FD(dir_fd);
}

int copier_content(struct copier *copier, const char *path, const void *data, size_t length,
                   struct hutch_error *err)
{
    const char *name;
    auto_close int dir_fd = open_place(copier, path, &name, err);
    if (dir_fd < 0)
        return dir_fd;
    auto_close int out =
        openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (out < 0 && errno == EEXIST)
        return 0;
    if (out < 0 || fd_write_all(out, data, length) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "write '%s' in the cell's file tree", path);
    copier->bytes += length;
    return 0;
}

int copier_text(struct copier *copier, const char *path, const char *text, struct hutch_error *err)
{
    return copier_content(copier, path, text, strlen(text), err);
}

int copier_link(struct copier *copier, const char *path, const char *target,
                struct hutch_error *err)
{
    if (!is_there(copier, target))
        return 0;
    const char *name;
    auto_close int dir_fd = open_place(copier, path, &name, err);
    if (dir_fd < 0)
        return dir_fd;
    if (symlinkat(target, dir_fd, name) < 0 && errno != EEXIST)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "link '%s' in the cell's file tree", path);
    return 0;
}

int copy_single_file(const char *source, int dir_fd, const char *name, mode_t mode,
                     struct hutch_error *err)
{
    auto_copier struct copier copier;
    struct stat st;

    copier_init(&copier, -1, NULL);
    auto_close int in = open(source, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (in < 0 || fstat(in, &st) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s'", source);
    int copied = copy_open_file(&copier, in, &st, dir_fd, name, mode, err);
    return copied < 0 ? copied : 0;
}
