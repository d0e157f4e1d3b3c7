/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See workspace.h.
 *
 * The lock guards all of struct workspace and the cells' counts, and is never held during a
 * call of the engine. Who opens the session of a language, and who brings files, says so in
 * the struct; others wait for "changed" until their own deadline. Running code holds nothing.
 *
 * Files are noted by path with the version that is the newest, the session that made it, and
 * the version that each other one was given. What is noted is what results say, so deleting
 * is not seen but where a file that is to be brought is gone.
 */
#include "workspace.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/quote.h"
#include "sandbox/request.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define LANGUAGES 3
#define IDLE_SECONDS 3600
#define COMPLAINTS_MAX 3 /* of files that could not be brought, in one note */

struct shared_file {
    char *path;
    uint64_t version;
    enum hutch_language maker;
    uint64_t given[LANGUAGES]; /* 0: none */
};

struct workspace {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct workspace_cell *cells[LANGUAGES];
    bool opening[LANGUAGES], was_over[LANGUAGES];
    bool bringing;
    enum hutch_language current;
    bool state_lost;
    uint64_t version;
    struct shared_file *files;
    size_t file_count;
};

/* ---- birth and death ---- */

int workspace_new(struct workspace **ret_workspace, struct hutch_error *err)
{
    struct workspace *workspace = calloc(1, sizeof(*workspace));
    pthread_condattr_t attributes;

    if (!workspace)
        return err_no_memory(err);
    pthread_mutex_init(&workspace->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&workspace->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    *ret_workspace = workspace;
    return 0;
}

static void cell_free(struct workspace_cell *cell)
{
    if (!cell)
        return;
    hutch_session_close(cell->session);
    free(cell);
}

void workspace_free(struct workspace *workspace)
{
    if (!workspace)
        return;
    for (size_t i = 0; i < LANGUAGES; i++)
        cell_free(workspace->cells[i]);
    for (size_t i = 0; i < workspace->file_count; i++)
        free(workspace->files[i].path);
    free(workspace->files);
    pthread_cond_destroy(&workspace->changed);
    pthread_mutex_destroy(&workspace->lock);
    free(workspace);
}

/* Waits until something has changed, with the lock. False: the deadline has passed. */
static bool wait_for_change(struct workspace *workspace, uint64_t deadline_ns)
{
    const struct timespec until = {
        .tv_sec = (time_t)(deadline_ns / NS_PER_SECOND),
        .tv_nsec = (long)(deadline_ns % NS_PER_SECOND),
    };

    if (deadline_ns == NO_DEADLINE)
        return pthread_cond_wait(&workspace->changed, &workspace->lock) == 0;
    return pthread_cond_timedwait(&workspace->changed, &workspace->lock, &until) == 0;
}

static int too_late(struct hutch_error *err)
{
    return err_set(err, HUTCH_ERR_BUSY, "the time of the run is over");
}

/* ---- what is noted of files; with the lock ---- */

static struct shared_file *find_file(struct workspace *workspace, const char *path)
{
    for (size_t i = 0; i < workspace->file_count; i++) {
        if (strcmp(workspace->files[i].path, path) == 0)
            return &workspace->files[i];
    }
    return NULL;
}

static struct shared_file *add_file(struct workspace *workspace, const char *path)
{
    size_t count = workspace->file_count;

    if (count == LIMIT_SHARED_FILES)
        return NULL;
    if ((count & (count - 1)) == 0) { /* it doubles */
        size_t room = count == 0 ? 1 : 2 * count;
        struct shared_file *files = realloc(workspace->files, room * sizeof(*files));
        if (!files)
            return NULL;
        workspace->files = files;
    }
    struct shared_file *file = &workspace->files[count];
    *file = (struct shared_file){.path = strdup(path)};
    if (!file->path)
        return NULL;
    workspace->file_count++;
    return file;
}

static void forget_file(struct workspace *workspace, struct shared_file *file)
{
    free(file->path);
    *file = workspace->files[--workspace->file_count];
}

/* A session's files are gone with it; another one may have the newest of a file too. */
static void forget_files_of(struct workspace *workspace, enum hutch_language language)
{
    for (size_t i = workspace->file_count; i-- > 0;) {
        struct shared_file *file = &workspace->files[i];
        file->given[language] = 0;
        if (file->maker != language)
            continue;
        for (enum hutch_language other = 0; other < LANGUAGES; other++) {
            if (file->given[other] == file->version)
                file->maker = other;
        }
        if (file->maker == language)
            forget_file(workspace, file);
    }
}

bool workspace_file_made(struct workspace *workspace, const struct workspace_cell *cell,
                         const char *path)
{
    pthread_mutex_lock(&workspace->lock);
    struct shared_file *file = cell->over ? NULL : find_file(workspace, path);
    if (!file && !cell->over)
        file = add_file(workspace, path);
    if (file) {
        file->version = ++workspace->version;
        file->maker = cell->language;
        file->given[cell->language] = file->version;
    }
    bool noted = file || cell->over;
    pthread_mutex_unlock(&workspace->lock);
    return noted;
}

/* ---- entering and leaving ---- */

/* With the lock. A cell that is to be freed, without it, or NULL. */
static struct workspace_cell *give_back(struct workspace_cell *cell)
{
    cell->users--;
    return cell->over && cell->users == 0 ? cell : NULL;
}

void workspace_leave(struct workspace *workspace, struct workspace_cell *cell)
{
    pthread_mutex_lock(&workspace->lock);
    struct workspace_cell *last = give_back(cell);
    pthread_mutex_unlock(&workspace->lock);
    cell_free(last);
}

/* With the lock. */
static void end_cell(struct workspace *workspace, struct workspace_cell *cell)
{
    if (cell->over)
        return;
    cell->over = true;
    workspace->cells[cell->language] = NULL;
    workspace->was_over[cell->language] = true;
    workspace->state_lost = true;
    forget_files_of(workspace, cell->language);
}

void workspace_cell_over(struct workspace *workspace, struct workspace_cell *cell)
{
    pthread_mutex_lock(&workspace->lock);
    end_cell(workspace, cell);
    pthread_mutex_unlock(&workspace->lock);
}

static int open_cell(const struct workspace_entry *entry, enum hutch_language language,
                     struct workspace_cell **ret_cell, struct hutch_error *err)
{
    struct hutch_request request = *entry->limits;
    struct hutch_session_options options;
    auto_free struct workspace_cell *cell = calloc(1, sizeof(*cell));

    if (!cell)
        return err_no_memory(err);
    hutch_session_options_init(&options);
    options.idle_timeout_seconds = IDLE_SECONDS;
    options.cancel = entry->cancel;
    request.language = language;
    request.gate = NULL;
    cell->language = language;
    if (hutch_session_open(entry->engine, &request, &options, &cell->session, err) < 0)
        return err->code;
    *ret_cell = TAKE_POINTER(cell);
    return 0;
}

/* With the lock, which it gives up meanwhile. */
static int open_first(struct workspace *workspace, enum hutch_language language,
                      const struct workspace_entry *entry, struct hutch_error *err)
{
    struct workspace_cell *cell = NULL;

    workspace->opening[language] = true;
    pthread_mutex_unlock(&workspace->lock);
    int code = open_cell(entry, language, &cell, err);
    pthread_mutex_lock(&workspace->lock);
    workspace->opening[language] = false;
    pthread_cond_broadcast(&workspace->changed);
    if (code < 0)
        return code;
    cell->reset = workspace->was_over[language];
    workspace->was_over[language] = false;
    workspace->cells[language] = cell;
    return 0;
}

/* With the lock. */
static int get_cell(struct workspace *workspace, enum hutch_language language,
                    struct workspace_entry *entry, struct workspace_cell **ret_cell,
                    struct hutch_error *err)
{
    while (!workspace->cells[language]) {
        if (!workspace->opening[language]) {
            if (open_first(workspace, language, entry, err) < 0)
                return err->code;
        } else if (!wait_for_change(workspace, entry->deadline_ns)) {
            return too_late(err);
        }
    }
    struct workspace_cell *cell = workspace->cells[language];
    cell->users++;
    entry->reset = entry->reset || cell->reset;
    cell->reset = false;
    workspace->current = language;
    *ret_cell = cell;
    return 0;
}

/* ---- whole files ---- */

static int take_bytes(void *user, const char *data, size_t length)
{
    struct buf *bytes = user;
    buf_append(bytes, data, length);
    return bytes->failure == BUF_OK ? 0 : -1;
}

int workspace_cell_get(struct workspace_cell *cell, const char *path,
                       const struct hutch_file_options *options, struct buf *bytes,
                       struct hutch_error *err)
{
    buf_clear(bytes);
    return hutch_session_get(cell->session, path, take_bytes, bytes, options, err);
}

static int give_bytes(void *user, char *data, size_t length)
{
    const char **at = user;
    memcpy(data, *at, length);
    *at += length;
    return 0;
}

int workspace_cell_put(struct workspace_cell *cell, const char *path,
                       const struct hutch_file_options *options, const char *data, size_t length,
                       struct hutch_error *err)
{
    return hutch_session_put(cell->session, path, length, give_bytes, &data, options, err);
}

/* ---- bringing files ---- */

/* A file on its way. */
struct errand {
    struct workspace_cell *from, *to;
    char *path;
    uint64_t version;
};

/* A walk over all files that are to be brought to one cell, by their versions. */
struct round {
    struct workspace *workspace;
    struct workspace_cell *to;
    const struct workspace_entry *entry;
    uint64_t last; /* the version that was looked at last */
    uint64_t bytes_left;
    unsigned complaints;
};

/* The next one, with the lock. */
static struct shared_file *next_file(const struct round *round)
{
    struct workspace *workspace = round->workspace;
    struct shared_file *next = NULL;

    for (size_t i = 0; i < workspace->file_count; i++) {
        struct shared_file *file = &workspace->files[i];
        if (file->version > round->last && file->given[round->to->language] != file->version &&
            workspace->cells[file->maker] && (!next || file->version < next->version))
            next = file;
    }
    return next;
}

static int carry(struct round *round, const struct errand *errand, struct hutch_error *err)
{
    uint64_t most =
        round->bytes_left < LIMIT_SHARED_FILE_BYTES ? round->bytes_left : LIMIT_SHARED_FILE_BYTES;
    auto_buf struct buf bytes = BUF_MAX(most);
    struct hutch_file_options options;

    hutch_file_options_init(&options);
    options.cancel = round->entry->cancel;
    options.timeout_seconds = 30;
    options.max_bytes = most;
    if (workspace_cell_get(errand->from, errand->path, &options, &bytes, err) < 0) {
        if (err->code == HUTCH_ERR_EXPIRED)
            workspace_cell_over(round->workspace, errand->from);
        return err->code;
    }
    round->bytes_left -= bytes.length;
    options.max_bytes = 0;
    return workspace_cell_put(errand->to, errand->path, &options, buf_text(&bytes), bytes.length,
                              err);
}

static void complain(struct round *round, const struct errand *errand,
                     const struct hutch_error *err)
{
    if (round->complaints++ < COMPLAINTS_MAX)
        buf_appendf(round->entry->note, "%s of the %s session could not be brought here: %s. ",
                    quote_text(errand->path).text, language_name(errand->from->language),
                    err->message);
}

/* With the lock: what has become of it. */
static void note_end(struct round *round, const struct errand *errand,
                     const struct hutch_error *err)
{
    struct shared_file *file = find_file(round->workspace, errand->path);
    bool is_gone = err->code == HUTCH_ERR_INVALID && err->sys_errno == ENOENT;

    if (file && err->code == 0 && !errand->to->over)
        file->given[errand->to->language] = errand->version;
    else if (file && is_gone && file->version == errand->version)
        forget_file(round->workspace, file);
    else if (err->code != 0 && !is_gone)
        complain(round, errand, err);
}

/* Brings one; false if there is none left. With the lock, which it gives up meanwhile. */
static bool bring_next(struct round *round)
{
    struct workspace *workspace = round->workspace;
    struct shared_file *file = next_file(round);
    struct hutch_error err = {.code = 0};

    if (!file || round->to->over)
        return false;
    struct errand errand = {.from = workspace->cells[file->maker],
                            .to = round->to,
                            .path = strdup(file->path),
                            .version = file->version};
    round->last = file->version;
    if (!errand.path)
        return false;
    errand.from->users++;
    pthread_mutex_unlock(&workspace->lock);
    if (round->bytes_left > 0)
        IGNORE_RESULT(carry(round, &errand, &err));
    else
        err_set(&err, HUTCH_ERR_INVALID, "no more than %d MiB are brought at once",
                (int)(LIMIT_SHARED_BYTES >> 20));
    pthread_mutex_lock(&workspace->lock);
    note_end(round, &errand, &err);
    free(errand.path);
    struct workspace_cell *last = give_back(errand.from);
    if (last) {
        pthread_mutex_unlock(&workspace->lock);
        cell_free(last);
        pthread_mutex_lock(&workspace->lock);
    }
    return err.code != HUTCH_ERR_CANCELLED && clock_now_ns() < round->entry->deadline_ns;
}

/* With the lock. One at a time does it, so that no old file is put over a new one. */
static void bring_files(struct round *round)
{
    struct workspace *workspace = round->workspace;

    while (workspace->bringing && next_file(round)) {
        if (!wait_for_change(workspace, round->entry->deadline_ns))
            return;
    }
    if (workspace->bringing)
        return;
    workspace->bringing = true;
    while (bring_next(round)) { /* all that there are */
    }
    workspace->bringing = false;
    pthread_cond_broadcast(&workspace->changed);
    if (round->complaints > COMPLAINTS_MAX)
        buf_appendf(round->entry->note, "Nor could %u more files be. ",
                    round->complaints - COMPLAINTS_MAX);
}

int workspace_enter(struct workspace *workspace, enum hutch_language language,
                    struct workspace_entry *entry, struct workspace_cell **ret_cell,
                    struct hutch_error *err)
{
    pthread_mutex_lock(&workspace->lock);
    int code = get_cell(workspace, language, entry, ret_cell, err);
    if (code == 0) {
        struct round round = {.workspace = workspace,
                              .to = *ret_cell,
                              .entry = entry,
                              .bytes_left = LIMIT_SHARED_BYTES};
        bring_files(&round);
    }
    pthread_mutex_unlock(&workspace->lock);
    return code;
}

/* ---- the rest ---- */

enum hutch_language workspace_current(struct workspace *workspace)
{
    pthread_mutex_lock(&workspace->lock);
    enum hutch_language language = workspace->current;
    pthread_mutex_unlock(&workspace->lock);
    return language;
}

void workspace_state_lost(struct workspace *workspace)
{
    pthread_mutex_lock(&workspace->lock);
    workspace->state_lost = true;
    pthread_mutex_unlock(&workspace->lock);
}

bool workspace_take_state_lost(struct workspace *workspace)
{
    pthread_mutex_lock(&workspace->lock);
    bool lost = workspace->state_lost;
    workspace->state_lost = false;
    pthread_mutex_unlock(&workspace->lock);
    return lost;
}
