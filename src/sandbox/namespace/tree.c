/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See tree.h. This file decides which tree is valid and who may build or
 * remove one.
 *
 * The manifest of a tree is text: a header, made of the spec, and one line for
 * each input, "IDENTITY PATH", where the identity is device, inode, size and
 * modification time, or "absent". A tree is up to date when the header is the
 * one that the spec gives now and each input still has its identity. The name
 * of a tree's folder is a hash of the manifest.
 *
 * Locks: trees/lock is held exclusively by the process that builds; so a .new
 * that a builder finds there was left by a dead one, and only a builder
 * removes trees. It takes the exclusive lock of a tree before that, which
 * fails while somebody uses it. A user looks at the manifest after it got the
 * shared lock, and a removal starts with the manifest.
 */
#include "tree.h"

#include "../wire.h"
#include "acorn.h"
#include "base/clock.h"
#include "base/limits.h"
#include "cjk_font.h"
#include "folder.h"
#include "tree_bash.h"
#include "tree_build.h"
#include "tree_fonts.h"
#include "tree_tables.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define MANIFEST_MAX KIB(64)
#define MANIFEST_FORMAT 1
#define ASK_NS (30 * NS_PER_SECOND) /* the first start on a cold disk */

/* What the inputs follow after. */
static const char inputs_mark[] = "\ninputs\n";

void tree_close(struct tree *tree)
{
    int saved = errno;
    free(tree->path);
    if (tree->fd >= 0)
        close(tree->fd);
    if (tree->lock_fd >= 0)
        close(tree->lock_fd);
    *tree = TREE_NONE;
    errno = saved;
}

/* The runtimes there are, and the packages of their interpreters. */
static const struct tree_kind {
    const char *name;
    const char *package;
} kinds[] = {
    {"python", "python3"},
    {"javascript", "nodejs"},
    {"shell", "bash"},
};

static const struct tree_kind *kind_of(const struct tree_spec *spec)
{
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        if (strcmp(kinds[i].name, spec->name) == 0)
            return &kinds[i];
    }
    return NULL;
}

/* ---- manifests --------------------------------------------------------- */

static void append_header(struct buf *text, const struct tree_spec *spec)
{
    buf_appendf(text, "hutch-tree %d\n", MANIFEST_FORMAT);
    buf_appendf(text, "hutch %s wire %d\n", HUTCH_VERSION, WIRE_VERSION);
    buf_appendf(text, "runtime %s\n", spec->name);
    buf_appendf(text, "interpreter %s\n", spec->interpreter);
    buf_appendf(text, "helpers %s\n", spec->helper_dir);
    buf_appendf(text, "processors %ld", sysconf(_SC_NPROCESSORS_CONF));
    buf_append_text(text, inputs_mark);
}

static void append_input(struct buf *text, const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        buf_appendf(text, "absent %s\n", path);
    else
        buf_appendf(text, "%ju:%ju:%jd:%jd.%09ld %s\n", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino,
                    (intmax_t)st.st_size, (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, path);
}

/* Whether every input still has its identity. */
static bool inputs_hold(const char *text)
{
    const char *line = strstr(text, inputs_mark);
    if (!line)
        return false;
    line += strlen(inputs_mark);
    while (*line) {
        char path[PATH_MAX];
        auto_buf struct buf now = BUF_MAX(2 * PATH_MAX);
        size_t length = strcspn(line, "\n");
        const char *space = memchr(line, ' ', length);
        if (!space || line[length] != '\n' || length >= sizeof(path))
            return false;
        snprintf(path, sizeof(path), "%.*s", (int)(line + length - space - 1), space + 1);
        append_input(&now, path);
        length++;
        if (now.length != length || memcmp(now.data, line, length) != 0)
            return false;
        line += length;
    }
    return true;
}

static bool header_holds(const char *text, const struct tree_spec *spec)
{
    auto_buf struct buf header = BUF_MAX(MANIFEST_MAX);
    append_header(&header, spec);
    return header.failure == BUF_OK && strncmp(text, header.data, header.length) == 0;
}

/* FNV-1a: names the folder, decides nothing. */
static uint64_t hash_text(const struct buf *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < text->length; i++)
        hash = (hash ^ (unsigned char)text->data[i]) * 0x100000001b3u;
    return hash;
}

/* ---- the cache folder -------------------------------------------------- */

static int check_spec(const struct tree_spec *spec, struct hutch_error *err)
{
    const char *const paths[] = {spec->interpreter, spec->helper_dir, spec->cache_dir};

    if (!kind_of(spec))
        return err_set(err, HUTCH_ERR_INVALID, "no runtime is called '%s'", spec->name);
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
        if (paths[i][0] != '/' || strchr(paths[i], '\n') || strlen(paths[i]) >= PATH_MAX - 64)
            return err_set(err, HUTCH_ERR_INVALID, "not a usable absolute path: '%.80s'", paths[i]);
    }
    return 0;
}

/* A tree is code that cells run, so nobody else may have had a hand in it. */
static int check_private(int fd, const char *path, struct hutch_error *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "stat '%s'", path);
    if (st.st_uid != geteuid())
        return err_set(err, HUTCH_ERR_SYSTEM,
                       "cache folder '%s' belongs to user %u, not to user %u", path, st.st_uid,
                       geteuid());
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, HUTCH_ERR_SYSTEM,
                       "cache folder '%s' can be written by others: chmod go-w '%s'", path, path);
    return 0;
}

/* Opens trees/ in the cache folder. Returns the descriptor, or -1 with errno
 * ENOENT and no error set when it does not exist yet. */
static int open_trees(const struct tree_spec *spec, struct hutch_error *err)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    auto_close int cache = open(spec->cache_dir, flags);
    int cache_error = errno;
    auto_close int trees = -1;

    if (cache >= 0) {
        if (check_private(cache, spec->cache_dir, err) < 0)
            return err->code;
        trees = openat(cache, "trees", flags);
        cache_error = errno;
    }
    if (trees >= 0)
        return check_private(trees, spec->cache_dir, err) < 0 ? err->code : TAKE_FD(trees);
    if (cache_error == ENOENT) {
        errno = ENOENT;
        return -1;
    }
    return err_errno(err, HUTCH_ERR_SYSTEM, cache_error, "open cache folder '%s'", spec->cache_dir);
}

static int make_trees(const struct tree_spec *spec, struct hutch_error *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/trees", spec->cache_dir);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make cache folder '%s'", path);
        *slash = '/';
    }
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make cache folder '%s'", path);
    return 0;
}

/* ---- finding ----------------------------------------------------------- */

/* Opens a tree's folder with the given lock and reads its manifest (empty when
 * there is none). Returns the descriptor, or -1 when the folder is gone or
 * locked against us. */
static int open_entry(int trees, const char *name, int lock, struct buf *manifest)
{
    struct hutch_error ignored;
    auto_close int fd = openat(trees, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, lock | LOCK_NB) < 0)
        return -1;
    buf_clear(manifest);
    auto_close int text = openat(fd, "manifest", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (text >= 0 && buf_read_fd(manifest, text, &ignored) < 0)
        buf_clear(manifest);
    return TAKE_FD(fd);
}

static int take_tree(int entry, const struct tree_spec *spec, const char *name,
                     struct tree *ret_tree, struct hutch_error *err)
{
    auto_close int fd = openat(entry, "tree", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstatat(fd, "root/dev/null", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open tree '%s'", name);
    auto_buf struct buf path = BUF_MAX(PATH_MAX);
    buf_appendf(&path, "%s/trees/%s/tree", spec->cache_dir, name);
    if (buf_check(&path, err) < 0)
        return err->code;
    *ret_tree = (struct tree){
        .path = TAKE_POINTER(path.data),
        .fd = TAKE_FD(fd),
        .lock_fd = -1,
        .has_devices = S_ISCHR(st.st_mode),
    };
    return 1;
}

static bool is_tree_name(const char *name, const char *runtime)
{
    size_t length = strlen(runtime);
    return strncmp(name, runtime, length) == 0 && name[length] == '-';
}

static bool is_any_tree_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        if (is_tree_name(name, kinds[i].name))
            return true;
    }
    return false;
}

/* tree_find below an open trees/. */
static int find_in(int trees, const struct tree_spec *spec, struct tree *ret_tree,
                   struct hutch_error *err)
{
    auto_buf struct buf manifest = BUF_MAX(MANIFEST_MAX);
    auto_dir DIR *dir = folder_list(trees);
    const struct dirent *entry;
    int found = 0;

    while (dir && found == 0 && (entry = folder_next(dir))) {
        if (!is_tree_name(entry->d_name, spec->name))
            continue;
        auto_close int fd = open_entry(trees, entry->d_name, LOCK_SH, &manifest);
        if (fd < 0 || !header_holds(buf_text(&manifest), spec) || !inputs_hold(buf_text(&manifest)))
            continue;
        found = take_tree(fd, spec, entry->d_name, ret_tree, err);
        if (found > 0)
            ret_tree->lock_fd = TAKE_FD(fd);
    }
    if (!dir)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "list the trees of '%s'", spec->cache_dir);
    return found;
}

int tree_find(const struct tree_spec *spec, struct tree *ret_tree, struct hutch_error *err)
{
    if (check_spec(spec, err) < 0)
        return err->code;
    auto_close int trees = open_trees(spec, err);
    if (trees == -1 && errno == ENOENT)
        return 0;
    return trees < 0 ? trees : find_in(trees, spec, ret_tree, err);
}

/* ---- building ---------------------------------------------------------- */

/* Removes the trees that are outdated, whatever spec they are for, and that
 * nobody uses. After a build, not before: ext4 without a journal takes several
 * times as long to make files where many were deleted a moment ago. */
static int sweep(int trees, struct hutch_error *err)
{
    auto_buf struct buf manifest = BUF_MAX(MANIFEST_MAX);
    auto_dir DIR *dir = folder_list(trees);
    const struct dirent *entry;
    int error = 0;

    while (dir && error >= 0 && (entry = folder_next(dir))) {
        if (!is_any_tree_name(entry->d_name))
            continue;
        auto_close int fd = open_entry(trees, entry->d_name, LOCK_EX, &manifest);
        if (fd < 0 || inputs_hold(buf_text(&manifest)))
            continue;
        error = folder_remove(fd, "manifest", err);
        if (error >= 0)
            error = folder_remove(trees, entry->d_name, err);
    }
    return error;
}

static void append_below(struct buf *manifest, const char *folder, const char *name)
{
    auto_buf struct buf path = BUF_MAX(PATH_MAX);
    buf_appendf(&path, "%s/%s", folder, name);
    append_input(manifest, buf_text(&path));
}

static void append_python(struct buf *manifest, const struct tree_spec *spec,
                          const struct python_info *python)
{
    static const char *const fonts[] = {TREE_FONTS_DEJAVU, TREE_FONTS_LYX, CJK_FONTS};

    append_below(manifest, spec->helper_dir, "runner.py");
    append_below(manifest, spec->helper_dir, "hutch_zygote.abi3.so");
    append_below(manifest, python->prefix, "pyvenv.cfg");
    for (size_t i = 0; i < python->path.count; i++)
        append_input(manifest, python->path.items[i]);
    for (size_t i = 0; i < ARRAY_LENGTH(fonts); i++)
        append_input(manifest, fonts[i]);
}

static void append_node(struct buf *manifest, const struct tree_spec *spec,
                        const struct node_info *node)
{
    const char *acorn = acorn_find();

    append_below(manifest, spec->helper_dir, "runner.cjs");
    append_below(manifest, spec->helper_dir, "hutch_park.node");
    if (acorn)
        append_input(manifest, acorn);
    for (size_t i = 0; i < node->path.count; i++)
        append_input(manifest, node->path.items[i]);
}

/* Writes down what the tree is going to be made of, before it is read, so that
 * a change during the build shows afterwards. */
static int write_down(const struct tree_spec *spec, const struct tree_facts *facts,
                      struct buf *manifest, struct hutch_error *err)
{
    auto_free char *real = realpath(spec->interpreter, NULL);

    append_header(manifest, spec);
    append_input(manifest, spec->interpreter);
    append_input(manifest, real ? real : spec->interpreter);
    append_below(manifest, spec->helper_dir, "hutch-init");
    append_below(manifest, spec->helper_dir,
                 "hutch-supervisor"); /* holds the tables of this build */
    for (const char *const *file = tree_key_files; *file; file++)
        append_input(manifest, *file);
    if (facts->python.executable)
        append_python(manifest, spec, &facts->python);
    if (facts->node.executable)
        append_node(manifest, spec, &facts->node);
    if (strcmp(spec->name, "shell") == 0)
        append_below(manifest, spec->helper_dir, "runner.sh");
    if (buf_check(manifest, err) < 0)
        return err_context(err, "list of what the %s tree is made of", spec->name);
    return 0;
}

static void tree_facts_done(struct tree_facts *facts)
{
    python_info_done(&facts->python);
    node_info_done(&facts->node);
}
#define auto_tree_facts __attribute__((cleanup(tree_facts_done)))

static int ask_python(const struct tree_spec *spec, struct python_info *python,
                      struct hutch_error *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/runner.py", spec->helper_dir);
    auto_close int runner = open(path, O_RDONLY | O_CLOEXEC);
    if (runner < 0)
        return err_errno(err, HUTCH_ERR_HELPER, errno, "open the python runner '%s'", path);
    return python_ask(spec->interpreter, runner, clock_after_ns(ASK_NS), python, err);
}

static int ask(const struct tree_spec *spec, struct tree_facts *facts, struct hutch_error *err)
{
    int error = 0;
    if (strcmp(spec->name, "python") == 0)
        error = ask_python(spec, &facts->python, err);
    else if (strcmp(spec->name, "javascript") == 0)
        error = node_ask(spec->interpreter, clock_after_ns(ASK_NS), &facts->node, err);
    else
        error = bash_ask(spec->interpreter, clock_after_ns(ASK_NS), err);

    const struct string_list *const paths[] = {&facts->python.path, &facts->node.path};
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
        for (size_t j = 0; j < paths[i]->count && error >= 0; j++) {
            if (strchr(paths[i]->items[j], '\n'))
                error = err_set(err, HUTCH_ERR_RUNTIME,
                                "a folder that %s imports from has a line break in its name",
                                spec->name);
        }
    }
    return error;
}

static int check_interpreter(const struct tree_spec *spec, struct hutch_error *err)
{
    if (access(spec->interpreter, F_OK) == 0)
        return 0;
    return err_set(err, HUTCH_ERR_RUNTIME, "%s interpreter '%s' not found: install the package %s",
                   spec->name, spec->interpreter, kind_of(spec)->package);
}

/* Fills .new and gives it its name. */
static int build_new(int trees, const struct tree_spec *spec, const struct tree_facts *facts,
                     const struct buf *manifest, struct hutch_error *err)
{
    char name[64];

    if (mkdirat(trees, ".new", 0700) < 0 || mkdirat(trees, ".new/tree", 0755) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make a folder in '%s'", spec->cache_dir);
    auto_close int tree =
        openat(trees, ".new/tree", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (tree < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open a folder in '%s'", spec->cache_dir);
    int error = tree_fill(tree, spec, facts, err);
    if (error < 0)
        return error;

    auto_close int text =
        openat(trees, ".new/manifest", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
    if (text < 0 || write(text, manifest->data, manifest->length) != (ssize_t)manifest->length)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "write the manifest of a tree");
    snprintf(name, sizeof(name), "%s-%016jx", spec->name, (uintmax_t)hash_text(manifest));
    /* One of that name is there when its manifest was lost: it was found unfit. */
    if (renameat(trees, name, trees, ".old") == 0 && folder_remove(trees, ".old", err) < 0)
        return err->code;
    if (renameat(trees, ".new", trees, name) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "name the new tree '%s'", name);
    return 0;
}

static int build_locked(int trees, const struct tree_spec *spec, struct hutch_error *err)
{
    auto_tree_facts struct tree_facts facts = {0};
    auto_buf struct buf manifest = BUF_MAX(MANIFEST_MAX);
    struct hutch_error ignored;

    int error = check_interpreter(spec, err);
    if (error >= 0)
        error = ask(spec, &facts, err);
    if (error >= 0)
        error = write_down(spec, &facts, &manifest, err);
    if (error < 0)
        return error;
    mode_t mask = umask(022);
    error = build_new(trees, spec, &facts, &manifest, err);
    umask(mask);
    if (error < 0) {
        IGNORE_RESULT(folder_remove(trees, ".new", &ignored));
        if (err->code == HUTCH_ERR_SYSTEM)
            err_context(err, "cache folder '%s'", spec->cache_dir);
    }
    return error;
}

/* Cells execute what is in the tree. */
static int check_file_system(int trees, const struct tree_spec *spec, struct hutch_error *err)
{
    struct statvfs fs;
    if (fstatvfs(trees, &fs) == 0 && (fs.f_flag & ST_NOEXEC))
        return err_set(err, HUTCH_ERR_SYSTEM,
                       "cache folder '%s' is on a file system mounted noexec: choose another",
                       spec->cache_dir);
    return 0;
}

int tree_build(const struct tree_spec *spec, struct hutch_error *err)
{
    if (check_spec(spec, err) < 0 || make_trees(spec, err) < 0)
        return err->code;
    auto_close int trees = open_trees(spec, err);
    if (trees == -1)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open cache folder '%s'", spec->cache_dir);
    if (trees < 0 || check_file_system(trees, spec, err) < 0)
        return err->code;

    auto_close int lock = openat(trees, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    int locked;
    do
        locked = lock < 0 ? -1 : flock(lock, LOCK_EX);
    while (locked < 0 && lock >= 0 && errno == EINTR);
    if (locked < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "lock the trees of '%s'", spec->cache_dir);

    auto_tree struct tree tree = TREE_NONE;
    int found = find_in(trees, spec, &tree, err);
    if (found != 0)
        return found < 0 ? found : 0;
    if (folder_remove(trees, ".new", err) < 0)
        return err_context(err, "removing what an earlier build left");
    int error = build_locked(trees, spec, err);
    return error < 0 ? error : sweep(trees, err);
}

int tree_prepare(const struct tree_spec *spec, struct tree *ret_tree, struct hutch_error *err)
{
    int found = tree_find(spec, ret_tree, err);
    if (found != 0)
        return found < 0 ? found : 0;
    int error = tree_build(spec, err);
    if (error < 0)
        return err_context(err, "building the %s file tree", spec->name);
    found = tree_find(spec, ret_tree, err);
    if (found == 0)
        return err_set(err, HUTCH_ERR_RUNTIME, "the host's %s changed while it was copied",
                       spec->name);
    return found < 0 ? found : 0;
}
