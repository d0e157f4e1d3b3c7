/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See files.h.
 *
 * What the engine sends is taken to be well-formed, as it is the engine's; what is not
 * ends the connection. What lies in the home directory is the program's doing, and may
 * change under our hands: all is opened without following a link and without blocking, and
 * looked at when it is open.
 *
 * A file that is PUT appears under its name by a rename, whole or not at all. Until then
 * it has a temporary name beside it, which goes when anything goes wrong. (O_TMPFILE would
 * need /proc/self/fd for its name, which is closed to a process that is not dumpable.)
 */
#include "files.h"

#include "../sandbox/wire.h"
#include "path.h"
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HOME "/home/user"
#define TEMPORARY ".hutch-upload-"
#define TEMPORARY_DIGITS 8
#define SETTLE_MS 1
#define SETTLE_ROUNDS 200 /* a clock that was set back is not waited for */

enum state { IDLE, PUTTING, GETTING, WALKING, MARKING };

struct frame {
    struct wire_header header;
    char data[WIRE_MAX_DATA + 1]; /* a path gets its end */
};

/* A file that is being received. */
struct upload {
    int folder, fd;
    uint64_t left;
    char temporary[sizeof(TEMPORARY) + TEMPORARY_DIGITS];
    char name[WIRE_MAX_NAME + 1];
};

/* The large part of a connection. */
static struct room {
    struct frame in, out;
    struct walk walk;
} rooms[WIRE_FILE_LINKS];

/* A connection. */
static struct files {
    int socket, home;
    struct room *room;
    enum state state;
    uint32_t call;
    size_t received;     /* bytes of in */
    size_t length, sent; /* bytes of out */
    struct upload upload;
    int get_fd;
    uint64_t got, get_max;
    unsigned rounds;
} links[WIRE_FILE_LINKS] = {
    {.socket = -1, .home = -1, .room = &rooms[0], .upload = {.folder = -1, .fd = -1}, .get_fd = -1},
    {.socket = -1,
     .home = -1,
     .room = &rooms[1],
     .upload = {.folder = -1, .fd = -1},
     .get_fd = -1}};
_Static_assert(WIRE_FILE_LINKS == 2, "each has its row");

static struct files *files = &links[0]; /* the one that is served */

static bool held;
static bool has_put;         /* since the mark */
static struct timespec mark; /* changes are later than that */
static uint32_t uploads;     /* that had a temporary name */

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- answers ------------------------------------------------------------ */

static void say(enum wire_file_type type, size_t length)
{
    files->room->out.header = (struct wire_header){
        .length = (uint32_t)length, .type = (uint16_t)type, .exec_id = files->call};
    files->length = sizeof(files->room->out.header) + length;
    files->sent = 0;
}

static void answer_with(int error, uint32_t flags, uint64_t size)
{
    const struct wire_answer answer = {.error = error, .flags = flags, .size = size};

    memcpy(files->room->out.data, &answer, sizeof(answer));
    say(WIRE_FILE_ANSWER, sizeof(answer));
    files->state = IDLE;
}

static void answer(int error)
{
    answer_with(error, 0, 0);
}

/* ---- PUT ---------------------------------------------------------------- */

static void end_upload(void)
{
    drop(&files->upload.fd);
    drop(&files->upload.folder);
}

/* It failed, or was broken off: nothing of it stays. */
static void undo_upload(void)
{
    if (files->upload.fd >= 0)
        unlinkat(files->upload.folder, files->upload.temporary, 0);
    end_upload();
}

static void fail_upload(int error)
{
    undo_upload();
    answer(error);
}

static void name_temporary(void)
{
    char *digit = files->upload.temporary + sizeof(TEMPORARY) - 1;
    uint32_t number = uploads++;

    memcpy(files->upload.temporary, TEMPORARY, sizeof(TEMPORARY) - 1);
    for (unsigned i = 0; i < TEMPORARY_DIGITS; i++, number >>= 4)
        *digit++ = "0123456789abcdef"[number & 0xf];
    *digit = '\0';
}

bool files_is_temporary(const char *name)
{
    for (size_t i = 0; i < WIRE_FILE_LINKS; i++) {
        if (links[i].upload.fd >= 0 && strcmp(links[i].upload.temporary, name) == 0)
            return true;
    }
    return false;
}

static int create_temporary(bool executable)
{
    int fd = -1;

    for (unsigned tries = 0; fd < 0 && (tries == 0 || errno == EEXIST) && tries < 100; tries++) {
        name_temporary();
        fd = openat(files->upload.folder, files->upload.temporary,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                    executable ? 0755 : 0644);
    }
    return fd;
}

static void finish_upload(void)
{
    struct upload *upload = &files->upload;

    has_put = true;
    if (renameat(upload->folder, upload->temporary, upload->folder, upload->name) < 0) {
        fail_upload(errno);
        return;
    }
    end_upload();
    answer(0);
}

static void begin_put(const char *path, uint64_t size, bool executable)
{
    struct upload *upload = &files->upload;
    const char *name;

    upload->folder = path_open_parent(files->home, path, true, &name);
    if (upload->folder < 0) {
        answer(errno);
        return;
    }
    memcpy(upload->name, name, strlen(name) + 1);
    upload->fd = create_temporary(executable);
    upload->left = size;
    files->state = PUTTING;
    if (upload->fd < 0)
        fail_upload(errno);
    else if (size == 0)
        finish_upload();
}

static void take_data(const char *data, size_t length)
{
    struct upload *upload = &files->upload;

    if (length > upload->left) {
        fail_upload(EINVAL);
        return;
    }
    upload->left -= length;
    while (length > 0) {
        ssize_t count = write(upload->fd, data, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            fail_upload(count < 0 ? errno : EIO);
            return;
        }
        data += count;
        length -= (size_t)count;
    }
    if (upload->left == 0)
        finish_upload();
}

/* ---- GET ---------------------------------------------------------------- */

static int open_regular(const char *path, struct stat *ret_status)
{
    const char *name;
    int folder = path_open_parent(files->home, path, false, &name);
    if (folder < 0)
        return -1;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int error = errno;
    close(folder);
    if (fd >= 0 && fstat(fd, ret_status) == 0) {
        if (S_ISREG(ret_status->st_mode) && ret_status->st_nlink == 1)
            return fd;
        error = S_ISDIR(ret_status->st_mode)   ? EISDIR
                : S_ISREG(ret_status->st_mode) ? EMLINK
                                               : ENXIO;
        close(fd);
    }
    errno = error;
    return -1;
}

static void begin_get(const char *path, uint64_t max_bytes)
{
    struct stat status;

    files->get_fd = open_regular(path, &status);
    if (files->get_fd < 0) {
        answer(errno);
        return;
    }
    if ((uint64_t)status.st_size > max_bytes) {
        drop(&files->get_fd);
        answer_with(EFBIG, 0, (uint64_t)status.st_size);
        return;
    }
    files->got = 0;
    files->get_max = max_bytes;
    files->state = GETTING;
}

static void go_on_with_get(void)
{
    ssize_t count = read(files->get_fd, files->room->out.data, WIRE_MAX_DATA);
    int error = count < 0 ? errno : 0;

    if (count > 0 && (uint64_t)count > files->get_max - files->got)
        error = EFBIG; /* it has grown */
    if (count > 0 && error == 0) {
        files->got += (uint64_t)count;
        say(WIRE_FILE_DATA, (size_t)count);
        return;
    }
    drop(&files->get_fd);
    answer_with(error, 0, files->got);
}

/* ---- LIST, CHANGES, DELETE, MARK ----------------------------------------- */

static int open_folder(const char *path)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    const char *name;

    if (path[0] == '\0')
        return openat(files->home, ".", flags);
    int folder = path_open_parent(files->home, path, false, &name);
    if (folder < 0)
        return -1;
    int fd = openat(folder, name, flags);
    int error = errno;
    close(folder);
    errno = error;
    return fd;
}

static void begin_walk(enum walk_kind kind, const char *path, struct timespec after)
{
    int fd = open_folder(path);

    if (fd < 0) {
        answer(errno);
        return;
    }
    walk_begin(&files->room->walk, kind, fd, after);
    files->state = WALKING;
}

static void go_on_with_walk(void)
{
    bool end, cut;
    size_t length = walk_step(&files->room->walk, files->room->out.data, &end, &cut);

    if (length > 0)
        say(WIRE_FILE_ENTRIES, length);
    else if (end)
        answer_with(0, cut ? WIRE_ANSWER_CUT : 0, 0);
}

static void delete_file(const char *path)
{
    const char *name;
    int folder = path_open_parent(files->home, path, false, &name);
    if (folder < 0) {
        answer(errno);
        return;
    }
    int error = unlinkat(folder, name, 0) < 0 ? errno : 0;
    if (error == EISDIR)
        error = unlinkat(folder, name, AT_REMOVEDIR) < 0 ? errno : 0;
    close(folder);
    answer(error);
}

/* Times of files advance by ticks of a coarse clock. So that what was PUT is older than
 * what the program does next, a tick is waited for. */
static void begin_mark(void)
{
    if (!has_put) {
        clock_gettime(CLOCK_REALTIME_COARSE, &mark);
        mark.tv_nsec--; /* -1 compares as it should */
        answer(0);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &mark);
    files->rounds = 0;
    files->state = MARKING;
}

static void go_on_with_mark(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    bool is_later =
        now.tv_sec > mark.tv_sec || (now.tv_sec == mark.tv_sec && now.tv_nsec > mark.tv_nsec);
    if (!is_later && ++files->rounds < SETTLE_ROUNDS)
        return;
    has_put = false;
    answer(0);
}

/* ---- calls --------------------------------------------------------------- */

static void end_call(void)
{
    undo_upload();
    walk_end(&files->room->walk);
    drop(&files->get_fd);
    files->state = IDLE;
}

static void hang_up(void)
{
    end_call();
    drop(&files->socket);
    drop(&files->home);
    files->received = files->length = files->sent = 0;
}

/* After which CHANGES asks for. */
static struct timespec take_time(size_t length)
{
    struct wire_changes changes;

    if (length != sizeof(changes))
        return mark;
    memcpy(&changes, files->room->in.data, sizeof(changes));
    return (struct timespec){.tv_sec = changes.after_ns / 1000000000,
                             .tv_nsec = changes.after_ns % 1000000000};
}

/* Of a call that is there whole; the path, behind size bytes, has its end. */
static void begin_call(const struct wire_header *header, const char *path)
{
    struct wire_put put;
    struct wire_get get;

    switch ((enum wire_file_type)header->type) {
    case WIRE_FILE_PUT:
        memcpy(&put, files->room->in.data, sizeof(put));
        begin_put(path, put.size, (header->flags & WIRE_PUT_EXECUTABLE) != 0);
        break;
    case WIRE_FILE_GET:
        memcpy(&get, files->room->in.data, sizeof(get));
        begin_get(path, get.max_bytes);
        break;
    case WIRE_FILE_LIST:
        begin_walk(WALK_LIST, path, mark);
        break;
    case WIRE_FILE_DELETE:
        delete_file(path);
        break;
    case WIRE_FILE_MARK:
        begin_mark();
        break;
    case WIRE_FILE_CHANGES:
        begin_walk(WALK_CHANGES, "", take_time(header->length));
        break;
    case WIRE_FILE_DATA:
    case WIRE_FILE_ENTRIES:
    case WIRE_FILE_ANSWER:
        hang_up();
        break;
    }
}

/* What stands before the path of a call. */
static size_t size_of_head(const struct wire_header *header)
{
    switch (header->type) {
    case WIRE_FILE_PUT:
        return sizeof(struct wire_put);
    case WIRE_FILE_GET:
        return sizeof(struct wire_get);
    case WIRE_FILE_CHANGES: /* maybe without */
        return header->length > 0 ? sizeof(struct wire_changes) : 0;
    default:
        return 0;
    }
}

static bool has_path(uint16_t type, size_t length)
{
    return type == WIRE_FILE_PUT || type == WIRE_FILE_GET || type == WIRE_FILE_DELETE ||
           (type == WIRE_FILE_LIST && length > 0);
}

static void take_frame(void)
{
    const struct wire_header *header = &files->room->in.header;
    size_t head = size_of_head(header);

    files->received = 0;
    if (header->type == WIRE_FILE_DATA) {
        if (files->state == PUTTING && header->exec_id == files->call)
            take_data(files->room->in.data, header->length);
        return; /* else of a call that has failed already */
    }
    end_call();
    files->call = header->exec_id;
    if (header->length < head) {
        hang_up();
        return;
    }
    size_t length = header->length - head;
    char *path = files->room->in.data + head;
    path[length] = '\0';
    if (files->home < 0) /* the program may have removed it */
        files->home = open(HOME, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (files->home < 0)
        answer(errno);
    else if (has_path(header->type, length) ? !path_is_sound(path, length) : length > 0)
        answer(EINVAL);
    else
        begin_call(header, path);
}

/* ---- the connection ------------------------------------------------------ */

static void receive(void)
{
    char *in = (char *)&files->room->in;
    const size_t head = offsetof(struct frame, data);
    size_t wanted = head + (files->received < head ? 0 : files->room->in.header.length);

    if (files->received < wanted) {
        ssize_t count =
            recv(files->socket, in + files->received, wanted - files->received, MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (count <= 0) {
            hang_up();
            return;
        }
        files->received += (size_t)count;
    }
    if (files->received < head)
        return;
    if (files->room->in.header.length > WIRE_MAX_DATA)
        hang_up();
    else if (files->received == head + files->room->in.header.length)
        take_frame();
}

static void transmit(void)
{
    const char *out = (const char *)&files->room->out;
    ssize_t count = send(files->socket, out + files->sent, files->length - files->sent,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

    if (count < 0 && errno != EAGAIN && errno != EINTR)
        hang_up();
    else if (count > 0)
        files->sent += (size_t)count;
    if (files->sent == files->length)
        files->sent = files->length = 0;
}

void files_open(uint32_t link, int socket)
{
    files = &links[link];
    hang_up();
    files->socket = socket;
}

void files_hold(bool hold)
{
    held = hold;
}

int files_socket(uint32_t link)
{
    return links[link].socket;
}

short files_events(uint32_t link)
{
    const struct files *it = &links[link];

    if (it->length > 0 || it->state == GETTING || it->state == WALKING)
        return POLLOUT;
    return it->state == MARKING || held ? 0 : POLLIN;
}

int files_timeout(void)
{
    for (size_t i = 0; i < WIRE_FILE_LINKS; i++) {
        if (links[i].state == MARKING)
            return SETTLE_MS;
    }
    return -1;
}

void files_serve(uint32_t link, short events)
{
    short wanted = files_events(link);

    files = &links[link];
    if (files->socket < 0)
        return;
    if ((events & (POLLHUP | POLLERR)) && wanted != POLLIN) {
        hang_up();
        return;
    }
    if (wanted == POLLIN && events != 0)
        receive();
    if (files->length == 0 && files->state == MARKING)
        go_on_with_mark();
    if (files->length == 0 && files->state == GETTING)
        go_on_with_get();
    if (files->length == 0 && files->state == WALKING)
        go_on_with_walk();
    if (files->length > 0)
        transmit();
}
