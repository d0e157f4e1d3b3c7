/* SPDX-License-Identifier: Apache-2.0 */
/* See tree_build.h; what is copied stands in tree_tables.c. */
#include "tree_build.h"

#include "acorn.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "cjk_font.h"
#include "elf.h"
#include "folder.h"
#include "tree_fonts.h"
#include "tree_libs.h"
#include "tree_tables.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#define FONTS_NS (30 * NS_PER_SECOND) /* for matplotlib to look at them */
#define PROCESSORS_MAX 1024           /* folders below cpu/ */

static int make_folder(int dir_fd, const char *name, struct hutch_error *err)
{
    if (mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make folder '%s'", name);
    return 0;
}

/* Makes an absolute path of folders below dir_fd, whatever the host has. */
static int make_path(int dir_fd, const char *path, struct hutch_error *err)
{
    char part[PATH_MAX];
    int error = 0;

    for (const char *at = path + 1; at && error >= 0;) {
        const char *slash = strchr(at, '/');
        size_t length = slash ? (size_t)(slash - path) : strlen(path);
        snprintf(part, sizeof(part), "%.*s", (int)length - 1, path + 1);
        error = make_folder(dir_fd, part, err);
        at = slash ? slash + 1 : NULL;
    }
    return error;
}

static int make_file(int dir_fd, const char *name, const char *text, struct hutch_error *err)
{
    auto_close int fd =
        openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    size_t length = strlen(text);
    if (fd < 0 || write(fd, text, length) != (ssize_t)length)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "write '%s'", name);
    return 0;
}

/* ---- around the root --------------------------------------------------- */

static int make_processors(int dir_fd, struct hutch_error *err)
{
    static const char *const files[] = {"online", "possible", "present"};
    long processors = sysconf(_SC_NPROCESSORS_CONF);
    char name[64];
    char text[32];

    int error = make_folder(dir_fd, "cpu", err);
    for (long n = 1; n <= processors && n <= PROCESSORS_MAX && error >= 0; n++) {
        snprintf(text, sizeof(text), n > 1 ? "0-%ld\n" : "%ld\n", n - 1);
        snprintf(name, sizeof(name), "cpu/%ld", n);
        error = make_folder(dir_fd, name, err);
        for (size_t i = 0; i < ARRAY_LENGTH(files) && error >= 0; i++) {
            snprintf(name, sizeof(name), "cpu/%ld/%s", n, files[i]);
            error = make_file(dir_fd, name, text, err);
        }
    }
    return error;
}

static int make_surroundings(int dir_fd, const struct tree_spec *spec, struct hutch_error *err)
{
    static const char *const folders[] = {"root", "scratch"};
    char init[PATH_MAX];

    for (size_t i = 0; i < ARRAY_LENGTH(folders); i++) {
        if (make_folder(dir_fd, folders[i], err) < 0)
            return err->code;
    }
    if (make_processors(dir_fd, err) < 0)
        return err->code;
    snprintf(init, sizeof(init), "%s/hutch-init", spec->helper_dir);
    if (copy_single_file(init, dir_fd, "init", 0111, err) < 0) {
        err->code = HUTCH_ERR_HELPER;
        return err->code;
    }
    return 0;
}

/* ---- devices ----------------------------------------------------------- */

/* Whether device nodes on this file system would work. */
static bool can_have_devices(int dir_fd)
{
    struct statvfs fs;
    if (fstatvfs(dir_fd, &fs) < 0 || (fs.f_flag & ST_NODEV))
        return false;
    if (mknodat(dir_fd, ".probe", S_IFCHR | 0600, makedev(1, 3)) < 0)
        return false;
    int fd = openat(dir_fd, ".probe", O_WRONLY | O_CLOEXEC);
    unlinkat(dir_fd, ".probe", 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static int make_devices(int root_fd, struct hutch_error *err)
{
    static const struct {
        const char *path;
        unsigned number;
    } devices[] = {
        {"dev/null", 3}, {"dev/zero", 5}, {"dev/full", 7}, {"dev/random", 8}, {"dev/urandom", 9},
    };
    static const struct tree_link links[] = {
        {"dev/fd", "/proc/self/fd"},
        {"dev/stdin", "/proc/self/fd/0"},
        {"dev/stdout", "/proc/self/fd/1"},
        {"dev/stderr", "/proc/self/fd/2"},
    };
    bool real = can_have_devices(root_fd);

    for (size_t i = 0; i < ARRAY_LENGTH(devices); i++) {
        if (!real && make_file(root_fd, devices[i].path, "", err) < 0)
            return err->code;
        /* mknod obeys the umask. */
        if (real &&
            (mknodat(root_fd, devices[i].path, S_IFCHR | 0600, makedev(1, devices[i].number)) < 0 ||
             fchmodat(root_fd, devices[i].path, 0666, 0) < 0))
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make '%s'", devices[i].path);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(links); i++) {
        if (symlinkat(links[i].target, root_fd, links[i].path) < 0)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make '%s'", links[i].path);
    }
    return 0;
}

/* ---- what all runtimes have ------------------------------------------- */

static int make_frame(struct copier *copier, struct hutch_error *err)
{
    static const char *const merged[] = {"/bin", "/sbin", "/lib", "/lib64"};
    int error = 0;

    for (const char *const *folder = tree_folders; *folder && error >= 0; folder++)
        error = make_path(copier->root_fd, *folder, err);
    if (error >= 0)
        error = make_devices(copier->root_fd, err);
    for (size_t i = 0; i < ARRAY_LENGTH(merged) && error >= 0; i++) {
        if (access(merged[i], F_OK) < 0)
            continue;
        auto_close int fd = copier_folder(copier, merged[i], NULL, err);
        error = fd;
    }
    return error < 0 ? error : 0;
}

static int copy_command(struct copier *copier, const char *name, struct hutch_error *err)
{
    for (const char *const *folder = tree_command_folders; *folder; folder++) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s", *folder, name);
        int found = copier_program(copier, path, err);
        if (found != 0)
            return found;
    }
    return 0;
}

static int copy_tables(struct copier *copier, bool python, struct hutch_error *err)
{
    int error = 0;

    for (const char *const *name = tree_commands; *name && error >= 0; name++)
        error = copy_command(copier, *name, err);
    for (const struct tree_data *data = tree_data; data->path && error >= 0; data++) {
        if (python || !data->python_only)
            error = copier_tree(copier, data->path, err);
    }
    for (const struct tree_text *text = tree_texts; text->path && error >= 0; text++)
        error = copier_text(copier, text->path, text->text, err);
    for (const struct tree_link *link = tree_links; link->path && error >= 0; link++)
        error = copier_link(copier, link->path, link->target, err);
    return error < 0 ? error : 0;
}

/* ---- interpreters ------------------------------------------------------ */

static bool is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Cells have folders of their own at these places. */
static int check_visible(const char *path, struct hutch_error *err)
{
    static const char *const hidden[] = {"/dev", "/home/user", "/proc", "/run", "/sys", "/tmp"};

    for (size_t i = 0; i < ARRAY_LENGTH(hidden); i++) {
        if (is_below(path, hidden[i]))
            return err_set(err, HUTCH_ERR_RUNTIME,
                           "'%s' cannot be seen in a cell, which has a '%s' of its own", path,
                           hidden[i]);
    }
    return 0;
}

/* The interpreter under the name that it is started by. executable is what it
 * says it is, or NULL. */
static int copy_interpreter(struct copier *copier, const char *path, const char *executable,
                            struct hutch_error *err)
{
    auto_elf struct elf_object object = {0};
    auto_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, HUTCH_ERR_RUNTIME, errno, "open interpreter '%s'", path);
    int is_elf = elf_read(fd, &object, err);
    if (is_elf < 0)
        return err_context(err, "interpreter '%s'", path);
    if (!is_elf)
        return err_set(err, HUTCH_ERR_RUNTIME,
                       "interpreter '%s' is no program for this machine%s%s%s", path,
                       executable ? "; name '" : "", executable ? executable : "",
                       executable ? "' instead" : "");
    int error = check_visible(path, err);
    if (error >= 0)
        error = copier_program(copier, path, err);
    if (error == 0)
        return err_set(err, HUTCH_ERR_RUNTIME, "interpreter '%s' may not be read by everyone",
                       path);
    return error < 0 ? error : 0;
}

/* The usual names of an interpreter (name with each of the suffixes, ended by
 * NULL), beside it and in /usr/bin. */
static int link_names(struct copier *copier, const char *interpreter, const char *name,
                      const char *const *suffixes, struct hutch_error *err)
{
    auto_free char *real = realpath(interpreter, NULL);
    int error = 0;
    if (!real)
        return err_errno(err, HUTCH_ERR_RUNTIME, errno, "resolve interpreter '%s'", interpreter);

    int length = (int)(strrchr(real, '/') - real);
    for (; *suffixes && error >= 0; suffixes++) {
        char beside[PATH_MAX];
        char usual[PATH_MAX];
        snprintf(beside, sizeof(beside), "%.*s/%s%s", length, real, name, *suffixes);
        snprintf(usual, sizeof(usual), "/usr/bin/%s%s", name, *suffixes);
        error = copier_link(copier, beside, real, err);
        if (error >= 0)
            error = copier_link(copier, usual, real, err);
    }
    return error;
}

/* The folders that an interpreter imports from. */
static int copy_path(struct copier *copier, const struct string_list *path, struct hutch_error *err)
{
    int error = 0;

    for (size_t i = 0; i < path->count && error >= 0; i++) {
        const char *entry = path->items[i];
        bool inside = false;
        for (size_t j = 0; j < i; j++)
            inside = inside || is_below(entry, path->items[j]);
        if (entry[0] != '/' || inside)
            continue;
        error = check_visible(entry, err);
        if (error >= 0)
            error = copier_tree(copier, entry, err);
    }
    return error < 0 ? error : 0;
}

/* As content, because in the helper folder it may be readable for its owner
 * alone. */
static int copy_helper(struct copier *copier, const struct tree_spec *spec, const char *name,
                       const char *place, struct hutch_error *err)
{
    auto_buf struct buf content = BUF_MAX(LIMIT_RUNNER_BYTES);
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", spec->helper_dir, name);
    if (buf_read_file(&content, AT_FDCWD, path, err) < 0) {
        err->code = HUTCH_ERR_HELPER;
        return err_context(err, "a file of every cell");
    }
    return copier_content(copier, place, content.data, content.length, err);
}

/* Those that the host has. */
static int copy_fonts(struct copier *copier, struct hutch_error *err)
{
    static const char *const paths[] = {CJK_FONTS};
    int error = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(paths) && error >= 0; i++)
        error = copier_file(copier, paths[i], paths[i], err);
    return error < 0 ? error : 0;
}

static int make_font_list(struct copier *copier, const struct tree_spec *spec,
                          struct hutch_error *err)
{
    auto_font_list struct font_list list = FONT_LIST_NONE;
    char path[PATH_MAX];

    if (font_list_make(spec->interpreter, clock_after_ns(FONTS_NS), &list, err) < 0)
        return err->code;
    if (list.name[0] == '\0')
        return 0;
    snprintf(path, sizeof(path), "%s/%s", TREE_FONT_LISTS, list.name);
    return copier_content(copier, path, list.content.data, list.content.length, err);
}

static int copy_python(struct copier *copier, const struct tree_spec *spec,
                       const struct python_info *python, struct hutch_error *err)
{
    const char *const suffixes[] = {"", "3", python->version, NULL};
    char config[PATH_MAX];

    int error = copy_interpreter(copier, spec->interpreter, python->executable, err);
    if (error >= 0)
        error = link_names(copier, spec->interpreter, "python", suffixes, err);
    if (error >= 0)
        error = copy_path(copier, &python->path, err);
    /* A virtual environment is recognised by this file. */
    snprintf(config, sizeof(config), "%s/pyvenv.cfg", python->prefix);
    if (error >= 0)
        error = copier_file(copier, config, config, err);
    if (error >= 0)
        error =
            copier_content(copier, TREE_RUNNER, python->runner.data, python->runner.length, err);
    if (error >= 0)
        error = copy_helper(copier, spec, "hutch_zygote.abi3.so", TREE_ZYGOTE_MODULE, err);
    if (error >= 0)
        error = copy_fonts(copier, err);
    return error < 0 ? error : make_font_list(copier, spec, err);
}

static int copy_acorn(struct copier *copier, struct hutch_error *err)
{
    const char *path = acorn_find();
    int found = path ? copier_file(copier, path, TREE_ACORN, err) : 0;
    if (found == 0)
        return err_set(err, HUTCH_ERR_RUNTIME,
                       "acorn, with which javascript programs are read, not found: install the "
                       "package " ACORN_PACKAGE);
    return found < 0 ? found : 0;
}

static int copy_node(struct copier *copier, const struct tree_spec *spec,
                     const struct node_info *node, struct hutch_error *err)
{
    static const char *const suffixes[] = {"", "js", NULL};

    int error = copy_interpreter(copier, spec->interpreter, node->executable, err);
    if (error >= 0)
        error = link_names(copier, spec->interpreter, "node", suffixes, err);
    if (error >= 0)
        error = copy_path(copier, &node->path, err);
    if (error >= 0)
        error = copy_helper(copier, spec, "runner.cjs", TREE_NODE_RUNNER, err);
    if (error >= 0)
        error = copy_helper(copier, spec, "hutch_park.node", TREE_NODE_PARK, err);
    if (error >= 0)
        error = copy_acorn(copier, err);
    return error;
}

static int copy_shell(struct copier *copier, const struct tree_spec *spec, struct hutch_error *err)
{
    int error = copy_interpreter(copier, spec->interpreter, NULL, err);
    return error < 0 ? error : copy_helper(copier, spec, "runner.sh", TREE_SHELL_RUNNER, err);
}

static int copy_runtime(struct copier *copier, const struct tree_spec *spec,
                        const struct tree_facts *facts, struct hutch_error *err)
{
    if (facts->python.executable)
        return copy_python(copier, spec, &facts->python, err);
    if (facts->node.executable)
        return copy_node(copier, spec, &facts->node, err);
    return copy_shell(copier, spec, err);
}

int tree_fill(int dir_fd, const struct tree_spec *spec, const struct tree_facts *facts,
              struct hutch_error *err)
{
    auto_copier struct copier copier;
    copier_init(&copier, -1, tree_excluded);

    int error = make_surroundings(dir_fd, spec, err);
    if (error < 0)
        return error;
    auto_close int root_fd =
        openat(dir_fd, "root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root_fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open 'root'");
    copier.root_fd = root_fd;
    error = make_frame(&copier, err);
    if (error >= 0)
        error = copy_runtime(&copier, spec, facts, err);
    if (error >= 0)
        error = copy_tables(&copier, facts->python.executable != NULL, err);
    if (error >= 0)
        error = copy_libraries(&copier, tree_libraries, err);
    return error < 0 ? error : folder_seal(dir_fd, err);
}
