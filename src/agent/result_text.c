/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See result_text.h. What is of any length, the pieces, shares what the rest leaves: a piece
 * that needs less than its share leaves more to the others.
 */
#include "result_text.h"

#include "base/json.h"
#include "base/limits.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "distributions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 256   /* that are measured at once */
#define CHARACTER_BYTES 4 /* of the longest one */
#define SCRATCH_BYTES (BLOCK_BYTES * ESCAPE_BYTES + 2)
#define ESCAPE_BYTES 6      /* of \uXXXX */
#define PIECE_BYTES_MIN 128 /* of a piece that is cut; with less, its end alone is shown */

/* ---- cutting ---- */

static size_t smaller(size_t one, size_t other)
{
    return one < other ? one : other;
}

/* The line between head and tail. */
struct marker {
    char text[64];
};

static struct marker marker_of(uint64_t left_out)
{
    struct marker marker;

    snprintf(marker.text, sizeof(marker.text), "\n[... %" PRIu64 " bytes left out ...]\n",
             left_out);
    return marker;
}

int text_append_cut(struct buf *out, const char *text, size_t length, uint64_t max_bytes,
                    struct hutch_error *err)
{
    if (length <= max_bytes) {
        buf_append(out, text, length);
        return buf_check(out, err);
    }
    size_t half = (size_t)(max_bytes - strlen(marker_of(length).text)) / 2;
    size_t head = utf8_boundary_before(text, length, half);
    size_t tail = utf8_boundary_after(text, length, length - half);
    buf_append(out, text, head);
    buf_append_text(out, marker_of(tail - head).text);
    buf_append(out, text + tail, length - tail);
    return buf_check(out, err);
}

/* What characters take in a JSON string; at most BLOCK_BYTES of them. */
static size_t cost_of_bytes(struct buf *scratch, const char *data, size_t length)
{
    buf_clear(scratch);
    json_append_string(scratch, data, length);
    return scratch->failure == BUF_OK ? scratch->length - strlen("\"\"") : length * ESCAPE_BYTES;
}

struct piece {
    const char *data;
    size_t length;
    uint64_t total; /* bytes that there were before the engine cut it */
    size_t cost;    /* in JSON; more than the maximum says no more than that */
    size_t grant;
};

static size_t cost_of(const struct piece *piece, uint64_t max)
{
    auto_buf struct buf scratch = BUF_MAX(SCRATCH_BYTES);
    size_t cost = 0;

    for (size_t at = 0; at < piece->length && cost <= max;) {
        size_t end = utf8_boundary_before(piece->data, piece->length,
                                          smaller(at + BLOCK_BYTES, piece->length));
        cost += cost_of_bytes(&scratch, piece->data + at, end - at);
        at = end;
    }
    return cost;
}

/* Where the beginning ends that takes no more than room: by blocks, and by characters where
 * no whole block has room. */
static size_t head_end(const struct piece *piece, size_t room)
{
    auto_buf struct buf scratch = BUF_MAX(SCRATCH_BYTES);
    size_t at = 0, step = BLOCK_BYTES;

    while (at < piece->length) {
        size_t end =
            utf8_boundary_before(piece->data, piece->length, smaller(at + step, piece->length));
        size_t cost = cost_of_bytes(&scratch, piece->data + at, end - at);
        if (cost <= room) {
            room -= cost;
            at = end;
        } else if (step == CHARACTER_BYTES) {
            break;
        } else {
            step = CHARACTER_BYTES;
        }
    }
    return at;
}

/* Where the end begins, likewise. */
static size_t tail_start(const struct piece *piece, size_t room)
{
    auto_buf struct buf scratch = BUF_MAX(SCRATCH_BYTES);
    size_t at = piece->length, step = BLOCK_BYTES;

    while (at > 0) {
        size_t start = utf8_boundary_after(piece->data, piece->length, at - smaller(at, step));
        size_t cost = cost_of_bytes(&scratch, piece->data + start, at - start);
        if (cost <= room) {
            room -= cost;
            at = start;
        } else if (step == CHARACTER_BYTES) {
            break;
        } else {
            step = CHARACTER_BYTES;
        }
    }
    return at;
}

static void append_piece(struct buf *out, const struct piece *piece)
{
    if (piece->length == 0 || piece->cost <= piece->grant) {
        json_append_string(out, piece->data ? piece->data : "", piece->length);
        return;
    }
    if (piece->grant < PIECE_BYTES_MIN) {
        size_t start = tail_start(piece, piece->grant);
        json_append_string(out, piece->data + start, piece->length - start);
        return;
    }
    uint64_t total = piece->total > piece->length ? piece->total : piece->length;
    size_t marker = strlen(marker_of(total).text) + 2; /* its line ends take two bytes each */
    size_t half = (piece->grant - marker) / 2;
    size_t head = head_end(piece, half), tail = tail_start(piece, half);
    uint64_t kept = head + (piece->length - tail);
    auto_buf struct buf text = BUF_MAX(SIZE_MAX / 4);
    buf_append(&text, piece->data, head);
    buf_append_text(&text, marker_of(total - kept).text);
    buf_append(&text, piece->data + tail, piece->length - tail);
    if (text.failure != BUF_OK)
        out->failure = text.failure;
    json_append_string(out, buf_text(&text), text.length);
}

/* ---- hints ---- */

/* Sentences; one that does not fit is left out. */
static void hint_add(struct buf *hint, const char *sentence)
{
    size_t length = strlen(sentence);

    if (length == 0 || hint->length + 1 + length > hint->max)
        return;
    buf_append_text(hint, hint->length > 0 ? " " : "");
    buf_append(hint, sentence, length);
}

#define NAMES_MAX 30

static void append_names(struct buf *text, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count && i < NAMES_MAX; i++)
        buf_appendf(text, "%s%s", i > 0 ? ", " : "", names[i]);
    buf_append_text(text, count > NAMES_MAX ? ", ..." : "");
}

/* What the gate lets through. */
static void hint_of_gate(struct buf *hint, const struct hutch_gate *gate)
{
    auto_buf struct buf text = BUF_MAX(KIB(16));

    buf_append_text(&text, "Nothing of the code has run. ");
    if (gate->allowed_imports) {
        buf_append_text(&text, "Allowed imports: ");
        append_names(&text, gate->allowed_imports, gate->allowed_import_count);
        buf_append_text(&text, gate->allowed_import_count > 0 ? "." : "none.");
    } else if (!gate->modules) {
        buf_append_text(&text, "Every other module of the standard library is allowed, such as "
                               "pathlib, tempfile and shutil for files.");
    } else {
        buf_append_text(&text, "Every module is allowed but: ");
        append_names(&text, gate->modules, gate->module_count);
        buf_append_text(&text, ".");
    }
    if (text.failure == BUF_OK)
        hint_add(hint, text.data);
    else
        hint_add(hint, "Nothing of the code has run.");
}

static void hint_of_limits(struct buf *hint, const struct result_context *context)
{
    auto_buf struct buf text = BUF_MAX(KIB(1));

    buf_appendf(&text,
                "The limits of a call are fixed: %s s and %" PRIu64
                " MB of memory, and they cannot be raised from here; do less in one call.",
                number_text(context->timeout_seconds).text, context->memory_mb);
    hint_add(hint, buf_text(&text));
}

/* What is missing is what a user would install by another name, if one could. */
static void hint_of_imports(struct buf *hint, const struct result_context *context)
{
    auto_buf struct buf names = BUF_MAX(KIB(1)), text = BUF_MAX(KIB(2));

    hint_add(hint, "Nothing can be installed: there is no network; use the standard library.");
    if (context->python)
        distributions_append(&names, context->python, context->python_length);
    if (names.length == 0 || names.failure != BUF_OK)
        return;
    buf_appendf(&text, "Of what is imported here, %s: where one is missing, the others may be.",
                buf_text(&names));
    hint_add(hint, buf_text(&text));
}

static bool type_is(const hutch_result *result, const char *type)
{
    return result->error_type && strcmp(result->error_type, type) == 0;
}

static bool says_nothing(const hutch_result *result)
{
    return result->exit_code == 0 && result->stdout_text.length == 0 &&
           result->stderr_text.length == 0 && !result->value.data && result->result_count == 0 &&
           result->file_count == 0;
}

static void hint_of_state(struct buf *hint, const hutch_result *result,
                          const struct result_context *context)
{
    if (result->state_lost && context->files_lost)
        hint_add(hint, "The state was reset, as the session had ended: variables, imports, "
                       "functions and files are gone; run again what is needed.");
    else if (result->state_lost)
        hint_add(hint, "The state was reset: variables, imports and functions are gone, files are "
                       "still there; run again what is needed.");
    if (result->restored)
        hint_add(hint, "The interpreter was replaced by a copy from before this call: what earlier "
                       "calls did is there, what this one did is not, but for its files.");
    if (result->file_count > 0 && result->in_session)
        hint_add(hint, "Files were created or changed; they stay for later calls.");
    if (result->file_count > 0 && !result->in_session)
        hint_add(hint, "Files were created; they are gone, as each call has a cell of its own.");
    if (result->results_dropped > 0)
        hint_add(hint, "Some of what was to be displayed was too large or malformed.");
}

static void append_hint(struct buf *hint, const hutch_result *result,
                        const struct result_context *context)
{
    hint_add(hint, context->note ? context->note : "");
    if (type_is(result, "validation_error") && context->gate)
        hint_of_gate(hint, context->gate);
    if (type_is(result, "timeout") || type_is(result, "resource_limit"))
        hint_of_limits(hint, context);
    if (type_is(result, "import_error"))
        hint_of_imports(hint, context);
    if (result->error_class && strcmp(result->error_class, "EOFError") == 0)
        hint_add(hint, "No standard input was given: write the values into the code in place of "
                       "input().");
    hint_of_state(hint, result, context);
    if (says_nothing(result))
        hint_add(hint, "The code printed nothing: print what you want to see.");
}

/* ---- lists ---- */

/* Appends an item to a JSON list, if it fits; false if it does not. */
static bool list_add(struct buf *list, const struct buf *item)
{
    if (item->failure != BUF_OK || list->length + 1 + item->length > list->max)
        return false;
    buf_append_text(list, list->length > 0 ? "," : "");
    buf_append(list, item->data, item->length);
    return true;
}

/* False if not all of them fit. */
static bool append_files(struct buf *list, const hutch_result *result)
{
    for (size_t i = 0; i < result->file_count; i++) {
        const struct hutch_file *file = &result->files[i];
        auto_buf struct buf item = BUF_MAX(list->max + 1);
        buf_append_text(&item, "{\"path\":");
        json_append_text(&item, file->path);
        buf_appendf(&item, ",\"size\":%" PRIu64 "}", file->size);
        if (!list_add(list, &item))
            return false;
    }
    return true;
}

static bool append_background(struct buf *list, const hutch_result *result)
{
    for (size_t i = 0; i < result->background_count; i++) {
        const struct hutch_process *process = &result->background[i];
        auto_buf struct buf item = BUF_MAX(list->max + 1);
        buf_appendf(&item, "{\"pid\":%" PRId32 ",\"command\":", process->pid);
        json_append_text(&item, process->command);
        buf_append_text(&item, "}");
        if (!list_add(list, &item))
            return false;
    }
    return true;
}

static bool is_figure(const struct hutch_rich *rich)
{
    return strncmp(rich->mime, "image/", strlen("image/")) == 0;
}

static size_t count_figures(const hutch_result *result)
{
    size_t count = 0;
    for (size_t i = 0; i < result->result_count; i++)
        count += is_figure(&result->results[i]);
    return count;
}

/* Rich outputs that are text. Of a value that has a text of its own, that is enough. */
static void append_display(struct buf *text, const hutch_result *result)
{
    for (size_t i = 0; i < result->result_count; i++) {
        const struct hutch_rich *rich = &result->results[i];
        if (is_figure(rich) || (result->value.data && strcmp(rich->mime, "text/html") == 0))
            continue;
        buf_appendf(text, "%s%s: ", text->length > 0 ? "\n" : "", rich->mime);
        buf_append(text, rich->data, rich->length);
    }
}

/* ---- the whole ---- */

enum piece_name { OUTPUT, ERRORS, VALUE, MESSAGE, DISPLAY, LATE, PIECES };

struct parts {
    struct piece pieces[PIECES];
    struct buf class, files, background, display, hint;
    bool files_left_out, background_left_out;
};

static void parts_done(struct parts *parts)
{
    buf_done(&parts->class);
    buf_done(&parts->files);
    buf_done(&parts->background);
    buf_done(&parts->display);
    buf_done(&parts->hint);
}

static struct piece piece_of(const struct hutch_text *text, uint64_t total)
{
    return (struct piece){.data = text->data, .length = text->length, .total = total};
}

static void fill_parts(struct parts *parts, const hutch_result *result,
                       const struct result_context *context, uint64_t max)
{
    const char *class = result->error_class ? result->error_class : "";
    const char *message = result->error_message ? result->error_message : "";
    size_t class_length = strnlen(class, (size_t)max / 32);

    parts->class = BUF_MAX(max / 32);
    buf_append(&parts->class, class, utf8_boundary_before(class, class_length, class_length));
    parts->files = BUF_MAX(max / 8);
    parts->files_left_out = !append_files(&parts->files, result);
    parts->background = BUF_MAX(max / 8);
    parts->background_left_out = !append_background(&parts->background, result);
    parts->display = BUF_MAX(MIB(16));
    append_display(&parts->display, result);
    parts->hint = BUF_MAX(max / 4);
    append_hint(&parts->hint, result, context);

    struct piece *pieces = parts->pieces;
    pieces[OUTPUT] = piece_of(&result->stdout_text, result->truncated ? result->stdout_bytes : 0);
    pieces[ERRORS] = piece_of(&result->stderr_text, result->truncated ? result->stderr_bytes : 0);
    pieces[VALUE] = piece_of(&result->value, 0);
    pieces[MESSAGE] = (struct piece){.data = message, .length = strlen(message)};
    pieces[DISPLAY] = (struct piece){.data = parts->display.data, .length = parts->display.length};
    pieces[LATE] = piece_of(&result->late_text, 0);
    for (size_t i = 0; i < PIECES; i++)
        pieces[i].cost = cost_of(&pieces[i], max);
}

/* Gives each piece what it needs, or an equal share of what is left. */
static void grant(struct piece *pieces, size_t room)
{
    size_t open = PIECES;

    for (bool changed = true; changed && open > 0;) {
        size_t share = room / open;
        changed = false;
        for (size_t i = 0; i < PIECES; i++) {
            if (pieces[i].grant > 0 || pieces[i].cost > share)
                continue;
            pieces[i].grant = pieces[i].cost + 1; /* so that it counts as given */
            room -= pieces[i].cost;
            open--;
            changed = true;
        }
    }
    for (size_t i = 0; i < PIECES; i++) {
        if (pieces[i].grant == 0)
            pieces[i].grant = room / open;
    }
}

static void append_error(struct buf *out, const hutch_result *result, const struct parts *parts)
{
    if (!result->error_class && !result->error_message)
        return;
    buf_append_text(out, ",\"error\":{");
    if (parts->class.length > 0) {
        buf_append_text(out, "\"class\":");
        json_append_string(out, parts->class.data, parts->class.length);
        buf_append_text(out, ",");
    }
    buf_append_text(out, "\"message\":");
    append_piece(out, &parts->pieces[MESSAGE]);
    if (result->error_line > 0)
        buf_appendf(out, ",\"line\":%" PRIu32, result->error_line);
    buf_append_text(out, "}");
}

static void append_figures(struct buf *out, const hutch_result *result)
{
    size_t count = count_figures(result);

    if (count > 0)
        buf_appendf(out, ",\"figures\":\"%zu figure%s\"", count, count == 1 ? "" : "s");
}

static void append_list(struct buf *out, const char *name, const struct buf *list, bool more)
{
    const char *comma = list->length > 0 ? "," : "";

    if (list->length > 0 || more)
        buf_appendf(out, ",\"%s\":[%s%s%s]", name, buf_text(list), more ? comma : "",
                    more ? "\"...\"" : "");
}

static void append_optional(struct buf *out, const char *name, const struct piece *piece)
{
    if (piece->length == 0)
        return;
    buf_appendf(out, ",\"%s\":", name);
    append_piece(out, piece);
}

static void append_all(struct buf *out, const hutch_result *result, const struct parts *parts)
{
    buf_append_text(out, "{\"stdout\":");
    append_piece(out, &parts->pieces[OUTPUT]);
    buf_append_text(out, ",\"stderr\":");
    append_piece(out, &parts->pieces[ERRORS]);
    buf_appendf(out,
                ",\"exit_code\":%" PRId32 ",\"timed_out\":%s,\"error_type\":", result->exit_code,
                result->timed_out ? "true" : "false");
    json_append_text(out, result->error_type);
    append_optional(out, "value", &parts->pieces[VALUE]);
    append_error(out, result, parts);
    append_list(out, "files", &parts->files, parts->files_left_out || result->files_truncated);
    append_figures(out, result);
    append_optional(out, "display", &parts->pieces[DISPLAY]);
    append_optional(out, "late_output", &parts->pieces[LATE]);
    append_list(out, "background", &parts->background, parts->background_left_out);
    buf_append_text(out, result->restored ? ",\"restored\":true" : "");
    buf_append_text(out, result->state_lost ? ",\"state_lost\":true" : "");
    if (parts->hint.length > 0) {
        buf_append_text(out, ",\"hint\":");
        json_append_string(out, parts->hint.data, parts->hint.length);
    }
    buf_append_text(out, "}");
}

/* How long it is without the pieces. */
static int measure(const hutch_result *result, struct parts *parts, uint64_t max,
                   size_t *ret_length, struct hutch_error *err)
{
    auto_buf struct buf text = BUF_MAX(SIZE_MAX / 4);
    struct parts bare = *parts; /* its buffers are not its own */

    for (size_t i = 0; i < PIECES; i++)
        bare.pieces[i].cost = (size_t)max + 1;
    append_all(&text, result, &bare);
    if (buf_check(&text, err) < 0)
        return err->code;
    *ret_length = text.length;
    return 0;
}

int result_text_append(struct buf *out, const hutch_result *result,
                       const struct result_context *context, uint64_t max_bytes,
                       struct hutch_error *err)
{
    __attribute__((cleanup(parts_done))) struct parts parts = {.pieces = {{0}}};
    size_t length = 0;

    fill_parts(&parts, result, context, max_bytes);
    if (buf_check(&parts.display, err) < 0 || buf_check(&parts.hint, err) < 0 ||
        measure(result, &parts, max_bytes, &length, err) < 0)
        return err->code;
    if (length > max_bytes) { /* a hint that is mostly escapes; nothing else can be so long */
        buf_clear(&parts.hint);
        if (measure(result, &parts, max_bytes, &length, err) < 0)
            return err->code;
    }
    grant(parts.pieces, length < max_bytes ? (size_t)max_bytes - length : 0);
    append_all(out, result, &parts);
    return buf_check(out, err);
}
