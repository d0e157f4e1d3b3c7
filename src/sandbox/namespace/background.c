/* SPDX-License-Identifier: Apache-2.0 */
/* See background.h. */
#include "background.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "proc_text.h"
#include "sandbox/result.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOKS 256             /* processes: no more are looked at, in one call */
#define COPY_LOOKS 2          /* children, for the copy alone: the youngest are the last */
#define TEXT_BYTES KIB(4)     /* of a file of proc */
#define LINKS_OF_ONE_THREAD 3 /* of a folder of threads, which has two without any */

struct background {
    pid_t interpreter, init, copy; /* copy: the last one that was seen to be it */
    int tasks_fd;                  /* the interpreter's folder of threads */
    int children_fd;               /* those of its first thread */
    int left_fd;                   /* those that were left to hutch-init */
};

/* What was found so far. */
struct search {
    pid_t pids[LOOKS];
    size_t count;
    size_t of_interpreter; /* so many, in the first places, are its own children */
};

/* ---- files of proc --------------------------------------------------------- */

/* What fd has at its beginning, with a NUL behind. */
static size_t read_text(int fd, char text[TEXT_BYTES + 1])
{
    ssize_t count = fd >= 0 ? pread(fd, text, TEXT_BYTES, 0) : 0;
    size_t length = count > 0 ? (size_t)count : 0;

    text[length] = '\0';
    return length;
}

static size_t read_file_of(pid_t pid, const char *name, char text[TEXT_BYTES + 1])
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    return read_text(fd, text);
}

static int open_children(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

void background_free(struct background *background)
{
    if (!background)
        return;
    fd_close(&background->tasks_fd);
    fd_close(&background->children_fd);
    fd_close(&background->left_fd);
    free(background);
}

void background_open(struct background **background, pid_t interpreter, pid_t init)
{
    struct background *new = calloc(1, sizeof(*new));
    char path[64];

    background_free(*background);
    *background = new;
    if (!new)
        return;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)interpreter);
    *new = (struct background){
        .interpreter = interpreter,
        .init = init,
        .tasks_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        .children_fd = open_children(interpreter),
        .left_fd = open_children(init),
    };
}

/* ---- the search ------------------------------------------------------------ */

static void note(const struct background *background, struct search *search, pid_t pid)
{
    if (pid == background->interpreter || pid == background->copy || search->count == LOOKS)
        return;
    for (size_t i = 0; i < search->count; i++) {
        if (search->pids[i] == pid)
            return;
    }
    search->pids[search->count++] = pid;
}

/* Numbers with a blank behind each: one that is cut off has none. */
static void note_children(const struct background *background, struct search *search, int fd)
{
    char text[TEXT_BYTES + 1];
    const char *at = text;

    read_text(fd, text);
    for (const char *end; (end = strchr(at, ' ')); at = end + 1) {
        uint64_t pid = parse_leading(at);
        if (pid > 0 && pid <= INT32_MAX)
            note(background, search, (pid_t)pid);
    }
}

static void note_children_of_threads(const struct background *background, struct search *search,
                                     pid_t pid)
{
    const struct dirent *entry;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    while (threads && (entry = readdir(threads))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%.20s/children", entry->d_name);
        auto_close int fd = openat(dirfd(threads), path, O_RDONLY | O_CLOEXEC);
        note_children(background, search, fd);
    }
    if (threads)
        closedir(threads);
}

static void note_own_children(struct background *background, struct search *search)
{
    struct stat status;

    if (background->tasks_fd >= 0 && fstat(background->tasks_fd, &status) == 0 &&
        status.st_nlink > LINKS_OF_ONE_THREAD)
        note_children_of_threads(background, search, background->interpreter);
    else
        note_children(background, search, background->children_fd);
    search->of_interpreter = search->count;
}

/* ---- a process ---------------------------------------------------------------- */

static char *command_of(pid_t pid)
{
    auto_buf struct buf command = BUF_MAX(LIMIT_COMMAND_BYTES * 3 + 1);
    char text[TEXT_BYTES + 1];
    size_t length = read_file_of(pid, "cmdline", text);
    bool is_cut = length > LIMIT_COMMAND_BYTES;

    if (length == 0)
        length = read_file_of(pid, "comm", text);
    while (length > 0 && (text[length - 1] == '\0' || text[length - 1] == '\n'))
        length--;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\0')
            text[i] = ' ';
    }
    if (is_cut)
        length = utf8_boundary_before(text, LIMIT_COMMAND_BYTES, LIMIT_COMMAND_BYTES);
    utf8_repair(&command, text, length);
    return command.failure == BUF_OK ? strdup(buf_text(&command)) : NULL;
}

static int append(struct process_list *list, pid_t pid, struct hutch_error *err)
{
    char text[TEXT_BYTES + 1];

    if (!list->items)
        list->items = calloc(LIMIT_BACKGROUND, sizeof(*list->items));
    if (!list->items)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    struct hutch_process process = {.command = command_of(pid)};
    if (!process.command)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    read_file_of(pid, "statm", text);
    process.memory_bytes = proc_text_resident_pages(text) * (uint64_t)sysconf(_SC_PAGESIZE);
    read_file_of(pid, "status", text);
    process.pid = (int32_t)proc_text_innermost_pid(text);
    if (process.pid == 0) /* it has ended meanwhile */
        free(process.command);
    else
        list->items[list->count++] = process;
    return 0;
}

/* One of the search: whether it counts. */
static bool counts(struct background *background, const struct search *search, size_t index)
{
    char text[TEXT_BYTES + 1];
    pid_t pid = search->pids[index];

    if (read_file_of(pid, "stat", text) == 0 || proc_text_is_exiting(text))
        return false;
    if (index >= search->of_interpreter || !proc_text_ends_silently(text))
        return true;
    background->copy = pid;
    return false;
}

void background_find_copy(struct background *background)
{
    struct search search = {.count = 0};

    note_own_children(background, &search);
    for (size_t i = search.count; i > 0 && search.count - i < COPY_LOOKS; i--) {
        if (!counts(background, &search, i - 1))
            return;
    }
}

int background_list(struct background *background, struct process_list *ret_list,
                    struct hutch_error *err)
{
    struct search search = {.count = 0};

    note_own_children(background, &search);
    note_children(background, &search, background->left_fd);
    for (size_t i = 0; i < search.count && ret_list->count < LIMIT_BACKGROUND; i++) {
        if (!counts(background, &search, i))
            continue;
        if (append(ret_list, search.pids[i], err) < 0)
            return err->code;
        note_children_of_threads(background, &search, search.pids[i]);
    }
    return 0;
}
