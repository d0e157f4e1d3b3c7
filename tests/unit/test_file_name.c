/* SPDX-License-Identifier: Apache-2.0 */
/* Paths in a cell: by the engine's check and by hutch-init's; patterns; kinds of data. */
#include "guest/path.h"
#include "sandbox/file_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What becomes of a path; NULL: refused. */
static const struct {
    const char *path, *expected;
} paths[] = {
    {"a", "a"},
    {"a/b.txt", "a/b.txt"},
    {"./a", "a"},
    {"a//b/./c", "a/b/c"},
    {"/home/user/a", "a"},
    {"/home/user//a", "a"},
    {"-rf", "-rf"},
    {"a\nb", "a\nb"},
    {"a\xff", "a\xff"},
    {"..a", "..a"},
    {"...", "..."},
    {"....//x", "..../x"},
    {"..%2fx", "..%2fx"},
    {"..\\x", "..\\x"},
    {"", NULL},
    {".", NULL},
    {"/", NULL},
    {"/home/user", NULL},
    {"/home/user/", NULL},
    {"/home/userx", NULL},
    {"/home/user/../x", NULL},
    {"/etc/passwd", NULL},
    {"..", NULL},
    {"../x", NULL},
    {"a/../b", NULL},
    {"a/..", NULL},
    {"a/", NULL},
};

static void paths_stay_below_home(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
        struct hutch_error err;
        struct file_path path;
        int code = file_path_read("files", paths[i].path, &path, &err);
        if (!paths[i].expected) {
            assert_int_equal(code, HUTCH_ERR_INVALID);
            assert_non_null(strstr(err.message, "files: path '"));
            continue;
        }
        assert_int_equal(code, 0);
        assert_string_equal(path.text, paths[i].expected);
        assert_true(path_is_sound(path.text, strlen(path.text)));
    }
}

static void names_and_paths_have_their_length(void **state)
{
    (void)state;
    struct hutch_error err;
    struct file_path path;
    char text[LIMIT_PATH_BYTES + 2];

    memset(text, 'x', sizeof(text));
    text[LIMIT_NAME_BYTES] = '\0';
    assert_int_equal(file_path_read("files", text, &path, &err), 0);
    assert_true(path_is_sound(text, LIMIT_NAME_BYTES));
    text[LIMIT_NAME_BYTES] = 'x';
    text[LIMIT_NAME_BYTES + 1] = '\0';
    assert_int_equal(file_path_read("files", text, &path, &err), HUTCH_ERR_INVALID);
    assert_non_null(strstr(err.message, "256 bytes; allowed are 255"));
    assert_false(path_is_sound(text, LIMIT_NAME_BYTES + 1));
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 100 == 99 ? '/' : 'x';
    text[LIMIT_PATH_BYTES] = '\0';
    assert_int_equal(file_path_read("files", text, &path, &err), 0);
    assert_true(path_is_sound(text, LIMIT_PATH_BYTES));
    text[LIMIT_PATH_BYTES] = 'x';
    text[LIMIT_PATH_BYTES + 1] = '\0';
    assert_int_equal(file_path_read("files", text, &path, &err), HUTCH_ERR_INVALID);
    assert_non_null(strstr(err.message, "allowed are 4095"));
    assert_false(path_is_sound(text, LIMIT_PATH_BYTES + 1));
}

static void nul_is_refused(void **state)
{
    (void)state;
    struct hutch_error err;
    struct file_path path;

    assert_int_equal(file_path_read_bytes("path", "a\0b", 3, &path, &err), HUTCH_ERR_INVALID);
    assert_false(path_is_sound("a\0b", 3));
    assert_int_equal(file_path_read_bytes("path", "", 0, &path, &err), 0);
    assert_string_equal(path.text, "");
    assert_int_equal(file_path_read("path", NULL, &path, &err), HUTCH_ERR_INVALID);
}

/* hutch-init takes only what the engine has made plain. */
static void init_is_strict(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/./b", "a/../b", "../a", "a/..",
    };

    for (size_t i = 0; i < ARRAY_LENGTH(refused); i++)
        assert_false(path_is_sound(refused[i], strlen(refused[i])));
}

static const struct {
    const char *pattern, *path;
    bool expected;
} matches[] = {
    {"a.txt", "a.txt", true},
    {"a.txt", "b/a.txt", false},
    {"*.txt", "a.txt", true},
    {"*.txt", "b/a.txt", false},
    {"*", ".hidden", true},
    {"*", "a/b", false},
    {"*/b", "a/b", true},
    {"a*b*c", "aXXbYYbc", true},
    {"a*b*c", "aXXbYY", false},
    {"?", "a", true},
    {"?", "", false},
    {"a?b", "a/b", false},
    {"[a-c]x", "bx", true},
    {"[!a-c]x", "bx", false},
    {"[!a-c]x", "dx", true},
    {"[]]", "]", true},
    {"a[b", "a[b", true},
    {"x[/]y", "x/y", false},
    {"**", "a/b/c", true},
    {"**/c", "a/b/c", true},
    {"**/c", "c", true},
    {"**/c", "a/bc", false},
    {"**/*.png", "plots/1/a.png", true},
    {"a/**", "a/b/c", true},
    {"a/**", "b/c", false},
    {"a/**/d", "a/b/c/d", true},
    {"a/**/d", "a/d", true},
    {"a/**/*x*/d", "a/b/c/yxz/d", true},
    {"a/**/*x*/d", "a/b/c/yz/d", false},
};

static void patterns_mean_paths(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(matches); i++) {
        if (file_matches(matches[i].pattern, matches[i].path) != matches[i].expected)
            fail_msg("'%s' and '%s'", matches[i].pattern, matches[i].path);
    }
}

static void hard_patterns_take_no_time(void **state)
{
    (void)state;
    char pattern[2001], path[4001];

    for (size_t i = 0; i < sizeof(pattern) - 1; i++)
        pattern[i] = i % 2 ? 'a' : '*';
    pattern[sizeof(pattern) - 2] = 'b';
    pattern[sizeof(pattern) - 1] = '\0';
    memset(path, 'a', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    assert_false(file_matches(pattern, path));
}

static void endings_tell_the_kind(void **state)
{
    (void)state;
    assert_string_equal(file_mime("a/report.XLSX"),
                        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet");
    assert_string_equal(file_mime("a.csv"), "text/csv");
    assert_string_equal(file_mime("x.csv/data"), "application/octet-stream");
    assert_string_equal(file_mime("png"), "application/octet-stream");
    assert_string_equal(file_mime("a."), "application/octet-stream");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_stay_below_home),
        cmocka_unit_test(names_and_paths_have_their_length),
        cmocka_unit_test(nul_is_refused),
        cmocka_unit_test(init_is_strict),
        cmocka_unit_test(patterns_mean_paths),
        cmocka_unit_test(hard_patterns_take_no_time),
        cmocka_unit_test(endings_tell_the_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
