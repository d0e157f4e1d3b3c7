/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls for the files of a session, on the threads of the callers: hutch-init serves them
 * beside whatever runs, on a link that they have for themselves, one after the other.
 */
#include "base/clock.h"
#include "base/limits.h"
#include "base/parse.h"
#include "base/quote.h"
#include "engine.h"
#include "file_call.h"
#include "file_name.h"
#include "request.h"
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILE_SECONDS 300 /* for a call, unless it says otherwise */

/* A call on its way. */
struct errand {
    struct hutch_session *session;
    const char *verb; /* for messages */
    struct file_call call;
    struct hutch_file_options options;
    uint64_t deadline_ns;
    uint64_t touched_ns; /* when the session last heard that it is not idle */
    struct file_path path;
    hutch_read_fn read;
    hutch_write_fn write;
    void *user;
};

/* ---- options ------------------------------------------------------------ */

void hutch_file_options_init(struct hutch_file_options *options)
{
    *options =
        (struct hutch_file_options){.size = sizeof(*options), .timeout_seconds = FILE_SECONDS};
}

static int load_options(struct errand *errand, const struct hutch_file_options *given,
                        struct hutch_error *err)
{
    struct hutch_file_options *options = &errand->options;

    hutch_file_options_init(options);
    if (given) {
        if (request_check_size("file_options", given, given->size, sizeof(*given), sizeof(*given),
                               err) < 0)
            return err->code;
        *options = *given;
    }
    if (options->timeout_seconds == 0)
        options->timeout_seconds = FILE_SECONDS;
    if (!(options->timeout_seconds >= LIMIT_FILE_SECONDS_MIN &&
          options->timeout_seconds <= LIMIT_FILE_SECONDS_MAX))
        return err_set(err, HUTCH_ERR_INVALID, "timeout_seconds: %s; allowed is %s to %s",
                       number_text(options->timeout_seconds).text,
                       number_text(LIMIT_FILE_SECONDS_MIN).text,
                       number_text(LIMIT_FILE_SECONDS_MAX).text);
    errand->deadline_ns =
        clock_after_ns((uint64_t)(options->timeout_seconds * (double)NS_PER_SECOND));
    return 0;
}

/* ---- one call --------------------------------------------------------------- */

/* A long transfer is no idleness. */
static void touch(struct errand *errand)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t often_ns = (uint64_t)(errand->session->idle_seconds * (double)NS_PER_SECOND) / 4;

    if (now_ns - errand->touched_ns < often_ns)
        return;
    errand->touched_ns = now_ns;
    session_touch(errand->session, 0);
}

static int read_piece(void *user, char *data, size_t length, struct hutch_error *err)
{
    struct errand *errand = user;

    if (errand->read(errand->user, data, length) != 0)
        return err_set(err, HUTCH_ERR_CANCELLED, "the caller gave no more of it");
    touch(errand);
    return 0;
}

static int write_piece(void *user, const char *data, size_t length, struct hutch_error *err)
{
    struct errand *errand = user;

    if (errand->write(errand->user, data, length) != 0)
        return err_set(err, HUTCH_ERR_CANCELLED, "the caller took no more of it");
    touch(errand);
    return 0;
}

/* What is to be said of a call that failed. */
static void explain(struct errand *errand, struct hutch_error *err)
{
    const struct file_call *call = &errand->call;
    bool changes = call->type == WIRE_FILE_PUT || call->type == WIRE_FILE_DELETE;

    if (call->is_lost && session_explain_loss(errand->session, err))
        changes = changes && call->is_sent;
    else if (err->code == HUTCH_ERR_HELPER && clock_now_ns() >= errand->deadline_ns)
        err_set(err, HUTCH_ERR_CANCELLED, "the %s s of its timeout_seconds are over",
                number_text(errand->options.timeout_seconds).text);
    if (changes && call->is_sent && call->sys_errno == 0)
        err_mark_maybe_ran(err);
}

static int make_call(struct errand *errand, struct hutch_error *err)
{
    struct hutch_session *session = errand->session;
    struct file_call *call = &errand->call;

    errand->touched_ns = clock_now_ns();
    session_touch(session, 0);
    int code = session->ops->cell_file(session->cell, CELL_CALLER_FILES, call, errand->deadline_ns,
                                       cancel_fd(errand->options.cancel), err);
    if (call->type == WIRE_FILE_PUT && call->is_sent)
        session_note_change(session);
    if (code < 0)
        explain(errand, err);
    else
        session_touch(session, 0);
    return code < 0 ? err->code : 0;
}

static int run_errand(struct errand *errand, const struct hutch_file_options *options,
                      struct hutch_error *err)
{
    struct hutch_session *session = errand->session;
    struct session_waiter me = {.token = -1};

    errand->call.path = errand->path.text;
    errand->call.user = errand->call.user ? errand->call.user : errand;
    if (load_options(errand, options, err) < 0)
        return err->code;
    me.token = cancel_fd(errand->options.cancel);
    me.seconds = errand->options.timeout_seconds;
    me.deadline_ns = errand->deadline_ns;
    if (session_enter(session, &session->files, &me, err) < 0)
        return err->code;
    if (errand->call.type == WIRE_FILE_GET)
        errand->call.max_bytes =
            errand->options.max_bytes != 0 ? errand->options.max_bytes : session->disk_bytes;
    errand->call.executable = errand->options.executable && errand->call.type == WIRE_FILE_PUT;
    int code = make_call(errand, err);
    session_leave(session, &session->files, &me);
    if (code < 0)
        return err_context(err, "%s: %s", errand->verb, quote_text(errand->path.text).text);
    return 0;
}

/* ---- put, get, delete --------------------------------------------------------- */

int hutch_session_put(hutch_session *session, const char *path, uint64_t length, hutch_read_fn read,
                      void *user, const struct hutch_file_options *options, struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;
    struct errand errand = {
        .session = session,
        .verb = "put",
        .call = {.type = WIRE_FILE_PUT, .size = length, .read = read_piece},
        .read = read,
        .user = user,
    };

    if (file_path_read("put", path, &errand.path, err) < 0)
        return err->code;
    if (length > session->disk_bytes) {
        err_set(err, HUTCH_ERR_INVALID,
                "put: %s: has %" PRIu64 " bytes; allowed are %" PRIu64
                ", the lesser of disk_mb and "
                "three quarters of memory_mb",
                quote_text(errand.path.text).text, length, session->disk_bytes);
        err->sys_errno = EFBIG;
        return err->code;
    }
    if (!read && length > 0)
        return err_set(err, HUTCH_ERR_INVALID, "put: read is NULL");
    return run_errand(&errand, options, err);
}

int hutch_session_get(hutch_session *session, const char *path, hutch_write_fn write, void *user,
                      const struct hutch_file_options *options, struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;
    struct errand errand = {
        .session = session,
        .verb = "get",
        .call = {.type = WIRE_FILE_GET, .write = write_piece},
        .write = write,
        .user = user,
    };

    if (file_path_read("get", path, &errand.path, err) < 0)
        return err->code;
    if (!write)
        return err_set(err, HUTCH_ERR_INVALID, "get: write is NULL");
    return run_errand(&errand, options, err);
}

int hutch_session_delete(hutch_session *session, const char *path,
                         const struct hutch_file_options *options, struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;
    struct errand errand = {
        .session = session, .verb = "delete", .call = {.type = WIRE_FILE_DELETE}};

    if (file_path_read("delete", path, &errand.path, err) < 0)
        return err->code;
    return run_errand(&errand, options, err);
}

/* ---- list ----------------------------------------------------------------------- */

static int add_entry(void *user, const struct file_entry *entry, struct hutch_error *err)
{
    struct hutch_listing *listing = user;

    if ((listing->count & (listing->count - 1)) == 0) { /* full, as the room doubles */
        size_t room = listing->count == 0 ? 1 : 2 * listing->count;
        struct hutch_entry *entries = realloc(listing->entries, room * sizeof(*entries));
        if (!entries)
            return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
        listing->entries = entries;
    }
    char *name = strdup(entry->name);
    if (!name)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    listing->entries[listing->count++] = (struct hutch_entry){
        .name = name, .size = entry->size, .is_directory = entry->is_directory};
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    const struct hutch_entry *one = a;
    const struct hutch_entry *other = b;

    return strcmp(one->name, other->name);
}

void hutch_listing_free(hutch_listing *listing)
{
    if (!listing)
        return;
    for (size_t i = 0; i < listing->count; i++)
        free(listing->entries[i].name);
    free(listing->entries);
    free(listing);
}

int hutch_session_list(hutch_session *session, const char *path,
                       const struct hutch_file_options *options, hutch_listing **ret_listing,
                       struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;
    struct errand errand = {
        .session = session,
        .verb = "list",
        .call = {.type = WIRE_FILE_LIST, .entry = add_entry},
    };

    if (!path)
        return err_set(err, HUTCH_ERR_INVALID, "list: a path is NULL");
    if (file_path_read_bytes("list", path, strnlen(path, LIMIT_PATH_BYTES + 1), &errand.path, err) <
        0)
        return err->code;
    struct hutch_listing *listing = calloc(1, sizeof(*listing));
    if (!listing)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    listing->size = sizeof(*listing);
    errand.call.user = listing;
    if (run_errand(&errand, options, err) < 0) {
        hutch_listing_free(listing);
        return err->code;
    }
    listing->truncated = errand.call.is_cut;
    if (listing->count > 0)
        qsort(listing->entries, listing->count, sizeof(*listing->entries), compare_names);
    *ret_listing = listing;
    return 0;
}
