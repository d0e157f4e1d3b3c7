/* SPDX-License-Identifier: Apache-2.0 */
/* See session.h. */
#include "session.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "cell.h"
#include "folder.h"
#include "proc_text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define INTERRUPT_NS NS_PER_SECOND     /* between the interrupt and the kill */
#define AGAIN_NS (250 * NS_PER_MS)     /* between two interrupts */
#define LOOK_AGAIN_NS (20 * NS_PER_MS) /* whether it would kill */
#define CLEAR_NS (5 * NS_PER_SECOND)   /* for the rest of the cell to die */
#define CLEAR_PAUSE_MIN_NS NS_PER_MS   /* between two looks at it, twice as long each time */
#define CLEAR_PAUSE_MAX_NS (32 * NS_PER_MS)
#define WORD_NS NS_PER_SECOND          /* for hutch-init's word */
#define LAUNCH_NS (30 * NS_PER_SECOND) /* for a new interpreter, which a busy host may delay */

#define COPIES_MAX                                                                                 \
    64 /* packets of one exec: more are of no interest, since nobody honest sends them */

#define COPY_NONE ((struct session_copy){.pidfd = -1, .wake_fd = -1})

/* ---- begin and end ------------------------------------------------------ */

static void drop_copy(struct cell_session *session)
{
    fd_close(&session->copy.wake_fd); /* it ends by that */
    fd_close(&session->copy.pidfd);
    session->copy = COPY_NONE;
}

void session_close(struct supervisor *supervisor, struct cell_session *session)
{
    if (!session)
        return;
    drop_copy(session);
    supervisor_close(supervisor, &session->copies_fd);
    fd_close(&session->proc_fd);
    for (size_t i = 0; i < PLAN_NS_COUNT; i++)
        fd_close(&session->ns_fds[i]);
    free(session);
}

static struct cell_session *session_new(const struct sandbox_cell *cell)
{
    struct cell_session *session = calloc(1, sizeof(*session));

    if (!session)
        return NULL;
    session->copies_fd = session->proc_fd = -1;
    session->copy = COPY_NONE;
    for (size_t i = 0; i < PLAN_NS_COUNT; i++)
        session->ns_fds[i] = -1;
    session->phase = SESSION_IDLE;
    session->again_ns = NO_DEADLINE;
    session->limit_ns = clock_after_ns(cell->start.idle_ns);
    session->end_ns = clock_after_ns(cell->start.life_ns);
    return session;
}

/* What it takes to look at the cell's processes, and to put another one into it. Of
 * the interpreter, since an ordinary user may not look at hutch-init. */
static int open_cell(const struct supervisor *supervisor, const struct sandbox_cell *cell,
                     struct cell_session *session, struct hutch_error *err)
{
    struct stat status;
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/root/proc", (int)cell->run_pid);
    session->proc_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (session->proc_fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open the cell's '/proc'");
    if (cell_open_namespaces(supervisor, cell->run_pid, session->ns_fds, err) < 0)
        return err->code;
    if (fstat(session->ns_fds[PLAN_NS_PID], &status) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "look at the cell's pid namespace");
    session->pid_ns = status.st_ino;
    return 0;
}

/* For execs that come. One that cannot be asked for is missed by the engine. */
static void ask_for_pipes(const struct sandbox_cell *cell)
{
    struct cell_session *session = cell->session;

    while (session->pipes_id < session->exec_id + WIRE_PIPES_AHEAD) {
        const struct wire_attend order = {.type = WIRE_ATTEND_PIPES,
                                          .exec_id = ++session->pipes_id};
        IGNORE_RESULT(fd_send_now(cell->attendant_fd, &order, sizeof(order), NULL, 0) < 0);
    }
}

int session_open(struct supervisor *supervisor, struct sandbox_cell *cell, struct hutch_error *err)
{
    struct cell_session *session = session_new(cell);

    if (!session)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "no memory for another session");
    if (open_cell(supervisor, cell, session, err) < 0) {
        session_close(supervisor, session);
        return err->code;
    }
    /* hutch-init is to tell of those that are left to it. */
    cell_note_disk(cell);
    if (cell_attend(cell, WIRE_ATTEND_TELL, -1) < 0 ||
        supervisor_watch(supervisor, cell->attendant_fd, WATCH_CELL_LIFELINE, cell->index, err) <
            0) {
        session_close(supervisor, session);
        return err_errno(err, HUTCH_ERR_HELPER, errno, "ask hutch-init for its word");
    }
    cell->session = session;
    ask_for_pipes(cell);
    return 0;
}

/* ---- copies ------------------------------------------------------------- */

/* Its number in the cell; 0 where it is no process of the cell's. */
static pid_t number_in_cell(const struct cell_session *session, pid_t pid)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    struct hutch_error ignored;
    struct stat status;
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
    if (stat(path, &status) < 0 || status.st_ino != session->pid_ns)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    if (buf_read_file(&text, AT_FDCWD, path, &ignored) < 0)
        return 0;
    return (pid_t)proc_text_innermost_pid(buf_text(&text));
}

/* Who made the wake socket waits at its other end. */
static bool know_copy(const struct cell_session *session, int wake_fd,
                      struct session_copy *ret_copy)
{
    struct ucred maker;
    socklen_t length = sizeof(maker);

    if (getsockopt(wake_fd, SOL_SOCKET, SO_PEERCRED, &maker, &length) < 0 || maker.pid <= 0)
        return false;
    /* First a hold on the process, so that no other can get its number. */
    auto_close int pidfd = pidfd_open(maker.pid, 0);
    pid_t ns_pid = pidfd >= 0 ? number_in_cell(session, maker.pid) : 0;
    if (ns_pid <= 1 || pidfd_send_signal(pidfd, 0, NULL, 0) < 0)
        return false;
    *ret_copy = (struct session_copy){
        .pid = maker.pid, .ns_pid = ns_pid, .pidfd = TAKE_FD(pidfd), .wake_fd = wake_fd};
    return true;
}

/* Whether there was one more packet on the copies' socket; its descriptor, or -1, is in *wake_fd.
 */
static bool next_copy(struct supervisor *supervisor, struct cell_session *session,
                      uint32_t *ret_exec_id, int *wake_fd)
{
    struct wire_copy message;
    int fd = -1;
    size_t count = 1;

    ssize_t length = fd_receive(session->copies_fd, &message, sizeof(message), &fd, &count);
    if (length < 0 && errno == EAGAIN)
        return false;
    if (length == 0 || (length < 0 && errno != EMSGSIZE)) {
        supervisor_close(supervisor, &session->copies_fd);
        return false;
    }
    fd_close(wake_fd);
    if (count == 1 && length == (ssize_t)sizeof(message)) {
        *wake_fd = fd;
        *ret_exec_id = message.exec_id;
    } else {
        fd_close(&fd);
    }
    return true;
}

void session_take_copies(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    struct cell_session *session = cell->session;
    uint32_t exec_id = 0, seen = session->copies_seen;
    int fd = -1;

    while (session->copies_fd >= 0 && session->copies_seen < COPIES_MAX &&
           next_copy(supervisor, session, &exec_id, &fd))
        session->copies_seen++;
    if (session->copies_seen == seen)
        return;
    drop_copy(session); /* whatever comes, the last one is of an earlier state */
    if (fd >= 0 && know_copy(session, fd, &session->copy))
        session->copy.exec_id = exec_id;
    else
        fd_close(&fd);
    if (session->copies_seen == COPIES_MAX)
        supervisor_close(supervisor, &session->copies_fd);
}

/* ---- the end of an interpreter ------------------------------------------ */

/* The interpreter and, of a shell, what it runs in the foreground. */
static void send_interrupt(struct sandbox_cell *cell)
{
    struct cell_session *session = cell->session;

    session->again_ns = clock_after_ns(AGAIN_NS);
    session->signalled = true;
    session->spared = false;
    if (cell->run_pidfd < 0)
        return;
    if (cell->start.language == PROTO_SHELL && !cell->session->promoted &&
        kill(-cell->run_pid, SIGINT) == 0) /* it leads a group, and is not waited for yet */
        return;
    pidfd_send_signal(cell->run_pidfd, SIGINT, NULL, 0);
}

/* Whether SIGINT would kill it: bash while it executes itself anew, node for a moment before
 * a script. */
static bool would_die(const struct sandbox_cell *cell)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    struct hutch_error ignored;
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/status", (int)cell->run_pid);
    return buf_read_file(&text, AT_FDCWD, path, &ignored) < 0 ||
           proc_text_has_default(buf_text(&text), SIGINT);
}

/* Whatever is due of the series. Of one that would die all the time, the end is meant. */
static void interrupt_again(struct sandbox_cell *cell, uint64_t now_ns)
{
    struct cell_session *session = cell->session;
    bool is_last = now_ns >= session->again_end_ns;

    if (now_ns < session->again_ns)
        return;
    if (is_last && !session->spared)
        session->again_ns = NO_DEADLINE;
    else if (is_last || !would_die(cell))
        send_interrupt(cell);
    else
        session->again_ns = clock_after_ns(LOOK_AGAIN_NS);
}

/* Now, and again for a second. */
static void interrupt(struct sandbox_cell *cell)
{
    struct cell_session *session = cell->session;

    session->again_end_ns = clock_after_ns(INTERRUPT_NS);
    if (session->again_ns != NO_DEADLINE) /* one was sent just now */
        return;
    session->spared = true;
    session->again_ns = 0;
    interrupt_again(cell, clock_now_ns());
}

/* After DONE, once it is clear that the interpreter lives, or is dead. */
static void tell_rested(struct sandbox_cell *cell)
{
    struct cell_session *session = cell->session;
    const struct proto_event event = {.type = PROTO_RESTED, .signalled = session->signalled};

    if (!session->rest || (session->phase != SESSION_IDLE && session->phase != SESSION_STOPPED))
        return;
    session->rest = false;
    cell_tell(cell, &event);
}

/* Kills all processes but hutch-init and the copy; returns how many there were. */
static unsigned kill_others(const struct cell_session *session)
{
    auto_dir DIR *list = folder_list(session->proc_fd);
    const struct dirent *entry;
    unsigned count = 0;

    while (list && (entry = folder_next(list))) {
        uint64_t pid = parse_leading(entry->d_name);
        if (pid <= 1 || (session->copy.pidfd >= 0 && pid == (uint64_t)session->copy.ns_pid))
            continue;
        auto_close int fd =
            openat(session->proc_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0) /* the folder of a process stands for it, as a pidfd does */
            pidfd_send_signal(fd, SIGKILL, NULL, 0);
        count++;
    }
    return list ? count : UINT32_MAX;
}

static void give_up(struct supervisor *supervisor, struct sandbox_cell *cell, int code,
                    const char *why)
{
    struct proto_event event = {.type = PROTO_LOST};

    err_set(&event.error, code, "%s", why);
    cell_tell(cell, &event);
    cell_abandon(supervisor, cell);
}

static bool is_idle(const struct cell_session *session)
{
    return session->phase == SESSION_IDLE || session->phase == SESSION_STOPPED;
}

static bool runs_exec(const struct cell_session *session)
{
    return session->phase == SESSION_EXEC || session->phase == SESSION_INTERRUPTED;
}

/* The exec in which the interpreter has died: one that begins now has no part in it. */
static void note_death(struct cell_session *session)
{
    if (session->phase != SESSION_DYING)
        session->died_in = runs_exec(session) ? session->exec_id : 0;
}

/* Goes on once the others are dead. */
static void clear(struct supervisor *supervisor, struct sandbox_cell *cell, uint64_t now_ns)
{
    struct cell_session *session = cell->session;

    if (now_ns < session->look_ns)
        return;
    if (kill_others(session) > 0) {
        session->pause_ns =
            session->pause_ns < CLEAR_PAUSE_MAX_NS ? session->pause_ns * 2 : CLEAR_PAUSE_MAX_NS;
        session->look_ns = clock_after_ns(session->pause_ns);
        if (now_ns >= session->limit_ns)
            give_up(supervisor, cell, HUTCH_ERR_HELPER,
                    "the session's processes did not die within five seconds");
        return;
    }
    if (session->copy.pidfd >= 0 &&
        fd_wait(session->copy.pidfd, POLLIN, 0) != 0) /* it has died with the others */
        drop_copy(session);
    session->exited.has_copy = session->copy.pidfd >= 0;
    session->exited.copy_of = session->copy.exec_id;
    session->phase = SESSION_STOPPED;
    /* Between two execs nobody may look at the session before the next one. */
    session->limit_ns = clock_after_ns(cell->start.idle_ns);
    cell_tell(cell, &session->exited);
    tell_rested(cell);
}

void session_lose_interpreter(struct supervisor *supervisor, struct sandbox_cell *cell,
                              const struct proto_event *event)
{
    struct cell_session *session = cell->session;

    note_death(session);
    session->exited = *event;
    session->exited.exec_id = session->died_in;
    session->phase = SESSION_CLEARING;
    session->limit_ns = clock_after_ns(CLEAR_NS);
    session->look_ns = 0;
    session->pause_ns = CLEAR_PAUSE_MIN_NS;
    session->promoted = 0;
    cell->end = PROTO_END_EXIT;
    session_take_copies(supervisor, cell); /* the last one is the copy that stays */
    clear(supervisor, cell, clock_now_ns());
}

static void take_orphan(struct supervisor *supervisor, struct sandbox_cell *cell,
                        const struct wire_word *word)
{
    struct cell_session *session = cell->session;

    if (session->promoted == 0 || word->pid != session->promoted)
        return;
    session->status = word->status;
    session->has_status = true;
    if (session->phase == SESSION_DYING)
        session_take_death(supervisor, cell);
}

/* An engine that reads nothing gets no more, as of cell_tell. */
static void pass_pipes(const struct sandbox_cell *cell, uint32_t exec_id, const int *fds,
                       size_t count)
{
    const struct proto_event event = {.type = PROTO_PIPES, .exec_id = exec_id};

    if (cell->event_fd >= 0 && (fd_wait(cell->event_fd, POLLOUT, 0) <= 0 ||
                                fd_send_now(cell->event_fd, &event, sizeof(event), fds, count) < 0))
        shutdown(cell->event_fd, SHUT_RDWR);
}

void session_take_word(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    int fds[PROTO_EVENT_FDS_MAX];
    size_t count = PROTO_EVENT_FDS_MAX;
    struct wire_word word;

    if (fd_wait(cell->attendant_fd, POLLIN, 0) <= 0)
        return;
    ssize_t length = fd_receive(cell->attendant_fd, &word, sizeof(word), fds, &count);
    if (length != (ssize_t)sizeof(word)) {
        supervisor_unwatch(supervisor,
                           cell->attendant_fd); /* hutch-init is dead: its pidfd says so */
        count = length < 0 ? 0 : count;
    } else if (word.type == WIRE_WORD_PIPES && word.exec_id > 0) {
        pass_pipes(cell, word.exec_id, fds, count == PROTO_EVENT_FDS_MAX ? count : 0);
    } else if (word.type == WIRE_WORD_ORPHAN) {
        take_orphan(supervisor, cell, &word);
    }
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

void session_take_death(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    const struct rusage unknown = {.ru_maxrss = 0};
    struct cell_session *session = cell->session;

    if (!session->has_status) {
        note_death(session);
        session->phase = SESSION_DYING;
        session->limit_ns = clock_after_ns(WORD_NS);
        return;
    }
    session->has_status = false;
    cell_conclude_run(supervisor, cell, session->status, &unknown);
}

void session_subtract_usage(struct cell_session *session, struct cgroup_usage *usage)
{
    struct cgroup_usage all = *usage;

    usage->cpu_ns -= session->before.cpu_ns < all.cpu_ns ? session->before.cpu_ns : 0;
    usage->oom_kills -=
        session->before.oom_kills < all.oom_kills ? session->before.oom_kills : all.oom_kills;
    usage->pids_max_hits -= session->before.pids_max_hits < all.pids_max_hits
                                ? session->before.pids_max_hits
                                : all.pids_max_hits;
    session->before = all;
}

/* ---- going on ----------------------------------------------------------- */

/* With an interpreter that nobody has asked to end. */
static void start_idle(struct sandbox_cell *cell)
{
    cell->end = PROTO_END_EXIT;
    cell->session->phase = SESSION_IDLE;
    cell->session->limit_ns = clock_after_ns(cell->start.idle_ns);
}

static bool resume(struct supervisor *supervisor, struct sandbox_cell *cell, int channel)
{
    struct cell_session *session = cell->session;
    struct hutch_error ignored;
    char word = 1;

    if (session->phase != SESSION_STOPPED || session->copy.pidfd < 0)
        return false;
    if (fd_send_now(session->copy.wake_fd, &word, 1, &channel, 1) <
        0) { /* it has died meanwhile, or is none */
        drop_copy(session);
        session->exited.has_copy = 0;
        cell_tell(cell, &session->exited);
        return true;
    }
    cell->run_pid = session->copy.pid;
    cell->run_pidfd = TAKE_FD(session->copy.pidfd);
    session->promoted = session->copy.ns_pid;
    drop_copy(session);
    start_idle(cell);
    if (supervisor_watch(supervisor, cell->run_pidfd, WATCH_CELL_RUN, cell->index, &ignored) < 0)
        return false;
    cell_tell_started(supervisor, cell);
    return true;
}

static bool relaunch(struct supervisor *supervisor, struct sandbox_cell *cell, int *fds)
{
    struct cell_session *session = cell->session;
    struct hutch_error err;

    if (session->phase != SESSION_STOPPED)
        return false;
    if (session->copy.pidfd >= 0) /* of an earlier state than the engine wants */
        pidfd_send_signal(session->copy.pidfd, SIGKILL, NULL, 0);
    drop_copy(session);
    cell->fds[PROTO_FD_STDOUT] = TAKE_FD(fds[0]);
    cell->fds[PROTO_FD_STDERR] = TAKE_FD(fds[1]);
    cell->fds[PROTO_FD_CHANNEL] = TAKE_FD(fds[2]);
    session->phase = SESSION_LAUNCHING;
    session->limit_ns = clock_after_ns(LAUNCH_NS);
    if (cell_relaunch(supervisor, cell, session->ns_fds, &err) == 0)
        return true;
    give_up(supervisor, cell, err.code, err.message);
    return true;
}

void session_conclude_launch(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    supervisor_close(supervisor, &cell->report_fd);
    if (cell->error.code == 0 && cell->layers == 0)
        err_set(&cell->error, HUTCH_ERR_ISOLATION, "the new interpreter died before it began");
    if (cell->error.code != 0) {
        give_up(supervisor, cell, cell->error.code, cell->error.message);
        return;
    }
    start_idle(cell);
    cell_tell_started(supervisor, cell);
}

/* ---- orders ------------------------------------------------------------- */

static bool begin(struct sandbox_cell *cell, uint32_t exec_id, uint64_t timeout_ns)
{
    struct cell_session *session = cell->session;

    if (exec_id != session->exec_id + 1)
        return false;
    session->exec_id = exec_id;
    ask_for_pipes(cell);
    /* An interpreter that is dead, maybe by this exec already, will be told of. */
    if (session->phase != SESSION_IDLE)
        return session->phase == SESSION_DYING || session->phase == SESSION_CLEARING ||
               session->phase == SESSION_STOPPED;
    if (fd_wait(cell->run_pidfd, POLLIN, 0) != 0) /* as dead, but that is not told here yet */
        return true;
    session->phase = SESSION_EXEC;
    session->again_ns = NO_DEADLINE;
    session->signalled = false;
    session->copies_seen = 0;
    session->limit_ns = clock_after_ns(timeout_ns);
    return true;
}

static bool done(struct sandbox_cell *cell)
{
    struct cell_session *session = cell->session;

    /* One that was killed will be dead soon, and then is told of. */
    if (runs_exec(session) && cell->end == PROTO_END_EXIT)
        start_idle(cell);
    session->rest = true;
    tell_rested(cell);
    return true;
}

/* For so long at least it is not idle. */
static void use(struct sandbox_cell *cell, uint64_t hold_ns)
{
    struct cell_session *session = cell->session;
    uint64_t until_ns =
        clock_after_ns(hold_ns > cell->start.idle_ns ? hold_ns : cell->start.idle_ns);

    if (is_idle(session) && until_ns > session->limit_ns)
        session->limit_ns = until_ns;
}

static bool take_copies(struct supervisor *supervisor, struct sandbox_cell *cell, int *fd)
{
    struct cell_session *session = cell->session;
    struct hutch_error ignored;

    drop_copy(session);
    supervisor_close(supervisor, &session->copies_fd);
    session->copies_fd = TAKE_FD(*fd);
    session->copies_seen = 0;
    return fcntl(session->copies_fd, F_SETFL, O_NONBLOCK) == 0 &&
           supervisor_watch(supervisor, session->copies_fd, WATCH_CELL_COPIES, cell->index,
                            &ignored) == 0;
}

bool session_take_order(struct supervisor *supervisor, struct sandbox_cell *cell,
                        const struct proto_order *order, int *fds, size_t fd_count)
{
    bool makes_sense = false;

    switch ((enum proto_order_type)order->type) {
    case PROTO_STOP:
        cell_stop_program(cell, (enum proto_end)order->end);
        makes_sense = true;
        break;
    case PROTO_FILES:
        cell->fds[PROTO_FD_FILES] = TAKE_FD(fds[0]);
        cell_pass_files(cell, order->link);
        makes_sense = true;
        break;
    case PROTO_COPIES:
        makes_sense = take_copies(supervisor, cell, &fds[0]);
        break;
    case PROTO_BEGIN:
        makes_sense = begin(cell, order->exec_id, order->timeout_ns);
        break;
    case PROTO_DONE:
        makes_sense = done(cell);
        break;
    case PROTO_INTERRUPT:
        if (runs_exec(cell->session))
            interrupt(cell);
        makes_sense = true;
        break;
    case PROTO_USED:
        use(cell, order->timeout_ns);
        makes_sense = true;
        break;
    case PROTO_RESUME:
        makes_sense = resume(supervisor, cell, fds[0]);
        break;
    case PROTO_RELAUNCH:
        makes_sense = relaunch(supervisor, cell, fds);
        break;
    case PROTO_ORDER_COUNT:
        break;
    }
    for (size_t i = 0; i < fd_count; i++)
        fd_close(&fds[i]);
    return makes_sense;
}

/* ---- time --------------------------------------------------------------- */

static void end_time(struct sandbox_cell *cell)
{
    struct cell_session *session = cell->session;
    const struct proto_event event = {.type = PROTO_TIME_UP};

    cell_tell(cell, &event); /* first: the exec may end by what comes next */
    session->phase = SESSION_INTERRUPTED;
    session->limit_ns = clock_after_ns(INTERRUPT_NS);
    interrupt(cell);
}

/* Whether the session is over. */
static bool expire(struct supervisor *supervisor, struct sandbox_cell *cell, uint64_t now_ns)
{
    const struct cell_session *session = cell->session;
    char why[96];

    if (is_idle(session) && now_ns >= session->limit_ns)
        snprintf(why, sizeof(why), "the session was idle for %s s and is closed",
                 number_text((double)(cell->start.idle_ns / NS_PER_MS) / 1000).text);
    else if (now_ns >= session->end_ns)
        snprintf(why, sizeof(why), "the session lasted for %s s and is closed",
                 number_text((double)(cell->start.life_ns / NS_PER_MS) / 1000).text);
    else
        return false;
    give_up(supervisor, cell, HUTCH_ERR_EXPIRED, why);
    return true;
}

void session_tick(struct supervisor *supervisor, struct sandbox_cell *cell, uint64_t now_ns)
{
    struct cell_session *session = cell->session;

    if (expire(supervisor, cell, now_ns))
        return;
    if (session->phase == SESSION_CLEARING) {
        clear(supervisor, cell, now_ns);
        return;
    }
    if (runs_exec(session))
        interrupt_again(cell, now_ns);
    if (now_ns < session->limit_ns)
        return;
    if (session->phase == SESSION_EXEC)
        end_time(cell);
    else if (session->phase == SESSION_INTERRUPTED) {
        session->limit_ns = NO_DEADLINE; /* its death is the next thing to come */
        cell_stop_program(cell, PROTO_END_TIMEOUT);
    } else
        give_up(supervisor, cell, HUTCH_ERR_HELPER, "the session did not go on in time");
}

uint64_t session_next_tick(const struct sandbox_cell *cell)
{
    const struct cell_session *session = cell->session;
    uint64_t next_ns = clock_sooner_ns(session->limit_ns, session->end_ns);

    if (session->phase == SESSION_CLEARING)
        return clock_sooner_ns(next_ns, session->look_ns);
    return runs_exec(session) ? clock_sooner_ns(next_ns, session->again_ns) : next_ns;
}
