/* SPDX-License-Identifier: Apache-2.0 */
/* See run_files.h. */
#include "run_files.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/quote.h"
#include "file_name.h"
#include "request.h"
#include "result.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#define CALL_NS (100 * NS_PER_SECOND) /* for one file, or one list, when the program has ended */

#define RUN_OPTIONS_SIZE_FIRST (offsetof(struct hutch_run_options, cancel) + sizeof(hutch_cancel *))

/* ---- the options ---- */

static int check_count(const char *field, const void *list, size_t count, struct hutch_error *err)
{
    if (count > LIMIT_TRANSFERS || (count > 0 && !list))
        return err_set(err, HUTCH_ERR_INVALID, "%s: %zu%s; allowed are at most %d", field, count,
                       list ? "" : " at NULL", LIMIT_TRANSFERS);
    return 0;
}

static int check_transfers(const struct hutch_run_options *options, struct hutch_error *err)
{
    struct file_path path;

    if (check_count("uploads", options->uploads, options->upload_count, err) < 0 ||
        check_count("downloads", options->downloads, options->download_count, err) < 0)
        return err->code;
    for (size_t i = 0; i < options->upload_count; i++) {
        if (file_path_read("upload", options->uploads[i].path, &path, err) < 0)
            return err->code;
    }
    for (size_t i = 0; i < options->download_count; i++) {
        if (file_path_read("download", options->downloads[i].path, &path, err) < 0)
            return err->code;
        if (!options->downloads[i].error)
            return err_set(err, HUTCH_ERR_INVALID, "download: error is NULL");
    }
    return 0;
}

int run_options_load(const struct hutch_run_options *options, struct hutch_run_options *ret_options,
                     struct hutch_error *err)
{
    size_t known = sizeof(*ret_options);

    *ret_options = (struct hutch_run_options){.size = known};
    if (!options)
        return 0;
    if (request_check_size("run_options", options, options->size, RUN_OPTIONS_SIZE_FIRST, known,
                           err) < 0)
        return err->code;
    memcpy(ret_options, options, options->size < known ? options->size : known);
    return check_transfers(ret_options, err);
}

bool run_files_place_any(const struct hutch_request *request,
                         const struct hutch_run_options *options)
{
    return request->file_count > 0 || options->upload_count > 0;
}

/* ---- into the cell ---- */

static int call_cell(struct run_files *files, struct file_call *call, struct hutch_error *err)
{
    int code = files->ops->cell_file(files->cell, CELL_FILES, call, files->deadline_ns,
                                     files->cancel_fd, err);
    files->is_lost = files->is_lost || call->is_lost;
    return code;
}

/* Gives the bytes of a file of the request one after the other. */
static int read_memory(void *user, char *data, size_t length, struct hutch_error *err)
{
    const char **next = user;

    (void)err;
    memcpy(data, *next, length);
    *next += length;
    return 0;
}

struct source {
    int fd;
    uint64_t offset;
};

static int read_source(void *user, char *data, size_t length, struct hutch_error *err)
{
    struct source *source = user;

    ssize_t count = fd_read_at(source->fd, data, length, source->offset);

    if (count < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read it");
    if ((size_t)count < length)
        return err_set(err, HUTCH_ERR_SYSTEM, "it has become shorter while it was read");
    source->offset += length;
    return 0;
}

static int place_file(struct run_files *files, const struct hutch_file_in *file,
                      struct hutch_error *err)
{
    struct file_path path;
    const char *next = file->data;
    struct file_call call = {
        .type = WIRE_FILE_PUT,
        .path = path.text,
        .executable = file->executable,
        .size = file->length,
        .read = read_memory,
        .user = (void *)&next,
    };

    if (file_path_read("files", file->path, &path, err) < 0)
        return err->code;
    if (call_cell(files, &call, err) < 0)
        return err_context(err, "files: %s", quote_text(path.text).text);
    return 0;
}

static int place_upload(struct run_files *files, const struct hutch_upload *upload,
                        struct hutch_error *err)
{
    struct file_path path;
    struct source source = {.fd = upload->fd};
    struct stat status;

    if (file_path_read("upload", upload->path, &path, err) < 0)
        return err->code;
    if (fstat(upload->fd, &status) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "upload: %s", quote_text(path.text).text);
    if (!S_ISREG(status.st_mode))
        return err_set(err, HUTCH_ERR_INVALID, "upload: what should become %s is no regular file",
                       quote_text(path.text).text);
    struct file_call call = {
        .type = WIRE_FILE_PUT,
        .path = path.text,
        .executable = upload->executable,
        .size = (uint64_t)status.st_size,
        .read = read_source,
        .user = &source,
    };
    if (call_cell(files, &call, err) < 0)
        return err_context(err, "upload: %s", quote_text(path.text).text);
    return 0;
}

int run_files_place(struct run_files *files, struct hutch_error *err)
{
    for (size_t i = 0; i < files->request->file_count; i++) {
        if (place_file(files, &files->request->files[i], err) < 0)
            return err->code;
    }
    for (size_t i = 0; i < files->options->upload_count; i++) {
        if (place_upload(files, &files->options->uploads[i], err) < 0)
            return err->code;
    }
    struct file_call mark = {.type = WIRE_FILE_MARK};
    if (!files->in_session && call_cell(files, &mark, err) < 0)
        return err_context(err, "files");
    return 0;
}

/* ---- out of the cell ---- */

/* What a runner puts into the home directory is not the program's. */
static bool is_runners(const struct hutch_request *request, const char *path)
{
    return request->language == HUTCH_JAVASCRIPT &&
           strncmp(path, WIRE_NODE_FILE, sizeof(WIRE_NODE_FILE) - 1) == 0 && !strchr(path, '/');
}

struct listing {
    const struct hutch_request *request;
    struct hutch_result *result;
};

static int take_entry(void *user, const struct file_entry *entry, struct hutch_error *err)
{
    struct listing *listing = user;

    if (is_runners(listing->request, entry->name))
        return 0;
    if (listing->result->file_count == LIMIT_RESULT_FILES) {
        listing->result->files_truncated = true;
        return 0;
    }
    return result_add_file(listing->result, entry->name, entry->size, err);
}

static struct file_call ask_for_changes(const struct run_files *files)
{
    return (struct file_call){
        .type = WIRE_FILE_CHANGES,
        .entry = take_entry,
        .after_ns = files->in_session ? files->after_ns : 0,
    };
}

void run_files_ask(struct run_files *files)
{
    struct hutch_error ignored; /* it shows when the call goes on */

    files->changes = ask_for_changes(files);
    files->has_asked =
        files->ops->cell_file_begin(files->cell, CELL_FILES, &files->changes, &ignored) == 0;
}

/* A home directory that the program has closed to itself is closed to us. An exec has its
 * result even where hutch-init has none for it any more. */
static int list_changes(struct run_files *files, struct hutch_result *result,
                        struct hutch_error *err)
{
    struct listing listing = {.request = files->request, .result = result};

    if (!files->has_asked)
        files->changes = ask_for_changes(files);
    files->changes.user = &listing;
    int code = call_cell(files, &files->changes, err);
    bool is_refused =
        files->changes.sys_errno != 0 || (files->in_session && code == HUTCH_ERR_HELPER);
    if (code < 0 && !is_refused)
        return err_context(err, "files of the cell");
    if (code < 0 || files->changes.is_cut)
        result->files_truncated = true;
    result_sort_files(result);
    return 0;
}

static bool is_wanted(const struct hutch_request *request, const char *path)
{
    struct file_path pattern;
    struct hutch_error ignored; /* they have been checked */

    for (size_t i = 0; i < request->return_file_count; i++) {
        if (file_path_read("return_files", request->return_files[i], &pattern, &ignored) == 0 &&
            file_matches(pattern.text, path))
            return true;
    }
    return false;
}

static int append_data(void *user, const char *data, size_t length, struct hutch_error *err)
{
    struct buf *buf = user;

    buf_append(buf, data, length);
    return buf_check(buf, err);
}

/* A file that cannot be read is the program's doing; it goes without data. */
static int fetch_data(struct run_files *files, struct hutch_file *file, uint64_t room,
                      struct hutch_error *err)
{
    auto_buf struct buf data = BUF_MAX(room);
    struct file_call call = {
        .type = WIRE_FILE_GET,
        .path = file->path,
        .max_bytes = room,
        .write = append_data,
        .user = &data,
    };

    int code = call_cell(files, &call, err);
    if (code < 0)
        return call.sys_errno != 0 ? 0 : err_context(err, "file of the cell");
    buf_append(&data, "", 0); /* an empty one has data, too */
    if (buf_check(&data, err) < 0)
        return err->code;
    struct buf taken = TAKE_BUF(data);
    file->data = (struct hutch_text){.data = taken.data, .length = taken.length};
    file->size = taken.length;
    return 0;
}

static int fetch_wanted(struct run_files *files, struct hutch_result *result,
                        struct hutch_error *err)
{
    uint64_t room = LIMIT_FILES_BYTES;

    for (size_t i = 0; i < result->file_count && files->request->return_file_count > 0; i++) {
        struct hutch_file *file = &result->files[i];
        if (!is_wanted(files->request, file->path))
            continue;
        if (file->size <= room && fetch_data(files, file, room, err) < 0)
            return err->code;
        room -= file->data.length;
        result->files_truncated = result->files_truncated || !file->data.data;
    }
    return 0;
}

static int write_down(void *user, const char *data, size_t length, struct hutch_error *err)
{
    const int *fd = user;

    if (fd_write_all(*fd, data, length) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "write it");
    return 0;
}

/* What lies in the cell only, and where no connection to it is left, is an error of each. */
static void download(struct run_files *files, const struct hutch_download *download)
{
    struct file_path path;
    struct hutch_error *err = download->error;
    int fd = download->fd;
    struct file_call call = {
        .type = WIRE_FILE_GET,
        .path = path.text,
        .max_bytes = download->max_bytes != 0 ? download->max_bytes : MIB(files->request->disk_mb),
        .write = write_down,
        .user = &fd,
    };

    *err = (struct hutch_error){.code = 0};
    files->deadline_ns = clock_after_ns(CALL_NS);
    if (file_path_read("download", download->path, &path, err) < 0)
        return;
    if (call_cell(files, &call, err) < 0)
        err_context(err, "download: %s", quote_text(path.text).text);
    if (err->code != 0)
        err_mark_maybe_ran(err);
}

static void refuse_downloads(const struct run_files *files, const struct cell_exit *exit)
{
    for (size_t i = 0; i < files->options->download_count; i++) {
        const struct hutch_download *download = &files->options->downloads[i];
        const char *shown = quote_text(download->path).text;
        if (exit->end == CELL_END_MEMORY)
            err_set(download->error, HUTCH_ERR_INVALID,
                    "download: %s: the memory limit ended the cell, and its files with it", shown);
        else
            err_errno(download->error, HUTCH_ERR_INVALID, ENOENT, "download: %s: in the cell",
                      shown);
        err_mark_maybe_ran(download->error);
    }
}

int run_files_collect(struct run_files *files, const struct cell_exit *exit,
                      struct hutch_result *result, struct hutch_error *err)
{
    if (!exit->has_files) {
        refuse_downloads(files, exit);
        return 0;
    }
    files->deadline_ns = clock_after_ns(CALL_NS);
    if (list_changes(files, result, err) < 0 || fetch_wanted(files, result, err) < 0)
        return err->code;
    for (size_t i = 0; i < files->options->download_count; i++)
        download(files, &files->options->downloads[i]);
    return 0;
}
