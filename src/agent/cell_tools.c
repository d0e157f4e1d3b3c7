/* SPDX-License-Identifier: Apache-2.0 */
/* See cell_tools.h; workspace.c has the sessions. */
#include "cell_tools.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "result_text.h"
#include "sandbox/file_name.h"
#include "sandbox/request.h"
#include "workspace.h"

#include <inttypes.h>
#include <string.h>

#define FILE_CALL_SECONDS 60.0
#define TRIES 2 /* the second one in a new session, in place of one that turned out to be over */

struct cell_tools {
    hutch_engine *engine;
    struct hutch_request limits; /* its pointers are to the copies below */
    struct hutch_gate gate;
    char *owner;
};

/* ---- what the model is told of a run ---- */

static void on_output(void *user, enum hutch_stream stream, const char *data, size_t length)
{
    hutch_call_output(user, stream, data, length);
}

/* Takes the result over. */
static int tell(hutch_call *call, hutch_result *result, struct result_context *context,
                const struct cell_tools *tools, struct hutch_error *err)
{
    auto_buf struct buf text = BUF_MAX(SIZE_MAX / 4);

    context->timeout_seconds = tools->limits.timeout_seconds;
    context->memory_mb = tools->limits.memory_mb;
    if (hutch_call_record(call, result, err) < 0 ||
        result_text_append(&text, result, context, call->max_answer_bytes, err) < 0)
        return err->code;
    return hutch_call_answer(call, text.data, text.length, err);
}

/* Of a run without a result, as it was killed with the call, its time is what is known. */
static int note_killed(hutch_call *call, uint64_t begun_ns, struct hutch_error *err)
{
    bool is_late = hutch_call_seconds_left(call) <= 0;
    const struct hutch_agent_cell cell = {
        .exit_code = -1,
        .error_type = is_late ? "timeout" : NULL,
        .duration_ms = (double)(clock_now_ns() - begun_ns) / NS_PER_MS,
    };
    struct hutch_error other;

    if (err->maybe_ran && tool_call_note(call, &cell, &other) < 0)
        *err = other;
    return err->code;
}

static const char *argument(const hutch_call *call, const char *name, const char *otherwise)
{
    const json_t *value = json_object_get(call->arguments, name);
    return value ? json_string_value(value) : otherwise;
}

static size_t argument_length(const hutch_call *call, const char *name)
{
    return json_string_length(json_object_get(call->arguments, name));
}

/* The request of a call whose argument of this name is the code. */
static struct hutch_request request_of(const struct cell_tools *tools, const hutch_call *call,
                                       const char *name, enum hutch_language language)
{
    struct hutch_request request = tools->limits;

    request.code = argument(call, name, "");
    request.code_length = argument_length(call, name);
    request.language = language;
    request.tidy = true;
    return request;
}

/* ---- a fresh cell ---- */

static int run_python(void *user, hutch_call *call, struct hutch_error *err)
{
    const struct cell_tools *tools = user;
    struct hutch_request request = request_of(tools, call, "code", HUTCH_PYTHON);
    struct result_context context = {
        .gate = &tools->gate,
        .python = request.code,
        .python_length = request.code_length,
    };
    const struct hutch_run_options options = {
        .size = sizeof(options),
        .on_output = on_output,
        .user = call,
        .cancel = hutch_call_cancel(call),
    };
    uint64_t begun_ns = clock_now_ns();
    hutch_result *result;

    request.gate = &tools->gate;
    if (hutch_run(tools->engine, &request, &options, &result, err) < 0)
        return note_killed(call, begun_ns, err);
    return tell(call, result, &context, tools, err);
}

/* ---- the sessions ---- */

/* A call in the conversation's session of a language. */
struct visit {
    const struct cell_tools *tools;
    hutch_call *call;
    struct workspace *workspace;
    struct workspace_entry entry;
    struct workspace_cell *cell;
    struct buf note;
    struct file_path path; /* of the file, where it is about one */
};

static void visit_done(struct visit *visit)
{
    if (visit->cell)
        workspace_leave(visit->workspace, visit->cell);
    buf_done(&visit->note);
}
#define auto_visit __attribute__((cleanup(visit_done)))

static int visit_init(struct visit *visit, const struct cell_tools *tools, hutch_call *call,
                      struct hutch_error *err)
{
    *visit = (struct visit){.tools = tools, .call = call, .workspace = call->state};
    visit->note = BUF_MAX(KIB(4));
    visit->entry = (struct workspace_entry){
        .engine = tools->engine,
        .limits = &tools->limits,
        .cancel = hutch_call_cancel(call),
        .deadline_ns = call->deadline_ns,
        .note = &visit->note,
    };
    if (!visit->workspace)
        return err_set(err, HUTCH_ERR_INVALID,
                       "this tool keeps state in a conversation, and this run has none");
    return 0;
}

typedef int visit_fn(struct visit *visit, void *arg, struct hutch_error *err);

static bool is_over(struct visit *visit, const struct hutch_error *err)
{
    struct hutch_session_info info;

    if (err->code == HUTCH_ERR_EXPIRED)
        return true;
    hutch_session_get_info(visit->cell->session, &info);
    return info.expires_in_seconds <= 0;
}

/* Enters the session and does something in it; once more if it turns out to be over before
 * anything was done. The cell stays entered after a success. */
static int visit_do(struct visit *visit, enum hutch_language language, visit_fn *act, void *arg,
                    struct hutch_error *err)
{
    for (int i = 0; i < TRIES; i++) {
        if (workspace_enter(visit->workspace, language, &visit->entry, &visit->cell, err) < 0)
            return err->code;
        if (act(visit, arg, err) == 0)
            return 0;
        if (!is_over(visit, err))
            break;
        workspace_cell_over(visit->workspace, visit->cell);
        workspace_leave(visit->workspace, TAKE_POINTER(visit->cell));
        if (err->maybe_ran)
            break;
    }
    return err->code;
}

struct exec {
    struct hutch_request request;
    hutch_result *result;
};

static int visit_exec(struct visit *visit, void *arg, struct hutch_error *err)
{
    struct exec *exec = arg;
    const struct hutch_run_options options = {
        .size = sizeof(options),
        .on_output = on_output,
        .user = visit->call,
        .cancel = visit->entry.cancel,
    };
    uint64_t begun_ns = clock_now_ns();

    if (hutch_session_exec(visit->cell->session, &exec->request, &options, &exec->result, err) < 0)
        return note_killed(visit->call, begun_ns, err);
    return 0;
}

static void note_files(struct visit *visit, const hutch_result *result)
{
    size_t missing = 0;

    for (size_t i = 0; i < result->file_count; i++)
        missing += !workspace_file_made(visit->workspace, visit->cell, result->files[i].path);
    if (missing > 0 || result->files_truncated)
        buf_appendf(&visit->note,
                    "Not all files will be seen by the other languages: there are more than %d. ",
                    LIMIT_SHARED_FILES);
}

static int run_in_session(const struct cell_tools *tools, hutch_call *call, const char *name,
                          enum hutch_language language, struct hutch_error *err)
{
    auto_visit struct visit visit = {.cell = NULL};
    struct exec exec = {.request = request_of(tools, call, name, language)};

    if (visit_init(&visit, tools, call, err) < 0 ||
        visit_do(&visit, language, visit_exec, &exec, err) < 0)
        return err->code;
    exec.result->state_lost = exec.result->state_lost || visit.entry.reset;
    if (exec.result->state_lost)
        workspace_state_lost(visit.workspace);
    note_files(&visit, exec.result);
    struct result_context context = {
        .note = visit.note.data,
        .files_lost = visit.entry.reset,
        .python = language == HUTCH_PYTHON ? exec.request.code : NULL,
        .python_length = exec.request.code_length,
    };
    return tell(call, exec.result, &context, tools, err);
}

static int run_code(void *user, hutch_call *call, struct hutch_error *err)
{
    const char *name = argument(call, "language", "python");
    enum hutch_language language;

    if (language_parse(name, &language, err) < 0)
        return err->code;
    return run_in_session(user, call, "code", language, err);
}

static int run_shell(void *user, hutch_call *call, struct hutch_error *err)
{
    return run_in_session(user, call, "command", HUTCH_SHELL, err);
}

/* ---- files ---- */

static struct hutch_file_options file_options(const struct visit *visit)
{
    double left = hutch_call_seconds_left(visit->call);
    struct hutch_file_options options;

    hutch_file_options_init(&options);
    options.cancel = visit->entry.cancel;
    options.timeout_seconds = left < FILE_CALL_SECONDS ? left : FILE_CALL_SECONDS;
    if (options.timeout_seconds < LIMIT_FILE_SECONDS_MIN)
        options.timeout_seconds = LIMIT_FILE_SECONDS_MIN;
    return options;
}

/* Does something with files in the session that was used last. */
static int run_with_files(struct visit *visit, const struct cell_tools *tools, hutch_call *call,
                          visit_fn *act, void *arg, struct hutch_error *err)
{
    if (visit_init(visit, tools, call, err) < 0 ||
        file_path_read_bytes("path", argument(call, "path", ""), argument_length(call, "path"),
                             &visit->path, err) < 0)
        return err->code;
    int code = visit_do(visit, workspace_current(visit->workspace), act, arg, err);
    struct hutch_error other;
    if (visit->entry.reset)
        buf_append_text(&visit->note, "The session had ended, and its files are gone. ");
    if (visit->note.length > 0 &&
        hutch_call_answer(call, visit->note.data, visit->note.length, &other) < 0 && code == 0)
        code = other.code;
    return code;
}

static int visit_get(struct visit *visit, void *arg, struct hutch_error *err)
{
    struct hutch_file_options options = file_options(visit);

    options.max_bytes = LIMIT_READ_FILE_BYTES;
    if (workspace_cell_get(visit->cell, visit->path.text, &options, arg, err) < 0) {
        if (err->sys_errno == EFBIG)
            return err_set(err, HUTCH_ERR_INVALID,
                           "%s has more than %d MiB; read a part of it with code",
                           quote_text(visit->path.text).text, (int)(LIMIT_READ_FILE_BYTES >> 20));
        return err->code;
    }
    return 0;
}

static int run_read_file(void *user, hutch_call *call, struct hutch_error *err)
{
    auto_visit struct visit visit = {.cell = NULL};
    auto_buf struct buf bytes = BUF_MAX(LIMIT_READ_FILE_BYTES);

    if (run_with_files(&visit, user, call, visit_get, &bytes, err) < 0)
        return err->code;
    if (bytes.length == 0)
        return hutch_call_answer(call, "(the file is empty)", strlen("(the file is empty)"), err);
    if (memchr(bytes.data, '\0', bytes.length) || !utf8_valid(bytes.data, bytes.length))
        return err_set(err, HUTCH_ERR_INVALID,
                       "%s is no text but %zu bytes that are not UTF-8; look at it with code",
                       quote_text(visit.path.text).text, bytes.length);
    return hutch_call_answer(call, bytes.data, bytes.length, err);
}

static int visit_put(struct visit *visit, void *arg, struct hutch_error *err)
{
    struct hutch_file_options options = file_options(visit);

    return workspace_cell_put(visit->cell, visit->path.text, &options, arg,
                              argument_length(visit->call, "content"), err);
}

static int run_write_file(void *user, hutch_call *call, struct hutch_error *err)
{
    auto_visit struct visit visit = {.cell = NULL};
    auto_buf struct buf text = BUF_MAX(KIB(1));
    char *content = (char *)argument(call, "content", "");

    if (run_with_files(&visit, user, call, visit_put, content, err) < 0)
        return err->code;
    if (!workspace_file_made(visit.workspace, visit.cell, visit.path.text))
        buf_appendf(&text, "The other languages will not see it: there are more than %d files. ",
                    LIMIT_SHARED_FILES);
    buf_appendf(&text, "Wrote %zu bytes to %s.", argument_length(call, "content"),
                quote_text(visit.path.text).text);
    if (buf_check(&text, err) < 0)
        return err->code;
    return hutch_call_answer(call, text.data, text.length, err);
}

static int visit_list(struct visit *visit, void *arg, struct hutch_error *err)
{
    struct hutch_file_options options = file_options(visit);

    return hutch_session_list(visit->cell->session, visit->path.text, &options, arg, err);
}

static void append_listing(struct buf *text, const hutch_listing *listing)
{
    buf_append_text(text, "[");
    for (size_t i = 0; i < listing->count; i++) {
        const struct hutch_entry *entry = &listing->entries[i];
        buf_append_text(text, i > 0 ? ",\n{\"name\":" : "{\"name\":");
        json_append_text(text, entry->name);
        if (entry->is_directory)
            buf_append_text(text, ",\"directory\":true}");
        else
            buf_appendf(text, ",\"size\":%" PRIu64 "}", entry->size);
    }
    buf_append_text(text, listing->truncated ? ",\n\"...\"]" : "]");
}

static int run_list_files(void *user, hutch_call *call, struct hutch_error *err)
{
    auto_visit struct visit visit = {.cell = NULL};
    auto_buf struct buf text = BUF_MAX(SIZE_MAX / 4);
    hutch_listing *listing = NULL;

    if (run_with_files(&visit, user, call, visit_list, &listing, err) < 0)
        return err->code;
    append_listing(&text, listing);
    hutch_listing_free(listing);
    if (buf_check(&text, err) < 0)
        return err->code;
    return hutch_call_answer(call, text.data, text.length, err);
}

/* ---- the tools ---- */

#define OBJECT(properties, required)                                                               \
    "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required                 \
    "],\"additionalProperties\":false}"
#define TEXT(name, description)                                                                    \
    "\"" name "\":{\"type\":\"string\",\"description\":\"" description "\"}"
#define CODE TEXT("code", "The code. Print what is to be seen.")
#define LANGUAGE                                                                                   \
    "\"language\":{\"type\":\"string\",\"enum\":[\"python\",\"javascript\",\"shell\"],"            \
    "\"description\":\"What it is written in; python where this is not said.\"}"
#define PATH TEXT("path", "Relative to the home directory.")
#define CONTENT TEXT("content", "All of the text of the file.")

static const struct built_in {
    const char *name, *description, *parameters;
    hutch_tool_fn run;
} built_ins[] = {
    {"python_executor",
     "Runs a complete Python program in a fresh isolated cell: nothing is kept from one call to "
     "the next, and there is no network. The answer is JSON with stdout, stderr, exit_code, "
     "timed_out and error_type. Only what is printed is seen.",
     OBJECT(TEXT("code", "The Python program. Print what is to be seen."), "\"code\""), run_python},
    {"code_interpreter",
     "Runs code in a session that lasts as long as the conversation: variables, imports, "
     "functions and files stay from one call to the next. Each language has a session of its "
     "own; files are shared. The answer is JSON with stdout, stderr, exit_code, timed_out and "
     "error_type.",
     OBJECT(CODE "," LANGUAGE, "\"code\""), run_code},
    {"shell",
     "Runs commands in a bash session that lasts as long as the conversation, in an isolated "
     "cell without network. The answer is JSON with stdout, stderr, exit_code, timed_out and "
     "error_type.",
     OBJECT(TEXT("command", "One or more commands of bash."), "\"command\""), run_shell},
    {"read_file", "Reads a text file of the conversation.", OBJECT(PATH, "\"path\""),
     run_read_file},
    {"write_file",
     "Writes a text file of the conversation, in place of one of this name. Directories are made.",
     OBJECT(PATH "," CONTENT, "\"path\",\"content\""), run_write_file},
    {"list_files", "Lists a directory of the conversation's files.",
     OBJECT(TEXT("path", "Relative to the home directory, which it is if left out."), ""),
     run_list_files},
};

static const char *const names_of_all =
    "python_executor, code_interpreter, shell, read_file, write_file, list_files";

static bool is_listed(const char *names, const char *name)
{
    size_t length = strlen(name);

    while (*names) {
        size_t next = strcspn(names, ",");
        if (next == length && memcmp(names, name, length) == 0)
            return true;
        names += next + (names[next] == ',');
    }
    return false;
}

static int check_names(const char *names, struct hutch_error *err)
{
    while (*names) {
        size_t length = strcspn(names, ",");
        bool found = false;
        for (size_t i = 0; i < ARRAY_LENGTH(built_ins) && !found; i++)
            found = strlen(built_ins[i].name) == length &&
                    memcmp(built_ins[i].name, names, length) == 0;
        if (!found)
            return err_set(err, HUTCH_ERR_INVALID,
                           "builtin_tools: %s is not known; allowed are %s, with commas",
                           quote_bytes(names, length).text, names_of_all);
        names += length + (names[length] == ',');
    }
    return 0;
}

/* ---- birth and death ---- */

/* A copy of a list of names in one piece of memory; NULL stays NULL. */
static int copy_names(const char *const **names, size_t count, struct hutch_error *err)
{
    size_t size = (count + 1) * sizeof(char *);

    if (!*names)
        return 0;
    for (size_t i = 0; i < count; i++)
        size += strlen((*names)[i]) + 1;
    char **copy = malloc(size);
    if (!copy) {
        *names = NULL;
        return err_no_memory(err);
    }
    char *text = (char *)(copy + count + 1);
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen((*names)[i]) + 1;
        copy[i] = memcpy(text, (*names)[i], length);
        text += length;
    }
    *names = (const char *const *)copy;
    return 0;
}

static int copy_gate(struct hutch_gate *gate, const struct hutch_gate *given,
                     struct hutch_error *err)
{
    *gate = *given;
    int first = copy_names(&gate->modules, gate->module_count, err);
    int second = copy_names(&gate->calls, gate->call_count, err);
    int third = copy_names(&gate->attributes, gate->attribute_count, err);
    int fourth = copy_names(&gate->allowed_imports, gate->allowed_import_count, err);
    return first < 0 || second < 0 || third < 0 || fourth < 0 ? err->code : 0;
}

/* What counts of limits, checked and copied. */
static int take_limits(struct cell_tools *tools, const struct hutch_request *limits,
                       struct hutch_error *err)
{
    struct hutch_request given;
    struct hutch_gate gate;

    hutch_gate_init(&gate);
    hutch_request_init(&tools->limits);
    if (!limits)
        limits = &tools->limits;
    if (limits->size == 0)
        return err_set(err, HUTCH_ERR_INVALID,
                       "cells.size: is 0; allowed is what hutch_request_init sets");
    request_load(limits, &given);
    struct hutch_request *own = &tools->limits;
    own->timeout_seconds = given.timeout_seconds;
    own->memory_mb = given.memory_mb;
    own->cpus = given.cpus;
    own->max_processes = given.max_processes;
    own->disk_mb = given.disk_mb;
    own->max_output_bytes = given.max_output_bytes;
    own->backend = given.backend;
    own->require = given.require;
    struct hutch_request probe = *own;
    probe.code = "0";
    probe.code_length = 1;
    probe.owner = given.owner;
    probe.gate = given.gate ? given.gate : &gate;
    if (request_validate(&probe, err) < 0)
        return err_context(err, "cells");
    if (given.owner && !(tools->owner = strdup(given.owner)))
        return err_no_memory(err);
    own->owner = tools->owner;
    return copy_gate(&tools->gate, probe.gate, err);
}

static int add_tools(struct cell_tools *tools, const char *names, struct tool_set *set,
                     struct hutch_error *err)
{
    for (size_t i = 0; i < ARRAY_LENGTH(built_ins); i++) {
        const struct hutch_tool tool = {
            .size = sizeof(tool),
            .name = built_ins[i].name,
            .description = built_ins[i].description,
            .parameters = built_ins[i].parameters,
            .run = built_ins[i].run,
            .user = tools,
        };
        if (!is_listed(names, tool.name))
            continue;
        if (tool_set_add(set, &tool, err) < 0)
            return err->code;
        set->tools[set->count - 1].in_order = tool.run != run_python;
    }
    return 0;
}

int cell_tools_new(hutch_engine *engine, const struct hutch_request *limits, const char *names,
                   struct tool_set *set, struct cell_tools **ret_tools, struct hutch_error *err)
{
    if (check_names(names, err) < 0)
        return err->code;
    if (*names && !engine)
        return err_set(err, HUTCH_ERR_INVALID, "engine: is NULL, and builtin_tools is not empty");
    struct cell_tools *tools = calloc(1, sizeof(*tools));
    if (!tools)
        return err_no_memory(err);
    tools->engine = engine;
    if (take_limits(tools, limits, err) < 0 || add_tools(tools, names, set, err) < 0) {
        cell_tools_free(tools);
        return err->code;
    }
    *ret_tools = tools;
    return 0;
}

void cell_tools_free(struct cell_tools *tools)
{
    if (!tools)
        return;
    free((void *)tools->gate.modules);
    free((void *)tools->gate.calls);
    free((void *)tools->gate.attributes);
    free((void *)tools->gate.allowed_imports);
    free(tools->owner);
    free(tools);
}
