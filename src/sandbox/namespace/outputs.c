/* SPDX-License-Identifier: Apache-2.0 */
/* See outputs.h. */
#include "outputs.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A program that opens and closes it again and again costs time of the engine's. */
#define ENDS_MAX 1000
#define PAIR_NONE ((struct output_pair){.fds = {-1, -1}})

static void close_pair(struct output_pair *pair)
{
    fd_close(&pair->fds[0]);
    fd_close(&pair->fds[1]);
    *pair = PAIR_NONE;
}

void outputs_init(struct outputs *outputs)
{
    for (size_t i = 0; i < WIRE_PIPES_AHEAD; i++)
        outputs->ready[i] = PAIR_NONE;
    outputs->old_count = 0;
}

void outputs_done(struct outputs *outputs)
{
    for (size_t i = 0; i < WIRE_PIPES_AHEAD; i++)
        close_pair(&outputs->ready[i]);
    while (outputs->old_count > 0)
        close_pair(&outputs->old[--outputs->old_count]);
}

/* ---- pipes that come ----------------------------------------------------- */

/* An open file of our own on the pipe behind fd; or -1. */
static int open_anew(int fd)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* In place of a descriptor of a pipe, one of an open file of our own; else -1. */
static void open_own(int *fd)
{
    struct stat status;
    int given = *fd;

    *fd = -1;
    if (given >= 0 && fstat(given, &status) == 0 && S_ISFIFO(status.st_mode)) {
        *fd = open_anew(given);
    }
    fd_close(&given);
}

static void open_pair(struct output_pair *pair)
{
    if (pair->exec_id == 0 || pair->is_open)
        return;
    open_own(&pair->fds[0]);
    open_own(&pair->fds[1]);
    pair->is_open = true;
}

void outputs_take(struct outputs *outputs, uint32_t exec_id, int *fds, size_t count)
{
    struct output_pair *pair = &outputs->ready[exec_id % WIRE_PIPES_AHEAD];

    close_pair(pair);
    pair->exec_id = exec_id;
    for (size_t i = 0; i < count; i++) {
        if (count == 2)
            pair->fds[i] = TAKE_FD(fds[i]);
        fd_close(&fds[i]);
    }
}

void outputs_open(struct outputs *outputs)
{
    for (size_t i = 0; i < WIRE_PIPES_AHEAD; i++)
        open_pair(&outputs->ready[i]);
}

bool outputs_prepare(struct outputs *outputs, uint32_t exec_id, bool *ret_has_pipes)
{
    struct output_pair *pair = &outputs->ready[exec_id % WIRE_PIPES_AHEAD];

    if (pair->exec_id != exec_id)
        return false;
    open_pair(pair);
    *ret_has_pipes = pair->fds[0] >= 0 && pair->fds[1] >= 0;
    return true;
}

/* ---- the turn of an exec --------------------------------------------------- */

static void remove_old(struct outputs *outputs, size_t index)
{
    close_pair(&outputs->old[index]);
    outputs->old_count--;
    memmove(&outputs->old[index], &outputs->old[index + 1],
            (outputs->old_count - index) * sizeof(outputs->old[0]));
}

void outputs_retire(struct outputs *outputs, struct output_pair *current)
{
    if (current->fds[0] >= 0 || current->fds[1] >= 0) {
        if (outputs->old_count == LIMIT_OLD_OUTPUTS)
            remove_old(outputs, 0);
        outputs->old[outputs->old_count++] = *current;
        outputs->is_unsure |= current->had_end[0] || current->had_end[1];
    }
    *current = PAIR_NONE;
}

void outputs_begin(struct outputs *outputs, uint32_t exec_id, struct output_pair *current)
{
    struct output_pair *pair = &outputs->ready[exec_id % WIRE_PIPES_AHEAD];

    if (pair->exec_id != exec_id || pair->fds[0] < 0 || pair->fds[1] < 0)
        return;
    outputs_retire(outputs, current);
    *current = *pair;
    *pair = PAIR_NONE;
}

void outputs_end(struct output_pair *current, size_t index)
{
    /* The end of a named one is not told of an open file twice. */
    bool may_go_on = current->exec_id > 0 && ++current->ends <= ENDS_MAX;
    int fd = may_go_on ? open_anew(current->fds[index]) : -1;

    fd_close(&current->fds[index]);
    current->fds[index] = fd;
    current->had_end[index] = true;
}

/* ---- old ones --------------------------------------------------------------- */

size_t outputs_poll(const struct outputs *outputs, struct pollfd slots[OUTPUTS_SLOTS])
{
    size_t count = 0;

    for (size_t i = 0; i < outputs->old_count; i++) {
        for (size_t j = 0; j < 2; j++)
            slots[count++] = (struct pollfd){.fd = outputs->old[i].fds[j], .events = POLLIN};
    }
    return count;
}

/* 0 also at the end, and when it was too much. */
static size_t read_old(struct outputs *outputs, size_t index, size_t stream, char *data,
                       size_t room)
{
    struct output_pair *pair = &outputs->old[index];
    int *fd = &pair->fds[stream];
    ssize_t count = read(*fd, data, room);

    pair->had_end[stream] = false;

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (count <= 0)
        fd_close(fd);
    else
        pair->bytes += (uint64_t)count;
    if ((pair->fds[0] < 0 && pair->fds[1] < 0) || pair->bytes > LIMIT_OUTPUT_HARD_BYTES)
        remove_old(outputs, index);
    return count > 0 ? (size_t)count : 0;
}

size_t outputs_read(struct outputs *outputs, const struct pollfd *slots, size_t count, char *data,
                    size_t room)
{
    for (size_t i = 0; i < count; i++) {
        if (slots[i].revents != 0)
            return read_old(outputs, i / 2, i % 2, data, room);
    }
    return 0;
}

size_t outputs_recheck(struct outputs *outputs, char *data, size_t room)
{
    if (!outputs->is_unsure)
        return 0;
    for (size_t i = outputs->old_count; i-- > 0;) { /* from the end, as some are removed */
        for (size_t j = 0; j < 2; j++) {
            const struct output_pair *pair = &outputs->old[i];
            size_t known = outputs->old_count;
            size_t count = pair->had_end[j] ? read_old(outputs, i, j, data, room) : 0;
            if (count > 0)
                return count;
            if (outputs->old_count < known)
                break;
        }
    }
    outputs->is_unsure = false;
    return 0;
}
