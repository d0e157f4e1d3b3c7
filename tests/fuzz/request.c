/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests as JSON: a request that is taken is what the text says and keeps every
 * rule, is the same after it was written and read again, and its gate fits a frame
 * that holds its names.
 *
 * Input: the text.
 */
#include "fuzz.h"

#include "base/error.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "sandbox/gate.h"
#include "sandbox/layers.h"
#include "sandbox/request.h"
#include "sandbox/wire.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing a request ---- */

static void append_member(struct buf *out, const char *name)
{
    buf_appendf(out, "%s\"%s\":", out->length > 1 ? "," : "", name);
}

static void append_names(struct buf *out, const char *field, const char *const *names, size_t count,
                         const char **separator)
{
    if (!names)
        return;
    buf_appendf(out, "%s\"%s\":[", *separator, field);
    *separator = ",";
    for (size_t i = 0; i < count; i++) {
        buf_append_text(out, i > 0 ? "," : "");
        json_append_text(out, names[i]);
    }
    buf_append_text(out, "]");
}

static void append_gate(struct buf *out, const struct hutch_gate *gate)
{
    const char *separator = "";

    append_member(out, "gate");
    buf_append_text(out, "{");
    append_names(out, "modules", gate->modules, gate->module_count, &separator);
    append_names(out, "calls", gate->calls, gate->call_count, &separator);
    append_names(out, "attributes", gate->attributes, gate->attribute_count, &separator);
    append_names(out, "allowed_imports", gate->allowed_imports, gate->allowed_import_count,
                 &separator);
    buf_append_text(out, "}");
}

static void append_env(struct buf *out, const struct hutch_request *request)
{
    append_member(out, "env");
    buf_append_text(out, "{");
    for (size_t i = 0; i < request->env_count; i++) {
        buf_append_text(out, i > 0 ? "," : "");
        json_append_text(out, request->env[i].name);
        buf_append_text(out, ":");
        json_append_text(out, request->env[i].value);
    }
    buf_append_text(out, "}");
}

static void append_request(struct buf *out, const struct hutch_request *request)
{
    buf_append_text(out, "{");
    append_member(out, "code");
    json_append_string(out, request->code, request->code_length);
    append_member(out, "language");
    json_append_text(out, language_name(request->language));
    append_member(out, "stdin");
    json_append_string(out, request->stdin_data, request->stdin_length);
    append_env(out, request);
    append_member(out, "timeout_seconds");
    buf_appendf(out, "%.17g", request->timeout_seconds);
    append_member(out, "cpus");
    buf_appendf(out, "%.17g", request->cpus);
    append_member(out, "memory_mb");
    buf_appendf(out, "%" PRIu64, request->memory_mb);
    append_member(out, "max_processes");
    buf_appendf(out, "%" PRIu32, request->max_processes);
    append_member(out, "disk_mb");
    buf_appendf(out, "%" PRIu64, request->disk_mb);
    append_member(out, "max_output_bytes");
    buf_appendf(out, "%" PRIu64, request->max_output_bytes);
    append_member(out, "output_encoding");
    json_append_text(out, request->output_encoding == HUTCH_TEXT ? "text" : "base64");
    append_member(out, "backend");
    json_append_text(out, request->backend == HUTCH_BACKEND_AUTO ? "auto" : "namespace");
    append_member(out, "require");
    layers_append_json(out, request->require);
    append_member(out, "tidy");
    buf_append_text(out, request->tidy ? "true" : "false");
    if (request->owner) {
        append_member(out, "owner");
        json_append_text(out, request->owner);
    }
    if (request->gate)
        append_gate(out, request->gate);
    buf_append_text(out, "}");
}

/* ---- what must hold ---- */

static size_t count_names(const struct buf *payload, char kind)
{
    size_t count = 0;

    for (size_t at = 0; at < payload->length; at += strlen(payload->data + at) + 1)
        count += payload->data[at] == kind;
    return count;
}

static void check_gate(const struct hutch_gate *gate)
{
    auto_buf struct buf payload = BUF_MAX(WIRE_MAX_GATE);
    uint16_t flags = gate_append(gate, &payload);

    assert(payload.failure == BUF_OK);
    assert(payload.length == 0 || payload.data[payload.length - 1] == '\0');
    assert(((flags & WIRE_GATE_ALLOWED_ONLY) != 0) == (gate->allowed_imports != NULL));
    assert(!gate->modules || count_names(&payload, WIRE_GATE_MODULE) == gate->module_count);
    assert(!gate->calls || count_names(&payload, WIRE_GATE_CALL) == gate->call_count);
    assert(!gate->attributes ||
           count_names(&payload, WIRE_GATE_ATTRIBUTE) == gate->attribute_count);
    assert(count_names(&payload, WIRE_GATE_ALLOWED) == gate->allowed_import_count);
    assert(count_names(&payload, WIRE_GATE_MODULE) + count_names(&payload, WIRE_GATE_CALL) +
               count_names(&payload, WIRE_GATE_ATTRIBUTE) +
               count_names(&payload, WIRE_GATE_ALLOWED) <=
           4 * LIMIT_GATE_NAMES);
}

static void check_rules(const struct hutch_request *request)
{
    struct hutch_error err;

    assert(request_validate(request, &err) == 0);
    assert(request->code_length > 0 && request->code_length <= LIMIT_CODE_BYTES);
    assert(!memchr(request->code, '\0', request->code_length));
    assert(utf8_valid(request->code, request->code_length));
    assert(request->stdin_length <= LIMIT_STDIN_BYTES);
    assert(request->env_count <= LIMIT_ENV_COUNT);
    assert((request->require & ~HUTCH_LAYERS_NAMESPACE) == 0);
    assert(!request->gate || request->language == HUTCH_PYTHON);
    if (request->gate)
        check_gate(request->gate);
}

/* A text is the member's, to its last byte; no member, no text. */
static void check_text(const json_t *member, const char *text)
{
    assert((member != NULL) == (text != NULL));
    assert(!text || (strlen(text) == json_string_length(member) &&
                     strcmp(text, json_string_value(member)) == 0));
}

static void check_names(const json_t *member, const char *const *names, size_t count)
{
    assert(json_array_size(member) == count && (member != NULL) == (names != NULL));
    for (size_t i = 0; i < count; i++)
        check_text(json_array_get(member, i), names[i]);
}

static void check_require(const json_t *member, uint32_t require)
{
    uint32_t named = 0;

    for (size_t i = 0; i < json_array_size(member); i++)
        named |= hutch_layer_from_name(json_string_value(json_array_get(member, i)));
    assert(named == require);
}

/* The request is what the text says. */
static void check_members(const struct hutch_text *text, const struct hutch_request *request)
{
    struct hutch_error err;
    auto_json json_t *root = NULL;

    int code = json_read(text->data, text->length, LIMIT_REQUEST_JSON_BYTES, &root, &err);
    assert(code == 0);
    check_text(json_object_get(root, "code"), request->code);
    check_text(json_object_get(root, "owner"), request->owner);
    assert(json_string_length(json_object_get(root, "stdin")) == request->stdin_length);
    assert(json_is_true(json_object_get(root, "tidy")) == request->tidy);
    assert(json_object_size(json_object_get(root, "env")) == request->env_count);
    for (size_t i = 0; i < request->env_count; i++)
        check_text(json_object_get(json_object_get(root, "env"), request->env[i].name),
                   request->env[i].value);
    check_require(json_object_get(root, "require"), request->require);
    const json_t *gate = json_object_get(root, "gate");
    assert((json_is_true(gate) || json_is_object(gate)) == (request->gate != NULL));
    if (!request->gate)
        return;
    check_names(json_object_get(gate, "modules"), request->gate->modules,
                request->gate->module_count);
    check_names(json_object_get(gate, "calls"), request->gate->calls, request->gate->call_count);
    check_names(json_object_get(gate, "attributes"), request->gate->attributes,
                request->gate->attribute_count);
    check_names(json_object_get(gate, "allowed_imports"), request->gate->allowed_imports,
                request->gate->allowed_import_count);
}

static void check_again(const struct hutch_request *request)
{
    struct hutch_error err;
    hutch_json_request *json = NULL;
    auto_buf struct buf first = BUF_MAX(LIMIT_REQUEST_JSON_BYTES);
    auto_buf struct buf second = BUF_MAX(LIMIT_REQUEST_JSON_BYTES);

    append_request(&first, request);
    assert(first.failure == BUF_OK);
    int code = hutch_json_request_parse(first.data, first.length, &json, &err);
    assert(code == 0);
    append_request(&second, hutch_json_request_get(json));
    check_bytes(&second, first.data, first.length);
    hutch_json_request_free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct hutch_text text = input_bytes(&input, SIZE_MAX);
    struct hutch_error err;
    hutch_json_request *json = NULL;

    int code = hutch_json_request_parse(text.data, text.length, &json, &err);
    if (code < 0) {
        check_error(code, &err);
        assert(code == HUTCH_ERR_INVALID || code == HUTCH_ERR_BACKEND || code == HUTCH_ERR_LAYER);
        assert(hutch_error_retry_safe(&err) && utf8_valid(err.message, strlen(err.message)));
    } else {
        check_rules(hutch_json_request_get(json));
        check_members(&text, hutch_json_request_get(json));
        check_again(hutch_json_request_get(json));
    }
    hutch_json_request_free(json);
    free(text.data);
    return 0;
}
