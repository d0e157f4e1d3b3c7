/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See outcome.h. Messages about limits are written for the language model that
 * reads them: which limit, its value, what to change.
 */
#include "outcome.h"

#include "base/limits.h"
#include "base/parse.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "wire.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* A sentence of ours is shorter; a claim fits one frame; of bash's complaints
 * no more than this is shown. */
#define SENTENCE_BYTES 512
#define COMPLAINT_BYTES 4096
#define MESSAGE_BYTES (SENTENCE_BYTES + WIRE_MAX_ERROR * 3)

#define KILLED_CODE(number) (128 + (number))

static const char syntax_error[] = "syntax_error";
static const char import_error[] = "import_error";
static const char resource_limit[] = "resource_limit";
static const char runtime_error[] = "runtime_error";

/* The limits that a program can run into. */
enum limit {
    LIMIT_NONE,
    LIMIT_OF_TIME,
    LIMIT_OF_MEMORY,
    LIMIT_OF_ALLOCATION, /* one was refused, as the program says */
    LIMIT_OF_OUTPUT,
    LIMIT_OF_CPU_TIME,
    LIMIT_OF_DISK,
    LIMIT_OF_PROCESSES,
    LIMIT_OF_THREADS, /* a thread could not start, and nobody counted why */
};

/* ---- text ---- */

/* Foreign text: valid UTF-8 and without NUL, as it becomes a C string. */
static void append_foreign(struct buf *out, const char *data, size_t length)
{
    while (length > 0) {
        const char *nul = memchr(data, '\0', length);
        size_t count = nul ? (size_t)(nul - data) : length;
        utf8_repair(out, data, count);
        if (nul) {
            buf_append_text(out, UTF8_REPLACEMENT);
            count++;
        }
        data += count;
        length -= count;
    }
}

static void append_sentence(struct buf *out, enum limit limit, const struct outcome_facts *facts)
{
    const struct hutch_request *request = facts->request;

    switch (limit) {
    case LIMIT_NONE:
        break;
    case LIMIT_OF_TIME:
        buf_appendf(out,
                    "time limit of %s s exceeded: the program was stopped after %s s, what it "
                    "printed until then is kept; do less in one run or raise timeout_seconds "
                    "(at most %s)",
                    number_text(request->timeout_seconds).text,
                    number_text((double)(facts->exit->duration_ns / 1000000) / 1000).text,
                    number_text(LIMIT_TIMEOUT_SECONDS_MAX).text);
        break;
    case LIMIT_OF_MEMORY:
        buf_appendf(out,
                    "memory limit of %" PRIu64 " MB exceeded; hold less in memory at once or raise "
                    "memory_mb",
                    request->memory_mb);
        break;
    case LIMIT_OF_ALLOCATION:
        buf_appendf(out,
                    "the program was refused memory that it asked for (memory limit of %" PRIu64
                    " MB); ask for less at once or raise memory_mb",
                    request->memory_mb);
        break;
    case LIMIT_OF_OUTPUT:
        buf_appendf(out,
                    "output limit of %" PRIu64 " MiB exceeded: the program was stopped, the head "
                    "and the tail of its output are kept; print less or write to a file",
                    LIMIT_OUTPUT_HARD_BYTES >> 20);
        break;
    case LIMIT_OF_CPU_TIME:
        buf_appendf(out,
                    "CPU time limit of %s s used up (timeout_seconds x cpus); compute less in one "
                    "run or raise timeout_seconds (at most %s) or cpus",
                    number_text(request->timeout_seconds * request->cpus).text,
                    number_text(LIMIT_TIMEOUT_SECONDS_MAX).text);
        break;
    case LIMIT_OF_DISK:
        buf_appendf(out,
                    "disk limit of %" PRIu64 " MB reached; write less, remove files, or raise "
                    "disk_mb",
                    request->disk_mb);
        break;
    case LIMIT_OF_PROCESSES:
        buf_appendf(out,
                    "process limit of %" PRIu32 " reached; start fewer processes and threads at "
                    "once or raise max_processes (at most %d)",
                    request->max_processes, LIMIT_PROCESSES_MAX);
        break;
    case LIMIT_OF_THREADS:
        buf_appendf(out,
                    "no further thread could start (process limit of %" PRIu32
                    ", memory limit of %" PRIu64 " MB); start fewer threads at once or raise "
                    "max_processes or memory_mb",
                    request->max_processes, request->memory_mb);
        break;
    }
}

/* ---- filling the result ---- */

/* Moves the text of a buffer into *ret_text. */
static int take_text(struct buf *text, char **ret_text, struct hutch_error *err)
{
    buf_append(text, "", 0);
    if (buf_check(text, err) < 0)
        return err->code;
    struct buf taken = TAKE_BUF(*text);
    free(*ret_text);
    *ret_text = taken.data;
    return 0;
}

static int set_message(struct hutch_result *result, const char *text, struct hutch_error *err)
{
    auto_buf struct buf message = BUF_MAX(SENTENCE_BYTES);

    buf_append_text(&message, text);
    return take_text(&message, &result->error_message, err);
}

/* The claim's type and line. */
static int set_class(struct hutch_result *result, const struct claim *claim,
                     struct hutch_error *err)
{
    auto_buf struct buf type = BUF_MAX(MESSAGE_BYTES);

    result->error_line = claim->line;
    if (claim->type_length == 0)
        return 0;
    append_foreign(&type, claim->type, claim->type_length);
    return take_text(&type, &result->error_class, err);
}

/* A limit's sentence, with what the program itself said in brackets. */
static int set_limit(struct hutch_result *result, enum limit limit,
                     const struct outcome_facts *facts, struct hutch_error *err)
{
    const struct claim *claim = facts->claim;
    auto_buf struct buf message = BUF_MAX(MESSAGE_BYTES);

    result->error_type = resource_limit;
    append_sentence(&message, limit, facts);
    if (claim && claim->message_length > 0) {
        buf_append_text(&message, " (");
        append_foreign(&message, claim->message, claim->message_length);
        buf_append_text(&message, ")");
    }
    if (claim && set_class(result, claim, err) < 0)
        return err->code;
    return take_text(&message, &result->error_message, err);
}

/* An end by the supervisor: nothing of the program's own counts. */
static int set_stopped(struct hutch_result *result, enum limit limit,
                       const struct outcome_facts *facts, struct hutch_error *err)
{
    struct outcome_facts alone = *facts;

    alone.claim = NULL;
    result->exit_code = KILLED_CODE(SIGKILL);
    result->exit_signal = signal_name(SIGKILL);
    return set_limit(result, limit, &alone, err);
}

static int set_timeout(struct hutch_result *result, const struct outcome_facts *facts,
                       struct hutch_error *err)
{
    if (set_stopped(result, LIMIT_OF_TIME, facts, err) < 0)
        return err->code;
    result->exit_code = -1;
    result->exit_signal = NULL;
    result->timed_out = true;
    result->error_type = "timeout";
    return 0;
}

/* The gate's refusal: the runner's exit status is not the program's. */
static int set_refused(struct hutch_result *result, const struct claim *refusal,
                       struct hutch_error *err)
{
    auto_buf struct buf message = BUF_MAX(MESSAGE_BYTES);

    result->exit_code = -2;
    result->error_type = "validation_error";
    append_foreign(&message, refusal->message, refusal->message_length);
    if (set_class(result, refusal, err) < 0)
        return err->code;
    return take_text(&message, &result->error_message, err);
}

/* ---- ends by a signal ---- */

static bool holds(const char *data, size_t length, const char *text)
{
    return data && memmem(data, length, text, strlen(text)) != NULL;
}

/* Node aborts when its heap is full, which it tells on stderr, and when it can
 * start no thread. */
static enum limit limit_of_abort(const struct outcome_facts *facts)
{
    const struct hutch_text *text = facts->stderr_text;

    if (facts->request->language != HUTCH_JAVASCRIPT)
        return LIMIT_NONE;
    if (text && holds(text->data, text->length, "JavaScript heap out of memory"))
        return LIMIT_OF_MEMORY;
    return facts->exit->process_limit_hits > 0 ? LIMIT_OF_PROCESSES : LIMIT_NONE;
}

static int judge_signal(const struct outcome_facts *facts, int number, struct hutch_result *result,
                        struct hutch_error *err)
{
    struct outcome_facts alone = *facts;
    const char *hint = "";
    char message[SENTENCE_BYTES];

    alone.claim = NULL; /* it was made before the end */
    if (facts->exit->oom_kills > 0)
        return set_limit(result, LIMIT_OF_MEMORY, &alone, err);
    switch (number) {
    case SIGXCPU:
        return set_limit(result, LIMIT_OF_CPU_TIME, &alone, err);
    case SIGXFSZ:
        return set_limit(result, LIMIT_OF_DISK, &alone, err);
    case SIGABRT:
        if (limit_of_abort(facts) != LIMIT_NONE)
            return set_limit(result, limit_of_abort(facts), &alone, err);
        break;
    case SIGKILL:
        hint = "; no limit of the cell was the reason";
        break;
    case SIGSEGV:
        hint = "; a likely cause is a stack overflow from endless or very deep recursion";
        break;
    case SIGBUS:
        hint = "; a likely cause is a mapped file on a full disk, see disk_mb";
        break;
    default:
        break;
    }
    result->error_type = runtime_error;
    snprintf(message, sizeof(message), "the program was killed by %s%s", result->exit_signal, hint);
    return set_message(result, message, err);
}

/* ---- ends by a claimed exception ---- */

static bool type_is(const struct claim *claim, const char *name)
{
    return claim->type_length == strlen(name) && memcmp(claim->type, name, strlen(name)) == 0;
}

/* Also of "numpy.core._exceptions._ArrayMemoryError". */
static bool type_ends_in(const struct claim *claim, const char *name)
{
    size_t length = strlen(name);
    return claim->type_length >= length &&
           memcmp(claim->type + claim->type_length - length, name, length) == 0;
}

static enum limit limit_of_claim(const struct claim *claim, const struct cell_exit *exit)
{
    bool hit = exit->process_limit_hits > 0;

    if (type_ends_in(claim, "MemoryError") || claim->sys_errno == ENOMEM)
        return exit->oom_kills > 0 ? LIMIT_OF_MEMORY : LIMIT_OF_ALLOCATION;
    if (claim->sys_errno == ENOSPC || claim->sys_errno == EDQUOT || claim->sys_errno == EFBIG)
        return LIMIT_OF_DISK;
    if (claim->sys_errno == EAGAIN && hit)
        return LIMIT_OF_PROCESSES;
    if (type_is(claim, "RuntimeError") &&
        holds(claim->message, claim->message_length, "can't start new thread"))
        return hit ? LIMIT_OF_PROCESSES : LIMIT_OF_THREADS;
    return LIMIT_NONE;
}

static int judge_claim(const struct outcome_facts *facts, struct hutch_result *result,
                       struct hutch_error *err)
{
    const struct claim *claim = facts->claim;
    enum limit limit = limit_of_claim(claim, facts->exit);

    if (limit != LIMIT_NONE && !claim->compile)
        return set_limit(result, limit, facts, err);
    if (claim->compile)
        result->error_type = syntax_error;
    else if (claim->import || type_is(claim, "ImportError") ||
             type_is(claim, "ModuleNotFoundError"))
        result->error_type = import_error;
    else
        result->error_type = runtime_error;

    auto_buf struct buf message = BUF_MAX(MESSAGE_BYTES);
    append_foreign(&message, claim->message, claim->message_length);
    if (set_class(result, claim, err) < 0)
        return err->code;
    return take_text(&message, &result->error_message, err);
}

/* ---- failures of a shell program, as bash tells them on stderr ---- */

struct line {
    const char *data;
    size_t length;
};

/* Takes the first line off *text; false at its end. */
static bool next_line(struct line *text, struct line *ret_line)
{
    if (text->length == 0)
        return false;
    const char *end = memchr(text->data, '\n', text->length);
    size_t length = end ? (size_t)(end - text->data) : text->length;
    size_t taken = end ? length + 1 : length;
    *ret_line = (struct line){text->data, length};
    text->data += taken;
    text->length -= taken;
    return true;
}

static bool skip(struct line *line, const char *prefix)
{
    size_t length = strlen(prefix);

    if (line->length < length || memcmp(line->data, prefix, length) != 0)
        return false;
    line->data += length;
    line->length -= length;
    return true;
}

/* "/run/main.sh: line 3: syntax error ..." becomes 3 and the rest. */
static bool is_syntax_error(struct line line, uint32_t *ret_number, struct line *ret_text)
{
    uint32_t number = 0;

    if (!skip(&line, WIRE_SHELL_FILE ": line "))
        return false;
    while (line.length > 0 && *line.data >= '0' && *line.data <= '9' && number < 100000000) {
        number = number * 10 + (uint32_t)(*line.data - '0');
        line.data++;
        line.length--;
    }
    if (!skip(&line, ": "))
        return false;
    struct line text = line;
    if (!skip(&line, "syntax error") && !skip(&line, "unexpected EOF while looking for matching"))
        return false;
    *ret_number = number;
    *ret_text = text;
    return true;
}

/* The last complaint counts; of one in two lines, the first of them. */
static bool find_syntax_error(struct line stderr_text, uint32_t *ret_number, struct line *ret_text)
{
    bool found = false, before = false;
    struct line line, text;
    uint32_t number;

    while (next_line(&stderr_text, &line)) {
        bool now = is_syntax_error(line, &number, &text);
        if (now && !before) {
            *ret_number = number;
            *ret_text = text;
            found = true;
        }
        before = now;
    }
    return found;
}

static enum limit limit_of_stderr(struct line stderr_text, const struct cell_exit *exit)
{
    struct line line, last = {"", 0};

    if (exit->process_limit_hits > 0 &&
        (holds(stderr_text.data, stderr_text.length, "Resource temporarily unavailable") ||
         holds(stderr_text.data, stderr_text.length, "can't start new thread")))
        return LIMIT_OF_PROCESSES;
    while (next_line(&stderr_text, &line)) {
        if (line.length > 0)
            last = line;
    }
    if (holds(last.data, last.length, "No space left on device") ||
        holds(last.data, last.length, "Disk quota exceeded") ||
        holds(last.data, last.length, "File too large"))
        return LIMIT_OF_DISK;
    if (holds(last.data, last.length, "Cannot allocate memory") ||
        holds(last.data, last.length, "alloc: cannot allocate"))
        return LIMIT_OF_MEMORY;
    return LIMIT_NONE;
}

static int judge_shell(const struct outcome_facts *facts, struct hutch_result *result,
                       struct hutch_error *err)
{
    struct line text = {facts->stderr_text->data, facts->stderr_text->length};
    struct line complaint;

    result->error_type = runtime_error;
    if (text.length == 0)
        return 0;
    if (result->exit_code == 2 && find_syntax_error(text, &result->error_line, &complaint)) {
        auto_buf struct buf message = BUF_MAX(MESSAGE_BYTES);
        if (complaint.length > COMPLAINT_BYTES)
            complaint.length =
                utf8_boundary_before(complaint.data, COMPLAINT_BYTES, COMPLAINT_BYTES);
        result->error_type = syntax_error;
        append_foreign(&message, complaint.data, complaint.length);
        return take_text(&message, &result->error_message, err);
    }
    enum limit limit = limit_of_stderr(text, facts->exit);
    return limit == LIMIT_NONE ? 0 : set_limit(result, limit, facts, err);
}

/* ---- the whole ---- */

static int judge_exit(const struct outcome_facts *facts, struct hutch_result *result,
                      struct hutch_error *err)
{
    if (result->exit_code == 0)
        return 0;
    if (facts->exit->oom_kills > 0) /* a child was killed, and the program fails of it */
        return set_limit(result, LIMIT_OF_MEMORY, facts, err);
    if (facts->claim)
        return judge_claim(facts, result, err);
    if (facts->request->language == HUTCH_SHELL && facts->stderr_text)
        return judge_shell(facts, result, err);
    result->error_type = runtime_error;
    return 0;
}

int outcome_judge(const struct outcome_facts *facts, struct hutch_result *result,
                  struct hutch_error *err)
{
    int status = facts->exit->wait_status;

    switch (facts->exit->end) {
    case CELL_END_TIMEOUT:
        return set_timeout(result, facts, err);
    case CELL_END_MEMORY:
        return set_stopped(result, LIMIT_OF_MEMORY, facts, err);
    case CELL_END_OUTPUT:
        return set_stopped(result, LIMIT_OF_OUTPUT, facts, err);
    case CELL_END_EXIT:
        break;
    }
    assert(WIFEXITED(status) || WIFSIGNALED(status));
    if (WIFEXITED(status)) {
        if (facts->refusal && WEXITSTATUS(status) == WIRE_EXIT_REFUSED)
            return set_refused(result, facts->refusal, err);
        result->exit_code = WEXITSTATUS(status);
        return judge_exit(facts, result, err);
    }
    result->exit_code = KILLED_CODE(WTERMSIG(status));
    result->exit_signal = signal_name(WTERMSIG(status));
    return judge_signal(facts, WTERMSIG(status), result, err);
}
