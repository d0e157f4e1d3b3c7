/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See tree_libs.h. The list of copied objects is also the queue of the walk:
 * copying a library appends it.
 */
#include "tree_libs.h"

#include "base/buf.h"
#include "base/limits.h"
#include "elf.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#define INCLUDE_DEPTH_MAX 4

/* The loader's own folders, in its order. */
static const char *const own_folders[] = {
    "/lib/" MULTIARCH, "/usr/lib/" MULTIARCH, "/lib64", "/usr/lib64", "/lib", "/usr/lib",
};

/* One object's search path by DT_RPATH, which its libraries inherit. */
struct rpath {
    char *folders;
    char *origin;
};

struct finder {
    struct copier *copier;
    struct string_list folders; /* of ld.so.conf, then the loader's own */
    size_t configured;          /* how many are of ld.so.conf */
    struct string_list found;   /* names that were looked for in folders */
    struct rpath *rpaths;       /* by index of the object */
    size_t rpath_count;
};

static void finder_done(struct finder *finder)
{
    for (size_t i = 0; i < finder->rpath_count; i++) {
        free(finder->rpaths[i].folders);
        free(finder->rpaths[i].origin);
    }
    free(finder->rpaths);
    string_list_done(&finder->folders);
    string_list_done(&finder->found);
}
#define auto_finder __attribute__((cleanup(finder_done)))

/* ---- ld.so.conf -------------------------------------------------------- */

static int read_conf(const char *path, int depth, struct string_list *folders,
                     struct hutch_error *err);

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* The files that a pattern names, in alphabetical order; only the last part of
 * it is taken as a pattern. */
static int list_matches(const char *pattern, struct string_list *names, struct hutch_error *err)
{
    const char *base = strrchr(pattern, '/') + 1;
    auto_free char *folder = strndup(pattern, (size_t)(base - pattern));
    DIR *dir = folder ? opendir(folder) : NULL;
    const struct dirent *entry;
    int error = 0;

    while (dir && error >= 0 && (entry = readdir(dir))) {
        char path[PATH_MAX];
        if (fnmatch(base, entry->d_name, FNM_PERIOD) != 0)
            continue;
        if ((size_t)snprintf(path, sizeof(path), "%s%s", folder, entry->d_name) < sizeof(path))
            error = string_list_add(names, path, err);
    }
    if (dir)
        closedir(dir);
    if (names->count > 1)
        qsort(names->items, names->count, sizeof(*names->items), compare_names);
    return error;
}

static int include_conf(const char *from, const char *pattern, int depth,
                        struct string_list *folders, struct hutch_error *err)
{
    char path[PATH_MAX];
    int length = (int)(strrchr(from, '/') + 1 - from);
    if (pattern[0] == '/')
        length = 0;
    if ((size_t)snprintf(path, sizeof(path), "%.*s%s", length, from, pattern) >= sizeof(path))
        return 0;

    auto_string_list struct string_list names = {0};
    int error = list_matches(path, &names, err);
    for (size_t i = 0; i < names.count && error >= 0; i++)
        error = read_conf(names.items[i], depth + 1, folders, err);
    return error;
}

static int read_conf_line(char *line, const char *path, int depth, struct string_list *folders,
                          struct hutch_error *err)
{
    char *saved = NULL;
    int error = 0;

    line[strcspn(line, "#")] = '\0';
    char *word = strtok_r(line, " \t:,", &saved);
    bool include = word && strcmp(word, "include") == 0;
    if (include)
        word = strtok_r(NULL, " \t", &saved);
    for (; word && error >= 0; word = strtok_r(NULL, " \t:,", &saved)) {
        if (include)
            error = include_conf(path, word, depth, folders, err);
        else if (word[0] == '/')
            error = string_list_add(folders, word, err);
    }
    return error;
}

static int read_conf(const char *path, int depth, struct string_list *folders,
                     struct hutch_error *err)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    if (depth > INCLUDE_DEPTH_MAX || access(path, R_OK) < 0)
        return 0;
    int error = buf_read_file(&text, AT_FDCWD, path, err);
    char *saved = NULL;
    for (char *line = text.data ? strtok_r(text.data, "\n", &saved) : NULL; line && error >= 0;
         line = strtok_r(NULL, "\n", &saved))
        error = read_conf_line(line, path, depth, folders, err);
    return error;
}

int library_folders(const char *conf_path, struct string_list *folders, struct hutch_error *err)
{
    return read_conf(conf_path, 0, folders, err);
}

/* ---- looking for one library ------------------------------------------- */

/* Whether path is a library for this machine. */
static int is_library(const char *path, struct hutch_error *err)
{
    auto_elf struct elf_object object = {0};
    auto_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int found = elf_read(fd, &object, err);
    return found == HUTCH_ERR_RUNTIME ? 0 : found;
}

/* The end of a path's folder. */
static int folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash - path) : 0;
}

/* One entry of an rpath with $ORIGIN and $LIB replaced; false when it is too
 * long or is none to follow (empty, relative, $PLATFORM). */
static bool expand(const char *entry, size_t length, const char *origin, char ret_path[PATH_MAX])
{
    static const struct {
        const char *name;
        const char *value; /* NULL: the origin */
    } tokens[] = {
        {"$ORIGIN", NULL},
        {"${ORIGIN}", NULL},
        {"$LIB", "lib/" MULTIARCH},
        {"${LIB}", "lib/" MULTIARCH},
    };
    size_t used = 0;

    while (length > 0) {
        const char *value = entry;
        size_t skip = 1, add = 1;
        for (size_t i = 0; i < ARRAY_LENGTH(tokens); i++) {
            size_t name_length = strlen(tokens[i].name);
            if (length < name_length || memcmp(entry, tokens[i].name, name_length) != 0)
                continue;
            value = tokens[i].value ? tokens[i].value : origin;
            skip = name_length;
            add = strlen(value);
        }
        if (used + add >= PATH_MAX)
            return false;
        memcpy(ret_path + used, value, add);
        used += add;
        entry += skip;
        length -= skip;
    }
    ret_path[used] = '\0';
    return ret_path[0] == '/' && !strchr(ret_path, '$');
}

/* Looks along a search path; copies what it finds to where it stands. */
static int find_in_rpath(struct finder *finder, const char *name, const char *folders,
                         const char *origin, struct hutch_error *err)
{
    while (*folders) {
        size_t length = strcspn(folders, ":");
        char folder[PATH_MAX];
        char path[PATH_MAX];
        bool usable = expand(folders, length, origin, folder);
        folders += length;
        folders += *folders == ':';
        if (!usable || (size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) >= sizeof(path))
            continue;
        int found = is_library(path, err);
        if (found > 0)
            found = copier_file(finder->copier, path, path, err) < 0 ? err->code : 1;
        if (found != 0)
            return found;
    }
    return 0;
}

/* DT_RPATH of the object and of its users; those with DT_RUNPATH have none. */
static int find_by_rpath(struct finder *finder, size_t index, const char *name,
                         struct hutch_error *err)
{
    int found = 0;

    while (index < finder->rpath_count && found == 0) {
        const struct rpath *rpath = &finder->rpaths[index];
        if (rpath->folders)
            found = find_in_rpath(finder, name, rpath->folders, rpath->origin, err);
        index = finder->copier->objects[index].parent;
    }
    return found;
}

/* The first of the loader's own folders that the host has. */
static const char *first_own_folder(void)
{
    size_t i = 0;
    while (i + 1 < ARRAY_LENGTH(own_folders) && access(own_folders[i], X_OK) < 0)
        i++;
    return own_folders[i];
}

static int find_in_folders(struct finder *finder, const char *name, struct hutch_error *err)
{
    if (string_list_has(&finder->found, name))
        return 0;
    int error = string_list_add(&finder->found, name, err);
    for (size_t i = 0; i < finder->folders.count && error >= 0; i++) {
        char path[PATH_MAX];
        char place[PATH_MAX];
        const char *folder = finder->folders.items[i];
        const char *target = i < finder->configured ? first_own_folder() : folder;
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) >= sizeof(path) ||
            (size_t)snprintf(place, sizeof(place), "%s/%s", target, name) >= sizeof(place))
            continue;
        int found = is_library(path, err);
        if (found > 0)
            return copier_file(finder->copier, path, place, err);
        error = found;
    }
    return error < 0 ? error : 0;
}

static int find_library(struct finder *finder, size_t index, const struct elf_object *object,
                        const char *name, struct hutch_error *err)
{
    char origin[PATH_MAX];
    const char *path = finder->copier->objects[index].path;

    if (strchr(name, '/')) {
        int error = name[0] == '/' ? copier_file(finder->copier, name, name, err) : 0;
        return error < 0 ? error : 0;
    }
    snprintf(origin, sizeof(origin), "%.*s", folder_length(path), path);
    int found = object->runpath ? find_in_rpath(finder, name, object->runpath, origin, err)
                                : find_by_rpath(finder, index, name, err);
    if (found == 0)
        found = find_in_folders(finder, name, err);
    return found < 0 ? found : 0;
}

/* ---- the closure ------------------------------------------------------- */

/* Records the object's DT_RPATH under its index, for those that it loads. */
static int keep_rpath(struct finder *finder, size_t index, struct elf_object *object,
                      struct hutch_error *err)
{
    size_t count = index + 1;
    struct rpath *rpaths = realloc(finder->rpaths, count * sizeof(*rpaths));
    if (!rpaths)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    finder->rpaths = rpaths;
    finder->rpaths[index] = (struct rpath){0};
    finder->rpath_count = count;
    if (!object->rpath || object->runpath)
        return 0;
    const char *path = finder->copier->objects[index].path;
    finder->rpaths[index].origin = strndup(path, (size_t)folder_length(path));
    if (!finder->rpaths[index].origin)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    finder->rpaths[index].folders = TAKE_POINTER(object->rpath);
    return 0;
}

/* Reads the copy, which may stand elsewhere than its original. A broken file in
 * a Python folder is passed over: it fails when it is loaded, as on the host. */
static int close_object(struct finder *finder, size_t index, struct hutch_error *err)
{
    auto_elf struct elf_object object = {0};
    const char *path = finder->copier->objects[index].path;
    auto_close int fd =
        openat(finder->copier->root_fd, path + 1, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int found = fd < 0 ? 0 : elf_read(fd, &object, err);
    if (found < 0 && found != HUTCH_ERR_RUNTIME)
        return err_context(err, "'%s'", path);
    int error = keep_rpath(finder, index, &object, err);

    finder->copier->parent = index;
    if (object.loader && error >= 0)
        error = copier_file(finder->copier, object.loader, object.loader, err);
    for (size_t i = 0; i < object.needed.count && error >= 0; i++)
        error = find_library(finder, index, &object, object.needed.items[i], err);
    return error;
}

int copy_libraries(struct copier *copier, const char *const *extra, struct hutch_error *err)
{
    auto_finder struct finder finder = {.copier = copier};
    int error = library_folders("/etc/ld.so.conf", &finder.folders, err);
    finder.configured = finder.folders.count;
    for (size_t i = 0; i < ARRAY_LENGTH(own_folders) && error >= 0; i++)
        error = string_list_add(&finder.folders, own_folders[i], err);

    copier->parent = SIZE_MAX;
    for (size_t i = 0; extra[i] && error >= 0; i++)
        error = find_in_folders(&finder, extra[i], err);
    for (size_t i = 0; i < copier->object_count && error >= 0; i++)
        error = close_object(&finder, i, err);
    copier->parent = SIZE_MAX;
    return error < 0 ? error : 0;
}
