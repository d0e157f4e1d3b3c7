/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model is told of a run: JSON on one line, always with the same first keys, never
 * longer than allowed. In expected text ' stands for the quotes of JSON.
 */
#include "agent/result_text.h"

#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SHORT 1024

static const struct result_context plain = {.timeout_seconds = 30, .memory_mb = 512};

static struct hutch_text text_of(const char *text)
{
    return (struct hutch_text){.data = (char *)text, .length = strlen(text)};
}

/* Writes it and checks what holds of all. The value is the caller's. */
static json_t *write_text(struct buf *out, const hutch_result *result,
                          const struct result_context *context, uint64_t max)
{
    static const char begin[] = "{\"stdout\":";
    struct hutch_error err;
    json_t *value;

    if (result_text_append(out, result, context, max, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(out->length <= max);
    assert_memory_equal(out->data, begin, strlen(begin));
    assert_null(memchr(out->data, '\n', out->length));
    assert_true(utf8_valid(out->data, out->length));
    assert_int_equal(json_read(out->data, out->length, MIB(64), &value, &err), 0);
    assert_true(json_is_string(json_object_get(value, "stdout")));
    assert_true(json_is_string(json_object_get(value, "stderr")));
    assert_true(json_is_integer(json_object_get(value, "exit_code")));
    assert_true(json_is_boolean(json_object_get(value, "timed_out")));
    assert_non_null(json_object_get(value, "error_type"));
    return value;
}

static void check(const hutch_result *result, const struct result_context *context,
                  const char *expected)
{
    auto_buf struct buf out = BUF_MAX(MIB(1));
    auto_json json_t *value = write_text(&out, result, context, KIB(32));

    (void)value;
    for (char *at = out.data; *at; at++)
        *at = *at == '"' ? '\'' : *at;
    assert_string_equal(out.data, expected);
}

static const char *hint_of(const hutch_result *result, const struct result_context *context)
{
    static char hint[4096];
    auto_buf struct buf out = BUF_MAX(MIB(1));
    auto_json json_t *value = write_text(&out, result, context, KIB(32));
    const char *text = json_string_value(json_object_get(value, "hint"));

    snprintf(hint, sizeof(hint), "%s", text ? text : "");
    return hint;
}

/* ---- members ---- */

static void a_good_run_has_five_members(void **state)
{
    hutch_result result = {.stdout_text = text_of("42\n")};

    (void)state;
    check(&result, &plain,
          "{'stdout':'42\\n','stderr':'','exit_code':0,'timed_out':false,'error_type':null}");
}

static void a_bad_run_tells_its_error(void **state)
{
    hutch_result result = {.stderr_text = text_of("Traceback\n"),
                           .exit_code = 1,
                           .error_type = "runtime_error",
                           .error_class = (char *)"ValueError",
                           .error_message = (char *)"bad",
                           .error_line = 3};

    (void)state;
    check(&result, &plain,
          "{'stdout':'','stderr':'Traceback\\n','exit_code':1,'timed_out':false,"
          "'error_type':'runtime_error','error':{'class':'ValueError','message':'bad','line':3}}");
}

static void everything_there_is_to_say_is_said_in_order(void **state)
{
    struct hutch_file files[] = {{.path = (char *)"a", .size = 3}};
    struct hutch_rich rich[] = {{"image/png", (char *)"x", 1},
                                {"text/html", (char *)"<b>", 3},
                                {"image/svg+xml", (char *)"x", 1},
                                {"application/json", (char *)"[1]", 3}};
    struct hutch_process background[] = {{.pid = 9, .command = (char *)"sleep 9"}};
    hutch_result result = {.value = text_of("5"),
                           .files = files,
                           .file_count = 1,
                           .results = rich,
                           .result_count = 4,
                           .late_text = text_of("late"),
                           .background = background,
                           .background_count = 1,
                           .in_session = true,
                           .restored = true};

    (void)state;
    check(&result, &plain,
          "{'stdout':'','stderr':'','exit_code':0,'timed_out':false,'error_type':null,'value':'5',"
          "'files':[{'path':'a','size':3}],'figures':'2 figures','display':'application/json: "
          "[1]','late_output':'late','background':[{'pid':9,'command':'sleep 9'}],"
          "'restored':true,'hint':'The interpreter was replaced by a copy from before this call: "
          "what earlier calls did is there, what this one did is not, but for its files. Files "
          "were created or changed; they stay for later calls.'}");
}

static void a_figure_alone_is_said(void **state)
{
    struct hutch_rich rich[] = {{"image/png", (char *)"x", 1}};
    hutch_result result = {.results = rich, .result_count = 1};

    (void)state;
    check(&result, &plain,
          "{'stdout':'','stderr':'','exit_code':0,'timed_out':false,'error_type':null,"
          "'figures':'1 figure'}");
}

/* ---- hints ---- */

static void hints_say_what_to_do(void **state)
{
    const char *const modules[] = {"os", "socket"}, *const imports[] = {"math", "json"};
    struct hutch_gate gate = {.size = sizeof(gate)};
    struct result_context gated = plain;
    hutch_result refused = {.exit_code = -2, .error_type = "validation_error"};
    hutch_result late = {.exit_code = -1, .timed_out = true, .error_type = "timeout"};
    hutch_result end = {.exit_code = 1, .error_type = "runtime_error"};
    hutch_result lost = {.stdout_text = text_of("1"), .state_lost = true};
    hutch_result nothing = {.exit_code = 0};

    (void)state;
    gated.gate = &gate;
    assert_non_null(strstr(hint_of(&refused, &gated), "Nothing of the code has run. Every other"));
    gate.modules = modules;
    gate.module_count = 2;
    assert_string_equal(hint_of(&refused, &gated),
                        "Nothing of the code has run. Every module is allowed but: os, socket.");
    gate.allowed_imports = imports;
    gate.allowed_import_count = 2;
    assert_string_equal(hint_of(&refused, &gated),
                        "Nothing of the code has run. Allowed imports: math, json.");
    assert_string_equal(hint_of(&late, &plain),
                        "The limits of a call are fixed: 30 s and 512 MB of memory, and they "
                        "cannot be raised from here; do less in one call.");
    end.error_class = (char *)"EOFError";
    assert_non_null(strstr(hint_of(&end, &plain), "No standard input was given"));
    assert_non_null(strstr(hint_of(&lost, &plain), "files are still there"));
    gated.files_lost = true;
    gated.note = "First.";
    assert_memory_equal(hint_of(&lost, &gated), "First. The state was reset", 26);
    assert_non_null(strstr(hint_of(&lost, &gated), "functions and files are gone"));
    assert_string_equal(hint_of(&nothing, &plain),
                        "The code printed nothing: print what you want to see.");
}

/* ---- bounds ---- */

static char *long_text(size_t length, const char *unit, const char *end)
{
    char *text = malloc(length + 1);
    size_t size = strlen(unit);

    assert_non_null(text);
    for (size_t i = 0; i < length; i++)
        text[i] = unit[i % size];
    text[length] = '\0';
    memcpy(text + length - strlen(end), end, strlen(end));
    return text;
}

static bool ends_with(const json_t *string, const char *end)
{
    size_t length = json_string_length(string), size = strlen(end);
    return length >= size && strcmp(json_string_value(string) + length - size, end) == 0;
}

static void modules_of_other_names_are_said_to_be_so(void **state)
{
    static const struct {
        const char *code, *names; /* NULL: no word of them */
    } programs[] = {
        {"import yaml", "yaml of the distribution PyYAML:"},
        {"import os, PIL.Image as p,cv2",
         "PIL of the distribution Pillow, cv2 of the distribution opencv-python:"},
        {"x = 1\n\tfrom  bs4 import yaml\r\nimport bs4",
         "here, bs4 of the distribution beautifulsoup4: where"},
        {"import numpy, yamls, .yaml, \nfrom . import yaml\nimporty yaml\nfrom", NULL},
        {"", NULL},
    };
    const hutch_result missing = {.exit_code = 1, .error_type = "import_error"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(programs); i++) {
        struct result_context context = plain;
        context.python = programs[i].code;
        context.python_length = strlen(programs[i].code);
        const char *hint = hint_of(&missing, &context);
        assert_non_null(strstr(hint, "Nothing can be installed"));
        assert_true(programs[i].names ? strstr(hint, programs[i].names) != NULL
                                      : strstr(hint, "distribution") == NULL);
    }
    assert_null(strstr(hint_of(&missing, &plain), "distribution"));
}

static void much_output_keeps_head_and_tail(void **state)
{
    static const char *const units[] = {"x",    "\xc3\xa9", "\"",
                                        "\x01", "line\n",   "\xf0\x9f\x98\x80"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(units); i++) {
        for (uint64_t max = SHORT; max <= KIB(64); max = max * 2 + 1) {
            auto_free char *out = long_text(1200000, units[i], "\nend");
            auto_free char *errors = long_text(1200000, units[i], "\nValueError: why");
            hutch_result result = {.stdout_text = text_of(out),
                                   .stderr_text = text_of(errors),
                                   .exit_code = 1,
                                   .error_type = "runtime_error",
                                   .error_class = (char *)"ValueError",
                                   .error_message = (char *)"why"};
            auto_buf struct buf text = BUF_MAX(MIB(1));
            auto_json json_t *value = write_text(&text, &result, &plain, max);
            assert_true(text.length > max - 128);
            assert_true(ends_with(json_object_get(value, "stdout"), "\nend"));
            assert_true(ends_with(json_object_get(value, "stderr"), "\nValueError: why"));
            assert_non_null(strstr(json_string_value(json_object_get(value, "stdout")),
                                   " bytes left out ...]\n"));
        }
    }
}

static void what_one_does_not_need_the_other_has(void **state)
{
    auto_free char *out = long_text(100000, "x", "");
    hutch_result result = {.stdout_text = text_of(out), .stderr_text = text_of("warning")};
    auto_buf struct buf text = BUF_MAX(MIB(1));
    auto_json json_t *value = write_text(&text, &result, &plain, KIB(8));

    (void)state;
    assert_string_equal(json_string_value(json_object_get(value, "stderr")), "warning");
    assert_true(json_string_length(json_object_get(value, "stdout")) > 7900);
}

static void what_the_engine_left_out_counts_too(void **state)
{
    auto_free char *out = long_text(100000, "x", "");
    hutch_result result = {.stdout_text = text_of(out), .stdout_bytes = 5000000, .truncated = true};
    auto_buf struct buf text = BUF_MAX(MIB(1));
    auto_json json_t *value = write_text(&text, &result, &plain, KIB(8));
    const char *shown = json_string_value(json_object_get(value, "stdout"));
    const char *marker = strstr(shown, "\n[... ");

    (void)state;
    assert_non_null(marker);
    size_t kept = strspn(shown, "x") + strlen(strrchr(shown, '\n') + 1);
    char expected[64];
    snprintf(expected, sizeof(expected), "\n[... %zu bytes left out ...]\n", 5000000 - kept);
    assert_memory_equal(marker, expected, strlen(expected));
}

/* Everything at its worst within the smallest answer. */
static void the_smallest_answer_has_room_for_all(void **state)
{
    static struct hutch_file files[1000];
    static struct hutch_process background[64];
    auto_free char *big = long_text(100000, "\x01", "");
    struct hutch_rich rich[] = {{"image/png", (char *)"x", 1}, {"text/html", big, 100000}};
    struct result_context context = plain;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++)
        files[i] = (struct hutch_file){.path = (char *)"a\xff/\"\x01", .size = INT64_MAX};
    for (size_t i = 0; i < ARRAY_LENGTH(background); i++)
        background[i] = (struct hutch_process){.pid = INT32_MIN, .command = (char *)"\x01\x01"};
    context.note = big;
    hutch_result result = {.stdout_text = text_of(big),
                           .stderr_text = text_of(big),
                           .late_text = text_of(big),
                           .exit_code = INT32_MIN,
                           .error_type = "validation_error",
                           .error_class = big,
                           .error_message = big,
                           .error_line = UINT32_MAX,
                           .files = files,
                           .file_count = ARRAY_LENGTH(files),
                           .results = rich,
                           .result_count = 2,
                           .background = background,
                           .background_count = 64,
                           .restored = true,
                           .state_lost = true};
    auto_buf struct buf text = BUF_MAX(MIB(1));
    auto_json json_t *value = write_text(&text, &result, &context, SHORT);
    assert_true(json_array_size(json_object_get(value, "files")) >= 2);
}

static void a_hint_that_has_no_room_is_left_out(void **state)
{
    auto_free char *big = long_text(1000, "\x01", "");
    auto_free char *note = long_text(250, "\x01", "");
    struct result_context context = plain;
    hutch_result result = {.stdout_text = text_of(big)};
    auto_buf struct buf text = BUF_MAX(MIB(1));

    (void)state;
    context.note = note;
    auto_json json_t *value = write_text(&text, &result, &context, SHORT);
    assert_null(json_object_get(value, "hint"));
    assert_true(json_string_length(json_object_get(value, "stdout")) > 100);
}

static void text_is_cut_at_characters(void **state)
{
    auto_free char *text = long_text(3001, "\xf0\x9f\x98\x80", "e");
    struct hutch_error err;

    (void)state;
    for (uint64_t max = 64; max < 200; max++) {
        auto_buf struct buf out = BUF_MAX(KIB(4));
        assert_int_equal(text_append_cut(&out, text, 3001, max, &err), 0);
        assert_true(out.length <= max && out.length + 8 > max);
        assert_true(utf8_valid(out.data, out.length));
        assert_int_equal(out.data[out.length - 1], 'e');
    }
    auto_buf struct buf whole = BUF_MAX(KIB(4));
    assert_int_equal(text_append_cut(&whole, text, 3001, 3001, &err), 0);
    assert_string_equal(whole.data, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_run_has_five_members),
        cmocka_unit_test(a_bad_run_tells_its_error),
        cmocka_unit_test(everything_there_is_to_say_is_said_in_order),
        cmocka_unit_test(a_figure_alone_is_said),
        cmocka_unit_test(hints_say_what_to_do),
        cmocka_unit_test(modules_of_other_names_are_said_to_be_so),
        cmocka_unit_test(much_output_keeps_head_and_tail),
        cmocka_unit_test(what_one_does_not_need_the_other_has),
        cmocka_unit_test(what_the_engine_left_out_counts_too),
        cmocka_unit_test(the_smallest_answer_has_room_for_all),
        cmocka_unit_test(a_hint_that_has_no_room_is_left_out),
        cmocka_unit_test(text_is_cut_at_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
