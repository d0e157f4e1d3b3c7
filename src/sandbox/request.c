/* SPDX-License-Identifier: Apache-2.0 */
/* See request.h. */
#include "request.h"

#include "base/buf.h"
#include "base/host.h"
#include "base/limits.h"
#include "base/parse.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "file_name.h"
#include "gate.h"
#include "layers.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The first version's size; no caller has a smaller one. And more than any
 * version of a struct will have: a size beyond it was never set. */
#define REQUEST_SIZE_FIRST (offsetof(struct hutch_request, owner) + sizeof(const char *))
#define STRUCT_SIZE_MAX 4096

#define LAYER_LIST_BYTES 256

void hutch_request_init(struct hutch_request *request)
{
    *request = (struct hutch_request){
        .size = sizeof(*request),
        .language = HUTCH_PYTHON,
        .timeout_seconds = 30,
        .memory_mb = 512,
        .cpus = 1,
        .max_processes = 128,
        .disk_mb = 256,
        .max_output_bytes = MIB(1),
        .backend = HUTCH_BACKEND_AUTO,
        .output_encoding = HUTCH_TEXT,
    };
}

void request_load(const struct hutch_request *request, struct hutch_request *ret_request)
{
    size_t size = request->size < sizeof(*request) ? request->size : sizeof(*request);

    hutch_request_init(ret_request);
    memcpy(ret_request, request, size);
    ret_request->size = sizeof(*ret_request);
}

/* ---- names ---- */

const char *language_name(enum hutch_language language)
{
    switch (language) {
    case HUTCH_PYTHON:
        return "python";
    case HUTCH_SHELL:
        return "shell";
    case HUTCH_JAVASCRIPT:
        return "javascript";
    }
    return "unknown";
}

int language_parse(const char *name, enum hutch_language *ret_language, struct hutch_error *err)
{
    if (strcmp(name, "python") == 0)
        *ret_language = HUTCH_PYTHON;
    else if (strcmp(name, "javascript") == 0)
        *ret_language = HUTCH_JAVASCRIPT;
    else if (strcmp(name, "shell") == 0 || strcmp(name, "raw") == 0)
        *ret_language = HUTCH_SHELL;
    else
        return err_set(err, HUTCH_ERR_INVALID,
                       "language: %s is not supported; allowed are python, javascript, shell and "
                       "its alias raw",
                       quote_text(name).text);
    return 0;
}

int encoding_parse(const char *name, enum hutch_encoding *ret_encoding, struct hutch_error *err)
{
    if (strcmp(name, "text") == 0)
        *ret_encoding = HUTCH_TEXT;
    else if (strcmp(name, "base64") == 0)
        *ret_encoding = HUTCH_BASE64;
    else
        return err_set(err, HUTCH_ERR_INVALID,
                       "output_encoding: %s is unknown; allowed are text and base64",
                       quote_text(name).text);
    return 0;
}

int backend_parse(const char *name, enum hutch_backend *ret_backend, struct hutch_error *err)
{
    if (strcmp(name, "microvm") == 0)
        return err_set(err, HUTCH_ERR_BACKEND,
                       "backend: 'microvm' is not available; allowed are auto and namespace");
    if (strcmp(name, "auto") == 0)
        *ret_backend = HUTCH_BACKEND_AUTO;
    else if (strcmp(name, "namespace") == 0)
        *ret_backend = HUTCH_BACKEND_NAMESPACE;
    else
        return err_set(err, HUTCH_ERR_INVALID,
                       "backend: %s is unknown; allowed are auto and namespace",
                       quote_text(name).text);
    return 0;
}

static int unknown_layer(const char *shown, struct hutch_error *err)
{
    auto_buf struct buf names = BUF_MAX(LAYER_LIST_BYTES);

    layers_append_names(&names, HUTCH_LAYERS_NAMESPACE);
    return err_set(err, HUTCH_ERR_INVALID, "require: %s is no layer; allowed are %s", shown,
                   buf_text(&names));
}

int layer_parse(const char *name, uint32_t *ret_layer, struct hutch_error *err)
{
    uint32_t layer = hutch_layer_from_name(name);

    if (layer == 0 && layer_is_of_microvm(name))
        return err_set(err, HUTCH_ERR_LAYER,
                       "require: '%s' is a layer of the microvm backend, which is not available",
                       name);
    if (layer == 0)
        return unknown_layer(quote_short(name).text, err);
    *ret_layer = layer;
    return 0;
}

/* ---- environment ---- */

/* Names that steer the loader or the interpreter; a star stands for any rest.
 * The head of request.h explains them. */
static const char *const refused_names[] = {
    "LD_*",
    "GLIBC_*",
    "MALLOC_*",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "TZDIR",
    "GETCONF_DIR",
    "RES_OPTIONS",
    "LOCALDOMAIN",
    "HOSTALIASES",
    "OPENSSL_CONF",
    "RESOLV_HOST_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "PYTHON*",
    "NODE_*",
    "BASH*",
    "ENV",
    "SHELLOPTS",
    "IFS",
    "PS4",
    "POSIXLY_CORRECT",
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
    "OLDPWD",
};

static bool matches(const char *pattern, const char *name)
{
    size_t length = strlen(pattern);

    if (pattern[length - 1] == '*')
        return strncmp(pattern, name, length - 1) == 0;
    return strcmp(pattern, name) == 0;
}

static bool is_refused(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(refused_names); i++) {
        if (matches(refused_names[i], name))
            return true;
    }
    return false;
}

/* Bytes that form a name: [A-Za-z_][A-Za-z0-9_]*. */
static size_t name_length(const char *name)
{
    size_t length = 0;

    for (;;) {
        char c = name[length];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && !(c >= '0' && c <= '9' && length > 0))
            return length;
        length++;
    }
}

static int check_env_name(const char *name, struct hutch_error *err)
{
    if (!name)
        return err_set(err, HUTCH_ERR_INVALID, "env: a name is NULL");
    size_t length = name_length(name);
    if (length == 0 || name[length] != '\0' || length > LIMIT_ENV_NAME_BYTES)
        return err_set(err, HUTCH_ERR_INVALID,
                       "env: %s is no name; allowed are 1 to %d of A-Z a-z 0-9 _, no digit first",
                       quote_text(name).text, LIMIT_ENV_NAME_BYTES);
    if (is_refused(name))
        return err_set(err, HUTCH_ERR_INVALID,
                       "env: %s is refused, it steers the loader, the interpreter or the cell",
                       quote_text(name).text);
    return 0;
}

/* The offset of the first control character but tab; length without one. */
static size_t control_at(const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        bool valid;
        size_t unit = utf8_unit(text + at, length - at, &valid);
        if (utf8_is_control(text + at, unit) && text[at] != '\t')
            return at;
        at += unit;
    }
    return length;
}

static int check_env_value(const struct hutch_env *env, struct hutch_error *err)
{
    struct quote shown = quote_text(env->name);
    const char *name = shown.text;

    if (!env->value)
        return err_set(err, HUTCH_ERR_INVALID, "env: the value of %s is NULL", name);
    size_t length = strnlen(env->value, LIMIT_ENV_VALUE_BYTES + 1);
    if (length > LIMIT_ENV_VALUE_BYTES)
        return err_set(err, HUTCH_ERR_INVALID,
                       "env: the value of %s is longer than %" PRIu64 " bytes", name,
                       LIMIT_ENV_VALUE_BYTES);
    size_t bad = utf8_bad_at(env->value, length);
    if (bad < length)
        return err_set(err, HUTCH_ERR_INVALID, "env: the value of %s is not UTF-8 at byte %zu",
                       name, bad);
    bad = control_at(env->value, length);
    if (bad < length)
        return err_set(err, HUTCH_ERR_INVALID,
                       "env: the value of %s holds a control character at byte %zu; "
                       "allowed is tab alone",
                       name, bad);
    return 0;
}

static int check_env(const struct hutch_request *request, struct hutch_error *err)
{
    const struct hutch_env *env = request->env;

    if (request->env_count > LIMIT_ENV_COUNT)
        return err_set(err, HUTCH_ERR_INVALID, "env: %zu names; allowed are at most %d",
                       request->env_count, LIMIT_ENV_COUNT);
    if (request->env_count > 0 && !env)
        return err_set(err, HUTCH_ERR_INVALID, "env: NULL with env_count %zu", request->env_count);
    for (size_t i = 0; i < request->env_count; i++) {
        if (check_env_name(env[i].name, err) < 0 || check_env_value(&env[i], err) < 0)
            return err->code;
        for (size_t other = 0; other < i; other++) {
            if (strcmp(env[other].name, env[i].name) == 0)
                return err_set(err, HUTCH_ERR_INVALID, "env: %s is there twice",
                               quote_text(env[i].name).text);
        }
    }
    return 0;
}

/* ---- the other fields ---- */

int request_check_size(const char *what, const void *given, size_t size, size_t first, size_t known,
                       struct hutch_error *err)
{
    if (size < first || size > STRUCT_SIZE_MAX || size % sizeof(void *) != 0)
        return err_set(err, HUTCH_ERR_INVALID,
                       "size: %zu is no size of a %s; allowed is what hutch_%s_init sets", size,
                       what, what);
    const char *byte = given;
    for (size_t i = known; i < size; i++) {
        if (byte[i] != 0)
            return err_set(
                err, HUTCH_ERR_INVALID,
                "size: the %s uses a field that libhutch " HUTCH_VERSION " does not know", what);
    }
    return 0;
}

static int check_code(const struct hutch_request *request, struct hutch_error *err)
{
    const char *code = request->code;
    size_t length = request->code_length;

    if (!code || length == 0)
        return err_set(err, HUTCH_ERR_INVALID, "code: empty; allowed are 1 to %" PRIu64 " bytes",
                       LIMIT_CODE_BYTES);
    if (length > LIMIT_CODE_BYTES)
        return err_set(err, HUTCH_ERR_INVALID,
                       "code: %zu bytes; allowed are 1 to %" PRIu64 " bytes", length,
                       LIMIT_CODE_BYTES);
    const char *nul = memchr(code, '\0', length);
    if (nul)
        return err_set(err, HUTCH_ERR_INVALID,
                       "code: NUL at byte %td; allowed is UTF-8 without NUL", nul - code);
    size_t bad = utf8_bad_at(code, length);
    if (bad < length)
        return err_set(err, HUTCH_ERR_INVALID,
                       "code: not UTF-8 at byte %zu (0x%02x); allowed is UTF-8 without NUL", bad,
                       (unsigned char)code[bad]);
    return 0;
}

static int check_stdin(const struct hutch_request *request, struct hutch_error *err)
{
    if (request->stdin_length > LIMIT_STDIN_BYTES)
        return err_set(err, HUTCH_ERR_INVALID,
                       "stdin: %zu bytes; allowed are at most %" PRIu64 " bytes",
                       request->stdin_length, LIMIT_STDIN_BYTES);
    if (request->stdin_length > 0 && !request->stdin_data)
        return err_set(err, HUTCH_ERR_INVALID, "stdin: NULL with stdin_length %zu",
                       request->stdin_length);
    return 0;
}

/* note says where the maximum comes from; NaN is in no range. */
static int check_real(const char *field, double value, double min, double max, const char *note,
                      struct hutch_error *err)
{
    if (value >= min && value <= max)
        return 0;
    return err_set(err, HUTCH_ERR_INVALID, "%s: %s; allowed is %s to %s%s", field,
                   number_text(value).text, number_text(min).text, number_text(max).text, note);
}

struct range {
    const char *field;
    uint64_t min, max;
    const char *note;
};

static struct range range_of(enum request_number number, enum hutch_language language,
                             const struct request_ceilings *ceilings)
{
    switch (number) {
    case REQUEST_MEMORY_MB:
        return (struct range){
            "memory_mb", language == HUTCH_SHELL ? LIMIT_MEMORY_MB_MIN_SHELL : LIMIT_MEMORY_MB_MIN,
            ceilings->memory_mb, " (the memory of this host)"};
    case REQUEST_MAX_PROCESSES:
        return (struct range){"max_processes", 1, LIMIT_PROCESSES_MAX, ""};
    case REQUEST_DISK_MB:
        return (struct range){"disk_mb", 1, LIMIT_DISK_MB_MAX, ""};
    case REQUEST_MAX_OUTPUT_BYTES:
        break;
    }
    return (struct range){"max_output_bytes", LIMIT_OUTPUT_BYTES_MIN, LIMIT_OUTPUT_BYTES_MAX, ""};
}

int request_check_number(enum request_number number, bool negative, uint64_t value,
                         enum hutch_language language, const struct request_ceilings *ceilings,
                         struct hutch_error *err)
{
    struct range range = range_of(number, language, ceilings);

    if (!negative && value >= range.min && value <= range.max)
        return 0;
    return err_set(err, HUTCH_ERR_INVALID,
                   "%s: %s%" PRIu64 "; allowed is %" PRIu64 " to %" PRIu64 "%s", range.field,
                   negative ? "-" : "", value, range.min, range.max, range.note);
}

static int check_limits(const struct hutch_request *request,
                        const struct request_ceilings *ceilings, struct hutch_error *err)
{
    const struct {
        enum request_number number;
        uint64_t value;
    } numbers[] = {
        {REQUEST_MEMORY_MB, request->memory_mb},
        {REQUEST_MAX_PROCESSES, request->max_processes},
        {REQUEST_DISK_MB, request->disk_mb},
        {REQUEST_MAX_OUTPUT_BYTES, request->max_output_bytes},
    };

    if (check_real("timeout_seconds", request->timeout_seconds, LIMIT_TIMEOUT_SECONDS_MIN,
                   LIMIT_TIMEOUT_SECONDS_MAX, "", err) < 0 ||
        check_real("cpus", request->cpus, LIMIT_CPUS_MIN, ceilings->cpus,
                   " (the processors of this host)", err) < 0)
        return err->code;
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++) {
        if (request_check_number(numbers[i].number, false, numbers[i].value, request->language,
                                 ceilings, err) < 0)
            return err->code;
    }
    return 0;
}

static int check_choices(const struct hutch_request *request, struct hutch_error *err)
{
    if (request->language != HUTCH_PYTHON && request->language != HUTCH_SHELL &&
        request->language != HUTCH_JAVASCRIPT)
        return err_set(err, HUTCH_ERR_INVALID,
                       "language: %d is unknown; allowed are HUTCH_PYTHON, HUTCH_SHELL and "
                       "HUTCH_JAVASCRIPT",
                       (int)request->language);
    if (request->backend != HUTCH_BACKEND_AUTO && request->backend != HUTCH_BACKEND_NAMESPACE)
        return err_set(err, HUTCH_ERR_INVALID,
                       "backend: %d is unknown; allowed are HUTCH_BACKEND_AUTO and "
                       "HUTCH_BACKEND_NAMESPACE",
                       (int)request->backend);
    if (request->output_encoding != HUTCH_TEXT && request->output_encoding != HUTCH_BASE64)
        return err_set(err, HUTCH_ERR_INVALID,
                       "output_encoding: %d is unknown; allowed are HUTCH_TEXT and HUTCH_BASE64",
                       (int)request->output_encoding);
    uint32_t unknown = request->require & ~HUTCH_LAYERS_NAMESPACE;
    if (unknown != 0) {
        char shown[16];
        snprintf(shown, sizeof(shown), "0x%" PRIx32, unknown);
        return unknown_layer(shown, err);
    }
    return 0;
}

static int check_owner(const char *owner, struct hutch_error *err)
{
    if (owner && strnlen(owner, LIMIT_OWNER_BYTES + 1) > LIMIT_OWNER_BYTES)
        return err_set(err, HUTCH_ERR_INVALID, "owner: %s is longer than %d bytes",
                       quote_bytes(owner, LIMIT_OWNER_BYTES).text, LIMIT_OWNER_BYTES);
    return 0;
}

static int check_files(const struct hutch_request *request, struct hutch_error *err)
{
    const struct hutch_file_in *files = request->files;
    uint64_t total = 0;
    struct file_path path;

    if (request->file_count > LIMIT_FILES || (request->file_count > 0 && !files))
        return err_set(err, HUTCH_ERR_INVALID, "files: %zu%s; allowed are at most %d",
                       request->file_count, files ? "" : " at NULL", LIMIT_FILES);
    for (size_t i = 0; i < request->file_count; i++) {
        if (file_path_read("files", files[i].path, &path, err) < 0)
            return err->code;
        if (files[i].length > 0 && !files[i].data)
            return err_set(err, HUTCH_ERR_INVALID, "files: the data of %s is NULL",
                           quote_text(files[i].path).text);
        total = files[i].length > LIMIT_FILES_BYTES ? UINT64_MAX : total + files[i].length;
        if (total > LIMIT_FILES_BYTES)
            return err_set(err, HUTCH_ERR_INVALID,
                           "files: more than %" PRIu64 " bytes together; upload larger ones "
                           "(--upload, hutch_upload, PUT into a session)",
                           LIMIT_FILES_BYTES);
    }
    return 0;
}

static int check_return_files(const struct hutch_request *request, struct hutch_error *err)
{
    const char *const *patterns = request->return_files;
    struct file_path path;

    if (request->return_file_count > LIMIT_RETURN_FILES ||
        (request->return_file_count > 0 && !patterns))
        return err_set(err, HUTCH_ERR_INVALID, "return_files: %zu%s; allowed are at most %d",
                       request->return_file_count, patterns ? "" : " at NULL", LIMIT_RETURN_FILES);
    for (size_t i = 0; i < request->return_file_count; i++) {
        if (file_path_read("return_files", patterns[i], &path, err) < 0)
            return err->code;
    }
    return 0;
}

int request_check(const struct hutch_request *given, const struct request_ceilings *ceilings,
                  struct hutch_error *err)
{
    struct hutch_request request;

    if (request_check_size("request", given, given->size, REQUEST_SIZE_FIRST, sizeof(*given), err) <
        0)
        return err->code;
    request_load(given, &request);
    if (check_choices(&request, err) < 0 || check_code(&request, err) < 0 ||
        check_stdin(&request, err) < 0 || check_env(&request, err) < 0 ||
        check_limits(&request, ceilings, err) < 0 || check_owner(request.owner, err) < 0 ||
        check_files(&request, err) < 0 || check_return_files(&request, err) < 0)
        return err->code;
    return request.gate ? gate_check(request.gate, request.language, err) : 0;
}

struct request_ceilings request_ceilings_of_host(void)
{
    return (struct request_ceilings){.cpus = host_cpus(), .memory_mb = host_memory_mb()};
}

int request_validate(const struct hutch_request *request, struct hutch_error *err)
{
    struct request_ceilings ceilings = request_ceilings_of_host();
    return request_check(request, &ceilings, err);
}
