/* SPDX-License-Identifier: Apache-2.0 */
/* See session_files.h. */
#include "session_files.h"

#include "base/base64.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/quote.h"
#include "input.h"
#include "transfer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_BYTES 128

/* A line on its way. */
struct errand {
    hutch_session *session;
    struct hutch_file_options options;
    const json_t *line;
    const char *op, *path;
    struct buf *answer;
};

/* ---- fields ---- */

struct field {
    const char *name;
    const char *ops; /* in which it may stand */
};

static const struct field fields[] = {
    {"op", "put get list delete"},
    {"id", "put get list delete"},
    {"path", "put get list delete"},
    {"timeout_seconds", "put get list delete"},
    {"data", "put"},
    {"from", "put"},
    {"executable", "put"},
    {"to", "get"},
};

static const char *const operations[] = {"put", "get", "list", "delete"};

bool is_files_operation(const char *op)
{
    for (size_t i = 0; i < ARRAY_LENGTH(operations); i++) {
        if (strcmp(operations[i], op) == 0)
            return true;
    }
    return false;
}

static int check_fields(const struct errand *errand, struct hutch_error *err)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)errand->line, name, value)
    {
        size_t i = 0;
        while (i < ARRAY_LENGTH(fields) && strcmp(fields[i].name, name) != 0)
            i++;
        if (i == ARRAY_LENGTH(fields) || !strstr(fields[i].ops, errand->op))
            return err_set(err, HUTCH_ERR_INVALID,
                           "%s: is no field of %s; allowed are op, id, path, timeout_seconds%s",
                           quote_text(name).text, errand->op,
                           strcmp(errand->op, "put") == 0   ? ", executable and data or from"
                           : strcmp(errand->op, "get") == 0 ? " and to"
                                                            : "");
    }
    return 0;
}

static int wrong_type(const char *field, const char *wanted, const json_t *value,
                      struct hutch_error *err)
{
    return err_set(err, HUTCH_ERR_INVALID, "%s: is %s; allowed is %s", field, json_kind(value),
                   wanted);
}

/* NULL where the line has none. */
static int read_text(const struct errand *errand, const char *field, const char **ret_text,
                     struct hutch_error *err)
{
    const json_t *value = json_object_get(errand->line, field);

    *ret_text = value ? json_string_value(value) : NULL;
    if (value && !*ret_text)
        return wrong_type(field, "a string", value, err);
    if (value && strlen(*ret_text) != json_string_length(value))
        return err_set(err, HUTCH_ERR_INVALID, "%s: holds NUL; allowed is text without", field);
    return 0;
}

static int read_options(struct errand *errand, struct hutch_error *err)
{
    const json_t *seconds = json_object_get(errand->line, "timeout_seconds");
    const json_t *executable = json_object_get(errand->line, "executable");

    if (seconds && !json_is_number(seconds))
        return wrong_type("timeout_seconds", "a number", seconds, err);
    if (seconds && !(json_number_value(seconds) > 0))
        return err_set(err, HUTCH_ERR_INVALID, "timeout_seconds: allowed is %g to %g",
                       LIMIT_FILE_SECONDS_MIN, LIMIT_FILE_SECONDS_MAX);
    if (executable && !json_is_boolean(executable))
        return wrong_type("executable", "true or false", executable, err);
    if (seconds)
        errand->options.timeout_seconds = json_number_value(seconds);
    errand->options.executable = json_is_true(executable);
    return 0;
}

static int read_fields(struct errand *errand, struct hutch_error *err)
{
    if (check_fields(errand, err) < 0 || read_options(errand, err) < 0 ||
        read_text(errand, "path", &errand->path, err) < 0)
        return err->code;
    if (!errand->path && strcmp(errand->op, "list") == 0)
        errand->path = "";
    if (!errand->path)
        return err_set(err, HUTCH_ERR_INVALID, "path: is missing; %s needs it", errand->op);
    return 0;
}

/* ---- put ---- */

struct source {
    const char *memory;
    int fd; /* where there is no memory */
    uint64_t offset;
};

static int give(void *user, char *data, size_t length)
{
    struct source *source = user;

    if (source->memory)
        memcpy(data, source->memory + source->offset, length);
    else if (fd_read_at(source->fd, data, length, source->offset) != (ssize_t)length)
        return -1; /* it cannot be read, or has become shorter */
    source->offset += length;
    return 0;
}

static int put(struct errand *errand, struct source *source, uint64_t length,
               struct hutch_error *err)
{
    if (hutch_session_put(errand->session, errand->path, length, give, source, &errand->options,
                          err) < 0)
        return err->code;
    buf_appendf(errand->answer, ",\"size\":%" PRIu64, length);
    return 0;
}

static int put_data(struct errand *errand, const char *text, struct hutch_error *err)
{
    size_t length = strlen(text), used = 0;
    size_t padding = 0;
    struct source source = {.fd = -1};

    while (padding < 2 && padding < length && text[length - 1 - padding] == '=')
        padding++;
    if (BASE64_DECODED(length) > LIMIT_FILES_BYTES + padding)
        return err_set(err, HUTCH_ERR_INVALID,
                       "data: %zu bytes; allowed are %zu, and any number in a file that from names",
                       BASE64_DECODED(length) - padding, (size_t)LIMIT_FILES_BYTES);
    char *memory = malloc(BASE64_DECODED(length) + 1);
    if (!memory)
        return err_no_memory(err);
    source.memory = memory;
    int code = base64_decode(text, length, memory, &used)
                   ? put(errand, &source, used, err)
                   : err_set(err, HUTCH_ERR_INVALID, "data: is not Base64 with padding");
    free(memory);
    return code;
}

static int put_file(struct errand *errand, const char *local, struct hutch_error *err)
{
    struct problem problem;
    struct stat status;
    auto_close int fd = input_open("upload", local, &problem);

    if (fd < 0)
        return err_set(err, problem.code, "from: %.200s",
                       strncmp(problem.text, "upload: ", 8) == 0 ? problem.text + 8 : problem.text);
    if (fstat(fd, &status) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "from: %s", quote_text(local).text);
    struct source source = {.fd = fd};
    if (!json_object_get(errand->line, "executable"))
        errand->options.executable = (status.st_mode & 0111) != 0;
    return put(errand, &source, (uint64_t)status.st_size, err);
}

static int do_put(struct errand *errand, struct hutch_error *err)
{
    const char *data, *from;

    if (read_text(errand, "data", &data, err) < 0 || read_text(errand, "from", &from, err) < 0)
        return err->code;
    if ((data == NULL) == (from == NULL))
        return err_set(err, HUTCH_ERR_INVALID, "put: has %s; allowed is one of data and from",
                       data ? "data and from" : "neither data nor from");
    return data ? put_data(errand, data, err) : put_file(errand, from, err);
}

/* ---- get ---- */

struct target {
    struct buf *memory;
    int fd; /* where there is no memory */
    uint64_t size;
};

static int take(void *user, const char *data, size_t length)
{
    struct target *target = user;

    target->size += length;
    if (!target->memory)
        return fd_write_all(target->fd, data, length);
    buf_append(target->memory, data, length);
    return target->memory->failure == BUF_OK ? 0 : -1;
}

static int get(struct errand *errand, struct target *target, struct hutch_error *err)
{
    if (hutch_session_get(errand->session, errand->path, take, target, &errand->options, err) < 0)
        return err->code;
    buf_appendf(errand->answer, ",\"size\":%" PRIu64, target->size);
    return 0;
}

static int get_data(struct errand *errand, struct hutch_error *err)
{
    auto_buf struct buf memory = BUF_MAX(LIMIT_FILES_BYTES);
    struct target target = {.memory = &memory, .fd = -1};

    errand->options.max_bytes = LIMIT_FILES_BYTES;
    if (get(errand, &target, err) < 0) {
        if (err->sys_errno == EFBIG)
            return err_context(err, "without to");
        return err->code;
    }
    buf_append_text(errand->answer, ",\"data\":\"");
    base64_append(errand->answer, memory.data, memory.length);
    buf_append_text(errand->answer, "\"");
    return 0;
}

static int get_file(struct errand *errand, const char *local, struct hutch_error *err)
{
    __attribute__((cleanup(arrival_done))) struct arrival arrival = {.fd = -1};
    int failure = arrival_open(&arrival, errand->path, local);

    if (failure != 0)
        return err_errno(err, HUTCH_ERR_INVALID, failure, "to: file %s cannot be written",
                         quote_text(local).text);
    struct target target = {.fd = arrival.fd};
    if (get(errand, &target, err) < 0)
        return err->code;
    failure = arrival_finish(&arrival);
    if (failure != 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, failure, "to: file %s cannot be written",
                         quote_text(local).text);
    return 0;
}

static int do_get(struct errand *errand, struct hutch_error *err)
{
    const char *to;

    if (read_text(errand, "to", &to, err) < 0)
        return err->code;
    return to ? get_file(errand, to, err) : get_data(errand, err);
}

/* ---- list, delete ---- */

static int do_list(struct errand *errand, struct hutch_error *err)
{
    struct buf *answer = errand->answer;
    hutch_listing *listing;

    if (hutch_session_list(errand->session, errand->path, &errand->options, &listing, err) < 0)
        return err->code;
    buf_append_text(answer, ",\"entries\":[");
    for (size_t i = 0; i < listing->count; i++) {
        const struct hutch_entry *entry = &listing->entries[i];
        buf_append_text(answer, i > 0 ? ",{\"name\":" : "{\"name\":");
        json_append_text(answer, entry->name);
        buf_appendf(answer, ",\"is_dir\":%s,\"size\":%" PRIu64 "}",
                    entry->is_directory ? "true" : "false", entry->size);
    }
    buf_appendf(answer, "],\"truncated\":%s", listing->truncated ? "true" : "false");
    hutch_listing_free(listing);
    return 0;
}

static int do_operation(struct errand *errand, struct hutch_error *err)
{
    if (read_fields(errand, err) < 0)
        return err->code;
    if (strcmp(errand->op, "put") == 0)
        return do_put(errand, err);
    if (strcmp(errand->op, "get") == 0)
        return do_get(errand, err);
    if (strcmp(errand->op, "list") == 0)
        return do_list(errand, err);
    return hutch_session_delete(errand->session, errand->path, &errand->options, err);
}

/* ---- the answer ---- */

void append_error(struct buf *text, const struct hutch_error *err)
{
    buf_append_text(text, "\"error\":{\"code\":");
    json_append_text(text, hutch_error_name(err->code));
    buf_append_text(text, ",\"message\":");
    json_append_text(text, err->message);
    buf_appendf(text, ",\"retry_safe\":%s}", hutch_error_retry_safe(err) ? "true" : "false");
}

int append_id(struct buf *text, const json_t *line, struct hutch_error *err)
{
    const json_t *id = json_object_get(line, "id");
    const char *comma = text->length > 0 && text->data[text->length - 1] != '{' ? "," : "";

    if (!id)
        return 0;
    if (json_is_integer(id)) {
        buf_appendf(text, "%s\"id\":%" JSON_INTEGER_FORMAT, comma, json_integer_value(id));
        return 0;
    }
    if (!json_is_string(id))
        return wrong_type("id", "a string or a whole number", id, err);
    if (json_string_length(id) > ID_BYTES)
        return err_set(err, HUTCH_ERR_INVALID, "id: has %zu bytes; allowed are %d",
                       json_string_length(id), ID_BYTES);
    buf_appendf(text, "%s\"id\":", comma);
    json_append_string(text, json_string_value(id), json_string_length(id));
    return 0;
}

/* The answer's begin, which tells what it answers. */
static int append_head(const struct errand *errand, struct hutch_error *err)
{
    buf_append_text(errand->answer, "{\"op\":");
    json_append_text(errand->answer, errand->op);
    return append_id(errand->answer, errand->line, err);
}

static int answer_object(struct errand *errand, struct hutch_error *err)
{
    errand->op = json_string_value(json_object_get(errand->line, "op"));
    if (append_head(errand, err) < 0 || do_operation(errand, err) < 0)
        return err->code;
    return buf_check(errand->answer, err);
}

void answer_files_line(hutch_session *session, hutch_cancel *cancel, const char *text,
                       size_t length, struct buf *answer)
{
    auto_json json_t *line = NULL;
    struct errand errand = {.session = session, .answer = answer};
    struct hutch_error err;

    hutch_file_options_init(&errand.options);
    errand.options.cancel = cancel;
    if (json_read(text, length, LIMIT_REQUEST_JSON_BYTES, &line, &err) < 0) {
        buf_append_text(answer, "{");
        append_error(answer, &err);
    } else {
        errand.line = line;
        if (answer_object(&errand, &err) < 0) {
            buf_append_text(answer, ",");
            append_error(answer, &err);
        }
    }
    buf_append_text(answer, "}");
}
