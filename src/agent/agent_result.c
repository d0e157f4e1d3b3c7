/* SPDX-License-Identifier: Apache-2.0 */
/* See agent_result.h. */
#include "agent_result.h"

#include "base/error.h"
#include "base/json.h"

#include <inttypes.h>
#include <string.h>

/* Room for one more in an array that doubles, count being a power of two or 0 where it is full. */
static bool make_room(void **array, size_t count, size_t size)
{
    if ((count & (count - 1)) != 0)
        return true;
    void *more = reallocarray(*array, count == 0 ? 1 : 2 * count, size);
    if (more)
        *array = more;
    return more != NULL;
}

/* ---- making and freeing ---- */

static int add_count(hutch_agent_result *result, const char *tool, struct hutch_error *err)
{
    void *counts = result->tool_call_counts;
    char *name = strdup(tool);

    if (!name ||
        !make_room(&counts, result->tool_call_count_length, sizeof(*result->tool_call_counts))) {
        free(name);
        return err_no_memory(err);
    }
    result->tool_call_counts = counts;
    result->tool_call_counts[result->tool_call_count_length++] =
        (struct hutch_tool_count){.tool = name};
    return 0;
}

int agent_result_new(const struct tool_set *tools, hutch_agent_result **ret_result,
                     struct hutch_error *err)
{
    hutch_agent_result *result = calloc(1, sizeof(*result));

    if (!result)
        return err_no_memory(err);
    result->size = sizeof(*result);
    if (agent_result_set_answer(result, "", 0, err) < 0) {
        hutch_agent_result_free(result);
        return err->code;
    }
    for (size_t i = 0; i < tools->count; i++) {
        if (add_count(result, tools->tools[i].name, err) < 0) {
            hutch_agent_result_free(result);
            return err->code;
        }
    }
    *ret_result = result;
    return 0;
}

void hutch_agent_result_free(hutch_agent_result *result)
{
    if (!result)
        return;
    for (size_t i = 0; i < result->tool_call_count_length; i++)
        free((char *)result->tool_call_counts[i].tool);
    free(result->tool_call_counts);
    free(result->cells);
    free(result->answer.data);
    free(result->error_message);
    free(result->token_usage);
    free(result->messages);
    free(result);
}

/* ---- filling ---- */

int agent_result_count(hutch_agent_result *result, const char *tool, const char **ret_name,
                       struct hutch_error *err)
{
    size_t i = 0;

    while (i < result->tool_call_count_length &&
           strcmp(result->tool_call_counts[i].tool, tool) != 0)
        i++;
    if (i == result->tool_call_count_length && add_count(result, tool, err) < 0)
        return err->code;
    result->tool_calls++;
    result->tool_call_counts[i].calls++;
    *ret_name = result->tool_call_counts[i].tool;
    return 0;
}

int agent_result_add_cell(hutch_agent_result *result, const struct hutch_agent_cell *cell,
                          struct hutch_error *err)
{
    void *cells = result->cells;

    if (!make_room(&cells, result->cell_count, sizeof(*result->cells)))
        return err_no_memory(err);
    result->cells = cells;
    result->cells[result->cell_count++] = *cell;
    result->code_executed = true;
    result->execution_time_ms += cell->duration_ms;
    return 0;
}

int agent_result_set_answer(hutch_agent_result *result, const char *text, size_t length,
                            struct hutch_error *err)
{
    char *copy = malloc(length + 1);

    if (!copy)
        return err_no_memory(err);
    if (length > 0)
        memcpy(copy, text, length);
    copy[length] = '\0';
    free(result->answer.data);
    result->answer = (struct hutch_text){copy, length};
    return 0;
}

/* ---- JSON ---- */

static void append_flag(struct buf *out, const char *name, bool value)
{
    buf_appendf(out, ",\"%s\":%s", name, value ? "true" : "false");
}

static void append_ms(struct buf *out, const char *name, double ms)
{
    buf_appendf(out, ",\"%s\":", name);
    json_append_ms(out, ms);
}

static void append_counts(struct buf *out, const hutch_agent_result *result)
{
    buf_append_text(out, ",\"tool_call_counts\":{");
    for (size_t i = 0; i < result->tool_call_count_length; i++) {
        buf_append_text(out, i > 0 ? "," : "");
        json_append_text(out, result->tool_call_counts[i].tool);
        buf_appendf(out, ":%" PRIu32, result->tool_call_counts[i].calls);
    }
    buf_append_text(out, "}");
}

static void append_cell(struct buf *out, const struct hutch_agent_cell *cell)
{
    buf_append_text(out, "{\"tool\":");
    json_append_text(out, cell->tool);
    buf_appendf(out, ",\"step\":%" PRIu32 ",\"exit_code\":%" PRId32 ",\"error_type\":", cell->step,
                cell->exit_code);
    json_append_text(out, cell->error_type);
    append_ms(out, "duration_ms", cell->duration_ms);
    buf_appendf(out, ",\"peak_memory_bytes\":%" PRIu64, cell->peak_memory_bytes);
    append_flag(out, "state_lost", cell->state_lost);
    buf_append_text(out, "}");
}

static void append_error(struct buf *out, const hutch_agent_result *result)
{
    buf_append_text(out, ",\"error\":");
    if (!result->error_message) {
        buf_append_text(out, "null");
        return;
    }
    buf_append_text(out, "{\"code\":");
    json_append_text(out, result->error_code);
    buf_append_text(out, ",\"message\":");
    json_append_text(out, result->error_message);
    buf_appendf(out, ",\"http_status\":%" PRId32, result->http_status);
    append_flag(out, "retry_safe", result->retry_safe);
    buf_append_text(out, "}");
}

int hutch_agent_result_to_json(const hutch_agent_result *result, char **ret_json,
                               struct hutch_error *err)
{
    auto_buf struct buf out = BUF_MAX(SIZE_MAX / 4);
    struct hutch_error local;
    err = err ? err : &local;

    buf_append_text(&out, "{\"answer\":");
    json_append_string(&out, result->answer.data, result->answer.length);
    append_flag(&out, "code_executed", result->code_executed);
    buf_appendf(&out, ",\"tool_calls\":%" PRIu32, result->tool_calls);
    append_ms(&out, "execution_time_ms", result->execution_time_ms);
    append_ms(&out, "latency_ms", result->latency_ms);
    buf_append_text(&out, ",\"exit_reason\":");
    json_append_text(&out, result->exit_reason);
    buf_appendf(&out, ",\"step_count\":%" PRIu32, result->step_count);
    append_counts(&out, result);
    buf_appendf(&out, ",\"token_usage\":%s,\"cells\":[",
                result->token_usage ? result->token_usage : "{}");
    for (size_t i = 0; i < result->cell_count; i++) {
        buf_append_text(&out, i > 0 ? "," : "");
        append_cell(&out, &result->cells[i]);
    }
    buf_append_text(&out, "]");
    append_flag(&out, "state_lost", result->state_lost);
    append_error(&out, result);
    buf_append_text(&out, ",\"messages\":");
    buf_append_text(&out, result->messages ? result->messages : "[]");
    buf_append_text(&out, "}");
    if (buf_check(&out, err) < 0)
        return err->code;
    *ret_json = TAKE_BUF(out).data;
    return 0;
}
