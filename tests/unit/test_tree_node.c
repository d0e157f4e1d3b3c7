/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a node: the real one, and programs that are none. */
#include "base/clock.h"
#include "sandbox/namespace/tree_node.h"
#include "script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define NODE "/usr/bin/node"

/* Asks an interpreter that is a shell script. */
static int ask_script(const char *script, struct node_info *info, struct hutch_error *err)
{
    char path[] = SCRIPT_PATH;
    assert_true(script_make(path, script));
    int result = node_ask(path, clock_after_ns(20 * NS_PER_SECOND), info, err);
    unlink(path);
    return result;
}

static void the_real_one_answers(void **state)
{
    (void)state;
    auto_node_info struct node_info info = {0};
    struct hutch_error err;

    assert_int_equal(node_ask(NODE, clock_after_ns(20 * NS_PER_SECOND), &info, &err), 0);
    assert_string_equal(info.executable, NODE);
    for (size_t i = 0; i < info.path.count; i++) {
        assert_int_equal(info.path.items[i][0], '/');
        assert_null(strstr(info.path.items[i], ".node_modules")); /* nothing of a user's home */
    }
}

static void facts_are_taken_apart(void **state)
{
    (void)state;
    auto_node_info struct node_info info = {0};
    struct hutch_error err;

    assert_int_equal(ask_script("printf '/x/node\\0/a\\0/b c\\0\\0'", &info, &err), 0);
    assert_string_equal(info.executable, "/x/node");
    assert_int_equal(info.path.count, 2);
    assert_string_equal(info.path.items[0], "/a");
    assert_string_equal(info.path.items[1], "/b c");
}

static void others_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        const char *says;
    } others[] = {
        {"exit 99", "not node 18 or later"},
        {"exit 0", "not node 18 or later"},
        {"echo hello", "not node 18 or later"},
        {"printf 'relative\\0\\0'", "not node 18 or later"},
        {"echo 'bad option: -e' >&2; exit 9", "exit status 9: 'bad option: -e'"},
        {"kill -SEGV $$", "signal 11"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(others); i++) {
        auto_node_info struct node_info info = {0};
        struct hutch_error err;
        assert_int_equal(ask_script(others[i].script, &info, &err), HUTCH_ERR_RUNTIME);
        assert_non_null(strstr(err.message, "javascript interpreter '/tmp/"));
        assert_non_null(strstr(err.message, others[i].says));
        assert_null(info.executable);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_real_one_answers),
        cmocka_unit_test(facts_are_taken_apart),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests_name("tree_node", tests, NULL, NULL);
}
