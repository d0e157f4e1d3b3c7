/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as JSON: every field, every refusal by name. */
#include "base/attrs.h"
#include "base/buf.h"
#include "base/utf8.h"

#include <hutch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void free_request(hutch_json_request **request)
{
    hutch_json_request_free(*request);
}
#define auto_request __attribute__((cleanup(free_request)))

static hutch_json_request *parsed(const char *text)
{
    hutch_json_request *request = NULL;
    struct hutch_error err = {0};

    if (hutch_json_request_parse(text, strlen(text), &request, &err) != 0)
        fail_msg("refused: %s", err.message);
    return request;
}

/* Refused with this code, in one whole line that holds the message. */
static void refused_with(const char *text, int code, const char *message)
{
    hutch_json_request *request = NULL;
    struct hutch_error err = {0};

    assert_int_equal(hutch_json_request_parse(text, strlen(text), &request, &err), code);
    assert_null(request);
    assert_true(hutch_error_retry_safe(&err));
    assert_null(strchr(err.message, '\n'));
    if (!strstr(err.message, message))
        fail_msg("'%s' is not in: %s", message, err.message);
}

static void refused(const char *text, const char *message)
{
    refused_with(text, HUTCH_ERR_INVALID, message);
}

static void the_least_request_has_the_defaults(void **state)
{
    (void)state;
    auto_request hutch_json_request *json = parsed("{\"code\": \"print(1)\"}");
    const struct hutch_request *request = hutch_json_request_get(json);
    struct hutch_request defaults;

    hutch_request_init(&defaults);
    assert_int_equal(request->code_length, 8);
    assert_memory_equal(request->code, "print(1)", 8);
    assert_int_equal(request->size, defaults.size);
    assert_int_equal(request->language, defaults.language);
    assert_null(request->stdin_data);
    assert_null(request->env);
    assert_true(request->timeout_seconds == defaults.timeout_seconds);
    assert_int_equal(request->memory_mb, defaults.memory_mb);
    assert_true(request->cpus == defaults.cpus);
    assert_int_equal(request->max_processes, defaults.max_processes);
    assert_int_equal(request->disk_mb, defaults.disk_mb);
    assert_int_equal(request->max_output_bytes, defaults.max_output_bytes);
    assert_int_equal(request->backend, defaults.backend);
    assert_int_equal(request->require, 0);
    assert_int_equal(request->output_encoding, defaults.output_encoding);
    assert_null(request->owner);
    assert_false(request->tidy);
    assert_null(request->gate);
}

static void every_field_is_read(void **state)
{
    (void)state;
    auto_request hutch_json_request *json = parsed(
        "{\"memory_mb\": 20, \"language\": \"shell\", \"code\": \"cat\", \"stdin\": \"a\\u0000b\","
        " \"env\": {\"A\": \"1\", \"B\": \"zw\\u0065i\\t\"}, \"timeout_seconds\": 2, \"cpus\": 0.5,"
        " \"max_processes\": 7, \"disk_mb\": 9, \"max_output_bytes\": 2048,"
        " \"output_encoding\": \"base64\", \"backend\": \"namespace\","
        " \"require\": [\"seccomp\", \"net_ns\", \"seccomp\"], \"owner\": \"me\","
        " \"tidy\": true, \"gate\": false}");
    const struct hutch_request *request = hutch_json_request_get(json);

    assert_int_equal(request->memory_mb, 20);
    assert_int_equal(request->language, HUTCH_SHELL);
    assert_int_equal(request->code_length, 3);
    assert_int_equal(request->stdin_length, 3);
    assert_memory_equal(request->stdin_data, "a\0b", 3);
    assert_int_equal(request->env_count, 2);
    assert_string_equal(request->env[0].name, "A");
    assert_string_equal(request->env[0].value, "1");
    assert_string_equal(request->env[1].name, "B");
    assert_string_equal(request->env[1].value, "zwei\t");
    assert_true(request->timeout_seconds == 2.0);
    assert_true(request->cpus == 0.5);
    assert_int_equal(request->max_processes, 7);
    assert_int_equal(request->disk_mb, 9);
    assert_int_equal(request->max_output_bytes, 2048);
    assert_int_equal(request->output_encoding, HUTCH_BASE64);
    assert_int_equal(request->backend, HUTCH_BACKEND_NAMESPACE);
    assert_int_equal(request->require, HUTCH_LAYER_SECCOMP | HUTCH_LAYER_NET_NS);
    assert_string_equal(request->owner, "me");
    assert_true(request->tidy);
    assert_null(request->gate);
}

static void files_are_decoded(void **state)
{
    (void)state;
    auto_request hutch_json_request *json =
        parsed("{\"code\": \"1\", \"files\": [{\"path\": \"a/b\", \"data\": \"AP8K\"},"
               " {\"data\": \"\", \"path\": \"e\"}], \"return_files\": [\"*.csv\", \"a/**\"]}");
    const struct hutch_request *request = hutch_json_request_get(json);

    assert_int_equal(request->file_count, 2);
    assert_string_equal(request->files[0].path, "a/b");
    assert_int_equal(request->files[0].length, 3);
    assert_memory_equal(request->files[0].data, "\0\xff\n", 3);
    assert_false(request->files[0].executable);
    assert_int_equal(request->files[1].length, 0);
    assert_int_equal(request->return_file_count, 2);
    assert_string_equal(request->return_files[1], "a/**");
}

static void files_of_no_form_are_refused(void **state)
{
    (void)state;
#define FILES(text) "{\"code\": \"1\", \"files\": " text "}"
    refused(FILES("{}"), "files: an array of objects is expected");
    refused(FILES("[1]"), "files: an object with path and data is expected");
    refused(FILES("[{\"path\": \"a\"}]"), "files: 'data' is missing");
    refused(FILES("[{\"data\": \"\"}]"), "files: 'path' is missing");
    refused(FILES("[{\"path\": \"a\", \"data\": \"\", \"mode\": 1}]"), "unknown field 'mode'");
    refused(FILES("[{\"path\": \"a\", \"data\": \"Zg\"}]"), "the data of 'a' is no Base64");
    refused(FILES("[{\"path\": \"a\", \"data\": 7}]"), "files.data: a string is expected");
    refused(FILES("[{\"path\": \"a\\u0000b\", \"data\": \"\"}]"), "files.path: NUL");
    refused(FILES("[{\"path\": \"../a\", \"data\": \"\"}]"), "files: path '../a' holds '..'");
    refused(FILES("[{\"path\": \"/etc/passwd\", \"data\": \"\"}]"), "outside of /home/user");
    refused("{\"code\": \"1\", \"return_files\": \"*\"}", "return_files: an array");
    refused("{\"code\": \"1\", \"return_files\": [\"a/../b\"]}", "return_files: path");
#undef FILES
}

static void a_gate_has_the_lists_that_are_given(void **state)
{
    (void)state;
    auto_request hutch_json_request *plain = parsed("{\"code\": \"1\", \"gate\": true}");
    auto_request hutch_json_request *empty = parsed("{\"code\": \"1\", \"gate\": {}}");
    auto_request hutch_json_request *full =
        parsed("{\"code\": \"1\", \"gate\": {\"modules\": [\"ctypes\", \"os.path\"], \"calls\": [],"
               " \"attributes\": [\"os.*\"], \"allowed_imports\": [\"math\"]}}");
    hutch_json_request *const defaults[] = {plain, empty};

    for (size_t i = 0; i < 2; i++) {
        const struct hutch_gate *gate = hutch_json_request_get(defaults[i])->gate;
        assert_non_null(gate);
        assert_int_equal(gate->size, sizeof(*gate));
        assert_true(!gate->modules && !gate->calls && !gate->attributes && !gate->allowed_imports);
    }
    const struct hutch_gate *gate = hutch_json_request_get(full)->gate;
    assert_int_equal(gate->module_count, 2);
    assert_string_equal(gate->modules[0], "ctypes");
    assert_string_equal(gate->modules[1], "os.path");
    assert_non_null(gate->calls);
    assert_int_equal(gate->call_count, 0);
    assert_int_equal(gate->attribute_count, 1);
    assert_string_equal(gate->attributes[0], "os.*");
    assert_int_equal(gate->allowed_import_count, 1);
    assert_string_equal(gate->allowed_imports[0], "math");
}

static void what_is_no_gate_is_named(void **state)
{
    (void)state;
    refused("{\"code\": \"1\", \"gate\": 1}",
            "gate: true, false or an object is expected, not a whole number");
    refused("{\"code\": \"1\", \"gate\": null}", "gate: true, false or an object is expected");
    refused("{\"code\": \"1\", \"gate\": [\"os\"]}", "not an array");
    refused("{\"code\": \"1\", \"gate\": {\"module\": []}}",
            "unknown field 'gate.module'; allowed are gate.modules, gate.calls, gate.attributes, "
            "gate.allowed_imports");
    refused("{\"code\": \"1\", \"gate\": {\"a\\nb\": []}}", "unknown field 'gate.a\\nb'");
    refused("{\"code\": \"1\", \"gate\": {\"modules\": \"os\"}}",
            "gate.modules: an array of names is expected, not a string");
    refused("{\"code\": \"1\", \"gate\": {\"calls\": [\"eval\", 1]}}",
            "gate.calls: a string is expected, not a whole number");
    refused("{\"code\": \"1\", \"gate\": {\"attributes\": [\"os\\u0000\"]}}",
            "gate.attributes: NUL at byte 2");
    refused("{\"code\": \"1\", \"gate\": {\"attributes\": [\"os\"]}}",
            "gate.attributes: 'os' is no such name; allowed are names such as os.system and os.*");
    refused("{\"code\": \"1\", \"gate\": true, \"language\": \"shell\"}",
            "gate: reads python alone, and the language is shell");
    refused("{\"code\": \"1\", \"tidy\": 1}",
            "tidy: true or false is expected, not a whole number");
    auto_buf struct buf text = BUF_MAX(10000);
    buf_append_text(&text, "{\"code\": \"1\", \"gate\": {\"allowed_imports\": [\"a\"");
    for (int i = 0; i < 1000; i++)
        buf_append_text(&text, ",\"a\"");
    buf_append_text(&text, "]}}");
    refused(text.data, "gate.allowed_imports: 1001 names; allowed are at most 1000");
}

static void empty_containers_are_none(void **state)
{
    (void)state;
    auto_request hutch_json_request *json =
        parsed("{\"code\": \"1\", \"env\": {}, \"require\": [], \"stdin\": \"\", \"owner\": \"\"}");
    const struct hutch_request *request = hutch_json_request_get(json);

    assert_int_equal(request->env_count, 0);
    assert_int_equal(request->require, 0);
    assert_int_equal(request->stdin_length, 0);
}

static void what_is_no_request_is_refused(void **state)
{
    (void)state;
    refused("", "request: line 1");
    refused("[]", "request: an object is expected, not an array");
    refused("{\"code\": \"1\"", "request: line 1, column 13: ',' or '}' expected");
    refused("{\"code\": \"1\", \"code\": \"2\"}",
            "request: line 1, column 15: the member 'code' is there twice");
    refused("{\"code\": \"1\", \"memory_mb\": 99999999999999999999}",
            "'99999999999999999999' is a whole number over 64 bits");
    refused("{}", "code: empty");
}

static void unknown_fields_are_named_beside_those_allowed(void **state)
{
    (void)state;
    refused("{\"code\": \"1\", \"timeout\": 1}",
            "unknown field 'timeout'; allowed are code, language, stdin, env, timeout_seconds, "
            "memory_mb, cpus, max_processes, disk_mb, max_output_bytes, output_encoding, backend, "
            "require, owner, tidy, gate");
    refused("{\"code\": \"1\", \"Code\": \"1\"}", "unknown field 'Code'");
    refused("{\"code\": \"1\", \"\": 1}", "unknown field ''");
    refused("{\"code\": \"1\", \"a\\nb\": 1}", "unknown field 'a\\nb'");
    char text[500] = "{\"code\": \"1\", \"";
    size_t length = strlen(text);
    memset(text + length, 'x', 400);
    memcpy(text + length + 400, "\": 1}", 6);
    refused(text, "...'; allowed are code, language, stdin, env, timeout_seconds, "
                  "memory_mb, cpus, max_processes, disk_mb, max_output_bytes, output_encoding, "
                  "backend, require, owner, tidy, gate");
}

static void wrong_types_are_named(void **state)
{
    (void)state;
    refused("{\"code\": 1}", "code: a string is expected, not a whole number");
    refused("{\"code\": null}", "code: a string is expected, not null");
    refused("{\"code\": \"1\", \"language\": []}", "language: a string is expected, not an array");
    refused("{\"code\": \"1\", \"stdin\": {}}", "stdin: a string is expected, not an object");
    refused("{\"code\": \"1\", \"env\": []}", "env: an object is expected, not an array");
    refused("{\"code\": \"1\", \"env\": {\"A\": 1}}",
            "env: 'A': a string is expected, not a whole number");
    refused("{\"code\": \"1\", \"timeout_seconds\": \"1\"}",
            "timeout_seconds: a number is expected, not a string");
    refused("{\"code\": \"1\", \"memory_mb\": 128.5}",
            "memory_mb: a whole number is expected, not a real number");
    refused("{\"code\": \"1\", \"cpus\": true}", "cpus: a number is expected, not true");
    refused("{\"code\": \"1\", \"max_processes\": \"7\"}", "max_processes: a whole number");
    refused("{\"code\": \"1\", \"disk_mb\": null}", "disk_mb: a whole number");
    refused("{\"code\": \"1\", \"max_output_bytes\": 1e6}", "max_output_bytes: a whole number");
    refused("{\"code\": \"1\", \"output_encoding\": 1}", "output_encoding: a string");
    refused("{\"code\": \"1\", \"backend\": false}", "backend: a string is expected, not false");
    refused("{\"code\": \"1\", \"require\": \"seccomp\"}",
            "require: an array of layer names is expected, not a string");
    refused("{\"code\": \"1\", \"require\": [1]}", "require: a string is expected");
    refused("{\"code\": \"1\", \"owner\": 1}", "owner: a string is expected");
}

static void values_out_of_range_are_named(void **state)
{
    (void)state;
    refused("{\"code\": \"\"}", "code: empty; allowed are 1 to 1048576 bytes");
    refused("{\"code\": \"a\\u0000\"}", "code: NUL at byte 1");
    refused("{\"code\": \"1\", \"language\": \"ruby\"}",
            "language: 'ruby' is not supported; allowed are python, javascript, shell");
    refused("{\"code\": \"1\", \"language\": \"javascript\", \"memory_mb\": 63}",
            "memory_mb: 63; allowed is 64 to ");
    refused("{\"code\": \"1\", \"language\": \"python\\u0000\"}", "language: NUL at byte 6");
    refused("{\"code\": \"1\", \"env\": {\"PATH\": \"/\"}}", "env: 'PATH' is refused");
    refused("{\"code\": \"1\", \"env\": {\"A=B\": \"\"}}", "env: 'A=B' is no name");
    refused("{\"code\": \"1\", \"env\": {\"A\": \"a\\u0000b\"}}", "env: 'A': NUL at byte 1");
    refused("{\"code\": \"1\", \"env\": {\"A\": \"a\\nb\"}}",
            "env: the value of 'A' holds a control");
    refused("{\"code\": \"1\", \"timeout_seconds\": 0}",
            "timeout_seconds: 0; allowed is 0.1 to 300");
    refused("{\"code\": \"1\", \"timeout_seconds\": -0.5}", "timeout_seconds: -0.5; allowed");
    refused("{\"code\": \"1\", \"memory_mb\": 32}", "memory_mb: 32; allowed is 64 to ");
    refused("{\"code\": \"1\", \"memory_mb\": -9223372036854775808}",
            "memory_mb: -9223372036854775808; allowed is 64 to ");
    refused("{\"memory_mb\": 8, \"code\": \"1\", \"language\": \"shell\"}",
            "memory_mb: 8; allowed is 16 to ");
    refused("{\"code\": \"1\", \"cpus\": 100000}", "cpus: 100000; allowed is 0.1 to ");
    refused("{\"code\": \"1\", \"max_processes\": 4294967297}",
            "max_processes: 4294967297; allowed is 1 to 4096");
    refused("{\"code\": \"1\", \"disk_mb\": 0}", "disk_mb: 0; allowed is 1 to 65536");
    refused("{\"code\": \"1\", \"max_output_bytes\": 1000000000}",
            "max_output_bytes: 1000000000; allowed is 1024 to 16777216");
    refused("{\"code\": \"1\", \"output_encoding\": \"hex\"}", "allowed are text and base64");
    refused("{\"code\": \"1\", \"backend\": \"docker\"}", "allowed are auto and namespace");
    refused("{\"code\": \"1\", \"require\": [\"selinux\"]}", "require: 'selinux' is no layer");
    refused("{\"code\": \"1\", \"owner\": \"a\\u0000\"}", "owner: NUL at byte 1");
    refused("{\"code\": \"1\", \"owner\": \"0123456789012345678901234567890123456789"
            "0123456789012345678901234\"}",
            "is longer than 64 bytes");
}

static void what_is_not_to_be_had_is_told_apart(void **state)
{
    (void)state;
    refused_with("{\"code\": \"1\", \"backend\": \"microvm\"}", HUTCH_ERR_BACKEND,
                 "backend: 'microvm' is not available");
    refused_with("{\"code\": \"1\", \"require\": [\"kvm\"]}", HUTCH_ERR_LAYER, "'kvm'");
}

static void too_many_variables_are_counted(void **state)
{
    (void)state;
    auto_buf struct buf text = BUF_MAX(10000);

    buf_append_text(&text, "{\"code\": \"1\", \"env\": {");
    for (int i = 0; i < 101; i++)
        buf_appendf(&text, "%s\"V%d\": \"\"", i ? "," : "", i);
    buf_append_text(&text, "}}");
    refused(text.data, "env: 101 names; allowed are at most 100");
}

static void surrogates_and_bad_bytes_are_mended(void **state)
{
    (void)state;
    auto_request hutch_json_request *json =
        parsed("{\"code\": \"x='\\ud800'\", \"stdin\": \"caf\xe9\"}");
    const struct hutch_request *request = hutch_json_request_get(json);

    assert_string_equal(request->code, "x='" UTF8_REPLACEMENT "'");
    assert_string_equal(request->stdin_data, "caf" UTF8_REPLACEMENT);
}

static void a_body_has_eight_mebibytes(void **state)
{
    (void)state;
    static const char begin[] = "{\"code\": \"1\", \"stdin\": \"";
    const size_t most = 8 << 20;
    auto_free char *text = malloc(most + 1);
    hutch_json_request *json = NULL;
    struct hutch_error err;

    assert_non_null(text);
    memset(text, 'x', most + 1);
    memcpy(text, begin, strlen(begin));
    memcpy(text + most - 2, "\"}", 2);
    assert_int_equal(hutch_json_request_parse(text, most, &json, &err), 0);
    assert_int_equal(hutch_json_request_get(json)->stdin_length, most - strlen(begin) - 2);
    hutch_json_request_free(json);
    json = NULL;
    assert_int_equal(hutch_json_request_parse(text, most + 1, &json, &err), HUTCH_ERR_INVALID);
    assert_null(json);
    assert_string_equal(err.message, "request: 8388609 bytes of JSON; allowed are at most 8388608");
}

static void the_error_may_be_null(void **state)
{
    (void)state;
    hutch_json_request *json = NULL;

    assert_int_equal(hutch_json_request_parse("{}", 2, &json, NULL), HUTCH_ERR_INVALID);
    assert_null(json);
    hutch_json_request_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_request_has_the_defaults),
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(files_are_decoded),
        cmocka_unit_test(files_of_no_form_are_refused),
        cmocka_unit_test(a_gate_has_the_lists_that_are_given),
        cmocka_unit_test(what_is_no_gate_is_named),
        cmocka_unit_test(empty_containers_are_none),
        cmocka_unit_test(what_is_no_request_is_refused),
        cmocka_unit_test(unknown_fields_are_named_beside_those_allowed),
        cmocka_unit_test(wrong_types_are_named),
        cmocka_unit_test(values_out_of_range_are_named),
        cmocka_unit_test(what_is_not_to_be_had_is_told_apart),
        cmocka_unit_test(too_many_variables_are_counted),
        cmocka_unit_test(surrogates_and_bad_bytes_are_mended),
        cmocka_unit_test(a_body_has_eight_mebibytes),
        cmocka_unit_test(the_error_may_be_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
