/* SPDX-License-Identifier: Apache-2.0 */
/* Copying into a new root: what a copy keeps, loses and leaves out. */
#include "base/limits.h"
#include "sandbox/namespace/folder.h"
#include "sandbox/namespace/tree_copy.h"
#include "sandbox/namespace/tree_libs.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_RISCV
#endif

/* A folder in /tmp with src/ (the "host") and root/ (the new root). */
struct bench {
    char path[64];
    int fd;
    int root_fd;
    struct copier copier;
    struct hutch_error err;
};

static const char *const excluded[] = {"*.hidden", NULL};

static int set_up(void **state)
{
    static struct bench bench;
    snprintf(bench.path, sizeof(bench.path), "/tmp/hutch-test-copy-XXXXXX");
    if (!mkdtemp(bench.path) || chmod(bench.path, 0755) < 0)
        return -1;
    bench.fd = open(bench.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (mkdirat(bench.fd, "src", 0755) < 0 || mkdirat(bench.fd, "root", 0755) < 0)
        return -1;
    bench.root_fd = openat(bench.fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    copier_init(&bench.copier, bench.root_fd, excluded);
    *state = &bench;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *bench = *state;
    copier_done(&bench->copier);
    close(bench->root_fd);
    close(bench->fd);
    auto_close int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return folder_remove(tmp, strrchr(bench->path, '/') + 1, &bench->err);
}

/* Makes src/NAME with text; its mode is exact. */
static void make(struct bench *bench, const char *name, const char *text, mode_t mode)
{
    char path[256];
    snprintf(path, sizeof(path), "src/%s", name);
    auto_close int fd = openat(bench->fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
}

static void make_folder(struct bench *bench, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "src/%s", name);
    assert_int_equal(mkdirat(bench->fd, path, 0755), 0);
}

static void make_link(struct bench *bench, const char *name, const char *target)
{
    char path[256];
    snprintf(path, sizeof(path), "src/%s", name);
    assert_int_equal(symlinkat(target, bench->fd, path), 0);
}

/* "PATH/src/NAME" in static storage. */
static const char *host(const struct bench *bench, const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/src/%s", bench->path, name);
    return path;
}

/* The type and mode of the copy of src/NAME; 0 when there is none. */
static mode_t mode_of(const struct bench *bench, const char *name)
{
    struct stat st;
    if (fstatat(bench->root_fd, host(bench, name) + 1, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    return st.st_mode;
}

static void assert_text(const struct bench *bench, const char *name, const char *text)
{
    char data[256];
    auto_close int fd = openat(bench->root_fd, host(bench, name) + 1, O_RDONLY | O_CLOEXEC);
    ssize_t count = read(fd, data, sizeof(data) - 1);
    assert_true(count >= 0);
    data[count] = '\0';
    assert_string_equal(data, text);
}

static void assert_target(const struct bench *bench, const char *name, const char *target)
{
    char text[PATH_MAX];
    ssize_t count = readlinkat(bench->root_fd, host(bench, name) + 1, text, sizeof(text) - 1);
    assert_true(count > 0);
    text[count] = '\0';
    assert_string_equal(text, target);
}

static void copy_all(struct bench *bench, const char *name)
{
    int error = copier_tree(&bench->copier, host(bench, name), &bench->err);
    if (error < 0)
        print_error("%s\n", bench->err.message);
    assert_true(error >= 0);
}

static void copies_keep_bytes_and_time_and_lose_rights(void **state)
{
    struct bench *bench = *state;
    const struct timespec times[2] = {{1000000000, 5}, {1234567890, 123456789}};
    struct stat st;

    make_folder(bench, "a");
    make(bench, "a/plain", "plain", 0666);
    make(bench, "a/program", "program", 06777);
    make(bench, "a/group", "group", 02755);
    assert_int_equal(utimensat(bench->fd, "src/a/plain", times, 0), 0);
    assert_int_equal(fchmodat(bench->fd, "src/a", 03777, 0), 0);
    copy_all(bench, "a");
    assert_int_equal(folder_seal(bench->root_fd, &bench->err), 0);

    assert_int_equal(mode_of(bench, "a"), S_IFDIR | 0555);
    assert_int_equal(mode_of(bench, "a/plain"), S_IFREG | 0444);
    assert_int_equal(mode_of(bench, "a/program"), S_IFREG | 0555);
    assert_int_equal(mode_of(bench, "a/group"), S_IFREG | 0555);
    assert_text(bench, "a/plain", "plain");
    assert_int_equal(fstatat(bench->root_fd, host(bench, "a/plain") + 1, &st, 0), 0);
    assert_int_equal(st.st_mtim.tv_sec, 1234567890);
    assert_int_equal(st.st_mtim.tv_nsec, 123456789);
    assert_int_equal(st.st_nlink, 1);
}

static void large_files_are_whole(void **state)
{
    struct bench *bench = *state;
    enum { BYTES = 3 * 1024 * 1024 + 17 };
    auto_free char *text = malloc(BYTES + 1);
    auto_free char *back = malloc(BYTES);

    for (size_t i = 0; i < BYTES; i++)
        text[i] = (char)('a' + i % 23);
    text[BYTES] = '\0';
    make(bench, "large", text, 0644);
    copy_all(bench, "large");
    auto_close int fd = openat(bench->root_fd, host(bench, "large") + 1, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, back, BYTES), BYTES);
    assert_memory_equal(back, text, BYTES);
    assert_true(bench->copier.bytes == BYTES);
}

static void only_files_come_in(void **state)
{
    struct bench *bench = *state;

    make_folder(bench, "a");
    make(bench, "a/file", "1", 0644);
    make(bench, "a/left.hidden", "2", 0644);
    assert_int_equal(mkfifoat(bench->fd, "src/a/pipe", 0644), 0);
    copy_all(bench, "a");
    copy_all(bench, "not there");
    copy_all(bench, "a/pipe");

    assert_int_equal(mode_of(bench, "a/file"), S_IFREG | 0444);
    assert_int_equal(mode_of(bench, "a/left.hidden"), 0);
    assert_int_equal(mode_of(bench, "a/pipe"), 0);
}

static void links_inside_stay_and_others_are_filled(void **state)
{
    struct bench *bench = *state;

    make_folder(bench, "a");
    make_folder(bench, "a/in");
    make_folder(bench, "out");
    make(bench, "a/file", "file", 0644);
    make(bench, "a/x.hidden", "x", 0644);
    make(bench, "out/file", "outside", 0644);
    make_link(bench, "a/in/near", "../file");
    make_link(bench, "a/in/far", "../../out/file");
    make_link(bench, "a/absolute", host(bench, "out/file"));
    make_link(bench, "a/folder", "../out");
    make_link(bench, "a/nowhere", "missing");
    make_link(bench, "a/to-hidden", "x.hidden");
    make_link(bench, "a/up", "../../src");
    make_link(bench, "a/round", "round");
    copy_all(bench, "a");

    assert_target(bench, "a/in/near", "../file");
    assert_int_equal(mode_of(bench, "a/in/far"), S_IFREG | 0444);
    assert_text(bench, "a/in/far", "outside");
    assert_text(bench, "a/absolute", "outside");
    assert_true(S_ISDIR(mode_of(bench, "a/folder")));
    assert_text(bench, "a/folder/file", "outside");
    assert_int_equal(mode_of(bench, "a/nowhere"), 0);
    assert_int_equal(mode_of(bench, "a/to-hidden"), 0);
    assert_int_equal(mode_of(bench, "a/up"), 0);
    assert_int_equal(mode_of(bench, "a/round"), 0);
    assert_int_equal(mode_of(bench, "out"), 0);
}

/* A link in a package must not fetch a secret of whoever runs hutch. */
static void links_do_not_reach_what_is_private(void **state)
{
    struct bench *bench = *state;

    make_folder(bench, "a");
    make_folder(bench, "closed");
    make(bench, "secret", "secret", 0600);
    make(bench, "closed/file", "secret", 0644);
    assert_int_equal(fchmodat(bench->fd, "src/closed", 0700, 0), 0);
    make_link(bench, "a/secret", "../secret");
    make_link(bench, "a/file", "../closed/file");
    make_link(bench, "a/closed", "../closed");
    copy_all(bench, "a");

    assert_true(S_ISDIR(mode_of(bench, "a")));
    assert_int_equal(mode_of(bench, "a/secret"), 0);
    assert_int_equal(mode_of(bench, "a/file"), 0);
    assert_int_equal(mode_of(bench, "a/closed"), 0);
}

static void a_program_comes_with_its_links(void **state)
{
    struct bench *bench = *state;

    make_folder(bench, "bin");
    make_folder(bench, "alternatives");
    make(bench, "bin/mawk", "program", 0755);
    make(bench, "bin/data", "data", 0644);
    make_link(bench, "alternatives/awk", host(bench, "bin/mawk"));
    make_link(bench, "bin/awk", "../alternatives/awk");

    assert_int_equal(copier_program(&bench->copier, host(bench, "bin/awk"), &bench->err), 1);
    assert_int_equal(copier_program(&bench->copier, host(bench, "bin/awk"), &bench->err), 1);
    assert_int_equal(copier_program(&bench->copier, host(bench, "bin/data"), &bench->err), 0);
    assert_int_equal(copier_program(&bench->copier, host(bench, "bin/none"), &bench->err), 0);
    assert_target(bench, "bin/awk", "../alternatives/awk");
    assert_true(S_ISLNK(mode_of(bench, "alternatives/awk")));
    assert_int_equal(mode_of(bench, "bin/mawk"), S_IFREG | 0555);
    assert_int_equal(bench->copier.object_count, 1);
    assert_string_equal(bench->copier.objects[0].path, host(bench, "bin/mawk"));
}

/* As /bin -> usr/bin. */
static void folders_that_are_links_become_links(void **state)
{
    struct bench *bench = *state;
    static char real[PATH_MAX];

    make_folder(bench, "usr");
    make_folder(bench, "usr/bin");
    make(bench, "usr/bin/tool", "tool", 0755);
    make_link(bench, "bin", "usr/bin");
    assert_int_equal(copier_program(&bench->copier, host(bench, "bin/tool"), &bench->err), 1);
    assert_target(bench, "bin", "usr/bin");
    assert_int_equal(mode_of(bench, "usr/bin/tool"), S_IFREG | 0555);

    auto_close int fd =
        copier_folder(&bench->copier, host(bench, "bin/../lib/new"), real, &bench->err);
    assert_true(fd >= 0);
    assert_string_equal(real, host(bench, "usr/lib/new"));
}

static void a_circle_of_folders_is_an_error(void **state)
{
    struct bench *bench = *state;

    make_link(bench, "one", "two");
    make_link(bench, "two", "one");
    auto_close int fd = copier_folder(&bench->copier, host(bench, "one"), NULL, &bench->err);
    assert_int_equal(fd, HUTCH_ERR_SYSTEM);
    assert_int_equal(bench->err.sys_errno, ELOOP);
}

static void what_is_there_stays(void **state)
{
    struct bench *bench = *state;

    make(bench, "file", "host", 0644);
    assert_int_equal(copier_text(&bench->copier, host(bench, "file"), "first", &bench->err), 0);
    assert_int_equal(copier_text(&bench->copier, host(bench, "file"), "second", &bench->err), 0);
    copy_all(bench, "file");
    assert_text(bench, "file", "first");
    assert_int_equal(copier_link(&bench->copier, "/x", host(bench, "file"), &bench->err), 0);
    assert_int_equal(copier_link(&bench->copier, "/y", "/missing", &bench->err), 0);
    assert_int_equal(faccessat(bench->root_fd, "x", F_OK, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(faccessat(bench->root_fd, "y", F_OK, AT_SYMLINK_NOFOLLOW), -1);
}

static void the_number_of_files_is_bounded(void **state)
{
    struct bench *bench = *state;

    make_folder(bench, "a");
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof(name), "a/%d", i);
        make(bench, name, "", 0644);
    }
    bench->copier.files = LIMIT_FILES_OF_TREE - 10;
    assert_int_equal(copier_tree(&bench->copier, host(bench, "a"), &bench->err), HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(bench->err.message, "more than 200000 files"));
}

static void the_depth_is_bounded(void **state)
{
    struct bench *bench = *state;
    char path[PATH_MAX] = "src/a";

    for (int i = 0; i < 100; i++) {
        assert_int_equal(mkdirat(bench->fd, path, 0755), 0);
        size_t length = strlen(path);
        snprintf(path + length, sizeof(path) - length, "/d");
    }
    assert_int_equal(copier_tree(&bench->copier, host(bench, "a"), &bench->err), HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(bench->err.message, "folders deep"));
}

static void sealed_trees_can_be_removed(void **state)
{
    struct bench *bench = *state;

    make_folder(bench, "a");
    make_folder(bench, "a/b");
    make(bench, "a/b/file", "", 0644);
    copy_all(bench, "a");
    assert_int_equal(folder_seal(bench->root_fd, &bench->err), 0);
    assert_int_equal(folder_remove(bench->fd, "root", &bench->err), 0);
    assert_int_equal(faccessat(bench->fd, "root", F_OK, 0), -1);
    assert_int_equal(faccessat(bench->fd, "src/a/b/file", F_OK, 0), 0);
    assert_int_equal(folder_remove(bench->fd, "root", &bench->err), 0);
}

static void reads_the_loaders_configuration(void **state)
{
    struct bench *bench = *state;
    auto_string_list struct string_list folders = {0};
    const char *const expected[] = {"/first", "/a1", "/a2", "/b", "/last"};

    make_folder(bench, "conf.d");
    make(bench, "ld.so.conf", "# comment\n/first # tail\ninclude conf.d/*.conf\n/last\n", 0644);
    make(bench, "conf.d/b.conf", "/b\n", 0644);
    make(bench, "conf.d/a.conf", "/a1:/a2\nhwcap 1 nosegneg\nrelative\n", 0644);
    make(bench, "conf.d/ignored", "/ignored\n", 0644);
    make(bench, "conf.d/c.conf", "include c.conf\n", 0644); /* itself */
    assert_int_equal(library_folders(host(bench, "ld.so.conf"), &folders, &bench->err), 0);
    assert_int_equal(folders.count, ARRAY_LENGTH(expected));
    for (size_t i = 0; i < ARRAY_LENGTH(expected); i++)
        assert_string_equal(folders.items[i], expected[i]);
}

/* The closure of one program: its libraries and the loader, by their names. */
static void libraries_follow_a_program(void **state)
{
    struct bench *bench = *state;
    static const char *const extra[] = {"libgcc_s.so.1", "libdoes-not-exist.so.7", NULL};
    static const char *const needed[] = {
        "/lib/" MULTIARCH "/libc.so.6",
        "/lib/" MULTIARCH "/libgcc_s.so.1",
        "/lib/" MULTIARCH "/libtinfo.so.6",
#if defined(__x86_64__)
        "/lib64/ld-linux-x86-64.so.2",
#endif
    };

    assert_int_equal(copier_program(&bench->copier, "/bin/bash", &bench->err), 1);
    assert_int_equal(copy_libraries(&bench->copier, extra, &bench->err), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(needed); i++) {
        auto_free char *path = realpath(needed[i], NULL);
        char folder[PATH_MAX];
        struct stat st;
        char *slash = strrchr(needed[i], '/');
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - needed[i]), needed[i]);
        auto_close int fd = copier_folder(&bench->copier, folder, NULL, &bench->err);
        assert_int_equal(fstatat(fd, slash + 1, &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_true(S_ISREG(st.st_mode));
        struct stat original;
        assert_int_equal(stat(path, &original), 0);
        assert_int_equal(st.st_size, original.st_size);
    }
}

/* A library or program of nothing but a dynamic section: one search path (tag
 * DT_RPATH, DT_RUNPATH or DT_NULL for none) and one needed name, or "". */
struct tiny_elf {
    Elf64_Ehdr header;
    Elf64_Phdr load, dynamic;
    Elf64_Dyn entries[5];
    char strings[64];
};

static void make_elf(struct bench *bench, const char *name, int64_t tag, const char *path,
                     const char *needed)
{
    struct tiny_elf elf = {
        .header = {.e_type = ET_DYN,
                   .e_machine = MACHINE,
                   .e_phoff = offsetof(struct tiny_elf, load),
                   .e_phentsize = sizeof(Elf64_Phdr),
                   .e_phnum = 2},
        .load = {.p_type = PT_LOAD, .p_filesz = sizeof(elf)},
        .dynamic = {.p_type = PT_DYNAMIC,
                    .p_offset = offsetof(struct tiny_elf, entries),
                    .p_filesz = sizeof(elf.entries)},
        .entries = {{DT_STRTAB, {offsetof(struct tiny_elf, strings)}},
                    {DT_STRSZ, {sizeof(elf.strings)}},
                    {needed[0] ? DT_NEEDED : DT_NULL, {32}},
                    {tag, {0}}},
    };
    memcpy(elf.header.e_ident, ELFMAG, SELFMAG);
    elf.header.e_ident[EI_CLASS] = ELFCLASS64;
    elf.header.e_ident[EI_DATA] = ELFDATA2LSB;
    snprintf(elf.strings, 32, "%s", path);
    snprintf(elf.strings + 32, 32, "%s", needed);

    char place[256];
    snprintf(place, sizeof(place), "src/%s", name);
    auto_close int fd = openat(bench->fd, place, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert_int_equal(write(fd, &elf, sizeof(elf)), sizeof(elf));
}

/* prog -> libone.so by its search path; libone.so -> libtwo.so, which only the
 * program's search path leads to. */
static void make_chain(struct bench *bench, int64_t tag)
{
    make_folder(bench, "bin");
    make_folder(bench, "lib");
    make_elf(bench, "bin/prog", tag, "/nowhere:$ORIGIN/../lib", "libone.so");
    make_elf(bench, "lib/libone.so", DT_NULL, "", "libtwo.so");
    make_elf(bench, "lib/libtwo.so", DT_NULL, "", "");
    static const char *const none[] = {NULL};
    assert_int_equal(copier_program(&bench->copier, host(bench, "bin/prog"), &bench->err), 1);
    assert_int_equal(copy_libraries(&bench->copier, none, &bench->err), 0);
}

static void an_rpath_is_inherited(void **state)
{
    struct bench *bench = *state;

    make_chain(bench, DT_RPATH);
    assert_int_equal(mode_of(bench, "lib/libone.so"), S_IFREG | 0555);
    assert_int_equal(mode_of(bench, "lib/libtwo.so"), S_IFREG | 0555);
}

static void a_runpath_is_not_inherited(void **state)
{
    struct bench *bench = *state;

    make_chain(bench, DT_RUNPATH);
    assert_int_equal(mode_of(bench, "lib/libone.so"), S_IFREG | 0555);
    assert_int_equal(mode_of(bench, "lib/libtwo.so"), 0);
}

/* Neither a text nor a missing file in an earlier folder is taken; links are
 * filled, so the name that was asked for is a file. */
static void the_search_goes_on_to_a_real_library(void **state)
{
    struct bench *bench = *state;
    static const char *const none[] = {NULL};

    make_folder(bench, "bin");
    make_folder(bench, "bin/a");
    make_folder(bench, "bin/b");
    make_elf(bench, "bin/prog", DT_RUNPATH, "${ORIGIN}/a:$ORIGIN/b", "libx.so.1");
    make(bench, "bin/a/libx.so.1", "GROUP ( libx )", 0644);
    make_elf(bench, "bin/b/libx.so.1.2", DT_NULL, "", "");
    make_link(bench, "bin/b/libx.so.1", "libx.so.1.2");
    assert_int_equal(copier_program(&bench->copier, host(bench, "bin/prog"), &bench->err), 1);
    assert_int_equal(copy_libraries(&bench->copier, none, &bench->err), 0);
    assert_int_equal(mode_of(bench, "bin/a/libx.so.1"), 0);
    assert_int_equal(mode_of(bench, "bin/b/libx.so.1"), S_IFREG | 0555);
    assert_int_equal(mode_of(bench, "bin/b/libx.so.1.2"), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(copies_keep_bytes_and_time_and_lose_rights),
        TEST(large_files_are_whole),
        TEST(only_files_come_in),
        TEST(links_inside_stay_and_others_are_filled),
        TEST(links_do_not_reach_what_is_private),
        TEST(a_program_comes_with_its_links),
        TEST(folders_that_are_links_become_links),
        TEST(a_circle_of_folders_is_an_error),
        TEST(what_is_there_stays),
        TEST(the_number_of_files_is_bounded),
        TEST(the_depth_is_bounded),
        TEST(sealed_trees_can_be_removed),
        TEST(reads_the_loaders_configuration),
        TEST(libraries_follow_a_program),
        TEST(an_rpath_is_inherited),
        TEST(a_runpath_is_not_inherited),
        TEST(the_search_goes_on_to_a_real_library),
    };
    return cmocka_run_group_tests_name("tree_copy", tests, NULL, NULL);
}
