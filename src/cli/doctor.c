/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch doctor: the library's report on this host, as it is or as a table. The
 * table shows what the report holds and knows nothing of its own.
 */
#include "cli.h"

#include "base/json.h"
#include "base/parse.h"
#include "output.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define EXIT_LAYERS_MISSING 1
#define EXIT_CANNOT_RUN 125

#define NAME_WIDTH 16
#define STATE_WIDTH 10 /* of "available" and a blank */

struct doctor_values {
    bool json;
};

/* A text member of an object; NULL where it is missing or not text. */
static const char *text_of(const json_t *object, const char *member)
{
    return json_string_value(json_object_get(object, member));
}

static bool is_true(const json_t *object, const char *member)
{
    return json_is_true(json_object_get(object, member));
}

/* "  name   state   note", and the mend on a line below. */
static void append_row(struct buf *text, const char *name, const char *state, const char *note,
                       const char *mend)
{
    buf_appendf(text, "  %-*s %s", NAME_WIDTH, name ? name : "", state);
    if (note)
        buf_appendf(text, "%*s%s", (int)(STATE_WIDTH - strlen(state)), "", note);
    buf_append_text(text, "\n");
    if (mend)
        buf_appendf(text, "%*sto mend it: %s\n", 2 + NAME_WIDTH + 1 + STATE_WIDTH, "", mend);
}

static void append_backends(struct buf *text, const json_t *report)
{
    const json_t *list = json_object_get(report, "backends");

    buf_append_text(text, "backends\n");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        append_row(text, text_of(row, "name"), is_true(row, "available") ? "available" : "missing",
                   text_of(row, "reason"), NULL);
    }
}

/* Returns how many layers are missing. */
static size_t append_layers(struct buf *text, const json_t *report)
{
    const json_t *list = json_object_get(report, "layers");
    size_t missing = 0;

    buf_append_text(text, "layers\n");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        bool in_force = is_true(row, "in_force");
        append_row(text, text_of(row, "name"), in_force ? "in force" : "missing",
                   text_of(row, "reason"), text_of(row, "mend"));
        missing += !in_force;
    }
    return missing;
}

static void append_runtimes(struct buf *text, const json_t *report)
{
    const json_t *list = json_object_get(report, "runtimes");

    buf_append_text(text, "runtimes\n");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        bool available = is_true(row, "available");
        const char *reason = text_of(row, "reason"), *mend = text_of(row, "mend");
        append_row(text, text_of(row, "language"), available ? "available" : "missing",
                   available ? text_of(row, "interpreter") : reason, available ? NULL : mend);
        if (available && reason)
            append_row(text, "", "note", reason, mend);
    }
}

static void append_cgroup(struct buf *text, const json_t *report)
{
    const json_t *cgroup = json_object_get(report, "cgroup");
    json_t *controllers = json_object_get(cgroup, "controllers");
    const char *layout = text_of(cgroup, "layout");

    buf_append_text(text, "cgroup\n");
    append_row(text, "layout", layout ? layout : "unknown", NULL, NULL);
    for (void *at = json_object_iter(controllers); at;
         at = json_object_iter_next(controllers, at)) {
        const char *version = json_string_value(json_object_iter_value(at));
        append_row(text, json_object_iter_key(at), version ? version : "missing", NULL, NULL);
    }
}

static uint64_t mib_of(const json_t *object, const char *member)
{
    return (uint64_t)json_integer_value(json_object_get(object, member)) >> 20;
}

static long long whole(const json_t *object, const char *member)
{
    return json_integer_value(json_object_get(object, member));
}

/* What decides when another run starts, with its numbers now. */
static void append_scheduler(struct buf *text, const json_t *report)
{
    const json_t *terms = json_object_get(report, "scheduler");
    const char *held_back_by = text_of(terms, "held_back_by");
    double pressure = json_number_value(json_object_get(terms, "memory_pressure"));
    char line[160];

    buf_append_text(text, "scheduler\n");
    snprintf(line, sizeof(line), "%lld of %lld active, %lld idle sessions, %lld of %lld waiting",
             whole(terms, "active"), whole(terms, "max_cells"), whole(terms, "idle_sessions"),
             whole(terms, "waiting"), whole(terms, "queue_size"));
    append_row(text, "cells", line, NULL, NULL);
    if (json_is_integer(json_object_get(terms, "memory_available_bytes")))
        snprintf(line, sizeof(line),
                 "%" PRIu64 " MiB available; reserve %" PRIu64 ", claimed %" PRIu64
                 ", expected of a run %" PRIu64,
                 mib_of(terms, "memory_available_bytes"), mib_of(terms, "memory_reserve_bytes"),
                 mib_of(terms, "memory_claimed_bytes"), mib_of(terms, "expected_bytes"));
    else
        snprintf(line, sizeof(line), "unknown");
    append_row(text, "memory", line, NULL, NULL);
    snprintf(line, sizeof(line), "%s %%", number_text(pressure).text);
    append_row(text, "pressure", line, NULL, NULL);
    snprintf(line, sizeof(line), "%lld of %lld threads runnable", whole(terms, "runnable"),
             whole(terms, "runnable_limit"));
    append_row(text, "cpu", line, NULL, NULL);
    append_row(text, "held back by", held_back_by ? held_back_by : "nothing", NULL, NULL);
}

static void append_verdict(struct buf *text, const json_t *report, size_t missing)
{
    const char *reason = text_of(report, "reason");
    const char *mend = text_of(report, "mend");

    buf_append_text(text, "\n");
    if (!is_true(report, "can_run"))
        buf_appendf(text, "This host cannot isolate a cell: %s%s%s\n",
                    reason ? reason : "no reason given", mend ? "; to mend it: " : "",
                    mend ? mend : "");
    else if (missing > 0)
        buf_appendf(text, "Cells run here, with %zu layer%s missing.\n", missing,
                    missing == 1 ? "" : "s");
    else
        buf_append_text(text, "Cells run here, with every layer in force.\n");
}

/* Appends the table; returns the exit status that the report amounts to. */
static int append_report(struct buf *text, const json_t *report)
{
    const char *version = text_of(report, "version");

    buf_appendf(text, "hutch %s\n\n", version ? version : hutch_version());
    append_backends(text, report);
    size_t missing = append_layers(text, report);
    append_runtimes(text, report);
    append_cgroup(text, report);
    append_scheduler(text, report);
    append_verdict(text, report, missing);
    if (!is_true(report, "can_run"))
        return EXIT_CANNOT_RUN;
    return missing > 0 ? EXIT_LAYERS_MISSING : 0;
}

static int print_report(const char *json, bool as_json)
{
    struct hutch_error err;
    struct problem problem;
    auto_json json_t *report = NULL;
    auto_buf struct buf text = BUF_MAX(LIMIT_CLI_TEXT_BYTES);

    if (json_read(json, strlen(json), LIMIT_CLI_TEXT_BYTES, &report, &err) < 0) {
        problem_set(&problem, HUTCH_ERR_SYSTEM, "the library's report: %s", err.message);
        return problem_report(&problem, doctor_command.name, as_json);
    }
    int status = append_report(&text, report);
    if (as_json) {
        buf_clear(&text);
        buf_appendf(&text, "%s\n", json);
    }
    return output_print(&text, status);
}

static int doctor_main(const struct settings *settings, char **argv)
{
    struct doctor_values values = {.json = false};
    struct hutch_error err;
    struct problem problem;
    hutch_engine *engine;
    char *json;

    int status = command_begin(&doctor_command, argv, &values);
    if (status >= 0)
        return status;
    if (cli_engine_new(settings, &engine, &problem) < 0)
        return problem_report(&problem, doctor_command.name, values.json);
    if (hutch_doctor(engine, &json, &err) < 0) {
        problem_take(&problem, &err);
        status = problem_report(&problem, doctor_command.name, values.json);
    } else {
        status = print_report(json, values.json);
        hutch_free(json);
    }
    hutch_engine_free(engine);
    return status;
}

static const struct option_spec doctor_options[] = {
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "print the report as one JSON object on a line",
     .offset = offsetof(struct doctor_values, json)},
    OPTION_HELP_ROW,
};

static const struct exit_row doctor_exits[] = {
    {"0", "every layer is in force"},
    {"1", "cells run, but a layer is missing"},
    EXIT_ROW_USAGE,
    {"125", "the host cannot isolate a cell, or hutch itself failed"},
    {NULL, NULL},
};

const struct command doctor_command = {
    .name = "doctor",
    .synopsis = "[--json]",
    .summary = "Probe the layers of isolation on this host and say what is missing.",
    .options = doctor_options,
    .option_count = ARRAY_LENGTH(doctor_options),
    .exits = doctor_exits,
    .values_size = sizeof(struct doctor_values),
    .main = doctor_main,
};
