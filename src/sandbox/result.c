/* SPDX-License-Identifier: Apache-2.0 */
/* See result.h. The JSON is written by hand: output may be tens of megabytes. */
#include "result.h"

#include "base/base64.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "file_name.h"
#include "layers.h"
#include "request.h"

#include <inttypes.h>
#include <string.h>

int result_new(const struct hutch_request *request, const char *backend,
               struct hutch_result **ret_result, struct hutch_error *err)
{
    struct hutch_result *result = calloc(1, sizeof(*result));

    if (!result)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    result->size = sizeof(*result);
    result->backend = backend;
    result->language = language_name(request->language);
    result->output_encoding = request->output_encoding;
    *ret_result = result;
    return 0;
}

int result_set_value(struct hutch_result *result, const char *data, size_t length,
                     struct hutch_error *err)
{
    if (!data)
        return 0;
    auto_buf struct buf value = BUF_MAX(length * strlen(UTF8_REPLACEMENT));
    utf8_repair(&value, data, length);
    buf_append(&value, "", 0); /* an empty value is a string, too */
    if (buf_check(&value, err) < 0)
        return err->code;
    free(result->value.data);
    struct buf taken = TAKE_BUF(value);
    result->value = (struct hutch_text){.data = taken.data, .length = taken.length};
    return 0;
}

int result_add_file(struct hutch_result *result, const char *path, uint64_t size,
                    struct hutch_error *err)
{
    /* It doubles, so that it is moved seldom. */
    size_t count = result->file_count;
    if ((count & (count - 1)) == 0) {
        size_t room = count == 0 ? 1 : 2 * count;
        struct hutch_file *files = realloc(result->files, room * sizeof(*files));
        if (!files)
            return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
        result->files = files;
    }
    struct hutch_file file = {.path = strdup(path), .size = size, .mime = file_mime(path)};
    if (!file.path)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    result->files[result->file_count++] = file;
    return 0;
}

static int compare_paths(const void *a, const void *b)
{
    const struct hutch_file *first = a, *second = b;
    return strcmp(first->path, second->path);
}

void result_sort_files(struct hutch_result *result)
{
    if (result->file_count > 1)
        qsort(result->files, result->file_count, sizeof(*result->files), compare_paths);
}

static void result_free_files(struct hutch_result *result)
{
    for (size_t i = 0; i < result->file_count; i++) {
        free(result->files[i].path);
        free(result->files[i].data.data);
    }
    free(result->files);
}

void result_take_rich(struct hutch_result *result, struct rich_list *list)
{
    result->results = list->items;
    result->result_count = list->count;
    result->results_dropped = list->dropped;
    *list = (struct rich_list){0};
}

void process_list_done(struct process_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i].command);
    free(list->items);
    *list = (struct process_list){0};
}

void result_take_background(struct hutch_result *result, struct process_list *list)
{
    result->background = list->items;
    result->background_count = list->count;
    *list = (struct process_list){0};
}

void result_set_restored(struct hutch_result *result)
{
    static const char *const lost[] = {
        "what the exec that was killed had done", "threads",      "child processes",
        "sockets and connections to databases",   "file offsets", "files are not rolled back",
    };

    result->restored = true;
    result->not_restored = lost;
    result->not_restored_count = ARRAY_LENGTH(lost);
}

void hutch_result_free(hutch_result *result)
{
    if (!result)
        return;
    free(result->stdout_text.data);
    free(result->stderr_text.data);
    free(result->error_class);
    free(result->error_message);
    free(result->value.data);
    free(result->late_text.data);
    struct process_list background = {result->background, result->background_count};
    process_list_done(&background);
    result_free_files(result);
    for (size_t i = 0; i < result->result_count; i++)
        free(result->results[i].data);
    free(result->results);
    free(result);
}

void hutch_free(void *memory)
{
    free(memory);
}

/* ---- JSON ---- */

static void append_bytes(struct buf *out, const char *data, size_t length,
                         enum hutch_encoding encoding)
{
    if (encoding == HUTCH_TEXT) {
        json_append_string(out, data, length);
        return;
    }
    buf_append_text(out, "\"");
    base64_append(out, data, length);
    buf_append_text(out, "\"");
}

static void append_output(struct buf *out, const char *name, const struct hutch_text *text,
                          enum hutch_encoding encoding)
{
    buf_appendf(out, "\"%s\":", name);
    append_bytes(out, text->data, text->length, encoding);
}

static void append_error(struct buf *out, const struct hutch_result *result)
{
    buf_append_text(out, ",\"error_type\":");
    json_append_text(out, result->error_type);
    buf_append_text(out, ",\"error\":");
    if (!result->error_class && !result->error_message) {
        buf_append_text(out, "null");
        return;
    }
    buf_append_text(out, "{\"type\":");
    json_append_text(out, result->error_class);
    buf_append_text(out, ",\"message\":");
    json_append_text(out, result->error_message);
    if (result->error_line > 0)
        buf_appendf(out, ",\"line\":%" PRIu32 "}", result->error_line);
    else
        buf_append_text(out, ",\"line\":null}");
}

static void append_time(struct buf *out, const char *name, double ms)
{
    buf_appendf(out, ",\"%s\":", name);
    json_append_ms(out, ms);
}

static void append_value(struct buf *out, const struct hutch_text *value)
{
    buf_append_text(out, ",\"value\":");
    if (value->data)
        json_append_string(out, value->data, value->length);
    else
        buf_append_text(out, "null");
}

static void append_session(struct buf *out, const struct hutch_result *result)
{
    if (!result->in_session)
        return;
    buf_appendf(out, ",\"restored\":%s,\"not_restored\":[", result->restored ? "true" : "false");
    for (size_t i = 0; i < result->not_restored_count; i++) {
        buf_append_text(out, i > 0 ? "," : "");
        json_append_text(out, result->not_restored[i]);
    }
    buf_appendf(out, "],\"state_lost\":%s,\"background\":[", result->state_lost ? "true" : "false");
    for (size_t i = 0; i < result->background_count; i++) {
        const struct hutch_process *process = &result->background[i];
        buf_appendf(out, "%s{\"pid\":%" PRId32 ",\"command\":", i > 0 ? "," : "", process->pid);
        json_append_text(out, process->command);
        buf_appendf(out, ",\"memory_bytes\":%" PRIu64 "}", process->memory_bytes);
    }
    buf_append_text(out, "],\"late_output\":");
    json_append_string(out, result->late_text.data ? result->late_text.data : "",
                       result->late_text.length);
}

static void append_rich(struct buf *out, const struct hutch_result *result)
{
    buf_append_text(out, ",\"results\":[");
    for (size_t i = 0; i < result->result_count; i++) {
        const struct hutch_rich *rich = &result->results[i];
        buf_appendf(out, "%s{\"mime\":", i > 0 ? "," : "");
        json_append_text(out, rich->mime);
        buf_append_text(out, ",\"data\":");
        append_bytes(out, rich->data, rich->length,
                     strcmp(rich->mime, "image/png") == 0 ? HUTCH_BASE64 : HUTCH_TEXT);
        buf_append_text(out, "}");
    }
    buf_appendf(out, "],\"results_dropped\":%" PRIu32, result->results_dropped);
}

static void append_place(struct buf *out, const struct hutch_result *result)
{
    buf_append_text(out, ",\"backend\":");
    json_append_text(out, result->backend);
    buf_append_text(out, ",\"language\":");
    json_append_text(out, result->language);
    buf_append_text(out, ",\"layers\":");
    layers_append_json(out, result->layers);
    buf_append_text(out, ",\"run_id\":");
    json_append_text(out, result->run_id);
    if (result->output_encoding == HUTCH_BASE64)
        buf_append_text(out, ",\"output_encoding\":\"base64\"");
}

static void append_files(struct buf *out, const struct hutch_result *result)
{
    buf_append_text(out, ",\"files\":[");
    for (size_t i = 0; i < result->file_count; i++) {
        const struct hutch_file *file = &result->files[i];
        buf_append_text(out, i > 0 ? ",{\"path\":" : "{\"path\":");
        json_append_text(out, file->path);
        buf_appendf(out, ",\"size\":%" PRIu64 ",\"mime\":", file->size);
        json_append_text(out, file->mime);
        if (file->data.data) {
            buf_append_text(out, ",\"data\":\"");
            base64_append(out, file->data.data, file->data.length);
            buf_append_text(out, "\"");
        }
        buf_append_text(out, "}");
    }
    buf_append_text(out, "]");
    if (result->files_truncated)
        buf_append_text(out, ",\"files_truncated\":true");
}

static void append_result(struct buf *out, const struct hutch_result *result)
{
    buf_append_text(out, "{");
    append_output(out, "stdout", &result->stdout_text, result->output_encoding);
    buf_append_text(out, ",");
    append_output(out, "stderr", &result->stderr_text, result->output_encoding);
    buf_appendf(out, ",\"exit_code\":%" PRId32 ",\"signal\":", result->exit_code);
    json_append_text(out, result->exit_signal);
    buf_appendf(out, ",\"timed_out\":%s", result->timed_out ? "true" : "false");
    append_error(out, result);
    append_value(out, &result->value);
    append_rich(out, result);
    append_files(out, result);
    buf_appendf(out, ",\"truncated\":%s", result->truncated ? "true" : "false");
    buf_appendf(out, ",\"stdout_bytes\":%" PRIu64 ",\"stderr_bytes\":%" PRIu64,
                result->stdout_bytes, result->stderr_bytes);
    append_time(out, "duration_ms", result->duration_ms);
    append_time(out, "queue_ms", result->queue_ms);
    append_time(out, "cpu_ms", result->cpu_ms);
    buf_appendf(out, ",\"peak_memory_bytes\":%" PRIu64, result->peak_memory_bytes);
    append_session(out, result);
    append_place(out, result);
    buf_append_text(out, "}");
}

int hutch_result_to_json(const hutch_result *result, char **ret_json, struct hutch_error *err)
{
    struct hutch_error local;
    auto_buf struct buf out = BUF_MAX(LIMIT_RESULT_JSON_BYTES);

    err = err ? err : &local;
    append_result(&out, result);
    if (buf_check(&out, err) < 0) {
        err_mark_maybe_ran(err); /* there is a result, so it has */
        return err_context(err, "result as JSON");
    }
    *ret_json = TAKE_BUF(out).data;
    return 0;
}
