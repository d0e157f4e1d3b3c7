/* SPDX-License-Identifier: Apache-2.0 */
/* The list of fonts for matplotlib: of the real interpreter, and of programs that are none. */
#include "base/clock.h"
#include "sandbox/namespace/tree_fonts.h"
#include "script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PYTHON "/usr/bin/python3"

static void make_by_script(const char *script, uint64_t within_ns, struct font_list *ret_list)
{
    struct hutch_error err;
    char path[] = SCRIPT_PATH;

    assert_true(script_make(path, script));
    int result = font_list_make(path, clock_after_ns(within_ns), ret_list, &err);
    unlink(path);
    assert_int_equal(result, 0);
}

static void the_real_one_lists_the_trees_fonts(void **state)
{
    (void)state;
    auto_font_list struct font_list list = FONT_LIST_NONE;
    struct hutch_error err;

    assert_int_equal(font_list_make(PYTHON, clock_after_ns(60 * NS_PER_SECOND), &list, &err), 0);
    assert_int_equal(strncmp(list.name, "fontlist-v", 10), 0);
    assert_non_null(strstr(buf_text(&list.content), "DejaVuSans.ttf"));
    assert_null(strstr(buf_text(&list.content), "/tmp"));
}

static void others_have_none(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "exit 99",
        "exit 1",
        "kill -SEGV $$",
        "printf 'fontlist-v1.json'",
        "printf 'x.json\\0{}'",
        "printf 'fontlist-/../../x\\0{}'",
        "printf 'fontlist-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\0{}'",
        "printf 'fontlist-v1.json\\0'; head -c 2000000 /dev/zero",
    };

    for (size_t i = 0; i < ARRAY_LENGTH(scripts); i++) {
        auto_font_list struct font_list list = FONT_LIST_NONE;
        make_by_script(scripts[i], 20 * NS_PER_SECOND, &list);
        assert_string_equal(list.name, "");
        assert_int_equal(list.content.length, 0);
    }
}

static void an_endless_one_is_ended(void **state)
{
    (void)state;
    auto_font_list struct font_list list = FONT_LIST_NONE;
    uint64_t start_ns = clock_now_ns();

    make_by_script("while :; do :; done", 200 * NS_PER_MS, &list);
    assert_string_equal(list.name, "");
    assert_true(clock_now_ns() - start_ns < 20 * NS_PER_SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_real_one_lists_the_trees_fonts),
        cmocka_unit_test(others_have_none),
        cmocka_unit_test(an_endless_one_is_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
