/* SPDX-License-Identifier: Apache-2.0 */
/* See agent_view.h. */
#include "agent_view.h"

#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "output.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES MIB(128) /* one event as it is written */
#define REASON_BYTES 200     /* of why a call failed */

/* Writers of lines; call n has 2n and 2n + 1. */
enum { WRITER_MODEL = 0, WRITER_TOOLS = 1 };

#define STYLE_END "\033[0m"
static const char *const style_plain = "";
static const char *const style_call = "\033[1;36m";
static const char *const style_code = "\033[2m";
static const char *const style_error = "\033[31m";
static const char *const style_reasoning = "\033[2;3m";

/* ---- calls -------------------------------------------------------------- */

static void forget_calls(struct agent_view *view)
{
    for (size_t i = 0; i < view->call_count; i++)
        free(view->calls[i].id);
    free(view->calls);
    view->calls = NULL;
    view->call_count = 0;
}

static struct agent_view_call *find_call(const struct agent_view *view, const char *id)
{
    for (size_t i = 0; id && i < view->call_count; i++) {
        if (strcmp(view->calls[i].id, id) == 0)
            return &view->calls[i];
    }
    return NULL;
}

/* NULL: no memory; the call is then not shown. */
static struct agent_view_call *add_call(struct agent_view *view, const char *id)
{
    auto_free char *copy = strdup(id ? id : "");
    struct agent_view_call *calls =
        reallocarray(view->calls, view->call_count + 1, sizeof(*view->calls));

    if (calls)
        view->calls = calls;
    if (!calls || !copy)
        return NULL;
    struct agent_view_call *call = &calls[view->call_count++];
    *call = (struct agent_view_call){.id = TAKE_POINTER(copy), .number = ++view->numbered};
    return call;
}

/* ---- writing ------------------------------------------------------------ */

static void write_out(struct agent_view *view, int fd, const struct buf *out)
{
    if (view->failure != 0)
        return;
    view->failure = out->failure != BUF_OK ? ENOMEM : output_write(fd, buf_text(out), out->length);
    if (view->failure != 0)
        hutch_cancel_trigger(view->cancel);
}

static void append_styled(const struct agent_view *view, struct buf *out, const char *style,
                          const char *data, size_t length)
{
    bool styled = view->colours && style != style_plain && length > 0;

    buf_append_text(out, styled ? style : "");
    buf_append(out, data, length);
    buf_append_text(out, styled ? STYLE_END : "");
}

static void end_line(struct agent_view *view, struct buf *out)
{
    if (view->inside_line)
        buf_append_text(out, "\n");
    view->inside_line = false;
}

/* A blank line between the parts. */
static void begin_part(struct agent_view *view, struct buf *out, enum agent_view_part part)
{
    if (view->part == part)
        return;
    safe_text_end(out, &view->model_text);
    end_line(view, out);
    view->model_text = (struct safe_text){.after_return = false};
    if (view->part != AGENT_PART_NONE)
        buf_append_text(out, "\n");
    view->part = part;
}

/* No blanks stand at the end of an empty line. */
static size_t prefix_length(const char *prefix, bool empty_line)
{
    size_t length = strlen(prefix);

    while (empty_line && length > 0 && prefix[length - 1] == ' ')
        length--;
    return length;
}

/* Text of a writer, which goes on with its line where it is still the last one; each of its
 * lines begins with the prefix. */
static void append_lines(struct agent_view *view, struct buf *out, unsigned writer,
                         const char *prefix, const char *style, const char *text, size_t length)
{
    if (length == 0)
        return;
    if (view->writer != writer)
        end_line(view, out);
    view->writer = writer;
    while (length > 0) {
        const char *end = memchr(text, '\n', length);
        size_t piece = end ? (size_t)(end - text) : length;
        if (!view->inside_line)
            append_styled(view, out, style, prefix, prefix_length(prefix, piece == 0 && end));
        append_styled(view, out, style, text, piece);
        view->inside_line = !end;
        if (end)
            buf_append_text(out, "\n");
        piece += end ? 1 : 0;
        text += piece;
        length -= piece;
    }
}

/* ---- facts about a call ------------------------------------------------- */

static void append_cell(struct buf *out, const hutch_result *cell)
{
    if (cell->error_type)
        buf_appendf(out, "%s, ", cell->error_type);
    if (cell->exit_code == -2)
        buf_append_text(out, "refused by the gate");
    else if (cell->exit_code == -1)
        buf_append_text(out, "stopped");
    else
        buf_appendf(out, "exit code %d", cell->exit_code);
    buf_appendf(out, ", %.0f ms", cell->duration_ms);
    if (cell->peak_memory_bytes > 0)
        buf_appendf(out, ", %.1f MiB", (double)cell->peak_memory_bytes / (1 << 20));
    if (cell->state_lost)
        buf_append_text(out, ", state lost");
}

/* How a call ended, on one line. */
static void append_outcome(struct buf *out, const struct hutch_agent_event *event)
{
    struct safe_text safe = {.after_return = false};
    const char *text = event->text ? event->text : "";
    const char *end = memchr(text, '\n', event->length);
    size_t length = end ? (size_t)(end - text) : event->length;

    if (event->result) {
        append_cell(out, event->result);
    } else if (event->failed) {
        bool cut = length > REASON_BYTES;
        if (cut)
            length = utf8_boundary_before(text, length, REASON_BYTES);
        safe_text_append(out, &safe, text, length);
        buf_append_text(out, cut ? "..." : "");
    } else {
        buf_appendf(out, "%zu bytes for the model", event->length);
    }
}

/* ---- text for people ---------------------------------------------------- */

static void show_model_text(struct agent_view *view, struct buf *out,
                            const struct hutch_agent_event *event)
{
    bool reasoning = event->kind == HUTCH_AGENT_REASONING;
    auto_buf struct buf text = BUF_MAX(PIECE_BYTES);

    begin_part(view, out, reasoning ? AGENT_PART_REASONING : AGENT_PART_MESSAGE);
    safe_text_append(&text, &view->model_text, event->text, event->length);
    append_lines(view, out, WRITER_MODEL, reasoning ? "~ " : "",
                 reasoning ? style_reasoning : style_plain, buf_text(&text), text.length);
    if (text.failure != BUF_OK)
        out->failure = text.failure;
}

static void append_block(struct agent_view *view, struct buf *out, const char *style,
                         const char *prefix, const char *data, size_t length)
{
    struct safe_text safe = {.after_return = false};
    auto_buf struct buf text = BUF_MAX(PIECE_BYTES);

    safe_text_append(&text, &safe, data, length);
    append_lines(view, out, WRITER_TOOLS, prefix, style, buf_text(&text), text.length);
    end_line(view, out);
    if (text.failure != BUF_OK)
        out->failure = text.failure;
}

/* Whether an argument is shown on lines of its own: the code, and what has lines. */
static bool is_block(const char *name, const json_t *value)
{
    return json_is_string(value) &&
           (strcmp(name, "code") == 0 || strchr(json_string_value(value), '\n'));
}

/* "[1] write_file {"path":"x"}", and the blocks below. */
static void append_arguments(struct agent_view *view, struct buf *out, json_t *arguments,
                             const char *head)
{
    auto_buf struct buf line = BUF_MAX(PIECE_BYTES);
    auto_json json_t *rest = json_object();
    const char *name;
    json_t *value;

    json_object_foreach(arguments, name, value)
    {
        if (!is_block(name, value))
            json_object_set(rest, name, value);
    }
    buf_append_text(&line, head);
    if (json_object_size(rest) > 0) {
        buf_append_text(&line, " ");
        json_append_value(&line, rest);
    }
    append_block(view, out, style_call, "", buf_text(&line), line.length);
    json_object_foreach(arguments, name, value)
    {
        if (is_block(name, value))
            append_block(view, out, style_code, "    ", json_string_value(value),
                         json_string_length(value));
    }
}

static void show_call(struct agent_view *view, struct buf *out,
                      const struct hutch_agent_event *event)
{
    const struct agent_view_call *call = add_call(view, event->id);
    auto_json json_t *arguments = NULL;
    auto_buf struct buf head = BUF_MAX(KIB(16));
    struct hutch_error err;

    if (!call) {
        out->failure = BUF_NO_MEMORY;
        return;
    }
    begin_part(view, out, AGENT_PART_TOOLS);
    end_line(view, out);
    buf_appendf(&head, "[%u] %s", call->number, event->name ? event->name : "");
    if (json_read(event->text ? event->text : "", event->length, LIMIT_ARGUMENTS_BYTES, &arguments,
                  &err) == 0 &&
        json_is_object(arguments))
        append_arguments(view, out, arguments, buf_text(&head));
    else
        append_block(view, out, style_call, "", buf_text(&head), head.length);
}

static void show_output(struct agent_view *view, struct buf *out, struct agent_view_call *call,
                        enum hutch_stream stream, const char *data, size_t length)
{
    bool is_error = stream == HUTCH_STDERR;
    struct safe_text *safe = &call->streams[is_error];
    auto_buf struct buf text = BUF_MAX(PIECE_BYTES);
    char prefix[32];

    if (data)
        safe_text_append(&text, safe, data, length);
    else
        safe_text_end(&text, safe);
    snprintf(prefix, sizeof(prefix), "%u%c ", call->number, is_error ? '!' : '|');
    append_lines(view, out, 2 * call->number + (is_error ? 1 : 0), prefix,
                 is_error ? style_error : style_plain, buf_text(&text), text.length);
    if (text.failure != BUF_OK)
        out->failure = text.failure;
}

static void show_result(struct agent_view *view, struct buf *out, struct agent_view_call *call,
                        const struct hutch_agent_event *event)
{
    bool good = !event->failed && !(event->result && event->result->error_type);
    auto_buf struct buf line = BUF_MAX(KIB(4));

    show_output(view, out, call, HUTCH_STDOUT, NULL, 0);
    show_output(view, out, call, HUTCH_STDERR, NULL, 0);
    end_line(view, out);
    buf_appendf(&line, "%u= ", call->number);
    append_outcome(&line, event);
    append_block(view, out, good ? style_code : style_error, "", buf_text(&line), line.length);
}

static void show_text(struct agent_view *view, const struct hutch_agent_event *event)
{
    struct agent_view_call *call = find_call(view, event->id);
    auto_buf struct buf out = BUF_MAX(PIECE_BYTES);

    switch (event->kind) {
    case HUTCH_AGENT_MODEL_TEXT:
    case HUTCH_AGENT_REASONING:
        show_model_text(view, &out, event);
        break;
    case HUTCH_AGENT_TOOL_CALL:
        show_call(view, &out, event);
        break;
    case HUTCH_AGENT_TOOL_OUTPUT:
        if (call && event->text)
            show_output(view, &out, call, event->stream, event->text, event->length);
        break;
    case HUTCH_AGENT_TOOL_RESULT:
        if (call)
            show_result(view, &out, call, event);
        break;
    case HUTCH_AGENT_STEP:
        forget_calls(view);
        break;
    }
    write_out(view, STDOUT_FILENO, &out);
}

/* ---- a line for each call ----------------------------------------------- */

static void show_calls(struct agent_view *view, const struct hutch_agent_event *event)
{
    auto_buf struct buf out = BUF_MAX(KIB(16));

    if (event->kind != HUTCH_AGENT_TOOL_RESULT)
        return;
    buf_appendf(&out, "[%u] %s: ", ++view->numbered, event->name ? event->name : "");
    append_outcome(&out, event);
    buf_append_text(&out, "\n");
    write_out(view, STDERR_FILENO, &out);
}

/* ---- JSON lines --------------------------------------------------------- */

static void append_member(struct buf *out, const char *name, const char *text, size_t length)
{
    buf_appendf(out, ",\"%s\":", name);
    json_append_string(out, text ? text : "", length);
}

static void append_json_head(struct buf *out, enum hutch_agent_event_kind kind,
                             const struct hutch_agent_event *event)
{
    static const char *const names[] = {
        [HUTCH_AGENT_MODEL_TEXT] = "message",      [HUTCH_AGENT_REASONING] = "reasoning",
        [HUTCH_AGENT_TOOL_CALL] = "tool_call",     [HUTCH_AGENT_TOOL_OUTPUT] = "tool_output",
        [HUTCH_AGENT_TOOL_RESULT] = "tool_result", [HUTCH_AGENT_STEP] = "step",
    };

    buf_appendf(out, "{\"event\":\"%s\",\"step\":%u", names[kind], event->step);
    if (event->id)
        append_member(out, "id", event->id, strlen(event->id));
    if (event->name)
        append_member(out, "name", event->name, strlen(event->name));
}

/* The arguments as an object; as a string where they are none. */
static void append_json_call(struct buf *out, const struct hutch_agent_event *event)
{
    struct hutch_error err;
    auto_json json_t *arguments = NULL;
    const char *text = event->text ? event->text : "";

    append_json_head(out, event->kind, event);
    if (json_read(text, event->length, LIMIT_ARGUMENTS_BYTES, &arguments, &err) == 0) {
        buf_append_text(out, ",\"arguments\":");
        json_append_value(out, arguments);
    } else {
        append_member(out, "arguments", text, event->length);
    }
    buf_append_text(out, "}\n");
}

static void append_json_result(struct buf *out, const struct hutch_agent_event *event)
{
    const hutch_result *cell = event->result;

    buf_appendf(out, ",\"failed\":%s", event->failed ? "true" : "false");
    append_member(out, "text", event->text, event->length);
    buf_append_text(out, ",\"cell\":");
    if (!cell) {
        buf_append_text(out, "null");
        return;
    }
    buf_appendf(out, "{\"exit_code\":%d,\"error_type\":", cell->exit_code);
    json_append_text(out, cell->error_type);
    buf_append_text(out, ",\"duration_ms\":");
    json_append_ms(out, cell->duration_ms);
    buf_appendf(out, ",\"peak_memory_bytes\":%llu,\"state_lost\":%s}",
                (unsigned long long)cell->peak_memory_bytes, cell->state_lost ? "true" : "false");
}

/* A line for whole characters of a stream; the rest of it where data is NULL. */
static void append_json_output(struct buf *out, const struct hutch_agent_event *event,
                               struct agent_view_call *call, enum hutch_stream stream,
                               const char *data)
{
    bool is_error = stream == HUTCH_STDERR;
    struct text_rest *rest = &call->streams[is_error].rest;
    auto_buf struct buf text = BUF_MAX(PIECE_BYTES);

    if (data)
        text_rest_append(&text, rest, data, event->length);
    else
        text_rest_end(&text, rest);
    if (text.failure != BUF_OK)
        out->failure = text.failure;
    if (text.length == 0)
        return;
    append_json_head(out, HUTCH_AGENT_TOOL_OUTPUT, event);
    append_member(out, "stream", is_error ? "stderr" : "stdout", 6);
    append_member(out, "text", buf_text(&text), text.length);
    buf_append_text(out, "}\n");
}

/* What is left of its output, and how the call ended. */
static void append_json_end(struct buf *out, const struct hutch_agent_event *event,
                            struct agent_view_call *call)
{
    if (call) {
        append_json_output(out, event, call, HUTCH_STDOUT, NULL);
        append_json_output(out, event, call, HUTCH_STDERR, NULL);
    }
    append_json_head(out, event->kind, event);
    append_json_result(out, event);
    buf_append_text(out, "}\n");
}

static void append_json_text(struct buf *out, const struct hutch_agent_event *event)
{
    append_json_head(out, event->kind, event);
    append_member(out, "text", event->text, event->length);
    buf_append_text(out, "}\n");
}

static void show_lines(struct agent_view *view, const struct hutch_agent_event *event)
{
    struct agent_view_call *call = find_call(view, event->id);
    auto_buf struct buf out = BUF_MAX(PIECE_BYTES);

    switch (event->kind) {
    case HUTCH_AGENT_MODEL_TEXT:
    case HUTCH_AGENT_REASONING:
        append_json_text(&out, event);
        break;
    case HUTCH_AGENT_TOOL_CALL:
        if (!add_call(view, event->id))
            out.failure = BUF_NO_MEMORY;
        append_json_call(&out, event);
        break;
    case HUTCH_AGENT_TOOL_OUTPUT:
        if (call && event->text)
            append_json_output(&out, event, call, event->stream, event->text);
        break;
    case HUTCH_AGENT_TOOL_RESULT:
        append_json_end(&out, event, call);
        break;
    case HUTCH_AGENT_STEP:
        forget_calls(view);
        append_json_head(&out, event->kind, event);
        buf_append_text(&out, "}\n");
        break;
    }
    write_out(view, STDOUT_FILENO, &out);
}

/* ---- events ------------------------------------------------------------- */

void agent_view_event(void *user, const struct hutch_agent_event *event)
{
    struct agent_view *view = user;

    switch (view->kind) {
    case AGENT_VIEW_NOTHING:
        break;
    case AGENT_VIEW_CALLS:
        show_calls(view, event);
        break;
    case AGENT_VIEW_TEXT:
        show_text(view, event);
        break;
    case AGENT_VIEW_LINES:
        show_lines(view, event);
        break;
    }
}

void agent_view_end(struct agent_view *view)
{
    auto_buf struct buf out = BUF_MAX(KIB(1));

    safe_text_end(&out, &view->model_text);
    end_line(view, &out);
    if (out.length > 0)
        write_out(view, STDOUT_FILENO, &out);
    forget_calls(view);
    *view = (struct agent_view){.kind = view->kind,
                                .colours = view->colours,
                                .cancel = view->cancel,
                                .failure = view->failure};
}

void agent_view_done(struct agent_view *view)
{
    forget_calls(view);
}
