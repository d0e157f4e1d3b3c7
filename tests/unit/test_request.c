/* SPDX-License-Identifier: Apache-2.0 */
/* What a request may say, and how each refusal names field, value and range. */
#include "sandbox/request.h"

#include "base/host.h"
#include "comma_locale.h"

#include <hutch.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct request_ceilings host = {.cpus = 4, .memory_mb = 8000};

static struct hutch_request good(void)
{
    struct hutch_request request;

    hutch_request_init(&request);
    request.code = "print(1)";
    request.code_length = 8;
    return request;
}

static void accept_request(const struct hutch_request *request)
{
    struct hutch_error err = {0};

    if (request_check(request, &host, &err) != 0)
        fail_msg("refused: %s", err.message);
}

/* Refused as invalid, in one line that holds the text. */
static void refuse_request(const struct hutch_request *request, const char *text)
{
    struct hutch_error err = {0};

    assert_int_equal(request_check(request, &host, &err), HUTCH_ERR_INVALID);
    assert_int_equal(err.code, HUTCH_ERR_INVALID);
    assert_true(hutch_error_retry_safe(&err));
    assert_null(strchr(err.message, '\n'));
    assert_true(strlen(err.message) < sizeof(err.message) - 1);
    if (!strstr(err.message, text))
        fail_msg("'%s' is not in: %s", text, err.message);
}

static void defaults_are_those_of_the_contract(void **state)
{
    (void)state;
    struct hutch_request request;

    memset(&request, 0xff, sizeof(request));
    hutch_request_init(&request);
    assert_int_equal(request.size, sizeof(request));
    assert_int_equal(request.language, HUTCH_PYTHON);
    assert_true(request.timeout_seconds == 30.0);
    assert_int_equal(request.memory_mb, 512);
    assert_true(request.cpus == 1.0);
    assert_int_equal(request.max_processes, 128);
    assert_int_equal(request.disk_mb, 256);
    assert_int_equal(request.max_output_bytes, 1 << 20);
    assert_int_equal(request.backend, HUTCH_BACKEND_AUTO);
    assert_int_equal(request.output_encoding, HUTCH_TEXT);
    assert_null(request.code);
    assert_null(request.stdin_data);
    assert_null(request.env);
    assert_null(request.owner);
    assert_false(request.tidy);
    assert_null(request.gate);
    assert_int_equal(request.env_count + request.stdin_length + request.require, 0);
    request.code = "x";
    request.code_length = 1;
    accept_request(&request);
}

static void code_is_one_byte_to_a_mebibyte_of_text(void **state)
{
    (void)state;
    struct hutch_request request = good();
    const size_t mebibyte = 1 << 20;
    auto_free char *large = malloc(mebibyte + 1);

    assert_non_null(large);
    memset(large, '#', mebibyte + 1);
    request.code = NULL;
    refuse_request(&request, "code: empty; allowed are 1 to 1048576 bytes");
    request.code = "";
    request.code_length = 0;
    refuse_request(&request, "code: empty; allowed are 1 to 1048576 bytes");
    request.code = large;
    request.code_length = mebibyte;
    accept_request(&request);
    request.code_length = mebibyte + 1;
    refuse_request(&request, "code: 1048577 bytes; allowed are 1 to 1048576 bytes");
    request.code_length = SIZE_MAX;
    refuse_request(&request, "code: 18446744073709551615 bytes");
    request.code = "a\0b";
    request.code_length = 3;
    refuse_request(&request, "code: NUL at byte 1; allowed is UTF-8 without NUL");
    request.code = "abc\xff";
    request.code_length = 4;
    refuse_request(&request, "code: not UTF-8 at byte 3 (0xff)");
    request.code = "\xed\xa0\x80";
    request.code_length = 3;
    refuse_request(&request, "code: not UTF-8 at byte 0 (0xed)");
    request.code = "# é漢🐍 only a comment\n\n";
    request.code_length = strlen(request.code);
    accept_request(&request);
    request.code = " ";
    request.code_length = 1;
    accept_request(&request);
}

static void stdin_is_any_bytes(void **state)
{
    (void)state;
    struct hutch_request request = good();
    auto_free char *large = calloc(1, (16 << 20) + 1);

    assert_non_null(large);
    request.stdin_data = large;
    request.stdin_length = 16 << 20;
    accept_request(&request);
    request.stdin_length++;
    refuse_request(&request, "stdin: 16777217 bytes; allowed are at most 16777216 bytes");
    request.stdin_data = NULL;
    request.stdin_length = 1;
    refuse_request(&request, "stdin: NULL with stdin_length 1");
    request.stdin_length = 0;
    accept_request(&request);
}

static void real_limits(void **state)
{
    (void)state;
    static const double seconds[] = {0.1, 0.5, 1, 300};
    static const struct {
        double value;
        const char *shown;
    } wrong[] = {{0, "0"},
                 {0.099, "0.099"},
                 {300.001, "300.001"},
                 {-1, "-1"},
                 {(double)NAN, "nan"},
                 {(double)INFINITY, "inf"},
                 {-(double)INFINITY, "-inf"}};
    char text[100];

    for (size_t i = 0; i < ARRAY_LENGTH(seconds); i++) {
        struct hutch_request request = good();
        request.timeout_seconds = seconds[i];
        accept_request(&request);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        struct hutch_request request = good();
        request.timeout_seconds = wrong[i].value;
        snprintf(text, sizeof(text), "timeout_seconds: %s; allowed is 0.1 to 300", wrong[i].shown);
        refuse_request(&request, text);
        request = good();
        request.cpus = wrong[i].value;
        snprintf(text, sizeof(text), "cpus: %s; allowed is 0.1 to 4 (the processors of this host)",
                 wrong[i].shown);
        refuse_request(&request, text);
    }
    struct hutch_request request = good();
    request.cpus = 4;
    accept_request(&request);
    request.cpus = 4.1;
    refuse_request(&request, "cpus: 4.1; allowed is 0.1 to 4");
}

static void whole_limits(void **state)
{
    (void)state;
    struct hutch_request request = good();

    request.memory_mb = 63;
    refuse_request(&request, "memory_mb: 63; allowed is 64 to 8000 (the memory of this host)");
    request.language = HUTCH_SHELL;
    accept_request(&request);
    request.memory_mb = 15;
    refuse_request(&request, "memory_mb: 15; allowed is 16 to 8000");
    request.memory_mb = 8000;
    accept_request(&request);
    request.memory_mb = 8001;
    refuse_request(&request, "memory_mb: 8001; allowed is 16 to 8000");
    request.memory_mb = UINT64_MAX;
    refuse_request(&request, "memory_mb: 18446744073709551615; allowed");
    request = good();
    request.max_processes = 0;
    refuse_request(&request, "max_processes: 0; allowed is 1 to 4096");
    request.max_processes = 4097;
    refuse_request(&request, "max_processes: 4097; allowed is 1 to 4096");
    request.max_processes = 1;
    accept_request(&request);
    request.disk_mb = 0;
    refuse_request(&request, "disk_mb: 0; allowed is 1 to 65536");
    request.disk_mb = 65537;
    refuse_request(&request, "disk_mb: 65537; allowed is 1 to 65536");
    request.disk_mb = 65536;
    accept_request(&request);
    request.max_output_bytes = 1023;
    refuse_request(&request, "max_output_bytes: 1023; allowed is 1024 to 16777216");
    request.max_output_bytes = 16777217;
    refuse_request(&request, "max_output_bytes: 16777217; allowed is 1024 to 16777216");
    request.max_output_bytes = 1024;
    accept_request(&request);
    request.max_output_bytes = 16777216;
    accept_request(&request);
}

static void wider_numbers_are_checked_before_they_are_stored(void **state)
{
    (void)state;
    struct hutch_error err;

    assert_int_equal(
        request_check_number(REQUEST_MAX_PROCESSES, false, 4096, HUTCH_PYTHON, &host, &err), 0);
    assert_int_equal(request_check_number(REQUEST_MAX_PROCESSES, false, (1ull << 32) + 1,
                                          HUTCH_PYTHON, &host, &err),
                     HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "max_processes: 4294967297; allowed is 1 to 4096");
    assert_int_equal(request_check_number(REQUEST_DISK_MB, true, 5, HUTCH_PYTHON, &host, &err),
                     HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "disk_mb: -5; allowed is 1 to 65536");
}

/* ---- environment ---- */

static struct hutch_request with_env(const struct hutch_env *env, size_t count)
{
    struct hutch_request request = good();

    request.env = env;
    request.env_count = count;
    return request;
}

static void accept_env(const char *name, const char *value)
{
    struct hutch_env env = {name, value};
    struct hutch_request request = with_env(&env, 1);

    accept_request(&request);
}

static void refuse_env(const char *name, const char *value, const char *text)
{
    struct hutch_env env = {name, value};
    struct hutch_request request = with_env(&env, 1);

    refuse_request(&request, text);
}

static void names_of_variables(void **state)
{
    (void)state;
    char longest[257];

    memset(longest, 'N', sizeof(longest) - 1);
    longest[255] = '\0';
    accept_env(longest, "x");
    longest[255] = 'N';
    longest[256] = '\0';
    refuse_env(longest, "x", "is no name; allowed are 1 to 255");
    accept_env("A", "");
    accept_env("_a9_Z", "x");
    static const char *const wrong[] = {"",    "A=B", "9A",  "A B", "A-B",
                                        "A\n", "é",   "A.B", "=",   "\xff"};
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
        refuse_env(wrong[i], "x", "is no name; allowed are 1 to 255 of A-Z a-z 0-9 _");
    refuse_env("A=B", "x", "env: 'A=B' is no name");
    refuse_env(NULL, "x", "env: a name is NULL");
}

static void values_of_variables(void **state)
{
    (void)state;
    auto_free char *longest = malloc(32769 + 1);

    assert_non_null(longest);
    memset(longest, 'v', 32769);
    longest[32768] = '\0';
    accept_env("A", longest);
    longest[32768] = 'v';
    longest[32769] = '\0';
    refuse_env("A", longest, "env: the value of 'A' is longer than 32768 bytes");
    accept_env("A", "tab\there, é漢🐍");
    refuse_env("A", "a\nb", "env: the value of 'A' holds a control character at byte 1");
    refuse_env("A", "\x1b[0m", "control character at byte 0");
    refuse_env("A", "é\x7f", "control character at byte 2");
    refuse_env("A", "\xc2\x85", "control character at byte 0");
    refuse_env("A", "caf\xe9", "env: the value of 'A' is not UTF-8 at byte 3");
    refuse_env("A", NULL, "env: the value of 'A' is NULL");
}

static void steering_names_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const steering[] = {"LD_PRELOAD",
                                           "LD_LIBRARY_PATH",
                                           "LD_AUDIT",
                                           "LD_",
                                           "GLIBC_TUNABLES",
                                           "MALLOC_ARENA_MAX",
                                           "MALLOC_PERTURB_",
                                           "GCONV_PATH",
                                           "LOCPATH",
                                           "NLSPATH",
                                           "TZDIR",
                                           "GETCONF_DIR",
                                           "RES_OPTIONS",
                                           "LOCALDOMAIN",
                                           "HOSTALIASES",
                                           "RESOLV_HOST_CONF",
                                           "OPENSSL_CONF",
                                           "OPENSSL_ENGINES",
                                           "OPENSSL_MODULES",
                                           "PYTHONPATH",
                                           "PYTHONSTARTUP",
                                           "PYTHONHOME",
                                           "PYTHON",
                                           "NODE_OPTIONS",
                                           "NODE_PATH",
                                           "BASH_ENV",
                                           "BASHOPTS",
                                           "BASH_FUNC_x",
                                           "ENV",
                                           "SHELLOPTS",
                                           "POSIXLY_CORRECT",
                                           "IFS",
                                           "PS4",
                                           "CDPATH",
                                           "GLOBIGNORE",
                                           "EXECIGNORE",
                                           "PATH",
                                           "HOME",
                                           "TMPDIR",
                                           "USER",
                                           "LOGNAME",
                                           "SHELL",
                                           "PWD",
                                           "OLDPWD"};
    for (size_t i = 0; i < ARRAY_LENGTH(steering); i++) {
        char text[100];
        snprintf(text, sizeof(text), "env: '%s' is refused", steering[i]);
        refuse_env(steering[i], "x", text);
    }
    static const char *const harmless[] = {
        "LDFLAGS",      "MY_LD_PRELOAD", "pythonpath", "PATH2", "XPATH",  "HOMES",
        "NODE",         "ENVIRONMENT",   "TZ",         "LANG",  "LC_ALL", "OMP_NUM_THREADS",
        "MPLCONFIGDIR", "PYTHO",         "_",          "TERM"};
    for (size_t i = 0; i < ARRAY_LENGTH(harmless); i++)
        accept_env(harmless[i], "x");
}

static void variables_are_counted_and_differ(void **state)
{
    (void)state;
    char names[101][8];
    struct hutch_env env[101];

    for (size_t i = 0; i < 101; i++) {
        snprintf(names[i], sizeof(names[i]), "V%zu", i);
        env[i] = (struct hutch_env){names[i], "x"};
    }
    struct hutch_request request = with_env(env, 100);
    accept_request(&request);
    request.env_count = 101;
    refuse_request(&request, "env: 101 names; allowed are at most 100");
    request.env_count = SIZE_MAX;
    refuse_request(&request, "env: 18446744073709551615 names; allowed are at most 100");
    request.env_count = 100;
    env[99].name = "V3";
    refuse_request(&request, "env: 'V3' is there twice");
    request.env = NULL;
    refuse_request(&request, "env: NULL with env_count 100");
}

/* ---- choices ---- */

static void choices_outside_the_enums(void **state)
{
    (void)state;
    struct hutch_request request = good();
    int number = 7;

    memcpy(&request.language, &number, sizeof(number));
    refuse_request(&request, "language: 7 is unknown; allowed are HUTCH_PYTHON, HUTCH_SHELL and "
                             "HUTCH_JAVASCRIPT");
    request = good();
    memcpy(&request.backend, &number, sizeof(number));
    refuse_request(&request, "backend: 7 is unknown");
    request = good();
    memcpy(&request.output_encoding, &number, sizeof(number));
    refuse_request(&request, "output_encoding: 7 is unknown");
    request = good();
    request.backend = HUTCH_BACKEND_NAMESPACE;
    request.output_encoding = HUTCH_BASE64;
    request.language = HUTCH_SHELL;
    accept_request(&request);
}

static void required_layers_are_known_bits(void **state)
{
    (void)state;
    struct hutch_request request = good();

    request.require = HUTCH_LAYERS_NAMESPACE;
    accept_request(&request);
    request.require |= 1u << 17;
    refuse_request(&request, "require: 0x20000 is no layer; allowed are user_ns, pid_ns");
    refuse_request(&request, "rlimits, private_root"); /* the list is whole */
}

static void owners_are_short(void **state)
{
    (void)state;
    struct hutch_request request = good();
    char owner[66];

    memset(owner, 'o', sizeof(owner));
    owner[64] = '\0';
    request.owner = owner;
    accept_request(&request);
    owner[64] = 'o';
    owner[65] = '\0';
    refuse_request(&request, "is longer than 64 bytes");
    request.owner = "";
    accept_request(&request);
}

/* ---- versions ---- */

struct newer_request {
    struct hutch_request request;
    char field[24];
};

static void requests_of_other_versions(void **state)
{
    (void)state;
    struct newer_request newer = {.request = good()};

    newer.request.size = sizeof(newer);
    accept_request(&newer.request);
    newer.field[23] = 1;
    refuse_request(&newer.request, "size: the request uses a field that libhutch");
    newer.request.size = sizeof(struct hutch_request); /* what lies behind is not read */
    accept_request(&newer.request);
    newer.request.size = 0;
    refuse_request(&newer.request, "size: 0 is no size of a request");
    newer.request.size = offsetof(struct hutch_request, owner);
    refuse_request(&newer.request, "is no size of a request");
    newer.request.size = SIZE_MAX;
    refuse_request(&newer.request, "is no size of a request");
    newer.request.size = sizeof(struct hutch_request) - 1;
    refuse_request(&newer.request, "is no size of a request");
}

static void fields_that_a_caller_has_not_are_not_read(void **state)
{
    (void)state;
    struct hutch_request older = good(), loaded;

    older.owner = "me";
    older.size = offsetof(struct hutch_request, tidy); /* of the first version */
    older.tidy = true;
    older.gate = (const struct hutch_gate *)1;
    accept_request(&older);
    request_load(&older, &loaded);
    assert_int_equal(loaded.size, sizeof(loaded));
    assert_string_equal(loaded.owner, "me");
    assert_false(loaded.tidy);
    assert_null(loaded.gate);
}

static void the_gate_is_checked(void **state)
{
    (void)state;
    static const char *const names[] = {"os", "os.*"};
    struct hutch_request request = good();
    struct hutch_gate gate;

    hutch_gate_init(&gate);
    request.gate = &gate;
    accept_request(&request);
    request.language = HUTCH_SHELL;
    refuse_request(&request, "gate: reads python alone, and the language is shell");
    request.language = HUTCH_PYTHON;
    gate.modules = names;
    gate.module_count = 2;
    refuse_request(&request, "gate.modules: 'os.*' is no such name");
}

/* ---- names ---- */

static void languages_have_names(void **state)
{
    (void)state;
    struct hutch_error err;
    enum hutch_language language;

    assert_string_equal(language_name(HUTCH_PYTHON), "python");
    assert_string_equal(language_name(HUTCH_SHELL), "shell");
    assert_int_equal(language_parse("shell", &language, &err), 0);
    assert_int_equal(language, HUTCH_SHELL);
    assert_int_equal(language_parse("python", &language, &err), 0);
    assert_int_equal(language, HUTCH_PYTHON);
    assert_int_equal(language_parse("raw", &language, &err), 0);
    assert_int_equal(language, HUTCH_SHELL);
    assert_string_equal(language_name(HUTCH_JAVASCRIPT), "javascript");
    assert_int_equal(language_parse("javascript", &language, &err), 0);
    assert_int_equal(language, HUTCH_JAVASCRIPT);
    static const char *const wrong[] = {"js", "", "Python", "python3", "bash", "node", "ruby"};
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        language = HUTCH_SHELL;
        assert_int_equal(language_parse(wrong[i], &language, &err), HUTCH_ERR_INVALID);
        assert_int_equal(language, HUTCH_SHELL);
    }
    assert_int_equal(language_parse("ruby", &language, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "language: 'ruby' is not supported; allowed are python, "
                                     "javascript, shell and its alias raw");
}

static void backends_and_encodings_have_names(void **state)
{
    (void)state;
    struct hutch_error err;
    enum hutch_backend backend;
    enum hutch_encoding encoding;

    assert_int_equal(backend_parse("namespace", &backend, &err), 0);
    assert_int_equal(backend, HUTCH_BACKEND_NAMESPACE);
    assert_int_equal(backend_parse("auto", &backend, &err), 0);
    assert_int_equal(backend, HUTCH_BACKEND_AUTO);
    assert_int_equal(backend_parse("docker", &backend, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message,
                        "backend: 'docker' is unknown; allowed are auto and namespace");
    /* well-formed, but not to be had: nothing weaker runs */
    assert_int_equal(backend_parse("microvm", &backend, &err), HUTCH_ERR_BACKEND);
    assert_int_equal(encoding_parse("text", &encoding, &err), 0);
    assert_int_equal(encoding, HUTCH_TEXT);
    assert_int_equal(encoding_parse("base64", &encoding, &err), 0);
    assert_int_equal(encoding, HUTCH_BASE64);
    assert_int_equal(encoding_parse("hex", &encoding, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message,
                        "output_encoding: 'hex' is unknown; allowed are text and base64");
}

static void layers_are_parsed(void **state)
{
    (void)state;
    struct hutch_error err;
    uint32_t layer = 0;

    assert_int_equal(layer_parse("seccomp", &layer, &err), 0);
    assert_int_equal(layer, HUTCH_LAYER_SECCOMP);
    assert_int_equal(layer_parse("kvm", &layer, &err), HUTCH_ERR_LAYER);
    assert_non_null(strstr(err.message, "'kvm'"));
    assert_int_equal(layer_parse("selinux", &layer, &err), HUTCH_ERR_INVALID);
    assert_non_null(strstr(err.message, "require: 'selinux' is no layer; allowed are user_ns, "));
    char longest[300];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(layer_parse(longest, &layer, &err), HUTCH_ERR_INVALID);
    const char *end = "rlimits, private_root"; /* the list is whole */
    assert_string_equal(err.message + strlen(err.message) - strlen(end), end);
    assert_int_equal(layer, HUTCH_LAYER_SECCOMP);
}

static void the_host_sets_the_ceilings(void **state)
{
    (void)state;
    struct hutch_error err;
    struct hutch_request request = good();

    request.memory_mb = 64;
    request.cpus = host_cpus();
    assert_int_equal(request_validate(&request, &err), 0);
    request.cpus = host_cpus() + 0.5;
    assert_int_equal(request_validate(&request, &err), HUTCH_ERR_INVALID);
    assert_non_null(strstr(err.message, "cpus: "));
    request.cpus = 1;
    request.memory_mb = host_memory_mb() + 1;
    assert_int_equal(request_validate(&request, &err), HUTCH_ERR_INVALID);
    assert_non_null(strstr(err.message, "memory_mb: "));
}

static void messages_are_the_same_in_any_locale(void **state)
{
    (void)state;
    struct hutch_request request = good();
    struct hutch_error err = {0};

    request.timeout_seconds = 0.05;
    assert_true(enter_comma_locale());
    int code = request_check(&request, &host, &err);
    leave_comma_locale();
    assert_int_equal(code, HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "timeout_seconds: 0.05; allowed is 0.1 to 300");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_contract),
        cmocka_unit_test(code_is_one_byte_to_a_mebibyte_of_text),
        cmocka_unit_test(stdin_is_any_bytes),
        cmocka_unit_test(real_limits),
        cmocka_unit_test(whole_limits),
        cmocka_unit_test(wider_numbers_are_checked_before_they_are_stored),
        cmocka_unit_test(names_of_variables),
        cmocka_unit_test(values_of_variables),
        cmocka_unit_test(steering_names_are_refused_by_name),
        cmocka_unit_test(variables_are_counted_and_differ),
        cmocka_unit_test(choices_outside_the_enums),
        cmocka_unit_test(required_layers_are_known_bits),
        cmocka_unit_test(owners_are_short),
        cmocka_unit_test(requests_of_other_versions),
        cmocka_unit_test(fields_that_a_caller_has_not_are_not_read),
        cmocka_unit_test(the_gate_is_checked),
        cmocka_unit_test(languages_have_names),
        cmocka_unit_test(backends_and_encodings_have_names),
        cmocka_unit_test(layers_are_parsed),
        cmocka_unit_test(the_host_sets_the_ceilings),
        cmocka_unit_test(messages_are_the_same_in_any_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
