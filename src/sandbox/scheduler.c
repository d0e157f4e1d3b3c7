/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See scheduler.h. A waiter lies on the stack of its thread. Others touch it under the
 * lock only, and only while it is in the queue; whoever takes it out says why in its
 * state and wakes it. Its thread goes on under the lock too, so that nobody writes to
 * a descriptor that has been closed.
 */
#include "scheduler.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/parse.h"

#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#define QUEUE_DEFAULT 1000
#define TIMEOUT_DEFAULT_SECONDS 60.0
#define WATCH_NS (20 * NS_PER_MS)
/* Of the descriptors that this process may open, those that wait have a quarter. */
#define FILES_PER_WAITER 4

enum waiter_state { WAITING, ADMITTED, EVICTED };

struct waiter {
    struct fair_waiter place; /* the first member: see waiter_of */
    enum waiter_state state;
    int wake_fd; /* an eventfd */
    struct ticket *ticket;
};

static struct waiter *waiter_of(struct fair_waiter *place)
{
    return (struct waiter *)place;
}
_Static_assert(offsetof(struct waiter, place) == 0, "the one is where the other is");

/* ---- options ----------------------------------------------------------- */

static uint32_t queue_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur / FILES_PER_WAITER > LIMIT_QUEUE)
        return LIMIT_QUEUE;
    return files.rlim_cur < FILES_PER_WAITER ? 1 : (uint32_t)(files.rlim_cur / FILES_PER_WAITER);
}

static int check_options(const struct hutch_engine_options *options, struct hutch_error *err)
{
    double timeout = options->queue_timeout_seconds;

    if (options->max_cells > LIMIT_CELLS)
        return err_set(err, HUTCH_ERR_INVALID, "max_cells: %u is not 1 to %u", options->max_cells,
                       (unsigned)LIMIT_CELLS);
    if (options->queue_size > LIMIT_QUEUE)
        return err_set(err, HUTCH_ERR_INVALID, "queue_size: %u is not 1 to %u", options->queue_size,
                       (unsigned)LIMIT_QUEUE);
    if (timeout != 0 && !(timeout >= LIMIT_QUEUE_SECONDS_MIN && timeout <= LIMIT_QUEUE_SECONDS_MAX))
        return err_set(err, HUTCH_ERR_INVALID, "queue_timeout_seconds: %s is not %s to %s",
                       number_text(timeout).text, number_text(LIMIT_QUEUE_SECONDS_MIN).text,
                       number_text(LIMIT_QUEUE_SECONDS_MAX).text);
    return 0;
}

int scheduler_init(struct scheduler *ret_scheduler, const struct hutch_engine_options *given,
                   uint32_t backend_cells, const struct load_source *source,
                   struct hutch_error *err)
{
    const struct hutch_engine_options defaults = {.size = sizeof(defaults)};
    const struct hutch_engine_options *options = given ? given : &defaults;
    uint32_t limit = queue_limit();

    if (check_options(options, err) < 0)
        return err->code;
    uint32_t size = options->queue_size ? options->queue_size : QUEUE_DEFAULT;
    bool fewer = options->max_cells != 0 && options->max_cells < backend_cells;
    *ret_scheduler = (struct scheduler){
        .queue_size = size < limit ? size : limit,
        .queue_timeout_seconds = options->queue_timeout_seconds != 0
                                     ? options->queue_timeout_seconds
                                     : TIMEOUT_DEFAULT_SECONDS,
    };
    pthread_mutex_init(&ret_scheduler->lock, NULL);
    admission_init(&ret_scheduler->admission, source, fewer ? options->max_cells : backend_cells);
    fair_init(&ret_scheduler->fair);
    return 0;
}

void scheduler_done(struct scheduler *scheduler)
{
    pthread_mutex_destroy(&scheduler->lock);
}

/* ---- with the lock held ------------------------------------------------ */

static void wake(const struct waiter *waiter)
{
    IGNORE_RESULT(write(waiter->wake_fd, &(uint64_t){1}, sizeof(uint64_t)) < 0);
}

static void take_out(struct scheduler *scheduler, struct waiter *waiter, enum waiter_state state)
{
    fair_remove(&scheduler->fair, &waiter->place);
    waiter->state = state;
    if (scheduler->watcher == waiter)
        scheduler->watcher = NULL;
    wake(waiter);
}

static enum admission_term hold(struct scheduler *scheduler, const struct ticket *ticket)
{
    struct admission *admission = &scheduler->admission;
    size_t active = ticket->owner->active;

    return ticket->is_idle ? admission_hold_idle(admission, active, ticket->memory_mb)
                           : admission_hold(admission, active, ticket->memory_mb);
}

static void admit(struct scheduler *scheduler, struct ticket *ticket)
{
    fair_begin(&scheduler->fair, ticket->owner);
    if (ticket->is_idle)
        admission_resume(&scheduler->admission, ticket->memory_mb, &ticket->claim);
    else
        admission_begin(&scheduler->admission, ticket->memory_mb, &ticket->claim);
    ticket->is_idle = false;
}

/* Whose turn it is. Where no place for a cell is left, it is that of a session that has one. */
static struct fair_waiter *first_in_turn(const struct scheduler *scheduler)
{
    const struct admission *admission = &scheduler->admission;

    return fair_first(&scheduler->fair, admission->cells >= admission->max_cells);
}

/* Admits whoever's turn it is, as long as there is room; nobody overtakes the one that
 * is held back. Then sees to it that somebody watches: the one that will wait longest,
 * so that this seldom changes hands. */
static void dispatch(struct scheduler *scheduler)
{
    struct fair_waiter *first;

    while ((first = first_in_turn(scheduler))) {
        struct waiter *waiter = waiter_of(first);
        if (hold(scheduler, waiter->ticket) != TERM_NONE)
            break;
        take_out(scheduler, waiter, ADMITTED);
        admit(scheduler, waiter->ticket);
    }
    if (scheduler->fair.waiting > 0 && !scheduler->watcher) {
        scheduler->watcher = waiter_of(fair_last(&scheduler->fair));
        wake(scheduler->watcher);
    }
}

static void make_idle(struct scheduler *scheduler, struct ticket *ticket)
{
    fair_end(ticket->owner);
    admission_pause(&scheduler->admission, &ticket->claim);
    ticket->is_idle = true;
}

static void give_back(struct scheduler *scheduler, struct ticket *ticket,
                      uint64_t peak_memory_bytes)
{
    if (ticket->is_idle) {
        admission_end_idle(&scheduler->admission, &ticket->claim);
        return;
    }
    fair_end(ticket->owner);
    admission_end(&scheduler->admission, &ticket->claim, peak_memory_bytes);
}

/* Makes room for a newcomer of that owner in a queue that is full. */
static int make_room(struct scheduler *scheduler, const struct fair_owner *owner,
                     struct hutch_error *err)
{
    if (scheduler->fair.waiting < scheduler->queue_size)
        return 0;
    struct fair_waiter *last = fair_last(&scheduler->fair);
    if (owner->waiting + 1 >= last->owner->waiting)
        return err_set(err, HUTCH_ERR_BUSY,
                       "the queue is full: %zu runs wait, queue_size is %" PRIu32,
                       scheduler->fair.waiting, scheduler->queue_size);
    take_out(scheduler, waiter_of(last), EVICTED);
    return 0;
}

/* ---- waiting ----------------------------------------------------------- */

/* Called with the lock, and lets go of it meanwhile. Returns whether the caller
 * cancelled, or a negative code. */
static int sleep_until_woken(struct scheduler *scheduler, struct waiter *waiter, int cancel_fd,
                             uint64_t deadline_ns, struct hutch_error *err)
{
    struct pollfd fds[] = {{.fd = waiter->wake_fd, .events = POLLIN},
                           {.fd = cancel_fd, .events = POLLIN}};
    uint64_t watch_ns = clock_after_ns(WATCH_NS);
    bool watches = scheduler->watcher == waiter && watch_ns < deadline_ns;

    pthread_mutex_unlock(&scheduler->lock);
    int ready = poll(fds, ARRAY_LENGTH(fds), clock_poll_timeout(watches ? watch_ns : deadline_ns));
    int error = errno;
    pthread_mutex_lock(&scheduler->lock);
    if (ready < 0 && error != EINTR)
        return err_errno(err, HUTCH_ERR_SYSTEM, error, "wait in the queue");
    IGNORE_RESULT(read(waiter->wake_fd, &(uint64_t){0}, sizeof(uint64_t)) < 0);
    return ready > 0 && fds[1].revents != 0;
}

/* Ends a wait in vain. A turn that came in the same moment goes to the next. */
static int give_up(struct scheduler *scheduler, struct waiter *waiter)
{
    if (waiter->state == WAITING)
        take_out(scheduler, waiter, EVICTED);
    else if (waiter->state == ADMITTED && waiter->place.has_cell)
        make_idle(scheduler, waiter->ticket);
    else if (waiter->state == ADMITTED)
        give_back(scheduler, waiter->ticket, 0);
    dispatch(scheduler);
    return -1;
}

static int explain(struct scheduler *scheduler, const struct waiter *waiter,
                   struct hutch_error *err)
{
    enum admission_term term = hold(scheduler, waiter->ticket);

    return admission_explain(&scheduler->admission, term, scheduler->queue_timeout_seconds,
                             waiter->ticket->memory_mb, err);
}

/* Waits until the state changes. 0 when it became ADMITTED. */
static int wait_for_turn(struct scheduler *scheduler, struct waiter *waiter, int cancel_fd,
                         struct hutch_error *err)
{
    uint64_t deadline_ns =
        clock_after_ns((uint64_t)(scheduler->queue_timeout_seconds * (double)NS_PER_SECOND));

    for (;;) {
        int cancelled = sleep_until_woken(scheduler, waiter, cancel_fd, deadline_ns, err);
        if (cancelled > 0)
            err_set(err, HUTCH_ERR_CANCELLED, "cancelled by the caller before the start");
        if (cancelled != 0)
            return give_up(scheduler, waiter);
        if (waiter->state == ADMITTED)
            return 0;
        if (waiter->state == EVICTED) {
            err_set(err, HUTCH_ERR_BUSY,
                    "the queue is full (queue_size is %" PRIu32 "), and most that wait are of this "
                    "owner: the place went to another",
                    scheduler->queue_size);
            return -1;
        }
        if (clock_now_ns() >= deadline_ns) {
            explain(scheduler, waiter, err);
            return give_up(scheduler, waiter);
        }
        if (scheduler->watcher == waiter)
            dispatch(scheduler);
    }
}

static int wait_in_queue(struct scheduler *scheduler, int cancel_fd, struct ticket *ticket,
                         struct hutch_error *err)
{
    auto_close int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct waiter waiter = {
        .place.has_cell = ticket->is_idle, .wake_fd = wake_fd, .ticket = ticket};

    if (wake_fd < 0)
        return err_errno(err, HUTCH_ERR_BUSY, errno, "wait in the queue");
    if (make_room(scheduler, ticket->owner, err) < 0)
        return err->code;
    fair_push(&scheduler->fair, ticket->owner, &waiter.place);
    dispatch(scheduler);
    return wait_for_turn(scheduler, &waiter, cancel_fd, err) < 0 ? err->code : 0;
}

/* ---- entering and leaving ---------------------------------------------- */

/* Called with the lock. */
static int become_active(struct scheduler *scheduler, int cancel_fd, struct ticket *ticket,
                         struct hutch_error *err)
{
    bool nobody_waits =
        scheduler->fair.waiting == 0 || (ticket->is_idle && first_in_turn(scheduler) == NULL);

    if (!nobody_waits || hold(scheduler, ticket) != TERM_NONE)
        return wait_in_queue(scheduler, cancel_fd, ticket, err);
    admit(scheduler, ticket);
    return 0;
}

int scheduler_enter(struct scheduler *scheduler, const struct hutch_request *request, int cancel_fd,
                    struct ticket *ret_ticket, struct hutch_error *err)
{
    int code;

    pthread_mutex_lock(&scheduler->lock);
    *ret_ticket = (struct ticket){.owner = fair_hold(&scheduler->fair, request->owner),
                                  .memory_mb = request->memory_mb};
    if (ret_ticket->owner)
        code = become_active(scheduler, cancel_fd, ret_ticket, err);
    else
        code = err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    if (ret_ticket->owner && code < 0) {
        fair_release(ret_ticket->owner);
        ret_ticket->owner = NULL;
    }
    pthread_mutex_unlock(&scheduler->lock);
    return code;
}

void scheduler_pause(struct scheduler *scheduler, struct ticket *ticket)
{
    pthread_mutex_lock(&scheduler->lock);
    make_idle(scheduler, ticket);
    dispatch(scheduler);
    pthread_mutex_unlock(&scheduler->lock);
}

int scheduler_resume(struct scheduler *scheduler, struct ticket *ticket, int cancel_fd,
                     struct hutch_error *err)
{
    pthread_mutex_lock(&scheduler->lock);
    int code = become_active(scheduler, cancel_fd, ticket, err);
    pthread_mutex_unlock(&scheduler->lock);
    return code;
}

void scheduler_leave(struct scheduler *scheduler, struct ticket *ticket, uint64_t peak_memory_bytes)
{
    if (!ticket->owner)
        return;
    pthread_mutex_lock(&scheduler->lock);
    give_back(scheduler, ticket, peak_memory_bytes);
    fair_release(ticket->owner);
    ticket->owner = NULL;
    dispatch(scheduler);
    pthread_mutex_unlock(&scheduler->lock);
}

/* ---- the report -------------------------------------------------------- */

static void append_number(struct buf *out, const char *name, uint64_t number)
{
    if (number == LOAD_UNKNOWN)
        buf_appendf(out, ",\"%s\":null", name);
    else
        buf_appendf(out, ",\"%s\":%" PRIu64, name, number);
}

void scheduler_append_report(struct scheduler *scheduler, struct buf *out)
{
    const struct admission *admission = &scheduler->admission;
    struct hutch_request request;

    hutch_request_init(&request);
    pthread_mutex_lock(&scheduler->lock);
    admission_read(&scheduler->admission);
    enum admission_term term =
        admission_hold(&scheduler->admission, admission->active, request.memory_mb);
    bool known = admission->memory.total_bytes != LOAD_UNKNOWN;
    buf_appendf(out, "{\"active\":%zu", admission->active);
    append_number(out, "idle_sessions", admission->cells - admission->active);
    append_number(out, "waiting", scheduler->fair.waiting);
    append_number(out, "max_cells", admission->max_cells);
    append_number(out, "queue_size", scheduler->queue_size);
    append_number(out, "memory_available_bytes", admission->memory.available_bytes);
    append_number(out, "memory_reserve_bytes",
                  known ? load_reserve(admission->memory.total_bytes) : LOAD_UNKNOWN);
    append_number(out, "memory_claimed_bytes", admission->claimed_bytes);
    append_number(out, "expected_bytes", admission_expected(admission, request.memory_mb));
    buf_appendf(out, ",\"memory_pressure\":%u.%02u", admission->pace.pressure / 100,
                admission->pace.pressure % 100);
    append_number(out, "runnable", admission->pace.runnable);
    append_number(out, "runnable_limit", admission_runnable_limit(admission));
    const char *name = admission_term_name(term);
    buf_appendf(out, ",\"held_back_by\":%s%s%s}", name ? "\"" : "", name ? name : "null",
                name ? "\"" : "");
    pthread_mutex_unlock(&scheduler->lock);
}
