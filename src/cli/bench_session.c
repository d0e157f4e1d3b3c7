/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions in hutch bench: those that execs, and files on their way in and out, are measured
 * in, which stay as long as samples are taken, and many idle ones with the memory that their
 * processes hold: interpreter, copy and hutch-init.
 */
#include "bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/parse.h"
#include "base/quote.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define IDLE_SECONDS 86400.0        /* whatever the other rows take */
#define PIDS_MAX 4096               /* of many sessions three each */
#define SETTLE_NS (500 * NS_PER_MS) /* for the last copies to be made */
#define DEATH "import os\nos._exit(3)"

/* ---- one session --------------------------------------------------------- */

static int open_session(const struct bench_engine *engine, const struct bench_row *row,
                        hutch_session **ret_session, struct hutch_error *err)
{
    struct hutch_session_options options;
    struct hutch_request request;

    hutch_request_init(&request);
    request.language = row->language;
    request.owner = "hutch bench";
    if (row->memory_mb > 0)
        request.memory_mb = row->memory_mb;
    hutch_session_options_init(&options);
    options.idle_timeout_seconds = IDLE_SECONDS;
    options.checkpoints = row->checkpoint;
    return hutch_session_open(engine->engine, &request, &options, ret_session, err);
}

/* What the time is taken of is the call. */
static int exec(hutch_session *session, enum hutch_language language, const char *code,
                uint64_t *ret_ns, hutch_result **ret_result, struct hutch_error *err)
{
    struct hutch_request request;

    hutch_request_init(&request);
    request.language = language;
    request.code = code;
    request.code_length = strlen(code);
    uint64_t begin_ns = clock_now_ns();
    if (hutch_session_exec(session, &request, NULL, ret_result, err) < 0)
        return err->code;
    *ret_ns = clock_now_ns() - begin_ns;
    return 0;
}

static int check(const hutch_result *result, bool prints, struct hutch_error *err)
{
    if (result->error_type)
        return err_set(err, HUTCH_ERR_SYSTEM, "%s: %s",
                       result->error_class ? result->error_class : result->error_type,
                       quote_text(result->error_message ? result->error_message : "").text);
    if (result->restored || result->state_lost)
        return err_set(err, HUTCH_ERR_SYSTEM, "the session's interpreter has died");
    return prints ? bench_check_output(result->stdout_text.data, result->stdout_text.length, err)
                  : 0;
}

static int exec_well(hutch_session *session, enum hutch_language language, const char *code,
                     bool prints, struct bench_sample *ret_sample, struct hutch_error *err)
{
    hutch_result *result;

    if (exec(session, language, code, &ret_sample->elapsed_ns, &result, err) < 0)
        return err->code;
    ret_sample->layers = result->layers;
    int done = check(result, prints, err);
    hutch_result_free(result);
    return done;
}

/* ---- a file ---------------------------------------------------------------- */

/* Bytes that tell of their place, so that what comes back is what went. */
struct transfer {
    uint64_t at;
    bool differs;
};

static char byte_at(uint64_t at)
{
    return (char)(at * 31 + at / 65536);
}

static int give(void *user, char *data, size_t length)
{
    struct transfer *transfer = user;

    for (size_t i = 0; i < length; i++)
        data[i] = byte_at(transfer->at++);
    return 0;
}

static int take(void *user, const char *data, size_t length)
{
    struct transfer *transfer = user;

    for (size_t i = 0; i < length; i++)
        transfer->differs |= data[i] != byte_at(transfer->at++);
    return 0;
}

static int transfer_well(struct bench_row *row, struct bench_sample *ret_sample,
                         struct hutch_error *err)
{
    struct transfer in = {.at = 0}, out = {.at = 0};
    struct hutch_session_info info;
    uint64_t begin_ns = clock_now_ns();

    if (hutch_session_put(row->session, "file", row->file_bytes, give, &in, NULL, err) < 0 ||
        hutch_session_get(row->session, "file", take, &out, NULL, err) < 0)
        return err->code;
    ret_sample->elapsed_ns = clock_now_ns() - begin_ns;
    hutch_session_get_info(row->session, &info);
    ret_sample->layers = info.layers;
    return out.differs || out.at != row->file_bytes
               ? err_set(err, HUTCH_ERR_SYSTEM, "the file came back as another")
               : 0;
}

int bench_session_run(const struct bench_engine *engine, struct bench_row *row,
                      struct bench_sample *ret_sample, struct hutch_error *err)
{
    if (!row->session) {
        if (open_session(engine, row, &row->session, err) < 0)
            return err->code;
        if (row->before &&
            exec_well(row->session, row->language, row->before, false, ret_sample, err) < 0)
            return err->code;
    }
    return row->file_bytes > 0
               ? transfer_well(row, ret_sample, err)
               : exec_well(row->session, row->language, row->code, true, ret_sample, err);
}

/* A death shows whether there was a copy, as the row's name says. */
static int look_for_copy(struct bench_row *row, struct hutch_error *err)
{
    hutch_result *result;
    uint64_t ignored_ns;

    if (exec(row->session, row->language, DEATH, &ignored_ns, &result, err) < 0)
        return err->code;
    row->not_copied = !result->restored;
    hutch_result_free(result);
    return 0;
}

int bench_session_end(struct bench_row *row, struct hutch_error *err)
{
    int done = 0;

    if (row->session && row->checkpoint && row->left_out.code == 0)
        done = look_for_copy(row, err);
    hutch_session_close(row->session);
    row->session = NULL;
    return done;
}

/* ---- the memory of many -------------------------------------------------- */

struct pids {
    pid_t list[PIDS_MAX];
    size_t count;
};

/* 0, or the errno. */
static int read_file(struct buf *text, pid_t pid, const char *rest)
{
    struct hutch_error err;
    char path[96];

    buf_clear(text);
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, rest);
    return buf_read_file(text, AT_FDCWD, path, &err) < 0 ? err.sys_errno : 0;
}

static void add_listed(struct pids *pids, const char *text)
{
    while (*text && pids->count < PIDS_MAX) {
        uint64_t pid = parse_leading(text);
        text += strspn(text, " \n");
        text += strcspn(text, " \n");
        if (pid > 0)
            pids->list[pids->count++] = (pid_t)pid;
    }
}

/* The children of all threads of a process. */
static void add_children(struct pids *pids, pid_t pid)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    char path[64];
    struct dirent *entry;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    while (tasks && (entry = readdir(tasks))) {
        snprintf(path, sizeof(path), "task/%.16s/children", entry->d_name);
        if (entry->d_name[0] != '.' && read_file(&text, pid, path) == 0)
            add_listed(pids, buf_text(&text));
    }
    if (tasks)
        closedir(tasks);
}

static bool has(const struct pids *pids, pid_t pid)
{
    for (size_t i = 0; i < pids->count; i++) {
        if (pids->list[i] == pid)
            return true;
    }
    return false;
}

static uint64_t kib_of(const char *text, const char *name)
{
    const char *line = strstr(text, name);

    return line ? parse_leading(line + strlen(name)) << 10 : 0;
}

/* Of everything below a supervisor, or of nothing. */
static void look_at_memory(struct bench_row *row, pid_t supervisor)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    auto_free struct pids *pids = calloc(1, sizeof(*pids));
    struct bench_memory sum = {.cells = row->n};

    if (!pids)
        return;
    add_children(pids, supervisor);
    for (size_t i = 0; i < pids->count; i++) {
        add_children(pids, pids->list[i]);
        int error = read_file(&text, pids->list[i], "smaps_rollup");
        if (error != 0 && error != ESRCH && error != ENOENT) /* it is dead */
            return;
        sum.pss_bytes += kib_of(buf_text(&text), "\nPss:");
        sum.private_dirty_bytes += kib_of(buf_text(&text), "\nPrivate_Dirty:");
    }
    sum.pss_bytes /= row->n;
    sum.private_dirty_bytes /= row->n;
    row->memory = sum;
}

/* As many as the row wants, or as fit. */
static int open_many(const struct bench_engine *engine, struct bench_row *row,
                     hutch_session **sessions, struct hutch_error *err)
{
    struct bench_sample sample = {.layers = 0};
    size_t wanted = row->n;

    for (row->n = row->taken = 0; row->n < wanted; row->n++) {
        uint64_t begin_ns = clock_now_ns();
        if (open_session(engine, row, &sessions[row->n], err) < 0)
            return err->code == HUTCH_ERR_BUSY && row->n > 0 ? 0 : err->code;
        row->samples_ms[row->taken++] = (double)(clock_now_ns() - begin_ns) / (double)NS_PER_MS;
        if (exec_well(sessions[row->n], row->language, row->code, true, &sample, err) < 0)
            return err->code;
        row->layers &= sample.layers;
    }
    return 0;
}

/* The supervisor is the child that was not there before the first session. */
static int measure_many(const struct bench_engine *engine, struct bench_row *row,
                        hutch_session **sessions, struct pids *before, struct pids *after,
                        struct hutch_error *err)
{
    add_children(before, getpid());
    if (open_many(engine, row, sessions, err) < 0)
        return err->code;
    fd_wait(-1, 0, clock_after_ns(SETTLE_NS));
    add_children(after, getpid());
    for (size_t i = 0; i < after->count; i++) {
        if (!has(before, after->list[i]))
            look_at_memory(row, after->list[i]);
    }
    if (row->memory.cells == 0)
        err_set(&row->left_out, HUTCH_ERR_SYSTEM, "the kernel does not show the sessions' memory");
    return 0;
}

int bench_sessions(const struct bench_engine *engine, struct bench_row *row,
                   struct hutch_error *err)
{
    size_t wanted = row->n;
    auto_free hutch_session **sessions = calloc(wanted, sizeof(hutch_session *));
    auto_free struct pids *before = calloc(1, sizeof(*before));
    auto_free struct pids *after = calloc(1, sizeof(*after));

    if (!sessions || !before || !after)
        return err_no_memory(err);
    int done = measure_many(engine, row, sessions, before, after, err);
    for (size_t i = 0; i < wanted; i++)
        hutch_session_close(sessions[i]);
    return done;
}
