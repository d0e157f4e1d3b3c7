/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fifty threads of several owners through one scheduler, some as sessions, with cancels, waits that
 * end and a host that changes, under the thread sanitizer where the build can. Whatever happens, no
 * more than max_cells are inside, and nothing is left in the end.
 */
#include "fake_load.h"
#include "sandbox/scheduler.h"

#include "base/attrs.h"
#include "base/clock.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>

#define THREADS 50
#define ROUNDS 100
#define OWNERS 6
#define CELLS 5
#define QUEUE 30

struct caller {
    pthread_t thread;
    unsigned seed;
    int cancel_fd;
};

static struct fake_load fake;
static struct scheduler scheduler;
static struct caller callers[THREADS];
static pthread_barrier_t begin; /* so that no thread is done before the last one comes */
static atomic_int inside, running, admitted, busy, cancelled;

static unsigned below(unsigned *seed, unsigned limit)
{
    *seed = *seed * 1103515245u + 12345u;
    return (*seed >> 16) % limit;
}

/* A session is idle now and then; not each of its programs gets a turn. */
static void be_session(struct ticket *ticket, int cancel_fd, unsigned *seed)
{
    struct hutch_error err;

    for (unsigned i = below(seed, 3); i > 0; i--) {
        scheduler_pause(&scheduler, ticket);
        if (scheduler_resume(&scheduler, ticket, cancel_fd, &err) < 0)
            assert(hutch_error_retry_safe(&err) && ticket->is_idle);
        if (ticket->is_idle)
            return;
    }
}

static void run(struct ticket *ticket, int cancel_fd, unsigned *seed)
{
    assert(++inside <= CELLS);
    for (unsigned i = below(seed, 20); i > 0; i--)
        sched_yield();
    if (below(seed, 4) == 0)
        be_session(ticket, cancel_fd, seed);
    inside--;
    scheduler_leave(&scheduler, ticket, MIB(below(seed, 100)));
}

static void call(struct caller *caller)
{
    static const char *const owners[OWNERS] = {NULL, "a", "b", "c", "d", "e"};
    struct hutch_request request;
    struct ticket ticket = {.owner = NULL};
    struct hutch_error err;

    hutch_request_init(&request);
    request.owner = owners[below(&caller->seed, 2) ? 1 : below(&caller->seed, OWNERS)];
    request.memory_mb = 16u << below(&caller->seed, 6);
    IGNORE_RESULT(read(caller->cancel_fd, &(uint64_t){0}, sizeof(uint64_t)) < 0);
    int code = scheduler_enter(&scheduler, &request, caller->cancel_fd, &ticket, &err);
    assert((code == 0) == (ticket.owner != NULL));
    if (code == 0) {
        admitted++;
        run(&ticket, caller->cancel_fd, &caller->seed);
        return;
    }
    assert(code == err.code && hutch_error_retry_safe(&err));
    assert(code == HUTCH_ERR_BUSY || code == HUTCH_ERR_CANCELLED);
    if (code == HUTCH_ERR_BUSY)
        busy++;
    else
        cancelled++;
}

static void *call_often(void *user)
{
    pthread_barrier_wait(&begin);
    for (int i = 0; i < ROUNDS; i++)
        call(user);
    running--;
    return NULL;
}

/* What goes on around them. */
static void disturb(void)
{
    unsigned seed = 1;
    uint64_t one = 1;

    while (running > 0) {
        struct caller *caller = &callers[below(&seed, THREADS)];
        IGNORE_RESULT(write(caller->cancel_fd, &one, sizeof(one)) < 0);
        fake.now_ns += NS_PER_MS * below(&seed, 40);
        fake.available_bytes = MIB(below(&seed, 3) == 0 ? 1000 : 20000);
        fake.runnable = below(&seed, 20);
        fake.pressure = below(&seed, 4000);
        auto_buf struct buf report = BUF_MAX(KIB(4));
        scheduler_append_report(&scheduler, &report);
        sched_yield();
    }
}

int main(void)
{
    const struct load_source source = fake_source(&fake);
    const struct hutch_engine_options options = {.size = sizeof(options),
                                                 .max_cells = CELLS,
                                                 .queue_size = QUEUE,
                                                 .queue_timeout_seconds = 0.1};
    struct hutch_error err;

    fake_load_init(&fake);
    assert(scheduler_init(&scheduler, &options, CELLS, &source, &err) == 0);
    assert(pthread_barrier_init(&begin, NULL, THREADS + 1) == 0);
    running = THREADS;
    for (unsigned i = 0; i < THREADS; i++) {
        callers[i] =
            (struct caller){.seed = i + 1, .cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
        assert(callers[i].cancel_fd >= 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]) == 0);
    pthread_barrier_wait(&begin);
    disturb();
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(callers[i].thread, NULL);
        close(callers[i].cancel_fd);
    }
    assert(scheduler.admission.active == 0 && scheduler.admission.cells == 0);
    assert(scheduler.admission.claimed_bytes == 0);
    assert(scheduler.fair.waiting == 0 && !scheduler.watcher);
    for (size_t i = 0; i < FAIR_BUCKETS; i++)
        assert(LIST_EMPTY(&scheduler.fair.buckets[i]));
    scheduler_done(&scheduler);
    pthread_barrier_destroy(&begin);
    printf("%d admitted, %d refused or too late, %d cancelled\n", admitted, busy, cancelled);
    assert(admitted + busy + cancelled == THREADS * ROUNDS);
    return 0;
}
