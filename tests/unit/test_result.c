/* SPDX-License-Identifier: Apache-2.0 */
/* Results, and their JSON: the field names of the contract, always one line. */
#include "sandbox/result.h"

#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "comma_locale.h"
#include "sandbox/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void free_result(hutch_result **result)
{
    hutch_result_free(*result);
}
#define auto_result __attribute__((cleanup(free_result)))

static hutch_result *new_result(enum hutch_language language, enum hutch_encoding encoding)
{
    struct hutch_request request;
    struct hutch_result *result = NULL;
    struct hutch_error err;

    hutch_request_init(&request);
    request.language = language;
    request.output_encoding = encoding;
    assert_int_equal(result_new(&request, "namespace", &result, &err), 0);
    return result;
}

static void set_text(struct hutch_text *text, const void *data, size_t length)
{
    text->data = malloc(length + 1);
    assert_non_null(text->data);
    memcpy(text->data, data, length);
    text->data[length] = '\0';
    text->length = length;
}

/* The result's JSON, read back. */
static json_t *as_json(const hutch_result *result)
{
    auto_free char *text = NULL;
    struct hutch_error err;
    json_t *root = NULL;

    assert_int_equal(hutch_result_to_json(result, &text, &err), 0);
    assert_null(strchr(text, '\n'));
    assert_true(utf8_valid(text, strlen(text)));
    root = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    return root;
}

static const char *member(const json_t *root, const char *name)
{
    return json_string_value(json_object_get(root, name));
}

static void a_new_result_is_of_its_request(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_SHELL, HUTCH_BASE64);

    assert_int_equal(result->size, sizeof(*result));
    assert_string_equal(result->backend, "namespace");
    assert_string_equal(result->language, "shell");
    assert_int_equal(result->output_encoding, HUTCH_BASE64);
    assert_null(result->value.data);
    hutch_result_free(NULL);
}

static void the_whole_of_a_success(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_PYTHON, HUTCH_TEXT);
    auto_free char *text = NULL;
    struct hutch_error err;

    set_text(&result->stdout_text, "4\n", 2);
    set_text(&result->stderr_text, "", 0);
    result->stdout_bytes = 2;
    assert_int_equal(result_set_value(result, "4", 1, &err), 0);
    result->duration_ms = 12.3456;
    result->queue_ms = 0.5;
    result->cpu_ms = 11;
    result->peak_memory_bytes = 1234567;
    result->layers = HUTCH_LAYER_PID_NS | HUTCH_LAYER_SECCOMP;
    memcpy(result->run_id, "0123456789abcdef0123456789abcdef", 33);
    assert_int_equal(hutch_result_to_json(result, &text, &err), 0);
    assert_string_equal(
        text,
        "{\"stdout\":\"4\\n\",\"stderr\":\"\",\"exit_code\":0,\"signal\":null,\"timed_out\":false,"
        "\"error_type\":null,\"error\":null,\"value\":\"4\",\"results\":[],"
        "\"results_dropped\":0,\"files\":[],\"truncated\":false,\"stdout_bytes\":2,"
        "\"stderr_bytes\":0,\"duration_ms\":12.346,\"queue_ms\":0.500,\"cpu_ms\":11.000,"
        "\"peak_memory_bytes\":1234567,\"backend\":\"namespace\",\"language\":\"python\","
        "\"layers\":[\"pid_ns\",\"seccomp\"],\"run_id\":\"0123456789abcdef0123456789abcdef\"}");
}

static void rich_outputs_are_text_or_base64(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_PYTHON, HUTCH_BASE64);
    static const char html[] = "text/html\0<b>\"\xff</b>", json[] = "application/json\0[1]";
    static const char png[] = "image/png\0\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
                              "\0\0\0\1\0\0\0\1\x08\0\0\0\0sum!";
    struct rich_list list = {0};
    struct hutch_error err;

    assert_int_equal(rich_add(&list, html, sizeof(html) - 1, &err), 0);
    assert_int_equal(rich_add(&list, png, sizeof(png) - 1, &err), 0);
    assert_int_equal(rich_add(&list, json, sizeof(json) - 1, &err), 0);
    assert_int_equal(rich_add(&list, "", 0, &err), 0);
    result_take_rich(result, &list);
    assert_int_equal(list.count, 0);
    assert_null(list.items);
    assert_int_equal(result->result_count, 3);
    auto_json json_t *root = as_json(result);
    assert_int_equal(json_integer_value(json_object_get(root, "results_dropped")), 1);
    const json_t *results = json_object_get(root, "results");
    assert_int_equal(json_array_size(results), 3);
    assert_string_equal(member(json_array_get(results, 0), "mime"), "text/html");
    assert_string_equal(member(json_array_get(results, 0), "data"),
                        "<b>\"" UTF8_REPLACEMENT "</b>");
    assert_string_equal(member(json_array_get(results, 1), "mime"), "image/png");
    assert_string_equal(member(json_array_get(results, 1), "data"),
                        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAABzdW0h");
    assert_string_equal(member(json_array_get(results, 2), "data"), "[1]");
}

static void a_failure_has_an_error(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_PYTHON, HUTCH_TEXT);

    result->exit_code = 1;
    result->error_type = "runtime_error";
    result->error_class = strdup("KeyError");
    result->error_message = strdup("'\"a\\b\n\x01\"'");
    result->error_line = 3;
    auto_json json_t *root = as_json(result);
    json_t *error = json_object_get(root, "error");
    assert_string_equal(member(root, "error_type"), "runtime_error");
    assert_string_equal(member(error, "type"), "KeyError");
    assert_string_equal(member(error, "message"), "'\"a\\b\n\x01\"'");
    assert_int_equal(json_integer_value(json_object_get(error, "line")), 3);
    assert_int_equal(json_object_size(error), 3);
}

static void an_error_without_class_or_line_has_null(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_PYTHON, HUTCH_TEXT);

    result->exit_code = -1;
    result->timed_out = true;
    result->error_type = "timeout";
    result->error_message = strdup("time limit");
    auto_json json_t *root = as_json(result);
    json_t *error = json_object_get(root, "error");
    assert_int_equal(json_integer_value(json_object_get(root, "exit_code")), -1);
    assert_true(json_is_true(json_object_get(root, "timed_out")));
    assert_true(json_is_null(json_object_get(error, "type")));
    assert_true(json_is_null(json_object_get(error, "line")));
    assert_string_equal(member(error, "message"), "time limit");
}

static void a_signal_has_its_name(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_SHELL, HUTCH_TEXT);

    result->exit_code = 137;
    result->exit_signal = "SIGKILL";
    result->truncated = true;
    result->stdout_bytes = INT64_MAX;
    auto_json json_t *root = as_json(result);
    assert_string_equal(member(root, "signal"), "SIGKILL");
    assert_true(json_is_true(json_object_get(root, "truncated")));
    assert_null(json_object_get(root, "output_encoding"));
}

static void bytes_are_base64(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_PYTHON, HUTCH_BASE64);

    set_text(&result->stdout_text, "\0\xff\n", 3);
    auto_json json_t *root = as_json(result);
    assert_string_equal(member(root, "stdout"), "AP8K");
    assert_string_equal(member(root, "stderr"), "");
    assert_string_equal(member(root, "output_encoding"), "base64");
}

static void any_text_survives(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_PYTHON, HUTCH_TEXT);
    char all[256];

    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (char)i;
    set_text(&result->stdout_text, all, 128);
    set_text(&result->stderr_text, all, sizeof(all)); /* not UTF-8: a caller's own doing */
    auto_json json_t *root = as_json(result);
    json_t *out = json_object_get(root, "stdout");
    assert_int_equal(json_string_length(out), 128);
    assert_memory_equal(json_string_value(out), all, 128);
    auto_buf struct buf repaired = BUF_MAX(1000);
    utf8_repair(&repaired, all, sizeof(all));
    json_t *errors = json_object_get(root, "stderr");
    assert_int_equal(json_string_length(errors), repaired.length);
    assert_memory_equal(json_string_value(errors), repaired.data, repaired.length);
}

static void values_are_claims_made_valid(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_PYTHON, HUTCH_TEXT);
    struct hutch_error err;

    assert_int_equal(result_set_value(result, NULL, 0, &err), 0);
    assert_null(result->value.data);
    assert_int_equal(result_set_value(result, "caf\xe9", 4, &err), 0);
    assert_string_equal(result->value.data, "caf" UTF8_REPLACEMENT);
    assert_int_equal(result->value.length, 6);
    assert_int_equal(result_set_value(result, "", 0, &err), 0);
    assert_int_equal(result->value.length, 0);
    assert_string_equal(result->value.data, "");
    auto_json json_t *root = as_json(result);
    assert_string_equal(member(root, "value"), "");
}

/* Six bytes of JSON for each of output are the most that there can be. */
static void the_largest_output_fits(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_PYTHON, HUTCH_TEXT);
    const size_t bytes = LIMIT_OUTPUT_BYTES_MAX / 64;
    auto_free char *text = NULL;
    struct hutch_error err;

    result->stdout_text.data = malloc(bytes);
    assert_non_null(result->stdout_text.data);
    memset(result->stdout_text.data, 1, bytes);
    result->stdout_text.length = bytes;
    assert_int_equal(hutch_result_to_json(result, &text, &err), 0);
    size_t length = strlen(text);
    assert_true(length > 6 * bytes && length < 7 * bytes);
    assert_true(
        2 * 64 * length +
            6 * (WIRE_MAX_VALUE + WIRE_MAX_ERROR + WIRE_MAX_ENTRY_BYTES + WIRE_MAX_RICH_BYTES) +
            2 * LIMIT_FILES_BYTES <
        LIMIT_RESULT_JSON_BYTES);
}

static void times_have_a_point_in_any_locale(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_PYTHON, HUTCH_TEXT);
    auto_free char *text = NULL;
    struct hutch_error err;

    result->duration_ms = 0.25;
    assert_true(enter_comma_locale());
    int code = hutch_result_to_json(result, &text, &err);
    leave_comma_locale();
    assert_int_equal(code, 0);
    assert_non_null(strstr(text, "\"duration_ms\":0.250,"));
}

static void memory_handed_out_is_freed(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_PYTHON, HUTCH_TEXT);
    char *text = NULL;

    assert_int_equal(hutch_result_to_json(result, &text, NULL), 0);
    hutch_free(text);
    hutch_free(NULL);
}

static void files_are_listed_by_path(void **state)
{
    (void)state;
    auto_result hutch_result *result = new_result(HUTCH_PYTHON, HUTCH_TEXT);
    static const char *const paths[] = {"b.csv", "a/c", "a\xff\n\"", "-rf", "d"};
    struct hutch_error err;

    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++)
        assert_int_equal(result_add_file(result, paths[i], i, &err), 0);
    result_sort_files(result);
    assert_string_equal(result->files[0].path, "-rf");
    assert_string_equal(result->files[3].path, "b.csv");
    set_text(&result->files[3].data, "\0\xff\n", 3);
    result->files_truncated = true;
    auto_json json_t *root = as_json(result);
    json_t *files = json_object_get(root, "files");
    assert_int_equal(json_array_size(files), ARRAY_LENGTH(paths));
    json_t *file = json_array_get(files, 3);
    assert_string_equal(member(file, "path"), "b.csv");
    assert_string_equal(member(file, "mime"), "text/csv");
    assert_string_equal(member(file, "data"), "AP8K");
    assert_int_equal(json_integer_value(json_object_get(file, "size")), 0);
    assert_string_equal(member(json_array_get(files, 2), "path"), "a" UTF8_REPLACEMENT "\n\"");
    assert_null(json_object_get(json_array_get(files, 2), "data"));
    assert_true(json_is_true(json_object_get(root, "files_truncated")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_result_is_of_its_request),
        cmocka_unit_test(the_whole_of_a_success),
        cmocka_unit_test(rich_outputs_are_text_or_base64),
        cmocka_unit_test(a_failure_has_an_error),
        cmocka_unit_test(an_error_without_class_or_line_has_null),
        cmocka_unit_test(a_signal_has_its_name),
        cmocka_unit_test(bytes_are_base64),
        cmocka_unit_test(any_text_survives),
        cmocka_unit_test(values_are_claims_made_valid),
        cmocka_unit_test(the_largest_output_fits),
        cmocka_unit_test(times_have_a_point_in_any_locale),
        cmocka_unit_test(memory_handed_out_is_freed),
        cmocka_unit_test(files_are_listed_by_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
