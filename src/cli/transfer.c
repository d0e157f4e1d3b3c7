/* SPDX-License-Identifier: Apache-2.0 */
/* See transfer.h. */
#include "transfer.h"

#include "base/limits.h"
#include "base/quote.h"
#include "input.h"
#include "output.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 1024

static int no_memory(struct problem *problem)
{
    return problem_set(problem, HUTCH_ERR_NO_MEMORY, "out of memory");
}

/* ---- uploads ---- */

static int open_upload(struct transfers *transfers, char *value, struct problem *problem)
{
    char *colon = strrchr(value, ':');
    struct stat status;

    if (!colon || colon == value || colon[1] == '\0')
        return problem_set(problem, HUTCH_ERR_INVALID,
                           "option '--upload': value %s is not of the form LOCAL:CELL",
                           quote_text(value).text);
    *colon = '\0';
    int fd = input_open("upload", value, problem);
    if (fd < 0)
        return problem->code;
    transfers->uploads[transfers->upload_count++] = (struct hutch_upload){
        .path = colon + 1,
        .fd = fd,
        .executable = fstat(fd, &status) == 0 && (status.st_mode & 0111) != 0,
    };
    return 0;
}

/* ---- downloads ---- */

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The local path: as given, or in the folder that is given, or here. NULL without memory. */
static char *choose_local(const char *cell, const char *local)
{
    struct stat status;
    char *path;

    if (!local)
        return strdup(last_name(cell));
    if (stat(local, &status) < 0 || !S_ISDIR(status.st_mode))
        return strdup(local);
    return asprintf(&path, "%s/%s", local, last_name(cell)) < 0 ? NULL : path;
}

/* Opens what is written to. What is there and no regular file, a device say, is not to be
 * replaced. 0, or an errno. */
int arrival_open(struct arrival *arrival, const char *cell, const char *local)
{
    struct stat status;

    *arrival = (struct arrival){.fd = -1, .local = choose_local(cell, local)};
    if (!arrival->local)
        return ENOMEM;
    if (lstat(arrival->local, &status) == 0 && !S_ISREG(status.st_mode)) {
        arrival->fd = open(arrival->local, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
        return arrival->fd < 0 ? errno : 0;
    }
    int folder = (int)(last_name(arrival->local) - arrival->local);
    if (asprintf(&arrival->temporary, "%.*s.%s.hutch-%d", folder, arrival->local,
                 last_name(arrival->local), (int)getpid()) < 0) {
        arrival->temporary = NULL;
        return ENOMEM;
    }
    arrival->fd = open(arrival->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return arrival->fd < 0 ? errno : 0;
}

static int open_download(struct transfers *transfers, char *value, struct problem *problem)
{
    struct arrival *arrival = &transfers->arrivals[transfers->download_count];
    char *colon = strchr(value, ':');

    if (colon == value || *value == '\0' || (colon && colon[1] == '\0'))
        return problem_set(problem, HUTCH_ERR_INVALID,
                           "option '--download': value %s is not of the form CELL or CELL:LOCAL",
                           quote_text(value).text);
    if (colon)
        *colon = '\0';
    int failure = arrival_open(arrival, value, colon ? colon + 1 : NULL);
    transfers->downloads[transfers->download_count++] =
        (struct hutch_download){.path = value, .error = &arrival->error};
    if (!arrival->local)
        return no_memory(problem);
    if (failure != 0)
        return problem_set(problem, HUTCH_ERR_INVALID, "download: file %s cannot be written: %s",
                           quote_text(arrival->local).text, strerrordesc_np(failure));
    transfers->downloads[transfers->download_count - 1].fd = arrival->fd;
    return 0;
}

int transfers_open(struct transfers *transfers, const struct text_list *uploads,
                   const struct text_list *downloads, struct problem *problem)
{
    transfers->uploads = calloc(uploads->count + 1, sizeof(*transfers->uploads));
    transfers->downloads = calloc(downloads->count + 1, sizeof(*transfers->downloads));
    transfers->arrivals = calloc(downloads->count + 1, sizeof(*transfers->arrivals));
    if (!transfers->uploads || !transfers->downloads || !transfers->arrivals)
        return no_memory(problem);
    for (size_t i = 0; i < uploads->count; i++) {
        if (open_upload(transfers, uploads->items[i], problem) < 0)
            return problem->code;
    }
    for (size_t i = 0; i < downloads->count; i++) {
        if (open_download(transfers, downloads->items[i], problem) < 0)
            return problem->code;
    }
    return 0;
}

/* ---- afterwards ---- */

static void say(const char *text)
{
    auto_buf struct buf line = BUF_MAX(LINE_BYTES);

    buf_append_text(&line, "hutch: ");
    problem_append_line(&line, text);
    buf_append_text(&line, "\n");
    IGNORE_RESULT(output_write(STDERR_FILENO, buf_text(&line), line.length));
}

int arrival_finish(struct arrival *arrival)
{
    if (!arrival->temporary)
        return 0;
    if (rename(arrival->temporary, arrival->local) < 0)
        return errno;
    free(TAKE_POINTER(arrival->temporary));
    return 0;
}

static bool finish(struct arrival *arrival)
{
    char text[LINE_BYTES / 2];

    if (arrival->error.code != 0) {
        say(arrival->error.message);
        return false;
    }
    int failure = arrival_finish(arrival);
    if (failure == 0)
        return true;
    snprintf(text, sizeof(text), "download: file %s cannot be written: %s",
             quote_text(arrival->local).text, strerrordesc_np(failure));
    say(text);
    return false;
}

bool transfers_finish(struct transfers *transfers)
{
    bool all = true;

    for (size_t i = 0; i < transfers->download_count; i++)
        all = finish(&transfers->arrivals[i]) && all;
    return all;
}

void arrival_done(struct arrival *arrival)
{
    if (arrival->temporary && arrival->fd >= 0)
        IGNORE_RESULT(unlink(arrival->temporary));
    if (arrival->fd >= 0)
        close(arrival->fd);
    free(arrival->temporary);
    free(arrival->local);
}

void transfers_done(struct transfers *transfers)
{
    for (size_t i = 0; i < transfers->upload_count; i++)
        close(transfers->uploads[i].fd);
    for (size_t i = 0; i < transfers->download_count; i++)
        arrival_done(&transfers->arrivals[i]);
    free(transfers->uploads);
    free(transfers->downloads);
    free(transfers->arrivals);
}
