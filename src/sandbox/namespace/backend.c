/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's side of the namespace backend (backend.h). A cell is four
 * descriptors here: the event socket to the supervisor, the two output pipes,
 * and the channel to the runner. The thread that runs the request polls them
 * together; nothing is shared with other cells but the control socket.
 *
 * Lock: backend.lock guards helper. Under it waits the send of one small packet,
 * at most a second, and the replacing of a dead supervisor: at most five seconds
 * for its end, five for a scope of systemd and ten for the next one's hello.
 */
#include "sandbox/backend.h"

#include "background.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "doctor.h"
#include "helper.h"
#include "outputs.h"
#include "proto.h"
#include "sandbox/file_call.h"
#include "tree_tables.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>

#ifndef SO_PASSRIGHTS /* Linux 6.16 */
#define SO_PASSRIGHTS 83
#endif

#define READ_BYTES (64u << 10)
#define SEND_FRAMES 4
#define SEND_NS NS_PER_SECOND /* for the supervisor to take an order */
#define DRAIN_SECONDS 5       /* after the exit, for pipes whose writers are being killed */

struct namespace_backend {
    struct backend base;
    struct helper_options options;
    pthread_mutex_t lock;
    struct helper helper;
    uint64_t helpers; /* how many there were; the number of the last one */
};

struct frame {
    struct wire_header header; /* of type 0: data goes without */
    const char *data;          /* borrowed */
    size_t sent;               /* of header and data together */
};

struct cell {
    struct namespace_backend *backend;
    uint64_t helper;           /* number of the one that has it */
    int event_fd, channel_fd;  /* -1 after their end; event_fd of a session stays, as other
                                  threads may send on it */
    struct output_pair output; /* stdout and stderr; -1 after their end */
    struct outputs outputs;    /* of a session: those of other execs */
    struct background *background;
    bool is_prepared; /* the next exec has pipes of its own */
    bool has_begun;   /* there is something to do while it runs */
    struct frame frames[SEND_FRAMES];
    size_t frame_count, frame_next;
    struct file_link *files[CELL_FILES_COUNT]; /* to hutch-init, once they are needed */
    struct buf report;                         /* frames of the runner, as they come in */
    size_t report_taken;
    bool session;
    bool is_shell; /* whose runner reads text */
    uint64_t memory_bytes;
    uint32_t exec_id; /* that frames have */
    bool exited;
    uint64_t drain_deadline_ns;
    char data[READ_BYTES];
};

/* ---- the supervisor ---------------------------------------------------- */

static bool helper_is_alive(const struct helper *helper)
{
    if (helper->control_fd < 0)
        return false;
    return fd_wait(helper->control_fd, POLLIN, 0) == 0 &&
           (helper->pidfd < 0 || fd_wait(helper->pidfd, POLLIN, 0) == 0);
}

/* Called with the lock held. */
static int ensure_helper(struct namespace_backend *backend, struct hutch_error *err)
{
    if (helper_is_alive(&backend->helper))
        return 0;
    helper_end(&backend->helper);
    if (helper_spawn(&backend->options, &backend->helper, err) < 0)
        return err->code;
    backend->helpers++;
    struct timeval limit = {.tv_sec = 1};
    setsockopt(backend->helper.control_fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    return 0;
}

/* A new supervisor sweeps what a dead one left: start it at once, unless another
 * of its cells has done so. Returns whether the cell's is dead. */
static bool replace_dead_helper(const struct cell *cell)
{
    struct namespace_backend *backend = cell->backend;
    struct hutch_error ignored;

    pthread_mutex_lock(&backend->lock);
    bool dead = cell->helper != backend->helpers;
    if (!dead) {
        /* An event socket may end a little before its process does. */
        if (backend->helper.pidfd >= 0)
            fd_wait(backend->helper.pidfd, POLLIN, clock_after_ns(NS_PER_SECOND));
        dead = !helper_is_alive(&backend->helper);
        IGNORE_RESULT(ensure_helper(backend, &ignored));
    }
    pthread_mutex_unlock(&backend->lock);
    return dead;
}

static int send_start(struct cell *cell, const struct proto_start *start, const int *fds,
                      size_t count, struct hutch_error *err)
{
    struct namespace_backend *backend = cell->backend;

    pthread_mutex_lock(&backend->lock);
    int code = ensure_helper(backend, err);
    cell->helper = backend->helpers;
    if (code == 0 && fd_send(backend->helper.control_fd, start, sizeof(*start), fds, count) < 0) {
        code = errno == EAGAIN
                   ? err_set(err, HUTCH_ERR_BUSY, "hutch-supervisor does not keep up")
                   : err_errno(err, HUTCH_ERR_HELPER, errno, "send the cell to hutch-supervisor");
    }
    pthread_mutex_unlock(&backend->lock);
    return code;
}

/* ---- starting a cell --------------------------------------------------- */

/* A sealed file in memory: the program reads it like a redirected file, and
 * needs nobody to feed it. */
static int make_stdin(const char *data, size_t length, struct hutch_error *err)
{
    auto_close int fd = memfd_create("stdin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make the program's stdin");
    if (fd_write_all(fd, data, length) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "write the program's stdin");
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "seal the program's stdin");
    /* A descriptor of its own that can only read, from the start. */
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int reader = open(path, O_RDONLY | O_CLOEXEC);
    if (reader < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open the program's stdin");
    return reader;
}

struct cell_ends {
    int fds[PROTO_FDS_MAX];
    size_t count;
};

static void ends_done(struct cell_ends *ends)
{
    for (size_t i = 0; i < ends->count; i++)
        close(ends->fds[i]);
}

/* Of each pair the first is kept by the cell, the other goes to the supervisor. */
static void add_pair(struct cell_ends *ends, const int pair[2], int *ret_mine)
{
    *ret_mine = pair[0];
    ends->fds[ends->count++] = pair[1];
}

static int add_pipe(struct cell_ends *ends, int *ret_mine)
{
    int pair[2];

    if (fd_pipe(pair) < 0)
        return -1;
    add_pair(ends, pair, ret_mine);
    return 0;
}

static int add_socket(struct cell_ends *ends, int type, int *ret_mine)
{
    int pair[2];

    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    add_pair(ends, pair, ret_mine);
    return 0;
}

/* The cell shall not send descriptors, which have to be closed here. Older
 * kernels cannot be told (before 6.16); there the filter closes what would make
 * a close slow. */
static int refuse_descriptors(int socket)
{
    int off = 0;
    if (setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) < 0 &&
        errno != ENOPROTOOPT)
        return -1;
    return 0;
}

static int open_program_ends(struct cell *cell, struct cell_ends *ends, struct hutch_error *err)
{
    if (add_pipe(ends, &cell->output.fds[0]) < 0 || add_pipe(ends, &cell->output.fds[1]) < 0 ||
        add_socket(ends, SOCK_STREAM, &cell->channel_fd) < 0 ||
        refuse_descriptors(cell->channel_fd) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make the cell's pipes");
    /* A program may open the other end itself, and take what poll promised. */
    if (fcntl(cell->output.fds[0], F_SETFL, O_NONBLOCK) < 0 ||
        fcntl(cell->output.fds[1], F_SETFL, O_NONBLOCK) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "prepare the cell's pipes");
    return 0;
}

static int open_ends(struct cell *cell, struct cell_ends *ends, struct hutch_error *err)
{
    if (add_socket(ends, SOCK_SEQPACKET, &cell->event_fd) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make the cell's pipes");
    return open_program_ends(cell, ends, err);
}

static enum proto_language proto_language(enum hutch_language language)
{
    switch (language) {
    case HUTCH_PYTHON:
        return PROTO_PYTHON;
    case HUTCH_SHELL:
        return PROTO_SHELL;
    case HUTCH_JAVASCRIPT:
        return PROTO_JAVASCRIPT;
    }
    return PROTO_PYTHON;
}

static struct proto_start describe(const struct cell_spec *spec)
{
    const struct hutch_request *request = spec->request;
    struct proto_start start = {
        .kind = PROTO_RUN,
        .language = (uint32_t)proto_language(request->language),
        .has_stdin = !spec->session && request->stdin_length > 0,
        .session = spec->session,
        .idle_ns = spec->idle_ns,
        .life_ns = spec->life_ns,
        .require = request->require,
        .max_processes = request->max_processes,
        .cpu_millis = (uint32_t)(request->cpus * 1000.0 + 0.5),
        .timeout_ns = spec->session ? NO_DEADLINE
                                    : (uint64_t)(request->timeout_seconds * (double)NS_PER_SECOND),
        .memory_bytes = MIB(request->memory_mb),
        .disk_bytes = MIB(request->disk_mb),
    };
    if (request->owner)
        memcpy(start.owner, request->owner, strlen(request->owner));
    return start;
}

static struct cell *cell_new(struct namespace_backend *backend, struct hutch_error *err)
{
    struct cell *cell = calloc(1, sizeof(*cell));
    if (!cell) {
        err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
        return NULL;
    }
    cell->backend = backend;
    cell->event_fd = cell->channel_fd = cell->output.fds[0] = cell->output.fds[1] = -1;
    outputs_init(&cell->outputs);
    cell->exec_id = 1;
    cell->report = BUF_MAX(REPORTS_MAX_BYTES);
    return cell;
}

static void namespace_cell_free(struct cell *cell)
{
    if (!cell)
        return;
    fd_close(&cell->event_fd);
    fd_close(&cell->output.fds[0]);
    fd_close(&cell->output.fds[1]);
    outputs_done(&cell->outputs);
    background_free(cell->background);
    fd_close(&cell->channel_fd);
    for (size_t i = 0; i < CELL_FILES_COUNT; i++)
        file_link_free(cell->files[i]);
    buf_done(&cell->report);
    free(cell);
}

/* The files socket, of which hutch-init gets an end. It sends no descriptors: it is ours, and
 * whoever got hold of it would be stopped as on the channel. */
static int add_files(struct cell *cell, enum cell_files link, struct cell_ends *ends,
                     struct hutch_error *err)
{
    int mine;

    if (add_socket(ends, SOCK_STREAM, &mine) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make the socket for files");
    if (refuse_descriptors(mine) < 0) {
        close(mine);
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "prepare the socket for files");
    }
    return file_link_new(mine, &cell->files[link], err);
}

static int start_with(struct cell *cell, const struct proto_start *start,
                      const struct hutch_request *request, struct hutch_error *err)
{
    __attribute__((cleanup(ends_done))) struct cell_ends ends = {.count = 0};

    if (open_ends(cell, &ends, err) < 0)
        return err->code;
    if (start->has_stdin) {
        int fd = make_stdin(request->stdin_data, request->stdin_length, err);
        if (fd < 0)
            return err->code;
        ends.fds[ends.count++] = fd;
    }
    if (start->has_files && add_files(cell, CELL_FILES, &ends, err) < 0)
        return err->code;
    return send_start(cell, start, ends.fds, ends.count, err);
}

static int namespace_cell_start(struct backend *base, const struct cell_spec *spec,
                                struct cell **ret_cell, struct hutch_error *err)
{
    struct namespace_backend *backend = (struct namespace_backend *)base;
    struct proto_start start = describe(spec);
    start.has_files = spec->has_files;
    struct cell *cell = cell_new(backend, err);

    if (!cell)
        return err->code;
    cell->session = spec->session;
    cell->is_shell = spec->request->language == HUTCH_SHELL;
    cell->memory_bytes = start.memory_bytes;
    if (start_with(cell, &start, spec->request, err) < 0) {
        namespace_cell_free(cell);
        return err->code;
    }
    *ret_cell = cell;
    return 0;
}

/* ---- frames to and from the runner ------------------------------------- */

static int namespace_cell_send(struct cell *cell, enum wire_type type, uint16_t flags,
                               const void *data, size_t length, struct hutch_error *err)
{
    if (cell->frame_count == SEND_FRAMES || length > UINT32_MAX)
        return err_set(err, HUTCH_ERR_SYSTEM, "too many frames for one cell");
    cell->frames[cell->frame_count++] = (struct frame){
        .header = {.length = (uint32_t)length,
                   .type = (uint16_t)type,
                   .flags = flags,
                   .exec_id = cell->exec_id},
        .data = data,
    };
    return 0;
}

/* Writes what the channel takes. A runner that does not read any more is no
 * error: how it ended will say what was wrong. */
static int pump_frames(struct cell *cell, struct hutch_error *err)
{
    while (cell->frame_next < cell->frame_count) {
        struct frame *frame = &cell->frames[cell->frame_next];
        const char *header = (const char *)&frame->header;
        size_t head = frame->header.type != 0 ? sizeof(frame->header) : 0;
        bool in_header = frame->sent < head;
        size_t offset = in_header ? frame->sent : frame->sent - head;
        const char *next = (in_header ? header : frame->data) + offset;
        size_t left = (in_header ? head : frame->header.length) - offset;
        int more = in_header && frame->header.length > 0 ? MSG_MORE : 0;

        if (left > 0) {
            ssize_t count = send(cell->channel_fd, next, left, MSG_NOSIGNAL | MSG_DONTWAIT | more);
            if (count < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
            if (count < 0 && (errno == EPIPE || errno == ECONNRESET)) {
                cell->frame_next = cell->frame_count;
                return 0;
            }
            if (count < 0)
                return err_errno(err, HUTCH_ERR_SYSTEM, errno, "send the program to the cell");
            frame->sent += (size_t)count;
        }
        if (frame->sent == head + frame->header.length)
            cell->frame_next++;
    }
    return 0;
}

/* A program that took the runner's part may have left frames of an earlier exec. */
static bool is_current(const struct cell *cell, const struct report *report)
{
    if (report->type == WIRE_READY)
        return cell->session;
    return report->exec_id == cell->exec_id && (cell->session || report->type != WIRE_DONE);
}

/* One whole frame of the runner becomes an event. Whatever breaks the form ends
 * the channel and harms nothing else. Returns 1 with an event, 0 when more is
 * needed. */
static int take_report(struct cell *cell, struct cell_event *ret_event)
{
    struct report report;

    while (cell->report_taken < cell->report.length) {
        const char *next = cell->report.data + cell->report_taken;
        switch (report_read(next, cell->report.length - cell->report_taken, &report)) {
        case REPORT_MORE:
            return 0;
        case REPORT_BROKEN:
            fd_close(&cell->channel_fd);
            cell->report_taken = cell->report.length;
            return 0;
        case REPORT_WHOLE:
            cell->report_taken += REPORT_BYTES(&report);
            if (!is_current(cell, &report))
                break;
            *ret_event = (struct cell_event){.type = CELL_REPORT, .report = report};
            return 1;
        }
    }
    return 0;
}

static int read_channel(struct cell *cell, struct hutch_error *err)
{
    ssize_t count = recv(cell->channel_fd, cell->data, sizeof(cell->data), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (count < 0 && errno != ECONNRESET)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read the cell's reports");
    if (count <= 0) {
        fd_close(&cell->channel_fd);
        return 0;
    }
    buf_append(&cell->report, cell->data, (size_t)count);
    if (cell->report.failure == BUF_TOO_LONG) { /* more than any honest runner sends */
        fd_close(&cell->channel_fd);
        return 0;
    }
    return buf_check(&cell->report, err);
}

/* ---- events ------------------------------------------------------------ */

static int read_output(struct cell *cell, size_t stream, struct cell_event *ret_event,
                       struct hutch_error *err)
{
    int *fd = &cell->output.fds[stream];
    ssize_t count = read(*fd, cell->data, sizeof(cell->data));

    if (count < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (count < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read the program's output");
    if (count == 0) {
        outputs_end(&cell->output, stream);
        return 0;
    }
    *ret_event = (struct cell_event){.type = stream == 0 ? CELL_STDOUT : CELL_STDERR,
                                     .data = cell->data,
                                     .length = (size_t)count};
    return 1;
}

static enum cell_end end_of(uint32_t end)
{
    switch ((enum proto_end)end) {
    case PROTO_END_TIMEOUT:
        return CELL_END_TIMEOUT;
    case PROTO_END_MEMORY:
        return CELL_END_MEMORY;
    case PROTO_END_OUTPUT:
        return CELL_END_OUTPUT;
    case PROTO_END_EXIT:
        break;
    }
    return CELL_END_EXIT;
}

static void take_exit(struct cell *cell, const struct proto_event *event,
                      struct cell_event *ret_event)
{
    cell->exited = !cell->session;
    cell->drain_deadline_ns = clock_after_ns(DRAIN_SECONDS * NS_PER_SECOND);
    *ret_event = (struct cell_event){
        .type = CELL_EXITED,
        .exit =
            {
                .end = end_of(event->end),
                .wait_status = event->wait_status,
                .duration_ns = event->duration_ns,
                .cpu_ns = event->cpu_ns,
                .peak_memory_bytes = event->peak_memory_bytes,
                .oom_kills = event->oom_kills,
                .process_limit_hits = event->process_limit_hits,
                .has_copy = event->has_copy != 0,
                .copy_of = event->copy_of,
                .exec_id = event->exec_id,
                .has_files = event->files != 0,
            },
    };
}

/* One whole event of the supervisor. One that is gone took the cell with it; whether the
 * code ran before that, nobody can say. */
static int receive_event(struct cell *cell, struct proto_event *ret_event, struct hutch_error *err)
{
    int fds[PROTO_EVENT_FDS_MAX];
    size_t fd_count = PROTO_EVENT_FDS_MAX;
    ssize_t count = fd_receive(cell->event_fd, ret_event, sizeof(*ret_event), fds, &fd_count);

    if (count < 0 && errno == EMSGSIZE)
        return err_set(err, HUTCH_ERR_SYSTEM,
                       "this process may have no more descriptors (ulimit -n): those of the "
                       "session's pipes are lost");
    if (count < 0 && errno != ECONNRESET)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read from hutch-supervisor");
    if (count <= 0) {
        if (!cell->session)
            fd_close(&cell->event_fd);
        return err_set(err, HUTCH_ERR_HELPER, "hutch-supervisor %s during the run",
                       replace_dead_helper(cell) ? "died" : "gave the cell up");
    }
    bool is_event = proto_is_event(ret_event, (size_t)count);
    if (is_event && ret_event->type == PROTO_PIPES)
        outputs_take(&cell->outputs, ret_event->exec_id, fds, fd_count);
    else
        for (size_t i = 0; i < fd_count; i++)
            close(fds[i]);
    if (!is_event)
        return err_set(err, HUTCH_ERR_HELPER, "hutch-supervisor sent a malformed event");
    return 0;
}

/* Returns 1 with an event, or an error. */
static int read_event(struct cell *cell, struct cell_event *ret_event, struct hutch_error *err)
{
    struct proto_event event;

    if (receive_event(cell, &event, err) < 0)
        return err->code;
    switch ((enum proto_event_type)event.type) {
    case PROTO_STARTED:
        if (cell->session)
            background_open(&cell->background, event.pid, event.init_pid);
        *ret_event = (struct cell_event){.type = CELL_STARTED,
                                         .layers = event.layers,
                                         .begin_ns = event.begin_ns,
                                         .pid = event.pid};
        return 1;
    case PROTO_EXITED:
        take_exit(cell, &event, ret_event);
        return 1;
    case PROTO_TIME_UP:
        *ret_event = (struct cell_event){.type = CELL_TIME_UP};
        return 1;
    case PROTO_RESTED:
        *ret_event = (struct cell_event){.type = CELL_RESTED, .signalled = event.signalled};
        return 1;
    case PROTO_PIPES:
        *ret_event = (struct cell_event){.type = CELL_PIPES};
        return 1;
    case PROTO_LOST:
    case PROTO_FAILED:
        break;
    }
    if (event.type == PROTO_LOST) {
        *err = event.error;
        return err->code;
    }
    *ret_event = (struct cell_event){.type = CELL_FAILED, .error = event.error};
    return 1;
}

enum { SLOT_CANCEL, SLOT_STDOUT, SLOT_STDERR, SLOT_CHANNEL, SLOT_EVENT, SLOT_OLD };

#define SLOT_COUNT (SLOT_OLD + OUTPUTS_SLOTS)

/* Gives their number. */
static size_t fill_slots(const struct cell *cell, int cancel_fd, struct pollfd slots[SLOT_COUNT])
{
    short channel_events = POLLIN;
    if (cell->frame_next < cell->frame_count)
        channel_events |= POLLOUT;
    slots[SLOT_CANCEL] = (struct pollfd){.fd = cancel_fd, .events = POLLIN};
    slots[SLOT_STDOUT] = (struct pollfd){.fd = cell->output.fds[0], .events = POLLIN};
    slots[SLOT_STDERR] = (struct pollfd){.fd = cell->output.fds[1], .events = POLLIN};
    slots[SLOT_CHANNEL] = (struct pollfd){.fd = cell->channel_fd, .events = channel_events};
    if (cell->is_prepared) { /* what was printed can wait, as it will not be taken for its own */
        slots[SLOT_STDOUT].fd = slots[SLOT_STDERR].fd = -1;
        slots[SLOT_EVENT] = (struct pollfd){.fd = cell->event_fd, .events = POLLIN};
        return SLOT_OLD;
    }
    /* After the exit the supervisor has nothing more to say. */
    slots[SLOT_EVENT] = (struct pollfd){.fd = cell->exited ? -1 : cell->event_fd, .events = POLLIN};
    return SLOT_OLD + outputs_poll(&cell->outputs, &slots[SLOT_OLD]);
}

static int take_late(const struct cell *cell, size_t length, struct cell_event *ret_event)
{
    *ret_event = (struct cell_event){.type = CELL_LATE, .data = cell->data, .length = length};
    return length > 0;
}

/* Output first, so that what was printed before the end comes before it; that of earlier
 * execs last, so that nothing waits for it, however much comes. */
static int serve_slots(struct cell *cell, const struct pollfd slots[SLOT_COUNT], size_t slot_count,
                       struct cell_event *ret_event, struct hutch_error *err)
{
    if (slots[SLOT_CANCEL].revents != 0)
        return err_set(err, HUTCH_ERR_CANCELLED, "cancelled by the caller");
    if (slots[SLOT_CHANNEL].revents & POLLOUT && pump_frames(cell, err) < 0)
        return err->code;
    if (slots[SLOT_CHANNEL].revents & ~POLLOUT && read_channel(cell, err) < 0)
        return err->code;
    if (slots[SLOT_STDOUT].revents != 0)
        return read_output(cell, 0, ret_event, err);
    if (slots[SLOT_STDERR].revents != 0)
        return read_output(cell, 1, ret_event, err);
    if (slots[SLOT_EVENT].revents != 0)
        return read_event(cell, ret_event, err);
    size_t length = outputs_read(&cell->outputs, &slots[SLOT_OLD], slot_count - SLOT_OLD,
                                 cell->data, sizeof(cell->data));
    return take_late(cell, length, ret_event);
}

static bool is_drained(const struct cell *cell)
{
    return cell->exited &&
           ((cell->output.fds[0] < 0 && cell->output.fds[1] < 0 && cell->channel_fd < 0) ||
            clock_now_ns() >= cell->drain_deadline_ns);
}

/* What costs no time while the interpreter is at work. */
static void use_the_time(struct cell *cell)
{
    if (!cell->has_begun || cell->frame_next < cell->frame_count)
        return;
    cell->has_begun = false;
    outputs_open(&cell->outputs);
    if (cell->background)
        background_find_copy(cell->background);
}

static int recheck_old(struct cell *cell, struct cell_event *ret_event)
{
    size_t length =
        cell->is_prepared ? 0 : outputs_recheck(&cell->outputs, cell->data, sizeof(cell->data));
    return take_late(cell, length, ret_event);
}

static int namespace_cell_next_event(struct cell *cell, uint64_t deadline_ns, int cancel_fd,
                                     struct cell_event *ret_event, struct hutch_error *err)
{
    for (;;) {
        use_the_time(cell);
        if (take_report(cell, ret_event) > 0 || recheck_old(cell, ret_event) > 0)
            return 0;
        if (is_drained(cell)) {
            *ret_event = (struct cell_event){.type = CELL_END};
            return 0;
        }
        struct pollfd slots[SLOT_COUNT];
        size_t count = fill_slots(cell, cancel_fd, slots);
        uint64_t until = cell->exited ? cell->drain_deadline_ns : deadline_ns;
        int ready = poll(slots, count, clock_poll_timeout(until));
        if (ready < 0 && errno != EINTR)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "wait for the cell");
        bool is_late = ready == 0 && !cell->exited && clock_now_ns() >= deadline_ns;
        if (is_late && cell->session) {
            *ret_event = (struct cell_event){.type = CELL_QUIET};
            return 0;
        }
        if (is_late)
            return err_set(err, HUTCH_ERR_HELPER, "hutch-supervisor let the deadline pass");
        if (ready <= 0)
            continue;
        int served = serve_slots(cell, slots, count, ret_event, err);
        if (served != 0)
            return served < 0 ? served : 0;
    }
}

/* ---- files ------------------------------------------------------------- */

_Static_assert(CELL_FILES_COUNT == WIRE_FILE_LINKS, "each has its socket");

/* A cell that had no files before the run gets its files socket when it is asked for some,
 * and a session another one in place of one that broke. */
static int open_files(struct cell *cell, enum cell_files link, uint64_t deadline_ns,
                      struct hutch_error *err)
{
    const struct proto_order order = {.type = PROTO_FILES, .link = link};
    __attribute__((cleanup(ends_done))) struct cell_ends ends = {.count = 0};

    if (cell->files[link] && (!cell->session || !file_link_is_broken(cell->files[link])))
        return 0;
    file_link_free(TAKE_POINTER(cell->files[link]));
    if (add_files(cell, link, &ends, err) < 0)
        return err->code;
    if (fd_wait(cell->event_fd, POLLOUT, deadline_ns) <= 0)
        errno = EAGAIN;
    else if (fd_send(cell->event_fd, &order, sizeof(order), ends.fds, ends.count) == 0)
        return 0;
    file_link_free(TAKE_POINTER(cell->files[link]));
    return err_errno(err, HUTCH_ERR_HELPER, errno, "ask hutch-supervisor for the cell's files");
}

static int namespace_cell_file(struct cell *cell, enum cell_files link, struct file_call *call,
                               uint64_t deadline_ns, int cancel_fd, struct hutch_error *err)
{
    if (open_files(cell, link, deadline_ns, err) < 0) {
        call->is_lost = err->code == HUTCH_ERR_HELPER;
        return err->code;
    }
    return file_link_call(cell->files[link], call, deadline_ns, cancel_fd, err);
}

static int namespace_cell_file_begin(struct cell *cell, enum cell_files link,
                                     struct file_call *call, struct hutch_error *err)
{
    if (open_files(cell, link, clock_after_ns(SEND_NS), err) < 0)
        return err->code;
    file_link_begin(cell->files[link], call);
    return 0;
}

static void namespace_cell_stop(struct cell *cell)
{
    struct proto_order order = {.type = PROTO_STOP, .end = PROTO_END_OUTPUT};
    if (cell->event_fd >= 0)
        IGNORE_RESULT(send(cell->event_fd, &order, sizeof(order), MSG_NOSIGNAL) < 0);
}

/* ---- sessions ---------------------------------------------------------- */

static int give_order(struct cell *cell, const struct proto_order *order, const int *fds,
                      size_t count, struct hutch_error *err)
{
    if (cell->event_fd < 0 || fd_send(cell->event_fd, order, sizeof(*order), fds, count) < 0)
        return err_errno(err, HUTCH_ERR_HELPER, errno, "tell hutch-supervisor of the session");
    return 0;
}

/* What makes a session of the runner's process. Then, for copies, their socket. */
static int greet(struct cell *cell, bool checkpoints, struct hutch_error *err)
{
    static const char word[] = "session";
    struct {
        struct wire_header header;
        char payload[WIRE_MAX_SESSION];
    } frame = {
        .header = {.type = WIRE_SESSION, .flags = checkpoints ? WIRE_SESSION_CHECKPOINTS : 0}};
    frame.header.length = (uint32_t)snprintf(frame.payload, sizeof(frame.payload), "%s%c%" PRIu64,
                                             TREE_ZYGOTE_MODULE, 0, cell->memory_bytes);
    const void *greeting = cell->is_shell ? (const void *)word : &frame;
    size_t length = cell->is_shell ? sizeof(word) : sizeof(frame.header) + frame.header.length;

    if (fd_send(cell->channel_fd, greeting, length, NULL, 0) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open the session in the cell");
    return 0;
}

static int offer_copies(struct cell *cell, struct hutch_error *err)
{
    const struct proto_order order = {.type = PROTO_COPIES};
    char word = 1;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make the session's socket");
    int code = give_order(cell, &order, &pair[0], 1, err);
    if (code == 0 && fd_send(cell->channel_fd, &word, 1, &pair[1], 1) < 0)
        code = err_errno(err, HUTCH_ERR_SYSTEM, errno, "open the session in the cell");
    close(pair[0]);
    close(pair[1]);
    return code;
}

static int namespace_session_open(struct cell *cell, bool checkpoints, struct hutch_error *err)
{
    if (greet(cell, checkpoints, err) < 0)
        return err->code;
    return checkpoints ? offer_copies(cell, err) : 0;
}

static int namespace_session_begin(struct cell *cell, uint32_t exec_id, uint64_t timeout_ns,
                                   struct hutch_error *err)
{
    const struct proto_order order = {
        .type = PROTO_BEGIN, .exec_id = exec_id, .timeout_ns = timeout_ns};

    outputs_begin(&cell->outputs, exec_id, &cell->output);
    cell->is_prepared = false;
    cell->has_begun = true;
    cell->exec_id = exec_id;
    /* A frame that has come in part only is of an earlier exec: it is dropped when it is whole. */
    buf_drop_front(&cell->report, cell->report_taken);
    cell->report_taken = 0;
    return give_order(cell, &order, NULL, 0, err);
}

static bool namespace_session_is_broken(const struct cell *cell)
{
    return cell->channel_fd < 0;
}

static bool namespace_session_prepare(struct cell *cell, uint32_t exec_id)
{
    bool has_pipes = false;
    bool is_ready = outputs_prepare(&cell->outputs, exec_id, &has_pipes);

    cell->is_prepared = is_ready && has_pipes;
    return is_ready;
}

static int namespace_session_background(struct cell *cell, struct process_list *ret_list,
                                        struct hutch_error *err)
{
    return cell->background ? background_list(cell->background, ret_list, err) : 0;
}

static int namespace_session_done(struct cell *cell, struct hutch_error *err)
{
    const struct proto_order order = {.type = PROTO_DONE};

    /* A runner has read all of an exec before that is done. Who has not told a lie, and would
     * read the rest as something else. */
    if (cell->frame_next < cell->frame_count)
        fd_close(&cell->channel_fd);
    cell->frame_count = cell->frame_next = 0;
    return give_order(cell, &order, NULL, 0, err);
}

static void namespace_session_interrupt(struct cell *cell)
{
    const struct proto_order order = {.type = PROTO_INTERRUPT};
    IGNORE_RESULT(send(cell->event_fd, &order, sizeof(order), MSG_NOSIGNAL | MSG_DONTWAIT) < 0);
}

static void namespace_session_used(struct cell *cell, uint64_t hold_ns)
{
    const struct proto_order order = {.type = PROTO_USED, .timeout_ns = hold_ns};
    IGNORE_RESULT(send(cell->event_fd, &order, sizeof(order), MSG_NOSIGNAL | MSG_DONTWAIT) < 0);
}

static void forget_channel(struct cell *cell)
{
    fd_close(&cell->channel_fd);
    buf_clear(&cell->report);
    cell->report_taken = 0;
    cell->frame_count = cell->frame_next = 0;
}

static int namespace_session_resume(struct cell *cell, struct hutch_error *err)
{
    __attribute__((cleanup(ends_done))) struct cell_ends ends = {.count = 0};
    const struct proto_order order = {.type = PROTO_RESUME};

    forget_channel(cell);
    if (add_socket(&ends, SOCK_STREAM, &cell->channel_fd) < 0 ||
        refuse_descriptors(cell->channel_fd) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make the session's channel");
    return give_order(cell, &order, ends.fds, ends.count, err);
}

static int namespace_session_relaunch(struct cell *cell, bool checkpoints, struct hutch_error *err)
{
    __attribute__((cleanup(ends_done))) struct cell_ends ends = {.count = 0};
    const struct proto_order order = {.type = PROTO_RELAUNCH};

    forget_channel(cell);
    outputs_retire(&cell->outputs, &cell->output);
    if (open_program_ends(cell, &ends, err) < 0 ||
        give_order(cell, &order, ends.fds, ends.count, err) < 0)
        return err->code;
    return namespace_session_open(cell, checkpoints, err);
}

/* ---- doctor ------------------------------------------------------------ */

static int receive_status(struct cell *cell, uint64_t deadline_ns, struct proto_status *ret_status,
                          struct hutch_error *err)
{
    if (fd_wait(cell->event_fd, POLLIN, deadline_ns) <= 0 ||
        recv(cell->event_fd, ret_status, sizeof(*ret_status), 0) != (ssize_t)sizeof(*ret_status))
        return err_set(err, HUTCH_ERR_HELPER, "hutch-supervisor did not tell its state");
    for (size_t i = 0; i < PROTO_LANGUAGE_COUNT; i++)
        ret_status->runtimes[i].log[sizeof(ret_status->runtimes[i].log) - 1] = '\0';
    return 0;
}

/* A probe cell goes through everything but the interpreter; the layers that
 * it confirms from inside come back in STARTED. */
static int run_probe(struct namespace_backend *backend, struct probe *probe,
                     struct hutch_error *err)
{
    struct hutch_request request;
    struct cell_event event;

    hutch_request_init(&request);
    request.language = HUTCH_SHELL;
    struct proto_start start = describe(&(struct cell_spec){.request = &request});
    start.kind = PROTO_PROBE;
    struct cell *cell = cell_new(backend, err);
    if (!cell)
        return err->code;
    int code = start_with(cell, &start, &request, err);
    uint64_t deadline_ns = clock_after_ns(60 * NS_PER_SECOND);
    if (code == 0)
        code = namespace_cell_next_event(cell, deadline_ns, -1, &event, err);
    if (code == 0 && event.type == CELL_FAILED) {
        *err = event.error;
        code = err->code;
    } else if (code == 0) {
        probe->layers = event.layers;
        code = receive_status(cell, deadline_ns, &probe->status, err);
    }
    namespace_cell_free(cell);
    return code;
}

static void namespace_doctor(struct backend *base, struct buf *out)
{
    struct namespace_backend *backend = (struct namespace_backend *)base;
    struct probe probe = {0};

    if (run_probe(backend, &probe, &probe.failure) == 0)
        probe.failure.code = 0;
    pthread_mutex_lock(&backend->lock);
    struct helper helper = backend->helper; /* its scope */
    pthread_mutex_unlock(&backend->lock);
    doctor_append_report(&backend->options, helper.scope, &probe, out);
}

/* ---- the backend ------------------------------------------------------- */

static void namespace_free(struct backend *base)
{
    if (!base)
        return;
    struct namespace_backend *backend = (struct namespace_backend *)base;
    helper_end(&backend->helper);
    helper_options_done(&backend->options);
    pthread_mutex_destroy(&backend->lock);
    free(backend);
}

static const struct backend_ops namespace_ops = {
    .name = "namespace",
    .cell_start = namespace_cell_start,
    .cell_send = namespace_cell_send,
    .cell_next_event = namespace_cell_next_event,
    .cell_file = namespace_cell_file,
    .cell_file_begin = namespace_cell_file_begin,
    .cell_stop = namespace_cell_stop,
    .session_open = namespace_session_open,
    .session_is_broken = namespace_session_is_broken,
    .session_prepare = namespace_session_prepare,
    .session_begin = namespace_session_begin,
    .session_background = namespace_session_background,
    .session_done = namespace_session_done,
    .session_interrupt = namespace_session_interrupt,
    .session_used = namespace_session_used,
    .session_resume = namespace_session_resume,
    .session_relaunch = namespace_session_relaunch,
    .cell_free = namespace_cell_free,
    .doctor = namespace_doctor,
    .free = namespace_free,
};

int namespace_backend_new(const struct hutch_engine_options *options, struct backend **ret_backend,
                          struct hutch_error *err)
{
    struct namespace_backend *backend = calloc(1, sizeof(*backend));
    if (!backend)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    if (helper_options_init(options, &backend->options, err) < 0) {
        free(backend);
        return err->code;
    }
    backend->base.ops = &namespace_ops;
    backend->base.max_cells = helper_max_cells(&backend->options);
    backend->helper = HELPER_NONE;
    pthread_mutex_init(&backend->lock, NULL);
    *ret_backend = &backend->base;
    return 0;
}
