/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests as JSON, see hutch.h. One table lists the fields; they are read in
 * its order, whatever the order in the text, because the range of memory_mb
 * depends on the language. Strings are borrowed from the parsed text, which
 * lives as long as the request.
 */
#include "base/base64.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/quote.h"
#include "request.h"

#include <string.h>

#define FIELD_LIST_BYTES 512
#define GATE_LISTS 4

struct hutch_json_request {
    struct hutch_request request;
    struct request_ceilings ceilings;
    json_t *root;
    struct hutch_env *env;
    struct hutch_gate gate;
    const char **gate_lists[GATE_LISTS];
    struct hutch_file_in *files;
    char *file_data; /* of all of them, one behind the other */
    const char **return_files;
};

static int wrong_type(const char *field, const char *expected, const json_t *value,
                      struct hutch_error *err)
{
    return err_set(err, HUTCH_ERR_INVALID, "%s: %s is expected, not %s", field, expected,
                   json_kind(value));
}

/* ---- one reader a type ---- */

/* A string that C can hold: without NUL. */
static int read_text(const char *field, const json_t *value, const char **ret_text,
                     struct hutch_error *err)
{
    if (!json_is_string(value))
        return wrong_type(field, "a string", value, err);
    const char *text = json_string_value(value);
    if (strlen(text) != json_string_length(value))
        return err_set(err, HUTCH_ERR_INVALID, "%s: NUL at byte %zu; allowed is text without NUL",
                       field, strlen(text));
    *ret_text = text;
    return 0;
}

/* Any string. */
static int read_bytes(const char *field, const json_t *value, const char **ret_data,
                      size_t *ret_length, struct hutch_error *err)
{
    if (!json_is_string(value))
        return wrong_type(field, "a string", value, err);
    *ret_data = json_string_value(value);
    *ret_length = json_string_length(value);
    return 0;
}

static int read_real(const char *field, const json_t *value, double *ret_real,
                     struct hutch_error *err)
{
    if (!json_is_number(value))
        return wrong_type(field, "a number", value, err);
    *ret_real = json_number_value(value);
    return 0;
}

/* A whole number within the range of its field, so that it fits its type. */
static int read_number(const char *field, const struct hutch_json_request *json,
                       enum request_number number, const json_t *value, uint64_t *ret_number,
                       struct hutch_error *err)
{
    if (!json_is_integer(value))
        return wrong_type(field, "a whole number", value, err);
    json_int_t given = json_integer_value(value);
    uint64_t magnitude = given < 0 ? -(uint64_t)given : (uint64_t)given;
    if (request_check_number(number, given < 0, magnitude, json->request.language, &json->ceilings,
                             err) < 0)
        return err->code;
    *ret_number = magnitude;
    return 0;
}

/* ---- one reader a field ---- */

typedef int (*field_reader)(struct hutch_json_request *json, const char *field, json_t *value,
                            struct hutch_error *err);

static int read_code(struct hutch_json_request *json, const char *field, json_t *value,
                     struct hutch_error *err)
{
    return read_bytes(field, value, &json->request.code, &json->request.code_length, err);
}

static int read_language(struct hutch_json_request *json, const char *field, json_t *value,
                         struct hutch_error *err)
{
    const char *name;

    if (read_text(field, value, &name, err) < 0)
        return err->code;
    return language_parse(name, &json->request.language, err);
}

static int read_stdin(struct hutch_json_request *json, const char *field, json_t *value,
                      struct hutch_error *err)
{
    return read_bytes(field, value, &json->request.stdin_data, &json->request.stdin_length, err);
}

static int read_env(struct hutch_json_request *json, const char *field, json_t *value,
                    struct hutch_error *err)
{
    const char *name;
    json_t *member;

    if (!json_is_object(value))
        return wrong_type(field, "an object", value, err);
    size_t count = json_object_size(value);
    if (count == 0)
        return 0;
    json->env = calloc(count, sizeof(*json->env));
    if (!json->env)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    json->request.env = json->env;
    json_object_foreach(value, name, member)
    {
        struct hutch_env *env = &json->env[json->request.env_count++];
        env->name = name;
        if (read_text(quote_text(name).text, member, &env->value, err) < 0)
            return err_context(err, "%s", field);
    }
    return 0;
}

static int read_timeout(struct hutch_json_request *json, const char *field, json_t *value,
                        struct hutch_error *err)
{
    return read_real(field, value, &json->request.timeout_seconds, err);
}

static int read_memory(struct hutch_json_request *json, const char *field, json_t *value,
                       struct hutch_error *err)
{
    return read_number(field, json, REQUEST_MEMORY_MB, value, &json->request.memory_mb, err);
}

static int read_cpus(struct hutch_json_request *json, const char *field, json_t *value,
                     struct hutch_error *err)
{
    return read_real(field, value, &json->request.cpus, err);
}

static int read_processes(struct hutch_json_request *json, const char *field, json_t *value,
                          struct hutch_error *err)
{
    uint64_t number = 0;

    if (read_number(field, json, REQUEST_MAX_PROCESSES, value, &number, err) < 0)
        return err->code;
    json->request.max_processes = (uint32_t)number;
    return 0;
}

static int read_disk(struct hutch_json_request *json, const char *field, json_t *value,
                     struct hutch_error *err)
{
    return read_number(field, json, REQUEST_DISK_MB, value, &json->request.disk_mb, err);
}

static int read_output(struct hutch_json_request *json, const char *field, json_t *value,
                       struct hutch_error *err)
{
    return read_number(field, json, REQUEST_MAX_OUTPUT_BYTES, value,
                       &json->request.max_output_bytes, err);
}

static int read_encoding(struct hutch_json_request *json, const char *field, json_t *value,
                         struct hutch_error *err)
{
    const char *name;

    if (read_text(field, value, &name, err) < 0)
        return err->code;
    return encoding_parse(name, &json->request.output_encoding, err);
}

static int read_backend(struct hutch_json_request *json, const char *field, json_t *value,
                        struct hutch_error *err)
{
    const char *name;

    if (read_text(field, value, &name, err) < 0)
        return err->code;
    return backend_parse(name, &json->request.backend, err);
}

static int read_require(struct hutch_json_request *json, const char *field, json_t *value,
                        struct hutch_error *err)
{
    size_t index;
    json_t *member;

    if (!json_is_array(value))
        return wrong_type(field, "an array of layer names", value, err);
    json_array_foreach(value, index, member)
    {
        const char *name;
        uint32_t layer;
        if (read_text(field, member, &name, err) < 0 || layer_parse(name, &layer, err) < 0)
            return err->code;
        json->request.require |= layer;
    }
    return 0;
}

static int read_owner(struct hutch_json_request *json, const char *field, json_t *value,
                      struct hutch_error *err)
{
    return read_text(field, value, &json->request.owner, err);
}

static int read_tidy(struct hutch_json_request *json, const char *field, json_t *value,
                     struct hutch_error *err)
{
    if (!json_is_boolean(value))
        return wrong_type(field, "true or false", value, err);
    json->request.tidy = json_is_true(value);
    return 0;
}

/* The names of one list of the gate, borrowed from the text; freed with the
 * request. */
static int read_names(const char *field, const json_t *value, const char ***ret_names,
                      struct hutch_error *err)
{
    size_t index;
    json_t *member;

    if (!json_is_array(value))
        return wrong_type(field, "an array of names", value, err);
    *ret_names = calloc(json_array_size(value) + 1, sizeof(**ret_names));
    if (!*ret_names)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    json_array_foreach(value, index, member)
    {
        if (read_text(field, member, &(*ret_names)[index], err) < 0)
            return err->code;
    }
    return 0;
}

static int read_gate_list(struct hutch_json_request *json, const char *name, const json_t *value,
                          struct hutch_error *err)
{
    struct hutch_gate *gate = &json->gate;
    const struct {
        const char *field;
        const char *const **names;
        size_t *count;
    } lists[GATE_LISTS] = {
        {"gate.modules", &gate->modules, &gate->module_count},
        {"gate.calls", &gate->calls, &gate->call_count},
        {"gate.attributes", &gate->attributes, &gate->attribute_count},
        {"gate.allowed_imports", &gate->allowed_imports, &gate->allowed_import_count},
    };
    char field[2 * QUOTE_TEXT_BYTES];

    snprintf(field, sizeof(field), "gate.%s", name);
    for (size_t i = 0; i < GATE_LISTS; i++) {
        if (strcmp(field, lists[i].field) != 0)
            continue;
        if (read_names(field, value, &json->gate_lists[i], err) < 0)
            return err->code;
        *lists[i].names = json->gate_lists[i];
        *lists[i].count = json_array_size(value);
        return 0;
    }
    return err_set(err, HUTCH_ERR_INVALID,
                   "unknown field %s; allowed are gate.modules, gate.calls, gate.attributes, "
                   "gate.allowed_imports",
                   quote_text(field).text);
}

static int read_gate(struct hutch_json_request *json, const char *field, json_t *value,
                     struct hutch_error *err)
{
    if (json_is_false(value))
        return 0;
    if (!json_is_true(value) && !json_is_object(value))
        return wrong_type(field, "true, false or an object", value, err);
    hutch_gate_init(&json->gate);
    json->request.gate = &json->gate;
    const char *name;
    json_t *member;
    json_object_foreach(value, name, member)
    {
        if (read_gate_list(json, name, member, err) < 0)
            return err->code;
    }
    return 0;
}

/* How many bytes the data of all files can have. */
static size_t decoded_bytes(const json_t *files)
{
    size_t index, bytes = 1;
    json_t *member;

    json_array_foreach(files, index, member)
    {
        bytes += BASE64_DECODED(json_string_length(json_object_get(member, "data")));
    }
    return bytes;
}

/* One of files; its data is decoded to memory, of which it takes a part. */
static int read_file(struct hutch_json_request *json, const json_t *value, char **memory,
                     struct hutch_error *err)
{
    struct hutch_file_in *file = &json->files[json->request.file_count];
    const char *name, *text = "";
    json_t *member;
    size_t length = 0;

    if (!json_is_object(value))
        return wrong_type("files", "an object with path and data", value, err);
    json_object_foreach((json_t *)(uintptr_t)value, name, member)
    {
        if (strcmp(name, "path") != 0 && strcmp(name, "data") != 0)
            return err_set(err, HUTCH_ERR_INVALID,
                           "unknown field %s in files; allowed are path, data",
                           quote_short(name).text);
    }
    const json_t *path = json_object_get(value, "path");
    const json_t *data = json_object_get(value, "data");
    if (!path || !data)
        return err_set(err, HUTCH_ERR_INVALID, "files: '%s' is missing", path ? "data" : "path");
    if (read_text("files.path", path, &file->path, err) < 0 ||
        read_bytes("files.data", data, &text, &length, err) < 0)
        return err->code;
    if (!base64_decode(text, length, *memory, &file->length))
        return err_set(err, HUTCH_ERR_INVALID, "files: the data of %s is no Base64 (RFC 4648)",
                       quote_text(file->path).text);
    file->data = *memory;
    *memory += file->length;
    json->request.file_count++;
    return 0;
}

static int read_files(struct hutch_json_request *json, const char *field, json_t *value,
                      struct hutch_error *err)
{
    size_t index;
    json_t *member;

    if (!json_is_array(value))
        return wrong_type(field, "an array of objects", value, err);
    json->files = calloc(json_array_size(value) + 1, sizeof(*json->files));
    json->file_data = malloc(decoded_bytes(value));
    if (!json->files || !json->file_data)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    json->request.files = json->files;
    char *memory = json->file_data;
    json_array_foreach(value, index, member)
    {
        if (read_file(json, member, &memory, err) < 0)
            return err->code;
    }
    return 0;
}

static int read_return_files(struct hutch_json_request *json, const char *field, json_t *value,
                             struct hutch_error *err)
{
    if (read_names(field, value, &json->return_files, err) < 0)
        return err->code;
    json->request.return_files = json->return_files;
    json->request.return_file_count = json_array_size(value);
    return 0;
}

static const struct field {
    const char *name;
    field_reader read;
} fields[] = {
    {"code", read_code},
    {"language", read_language},
    {"stdin", read_stdin},
    {"env", read_env},
    {"timeout_seconds", read_timeout},
    {"memory_mb", read_memory},
    {"cpus", read_cpus},
    {"max_processes", read_processes},
    {"disk_mb", read_disk},
    {"max_output_bytes", read_output},
    {"output_encoding", read_encoding},
    {"backend", read_backend},
    {"require", read_require},
    {"owner", read_owner},
    {"tidy", read_tidy},
    {"gate", read_gate},
    {"files", read_files},
    {"return_files", read_return_files},
};

/* ---- the object ---- */

static bool is_field(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(fields); i++) {
        if (strcmp(name, fields[i].name) == 0)
            return true;
    }
    return false;
}

static int unknown_field(const char *name, struct hutch_error *err)
{
    auto_buf struct buf list = BUF_MAX(FIELD_LIST_BYTES);

    for (size_t i = 0; i < ARRAY_LENGTH(fields); i++)
        buf_appendf(&list, "%s%s", i ? ", " : "", fields[i].name);
    return err_set(err, HUTCH_ERR_INVALID, "unknown field %s; allowed are %s",
                   quote_short(name).text, buf_text(&list));
}

static int read_fields(struct hutch_json_request *json, struct hutch_error *err)
{
    const char *name;
    json_t *value;

    if (!json_is_object(json->root))
        return wrong_type("request", "an object", json->root, err);
    json_object_foreach(json->root, name, value)
    {
        if (!is_field(name))
            return unknown_field(name, err);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(fields); i++) {
        value = json_object_get(json->root, fields[i].name);
        if (value && fields[i].read(json, fields[i].name, value, err) < 0)
            return err->code;
    }
    return request_check(&json->request, &json->ceilings, err);
}

int hutch_json_request_parse(const char *text, size_t length, hutch_json_request **ret_request,
                             struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;

    struct hutch_json_request *json = calloc(1, sizeof(*json));
    if (!json)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    hutch_request_init(&json->request);
    json->ceilings = request_ceilings_of_host();
    if (json_read(text, length, LIMIT_REQUEST_JSON_BYTES, &json->root, err) < 0) {
        hutch_json_request_free(json);
        return err_context(err, "request");
    }
    if (read_fields(json, err) < 0) {
        hutch_json_request_free(json);
        return err->code;
    }
    *ret_request = json;
    return 0;
}

const struct hutch_request *hutch_json_request_get(const hutch_json_request *request)
{
    return &request->request;
}

void hutch_json_request_free(hutch_json_request *request)
{
    if (!request)
        return;
    for (size_t i = 0; i < GATE_LISTS; i++)
        free(request->gate_lists[i]);
    free(request->files);
    free(request->file_data);
    free(request->return_files);
    json_decref(request->root);
    free(request->env);
    free(request);
}
