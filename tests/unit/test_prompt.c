/* SPDX-License-Identifier: Apache-2.0 */
/* The system prompt: each rule is said to whom it concerns, and no tool is named that is not there.
 */
#include "agent/prompt.h"

#include "base/json.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { PYTHON = 1, INTERPRETER = 2, SHELL = 4, READ = 8, WRITE = 16, LIST = 32, SETS = 64 };
#define CODE (PYTHON | INTERPRETER | SHELL)

static const char *const names[] = {"python_executor", "code_interpreter", "shell",
                                    "read_file",       "write_file",       "list_files"};

/* What has to be said where the set has one of some tools, and nowhere else. */
static const struct {
    unsigned tools;
    const char *what, *text;
} rules[] = {
    {CODE, "compute by code", "write code and run it"},
    {CODE, "read the result", "Read stdout and exit_code"},
    {CODE, "debug and retry", "mend the code and run it again"},
    {CODE, "print the answer", "Print the final answer"},
    {PYTHON | INTERPRETER, "standard library", "use the standard library"},
    {CODE, "no network", "There is no network"},
    {CODE, "no other files", "no files but those below /tmp and the home directory"},
    {PYTHON, "no processes", "start no processes"},
    {PYTHON, "one complete script", "one complete script in each call"},
    {INTERPRETER | SHELL, "state stays", "stays for the whole conversation"},
    {CODE, "code on request", "show it in a Markdown block"},
    {CODE, "the offer to run it", "offer to run it"},
    {PYTHON, "validation_error", "validation_error: "},
    {CODE, "syntax_error", "syntax_error: "},
    {CODE, "import_error", "import_error: "},
    {CODE, "timeout", "timeout: "},
    {CODE, "resource_limit", "resource_limit: "},
    {CODE, "runtime_error", "runtime_error: "},
    {READ | WRITE | LIST, "files", "text files of the conversation"},
};

static int do_nothing(void *user, hutch_call *call, struct hutch_error *err)
{
    (void)user, (void)call, (void)err;
    return 0;
}

static void add(struct tool_set *set, const char *name)
{
    const struct hutch_tool tool = {
        .size = sizeof(tool), .name = name, .description = "does", .run = do_nothing};
    struct hutch_error err;

    assert_int_equal(tool_set_add(set, &tool, &err), 0);
}

static void write_prompt(struct buf *out, unsigned tools, const json_t *schema)
{
    static struct tool_set set;
    struct hutch_error err;

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (tools & 1u << i)
            add(&set, names[i]);
    }
    assert_int_equal(prompt_append(out, &set, schema, &err), 0);
    tool_set_done(&set);
}

static void each_rule_is_said_to_whom_it_concerns(void **state)
{
    (void)state;
    for (unsigned tools = 0; tools < SETS; tools++) {
        auto_buf struct buf text = BUF_MAX(KIB(64));
        write_prompt(&text, tools, NULL);
        for (size_t i = 0; i < ARRAY_LENGTH(rules); i++) {
            bool is_said = strstr(text.data, rules[i].text) != NULL;
            if (is_said != ((tools & rules[i].tools) != 0))
                fail_msg("tools %u: %s", tools, rules[i].what);
        }
    }
}

static void only_tools_that_are_there_are_named(void **state)
{
    (void)state;
    for (unsigned tools = 0; tools < SETS; tools++) {
        auto_buf struct buf text = BUF_MAX(KIB(64));
        write_prompt(&text, tools, NULL);
        for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
            bool is_named = strstr(text.data, names[i]) != NULL;
            if (is_named != ((tools & 1u << i) != 0))
                fail_msg("tools %u: %s", tools, names[i]);
        }
    }
}

static void it_is_plain_text(void **state)
{
    auto_buf struct buf text = BUF_MAX(KIB(64));

    (void)state;
    write_prompt(&text, SETS - 1, NULL);
    assert_true(utf8_valid(text.data, text.length));
    assert_null(strchr(text.data, '@'));
    assert_null(strstr(text.data, "{{"));
    assert_int_equal(text.data[text.length - 1], '\n');
}

static void a_schema_is_asked_for(void **state)
{
    auto_json json_t *schema = json_pack("{s:s}", "type", "integer");
    auto_buf struct buf with = BUF_MAX(KIB(64)), without = BUF_MAX(KIB(64));

    (void)state;
    write_prompt(&with, PYTHON, schema);
    write_prompt(&without, PYTHON, NULL);
    assert_non_null(strstr(with.data, "final answer has to be one JSON value and nothing else"));
    assert_non_null(strstr(with.data, "{\"type\":\"integer\"}"));
    assert_null(strstr(without.data, "JSON value"));
}

static void tools_of_the_caller_alone_need_no_rules_of_code(void **state)
{
    static struct tool_set set;
    auto_buf struct buf text = BUF_MAX(KIB(64));
    struct hutch_error err;

    (void)state;
    add(&set, "weather");
    assert_int_equal(prompt_append(&text, &set, NULL, &err), 0);
    assert_non_null(strstr(text.data, "Call a tool only with arguments"));
    assert_null(strstr(text.data, "exit_code"));
    tool_set_done(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_is_said_to_whom_it_concerns),
        cmocka_unit_test(only_tools_that_are_there_are_named),
        cmocka_unit_test(it_is_plain_text),
        cmocka_unit_test(a_schema_is_asked_for),
        cmocka_unit_test(tools_of_the_caller_alone_need_no_rules_of_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
