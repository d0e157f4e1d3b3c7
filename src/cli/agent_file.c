/* SPDX-License-Identifier: Apache-2.0 */
/* See agent_file.h. */
#include "agent_file.h"

#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/quote.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#define VERSION 1
#define FILE_BYTES (LIMIT_CONVERSATION_BYTES + MIB(1))
#define OPEN_TRIES 100    /* while others make and replace the file */
#define NEW_NAME_BYTES 22 /* what the name of a new file has more: ".16 digits.new" */

void agent_file_done(struct agent_file *file)
{
    fd_close(&file->fd);
    fd_close(&file->dir_fd);
    free(file->path);
    *file = AGENT_FILE_NONE;
}

static int refuse(const struct agent_file *file, struct problem *problem, const char *what)
{
    return problem_set(problem, HUTCH_ERR_INVALID, "session: file %s %s",
                       quote_text(file->path).text, what);
}

static int fail(const struct agent_file *file, struct problem *problem, const char *what,
                int number)
{
    struct hutch_error err;

    err_errno(&err, HUTCH_ERR_SYSTEM, number, "session: %s file %s", what,
              quote_text(file->path).text);
    return problem_take(problem, &err);
}

/* Of a file that the command line names, before anything is asked. */
static int unusable(const struct agent_file *file, struct problem *problem, const char *what,
                    int number)
{
    const char *reason = strerrordesc_np(number);

    return problem_set(problem, HUTCH_ERR_INVALID, "session: cannot %s file %s: %s", what,
                       quote_text(file->path).text, reason ? reason : "unknown error");
}

/* ---- writing ------------------------------------------------------------ */

static void append_content(struct buf *out, const char *messages)
{
    buf_appendf(out, "{\"version\":%d,\"messages\":", VERSION);
    buf_append_text(out, messages);
    buf_append_text(out, "}\n");
}

/* What its owner allows others stays. */
static int copy_mode(int from_fd, int to_fd)
{
    struct stat status;

    return fstat(from_fd, &status) < 0 ? -1 : fchmod(to_fd, status.st_mode & 0777);
}

/* A new file beside the old one, whole, on the disk, and locked; its name goes to new_name.
 * Returns its descriptor, or -1 with errno. */
static int write_new(const struct agent_file *file, const struct buf *content,
                     char new_name[NAME_MAX + 1])
{
    uint64_t number;

    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        return -1;
    snprintf(new_name, NAME_MAX + 1, "%s.%016" PRIx64 ".new", file->name, number);
    auto_close int fd =
        openat(file->dir_fd, new_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    if ((file->fd >= 0 && copy_mode(file->fd, fd) < 0) ||
        fd_write_all(fd, buf_text(content), content->length) < 0 || fsync(fd) < 0 ||
        flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int number_of_errno = errno;
        unlinkat(file->dir_fd, new_name, 0);
        errno = number_of_errno;
        return -1;
    }
    return TAKE_FD(fd);
}

int agent_file_save(struct agent_file *file, const hutch_conversation *conversation,
                    struct problem *problem)
{
    struct hutch_error err;
    auto_buf struct buf content = BUF_MAX(FILE_BYTES);
    char new_name[NAME_MAX + 1];
    char *messages;

    if (hutch_conversation_to_json(conversation, &messages, &err) < 0)
        return problem_take(problem, &err);
    append_content(&content, messages);
    hutch_free(messages);
    if (buf_check(&content, &err) < 0)
        return problem_take(problem, &err);
    int fd = write_new(file, &content, new_name);
    if (fd < 0)
        return fail(file, problem, "write", errno);
    if (renameat(file->dir_fd, new_name, file->dir_fd, file->name) < 0) {
        int number = errno;
        unlinkat(file->dir_fd, new_name, 0);
        fd_close(&fd);
        return fail(file, problem, "replace", number);
    }
    fd_close(&file->fd);
    file->fd = fd;
    if (fsync(file->dir_fd) < 0)
        return fail(file, problem, "write the folder of", errno);
    return 0;
}

/* Makes the file of an empty conversation. 0: it is there; 1: somebody else was quicker. */
static int make_file(struct agent_file *file, struct problem *problem)
{
    struct hutch_error err;
    auto_buf struct buf content = BUF_MAX(FILE_BYTES);
    char new_name[NAME_MAX + 1];

    append_content(&content, "[]");
    if (buf_check(&content, &err) < 0)
        return problem_take(problem, &err);
    auto_close int fd = write_new(file, &content, new_name);
    if (fd < 0)
        return fail(file, problem, "make", errno);
    int number = linkat(file->dir_fd, new_name, file->dir_fd, file->name, 0) < 0 ? errno : 0;
    unlinkat(file->dir_fd, new_name, 0);
    if (number != 0)
        return number == EEXIST ? 1 : fail(file, problem, "make", number);
    file->fd = TAKE_FD(fd);
    return 0;
}

/* ---- reading ------------------------------------------------------------ */

/* The folder and the name in it. */
static int open_folder(struct agent_file *file, const char *path, struct problem *problem)
{
    file->path = strdup(path);
    if (!file->path)
        return problem_set(problem, HUTCH_ERR_NO_MEMORY, "out of memory");
    char *slash = strrchr(file->path, '/');
    file->name = slash ? slash + 1 : file->path;
    if (file->name[0] == '\0' || strcmp(file->name, ".") == 0 || strcmp(file->name, "..") == 0)
        return refuse(file, problem, "is a directory");
    if (strlen(file->name) > NAME_MAX - NEW_NAME_BYTES)
        return problem_set(
            problem, HUTCH_ERR_INVALID,
            "session: file %s: the name is longer than the %d bytes that are allowed",
            quote_text(path).text, NAME_MAX - NEW_NAME_BYTES);
    auto_free char *folder = slash ? strndup(path, (size_t)(slash - file->path) + 1) : strdup(".");
    if (!folder)
        return problem_set(problem, HUTCH_ERR_NO_MEMORY, "out of memory");
    file->dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file->dir_fd < 0)
        return unusable(file, problem, "open the folder of", errno);
    if (faccessat(file->dir_fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
        return unusable(file, problem, "write into the folder of", errno);
    return 0;
}

/* Whether what was opened still is what the name means. */
static bool is_current(const struct agent_file *file, const struct stat *opened)
{
    struct stat named;

    return fstatat(file->dir_fd, file->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_dev == opened->st_dev && named.st_ino == opened->st_ino;
}

/* Opens and locks the file that is there. 0: done; 1: there is none, or it is another by now. */
static int open_there(struct agent_file *file, struct problem *problem)
{
    struct stat status;
    auto_close int fd =
        openat(file->dir_fd, file->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 && errno == ENOENT)
        return 1;
    if (fd < 0 && errno == ELOOP)
        return refuse(file, problem, "is a symbolic link; name the file itself");
    if (fd < 0 || fstat(fd, &status) < 0)
        return unusable(file, problem, "open", errno);
    if (!S_ISREG(status.st_mode))
        return refuse(file, problem,
                      S_ISDIR(status.st_mode) ? "is a directory" : "is not a regular file");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return problem_set(problem, HUTCH_ERR_SYSTEM,
                               "session: file %s is in use by another hutch agent",
                               quote_text(file->path).text);
        return fail(file, problem, "lock", errno);
    }
    if (!is_current(file, &status))
        return 1;
    file->fd = TAKE_FD(fd);
    return 0;
}

/* Takes the messages out of what was read. */
static int take_messages(const struct agent_file *file, json_t *root, struct buf *messages,
                         struct problem *problem)
{
    const json_t *version = json_object_get(root, "version");
    const json_t *list = json_object_get(root, "messages");
    struct hutch_error err;

    if (json_is_integer(version) && json_integer_value(version) != VERSION)
        return problem_set(problem, HUTCH_ERR_INVALID,
                           "session: file %s has version %lld; this hutch reads version %d",
                           quote_text(file->path).text, (long long)json_integer_value(version),
                           VERSION);
    if (!json_is_integer(version) || !json_is_array(list))
        return refuse(file, problem,
                      "is no session of hutch agent: version and messages are missing");
    json_append_value(messages, list);
    return buf_check(messages, &err) < 0 ? problem_take(problem, &err) : 0;
}

static int read_conversation(const struct agent_file *file, hutch_conversation **ret_conversation,
                             struct problem *problem)
{
    struct hutch_error err;
    auto_buf struct buf text = BUF_MAX(FILE_BYTES);
    auto_buf struct buf messages = BUF_MAX(FILE_BYTES);
    auto_json json_t *root = NULL;

    if (buf_read_fd(&text, file->fd, &err) < 0) {
        err_context(&err, "session: file %s", quote_text(file->path).text);
        return problem_take(problem, &err);
    }
    if (text.length == 0) /* as mktemp makes it */
        return hutch_conversation_new(ret_conversation, &err) < 0 ? problem_take(problem, &err) : 0;
    if (json_read(buf_text(&text), text.length, FILE_BYTES, &root, &err) < 0)
        return problem_set(problem, err.code, "session: file %s is no session of hutch agent: %s",
                           quote_text(file->path).text, err.message);
    if (take_messages(file, root, &messages, problem) < 0)
        return problem->code;
    if (hutch_conversation_from_json(buf_text(&messages), messages.length, ret_conversation, &err) <
        0)
        return problem_set(problem, err.code, "session: file %s: %s", quote_text(file->path).text,
                           err.message);
    return 0;
}

int agent_file_open(struct agent_file *file, const char *path,
                    hutch_conversation **ret_conversation, struct problem *problem)
{
    struct hutch_error err;

    if (open_folder(file, path, problem) < 0)
        return problem->code;
    for (unsigned i = 0; i < OPEN_TRIES; i++) {
        int done = open_there(file, problem);
        if (done == 0)
            return read_conversation(file, ret_conversation, problem);
        if (done > 0)
            done = make_file(file, problem);
        if (done < 0)
            return done;
        if (done == 0)
            return hutch_conversation_new(ret_conversation, &err) < 0 ? problem_take(problem, &err)
                                                                      : 0;
    }
    return problem_set(problem, HUTCH_ERR_SYSTEM, "session: file %s is replaced all the time",
                       quote_text(file->path).text);
}
