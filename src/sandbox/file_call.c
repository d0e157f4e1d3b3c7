/* SPDX-License-Identifier: Apache-2.0 */
/* See file_call.h. */
#include "file_call.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/quote.h"

#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define IDLE_NS (30 * NS_PER_SECOND) /* that a cell may take for a piece */

struct frame {
    struct wire_header header;
    char data[WIRE_MAX_DATA];
};

struct file_link {
    int fd; /* -1 once it is broken */
    bool begun;
    uint32_t calls;
    uint64_t sent_size;      /* of a PUT */
    uint32_t entries, bytes; /* that came of one call */
    uint64_t got;            /* bytes of a GET */
    size_t length, sent;     /* of out */
    size_t received;         /* of in */
    struct frame in, out;
    char name[WIRE_MAX_PATH + 1];
};

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * (int64_t)NS_PER_SECOND + now.tv_nsec;
}

int64_t file_clock_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

int64_t file_clock_coarse_ns(void)
{
    return clock_ns(CLOCK_REALTIME_COARSE);
}

int file_link_new(int fd, struct file_link **ret_link, struct hutch_error *err)
{
    struct file_link *link = calloc(1, sizeof(*link));

    if (!link) {
        close(fd);
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    }
    link->fd = fd;
    *ret_link = link;
    return 0;
}

bool file_link_is_broken(const struct file_link *link)
{
    return link->fd < 0;
}

void file_link_free(struct file_link *link)
{
    if (!link)
        return;
    fd_close(&link->fd);
    free(link);
}

/* ---- what is sent ---- */

static void queue(struct file_link *link, enum wire_file_type type, uint16_t flags, size_t length)
{
    link->out.header = (struct wire_header){
        .length = (uint32_t)length, .type = (uint16_t)type, .flags = flags, .exec_id = link->calls};
    link->length = offsetof(struct frame, data) + length;
    link->sent = 0;
}

static void queue_call(struct file_link *link, const struct file_call *call)
{
    const struct wire_put put = {.size = call->size};
    const struct wire_get get = {.max_bytes = call->max_bytes};
    const struct wire_changes changes = {.after_ns = call->after_ns};
    size_t used = 0;

    if (call->type == WIRE_FILE_PUT) {
        memcpy(link->out.data, &put, sizeof(put));
        used = sizeof(put);
    } else if (call->type == WIRE_FILE_GET) {
        memcpy(link->out.data, &get, sizeof(get));
        used = sizeof(get);
    } else if (call->type == WIRE_FILE_CHANGES && call->after_ns != 0) {
        memcpy(link->out.data, &changes, sizeof(changes));
        used = sizeof(changes);
    }
    size_t length = call->path ? strlen(call->path) : 0;
    memcpy(link->out.data + used, call->path ? call->path : "", length);
    queue(link, call->type, call->executable ? WIRE_PUT_EXECUTABLE : 0, used + length);
}

/* Sends what the socket takes. Returns whether nothing of it is left. */
static bool send_some(struct file_link *link)
{
    const char *out = (const char *)&link->out;
    ssize_t count =
        send(link->fd, out + link->sent, link->length - link->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (count < 0) { /* an answer may be there all the same, or else the end */
        link->length = link->sent = 0;
        return false;
    }
    link->sent += (size_t)count;
    return link->sent == link->length;
}

/* Sends, and makes the next piece ready. */
static int pump(struct file_link *link, struct file_call *call, struct hutch_error *err)
{
    if (!send_some(link))
        return 0;
    uint64_t left = call->type == WIRE_FILE_PUT ? call->size - link->sent_size : 0;
    link->length = link->sent = 0;
    call->is_sent = left == 0;
    if (left == 0)
        return 0;
    size_t piece = left < WIRE_MAX_DATA ? (size_t)left : WIRE_MAX_DATA;
    if (call->read(call->user, link->out.data, piece, err) < 0)
        return err->code;
    link->sent_size += piece;
    queue(link, WIRE_FILE_DATA, 0, piece);
    return 0;
}

/* ---- what comes ---- */

static int broken(const char *what, struct hutch_error *err)
{
    return err_set(err, HUTCH_ERR_HELPER, "the cell answers %s when asked for files", what);
}

size_t file_entry_read(const char *data, size_t length, bool is_path, char *ret_name,
                       struct file_entry *ret_entry)
{
    struct wire_entry entry;
    size_t max = is_path ? WIRE_MAX_PATH : WIRE_MAX_NAME;

    if (length < sizeof(entry))
        return 0;
    memcpy(&entry, data, sizeof(entry));
    const char *name = data + sizeof(entry);
    if (entry.name_length == 0 || entry.name_length > max || entry.size > INT64_MAX ||
        entry.name_length > length - sizeof(entry) || memchr(name, '\0', entry.name_length) ||
        (!is_path && memchr(name, '/', entry.name_length)))
        return 0;
    memcpy(ret_name, name, entry.name_length);
    ret_name[entry.name_length] = '\0';
    *ret_entry = (struct file_entry){
        .name = ret_name,
        .size = entry.size,
        .is_directory = (entry.flags & WIRE_ENTRY_DIRECTORY) != 0,
    };
    return sizeof(entry) + entry.name_length;
}

static int take_entries(struct file_link *link, struct file_call *call, struct hutch_error *err)
{
    size_t length = link->in.header.length;

    link->bytes += (uint32_t)length;
    if (length == 0 || link->bytes > WIRE_MAX_ENTRY_BYTES)
        return broken("more than is allowed", err);
    for (size_t at = 0; at < length;) {
        struct file_entry entry;
        size_t used = file_entry_read(link->in.data + at, length - at,
                                      call->type == WIRE_FILE_CHANGES, link->name, &entry);
        if (used == 0 || ++link->entries > WIRE_MAX_ENTRIES)
            return broken("with a broken list", err);
        if (call->entry(call->user, &entry, err) < 0)
            return err->code;
        at += used;
    }
    return 0;
}

static int take_data(struct file_link *link, struct file_call *call, struct hutch_error *err)
{
    size_t length = link->in.header.length;

    if (length == 0 || length > call->max_bytes - link->got)
        return broken("more than is allowed", err);
    link->got += length;
    return call->write(call->user, link->in.data, length, err);
}

/* The error of an answer; the path's context is the caller's. */
static int refusal(const struct file_call *call, struct hutch_error *err)
{
    int number = call->sys_errno;

    switch (number) {
    case EFBIG:
        err_set(err, HUTCH_ERR_INVALID, "has %" PRIu64 " bytes; allowed are %" PRIu64,
                call->found_size, call->max_bytes);
        break;
    case ENOSPC:
        err_set(err, HUTCH_ERR_INVALID, "no space left in the cell: see disk_mb");
        break;
    case EWOULDBLOCK:
    case ETXTBSY:
        err_set(err, HUTCH_ERR_INVALID, "the file is busy");
        break;
    case ENXIO:
        err_set(err, HUTCH_ERR_INVALID, "is no regular file");
        break;
    case ELOOP:
        err_set(err, HUTCH_ERR_INVALID, "is a symbolic link, or lies behind one");
        break;
    case EMLINK:
        err_set(err, HUTCH_ERR_INVALID, "has more than one name, or none");
        break;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case ENOTEMPTY:
    case ENAMETOOLONG:
    case EINVAL:
        return err_errno(err, HUTCH_ERR_INVALID, number, "in the cell");
    default:
        return err_errno(err, HUTCH_ERR_SYSTEM, number, "in the cell");
    }
    err->sys_errno = number;
    return err->code;
}

/* 1: the call is over. */
static int take_answer(struct file_link *link, struct file_call *call, struct hutch_error *err)
{
    struct wire_answer answer;

    if (link->in.header.length != sizeof(answer))
        return broken("in a wrong form", err);
    memcpy(&answer, link->in.data, sizeof(answer));
    if (answer.error < 0 || answer.error > 4095)
        return broken("in a wrong form", err);
    call->is_cut = (answer.flags & WIRE_ANSWER_CUT) != 0;
    call->sys_errno = answer.error;
    call->found_size = answer.size;
    bool is_whole = call->type != WIRE_FILE_PUT || link->sent_size == call->size;
    if (answer.error == 0 && !is_whole)
        return broken("before it has got all", err);
    return 1;
}

static int take_frame(struct file_link *link, struct file_call *call, struct hutch_error *err)
{
    const struct wire_header *header = &link->in.header;
    bool lists = call->type == WIRE_FILE_LIST || call->type == WIRE_FILE_CHANGES;

    link->received = 0;
    if (header->exec_id != link->calls)
        return broken("what was not asked", err);
    if (header->type == WIRE_FILE_ANSWER)
        return take_answer(link, call, err);
    if (header->type == WIRE_FILE_ENTRIES && lists)
        return take_entries(link, call, err);
    if (header->type == WIRE_FILE_DATA && call->type == WIRE_FILE_GET)
        return take_data(link, call, err);
    return broken("what was not asked", err);
}

/* Takes what has come, up to one frame. 1 when the call is over, 0 when it goes on. */
static int receive(struct file_link *link, struct file_call *call, struct hutch_error *err)
{
    const size_t head = offsetof(struct frame, data);
    size_t wanted = head + (link->received < head ? 0 : link->in.header.length);
    ssize_t count =
        recv(link->fd, (char *)&link->in + link->received, wanted - link->received, MSG_DONTWAIT);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (count <= 0) {
        call->is_lost = true;
        return err_set(err, HUTCH_ERR_HELPER, "hutch-init is gone, and the cell with it");
    }
    link->received += (size_t)count;
    if (link->received < head)
        return 0;
    if (link->in.header.length > WIRE_MAX_DATA)
        return broken("more than is allowed", err);
    return link->received == head + link->in.header.length ? take_frame(link, call, err) : 0;
}

/* ---- the call ---- */

static int go_on(struct file_link *link, struct file_call *call, uint64_t deadline_ns,
                 int cancel_fd, struct hutch_error *err)
{
    uint64_t until_ns = clock_sooner_ns(deadline_ns, clock_after_ns(IDLE_NS));
    struct pollfd slots[] = {
        {.fd = cancel_fd, .events = POLLIN},
        {.fd = link->fd, .events = (short)(link->length > 0 ? POLLIN | POLLOUT : POLLIN)},
    };

    /* Before there is a cell, which may take long, the deadline alone counts. */
    if (link->calls == 1 && link->received == 0)
        until_ns = deadline_ns;
    bool is_late = clock_now_ns() >= deadline_ns; /* a call that goes on has its end, too */
    int ready = is_late ? 0 : poll(slots, ARRAY_LENGTH(slots), clock_poll_timeout(until_ns));
    if (ready < 0 && errno != EINTR)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "wait for the cell's files");
    if (ready == 0 && clock_now_ns() >= until_ns)
        return err_set(err, HUTCH_ERR_HELPER, "the cell did not answer in time about its files");
    if (ready <= 0)
        return 0;
    if (slots[0].revents != 0)
        return err_set(err, HUTCH_ERR_CANCELLED, "cancelled by the caller");
    if (slots[1].revents & ~POLLOUT)
        return receive(link, call, err);
    return slots[1].revents & POLLOUT ? pump(link, call, err) : 0;
}

/* Of a PUT that was refused a frame may be under way: the rest of that has to follow. */
static int end_frame(struct file_link *link, uint64_t deadline_ns, struct hutch_error *err)
{
    const char *out = (const char *)&link->out;

    while (link->sent > 0 && link->sent < link->length) {
        uint64_t until_ns = clock_sooner_ns(deadline_ns, clock_after_ns(IDLE_NS));
        if (fd_wait(link->fd, POLLOUT, until_ns) <= 0)
            return err_set(err, HUTCH_ERR_HELPER, "the cell takes no more of a file");
        ssize_t count = send(link->fd, out + link->sent, link->length - link->sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            return err_errno(err, HUTCH_ERR_HELPER, errno, "send a file to the cell");
        link->sent += count > 0 ? (size_t)count : 0;
    }
    link->length = link->sent = 0;
    return 0;
}

void file_link_begin(struct file_link *link, struct file_call *call)
{
    call->is_lost = call->is_cut = call->is_sent = false;
    call->sys_errno = 0;
    call->found_size = 0;
    link->begun = true;
    if (link->fd < 0)
        return;
    link->calls++;
    link->sent_size = link->got = 0;
    link->entries = link->bytes = 0;
    link->received = 0;
    queue_call(link, call);
    if (send_some(link) && call->type != WIRE_FILE_PUT) {
        link->length = link->sent = 0;
        call->is_sent = true;
    }
}

int file_link_call(struct file_link *link, struct file_call *call, uint64_t deadline_ns,
                   int cancel_fd, struct hutch_error *err)
{
    int code = 0;

    if (!link->begun)
        file_link_begin(link, call);
    link->begun = false;
    if (link->fd < 0) {
        call->is_lost = true;
        return err_set(err, HUTCH_ERR_HELPER, "the connection to the cell's files is gone");
    }
    while (code == 0)
        code = go_on(link, call, deadline_ns, cancel_fd, err);
    if (code > 0)
        code = end_frame(link, deadline_ns, err);
    if (code < 0) {
        fd_close(&link->fd);
        return code;
    }
    return call->sys_errno != 0 ? refusal(call, err) : 0;
}
