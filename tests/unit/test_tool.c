/* SPDX-License-Identifier: Apache-2.0 */
/* The set of tools, and a call of one. */
#include "agent/tool.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define PARAMETERS                                                                                 \
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"},"                           \
    "\"s\":{\"type\":\"string\"}},\"required\":[\"n\"]}"

static int do_nothing(void *user, hutch_call *call, struct hutch_error *err)
{
    (void)user, (void)call, (void)err;
    return 0;
}

static struct hutch_tool tool_of(const char *name, hutch_tool_fn run)
{
    return (struct hutch_tool){.size = sizeof(struct hutch_tool),
                               .name = name,
                               .description = "does",
                               .parameters = PARAMETERS,
                               .run = run};
}

/* ---- the set ---- */

static void refused(struct hutch_tool tool, const char *problem)
{
    static struct tool_set set;
    struct hutch_error err;
    struct hutch_tool first = tool_of("first", do_nothing);

    assert_int_equal(tool_set_add(&set, &first, &err), 0);
    assert_int_equal(tool_set_add(&set, &tool, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, problem);
    assert_int_equal(set.count, 1);
    tool_set_done(&set);
}

static void bad_tools_are_refused_by_name_and_field(void **state)
{
    struct hutch_tool tool = tool_of("first", do_nothing);
    char problem[80];

    (void)state;
    refused(tool, "tool 'first': name: there is a tool of this name already");
    refused(tool_of("a b", do_nothing),
            "tool 'a b': name: 'a b' is not 1 to 64 of a-z A-Z 0-9 _ -");
    refused(tool_of("", do_nothing), "tool '': name: '' is not 1 to 64 of a-z A-Z 0-9 _ -");
    refused(tool_of(NULL, do_nothing), "tool none: name: none is not 1 to 64 of a-z A-Z 0-9 _ -");
    refused(tool_of("x", NULL), "tool 'x': run: is NULL; allowed is a function");
    tool = tool_of("x", do_nothing);
    tool.description = NULL;
    refused(tool, "tool 'x': description: 1 byte to 16 KiB of text expected");
    tool.description = "\xff";
    refused(tool, "tool 'x': description: is no UTF-8");
    tool = tool_of("x", do_nothing);
    tool.parameters = "{";
    refused(tool, "tool 'x': parameters: line 1, column 2: a member's name in '\"' expected, not "
                  "the end of the text");
    tool.parameters = "{\"type\":\"array\"}";
    refused(tool, "tool 'x': parameters.type: \"object\" expected: arguments have names");
    tool.parameters = "{\"type\":\"object\",\"if\":true}";
    refused(tool, "tool 'x': parameters: if: is a keyword that is not supported");
    tool = tool_of("x", do_nothing);
    tool.size = 8;
    snprintf(problem, sizeof(problem), "tool 'x': size: 8 is not sizeof(struct hutch_tool), %zu",
             sizeof(tool));
    refused(tool, problem);
}

static void a_tool_that_ends_a_run_is_no_other_end_of_it(void **state)
{
    static const char *const reasons[] = {
        "text",           "refusal", "max_agent_steps", "token_budget", "length",
        "content_filter", "schema",  "timeout",         "cancelled",    "model_error",
    };
    static struct tool_set set;
    struct hutch_error err;
    char problem[160];

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(reasons); i++) {
        struct hutch_tool tool = tool_of(reasons[i], do_nothing);
        assert_int_equal(tool_set_add(&set, &tool, &err), 0);
        tool_set_done(&set);
        tool.ends_run = true;
        snprintf(problem, sizeof(problem),
                 "tool '%s': name: is an exit_reason of hutch, and no name for a tool with "
                 "ends_run; allowed is any other",
                 reasons[i]);
        refused(tool, problem);
    }
}

/* A program that was made for a later version, whose tools have more members. */
static void later_tools_are_taken_where_nothing_new_is_used(void **state)
{
    struct {
        struct hutch_tool tool;
        void *later;
    } grown = {.tool = tool_of("x", do_nothing)};
    static struct tool_set set;
    struct hutch_error err;

    (void)state;
    grown.tool.size = sizeof(grown);
    assert_int_equal(tool_set_add(&set, &grown.tool, &err), 0);
    tool_set_done(&set);
    grown.later = &set;
    assert_int_equal(tool_set_add(&set, &grown.tool, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message,
                        "tool 'x': size: the tool uses a member that libhutch-agent " HUTCH_VERSION
                        " does not know");
}

static void a_set_describes_its_tools(void **state)
{
    static struct tool_set set;
    struct hutch_tool plain = tool_of("plain", do_nothing), open = tool_of("open", do_nothing);
    struct hutch_error err;

    (void)state;
    plain.parameters = NULL;
    open.parameters = "{\"type\":\"object\"}";
    assert_int_equal(tool_set_add(&set, &plain, &err), 0);
    assert_int_equal(tool_set_add(&set, &open, &err), 0);
    assert_ptr_equal(tool_set_find(&set, "open"), &set.tools[1]);
    assert_null(tool_set_find(&set, "ope"));
    auto_json json_t *loose = tool_set_describe(&set, false),
                     *strict = tool_set_describe(&set, true);
    auto_json json_t *expected =
        json_pack("[{s:s,s:s,s:{s:s,s:{}}},{s:s,s:s,s:{s:s}}]", "name", "plain", "description",
                  "does", "parameters", "type", "object", "properties", "name", "open",
                  "description", "does", "parameters", "type", "object");
    assert_true(json_equal(loose, expected));
    assert_true(json_is_true(json_object_get(json_array_get(strict, 0), "strict")));
    assert_null(json_object_get(json_array_get(strict, 1), "strict"));
    tool_set_done(&set);
}

/* ---- calls ---- */

struct seen {
    char arguments[256];
    char output[64];
    int cells;
    struct hutch_agent_cell cell; /* the last one */
};

static void on_output(void *user, enum hutch_stream stream, const char *data, size_t length)
{
    struct seen *seen = user;
    snprintf(seen->output, sizeof(seen->output), "%d %.*s", (int)stream, (int)length, data);
}

static int on_cell(void *user, const struct hutch_agent_cell *cell, struct hutch_error *err)
{
    struct seen *seen = user;
    (void)err;
    seen->cells++;
    seen->cell = *cell;
    return 0;
}

/* Runs a function with arguments; the answer goes to ret_answer. */
static int run(hutch_tool_fn function, const char *arguments, uint64_t max, struct seen *seen,
               char *ret_answer, size_t room)
{
    static struct tool_set set;
    struct hutch_tool tool = tool_of("tool", function);
    auto_json json_t *value = NULL;
    struct hutch_error err;

    tool.user = seen;
    assert_int_equal(tool_set_add(&set, &tool, &err), 0);
    assert_int_equal(json_read(arguments, strlen(arguments), KIB(64), &value, &err), 0);
    struct hutch_call call = {
        .tool = &set.tools[0],
        .arguments = value,
        .text = arguments,
        .length = strlen(arguments),
        .deadline_ns = clock_after_ns(100 * NS_PER_SECOND),
        .max_answer_bytes = max,
        .listener = {.on_output = on_output, .on_cell = on_cell, .user = seen}};
    int failed = tool_run(&call, &err);
    assert_true(call.answer.length > 0 && call.answer.length <= max);
    assert_true(utf8_valid(call.answer.data, call.answer.length));
    assert_true(strlen(call.answer.data) < room);
    memcpy(ret_answer, call.answer.data, call.answer.length + 1);
    tool_call_end(&call);
    tool_set_done(&set);
    return failed;
}

static void check(hutch_tool_fn function, const char *arguments, int failed, const char *answer)
{
    struct seen seen = {.cells = 0};
    char text[4096];

    assert_int_equal(run(function, arguments, 1024, &seen, text, sizeof(text)), failed);
    assert_string_equal(text, answer);
}

static int use_everything(void *user, hutch_call *call, struct hutch_error *err)
{
    struct seen *seen = user;
    hutch_result *first = calloc(1, sizeof(*first)), *second = calloc(1, sizeof(*second));
    size_t length;
    const char *text = hutch_call_arguments(call, &length);
    double left = hutch_call_seconds_left(call);

    snprintf(seen->arguments, sizeof(seen->arguments), "%s", text);
    assert_int_equal(length, strlen(text));
    assert_true(left > 50 && left <= 100);
    assert_null(hutch_call_cancel(call));
    hutch_call_output(call, HUTCH_STDERR, "out", 3);
    hutch_call_output(call, HUTCH_STDOUT, "", 0);
    assert_true(first && second);
    second->exit_code = 3;
    second->duration_ms = 1.5;
    assert_int_equal(hutch_call_record(call, first, NULL), 0);
    assert_int_equal(hutch_call_record(call, second, NULL), 0);
    assert_ptr_equal(call->last_cell, second);
    return hutch_call_answer(call, "done", 4, err);
}

static int fail_silently(void *user, hutch_call *call, struct hutch_error *err)
{
    (void)user, (void)call, (void)err;
    return -1;
}

static int fail_with_output(void *user, hutch_call *call, struct hutch_error *err)
{
    (void)user;
    assert_int_equal(hutch_call_answer(call, "so far", 6, NULL), 0);
    return err_set(err, HUTCH_ERR_SYSTEM, "the disk is gone");
}

static int be_cancelled(void *user, hutch_call *call, struct hutch_error *err)
{
    (void)user, (void)call;
    return err_set(err, HUTCH_ERR_CANCELLED, "cancelled by the caller; all is lost");
}

static int be_late(void *user, hutch_call *call, struct hutch_error *err)
{
    call->deadline_ns = clock_now_ns();
    return be_cancelled(user, call, err);
}

static int answer_in_pieces(void *user, hutch_call *call, struct hutch_error *err)
{
    (void)user;
    return hutch_call_answer(call, "\xc3", 1, err) < 0 ||
                   hutch_call_answer(call, "\xa9\xff", 2, err) < 0
               ? err->code
               : 0;
}

static int answer_too_much(void *user, hutch_call *call, struct hutch_error *err)
{
    (void)user;
    for (int i = 0; i < 5000; i++) {
        char line[1025];
        snprintf(line, sizeof(line), "%-1023d\n", i);
        if (hutch_call_answer(call, line, 1024, err) < 0)
            return err->code;
    }
    return 0;
}

static void a_tool_has_all_of_its_call(void **state)
{
    struct seen seen = {.cells = 0};
    char text[64];

    (void)state;
    assert_int_equal(
        run(use_everything, "{\"n\": 1, \"s\": null}", 1024, &seen, text, sizeof(text)), 0);
    assert_string_equal(text, "done");
    assert_string_equal(seen.arguments, "{\"n\":1}");
    assert_string_equal(seen.output, "2 out");
    assert_int_equal(seen.cells, 2);
    assert_int_equal(seen.cell.exit_code, 3);
    assert_true(seen.cell.duration_ms == 1.5);
}

static void answers_are_never_empty_and_always_text(void **state)
{
    (void)state;
    check(do_nothing, "{\"n\":1}", 0, "(no output)");
    check(answer_in_pieces, "{\"n\":1}", 0, "\xc3\xa9" UTF8_REPLACEMENT);
    check(fail_silently, "{\"n\":1}", 1, "Error: the tool failed and did not say why");
    check(fail_with_output, "{\"n\":1}", 1, "Error: the disk is gone\nso far");
    check(be_cancelled, "{\"n\":1}", 1, "Error: cancelled by the caller; all is lost");
    check(be_late, "{\"n\":1}", 1, "Error: the time of the run is over; all is lost");
}

static void bad_arguments_are_answered(void **state)
{
    (void)state;
    check(do_nothing, "{}", 1, "Error: arguments: n: is missing");
    check(do_nothing, "{\"n\":\"x\"}", 1,
          "Error: arguments: n: 'x' is a string; allowed is integer");
    check(do_nothing, "{\"n\":null}", 1, "Error: arguments: n: null; allowed is integer");
}

static void much_is_cut_in_the_middle(void **state)
{
    struct seen seen = {.cells = 0};
    char text[2048];

    (void)state;
    assert_int_equal(run(answer_too_much, "{\"n\":1}", 1024, &seen, text, sizeof(text)), 0);
    assert_memory_equal(text, "0    ", 5);
    assert_non_null(strstr(text, " bytes left out ...]\n"));
    assert_non_null(strstr(text, "[... the rest is left out ...]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_tools_are_refused_by_name_and_field),
        cmocka_unit_test(a_tool_that_ends_a_run_is_no_other_end_of_it),
        cmocka_unit_test(later_tools_are_taken_where_nothing_new_is_used),
        cmocka_unit_test(a_set_describes_its_tools),
        cmocka_unit_test(a_tool_has_all_of_its_call),
        cmocka_unit_test(answers_are_never_empty_and_always_text),
        cmocka_unit_test(bad_arguments_are_answered),
        cmocka_unit_test(much_is_cut_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
