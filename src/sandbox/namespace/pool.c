/* SPDX-License-Identifier: Apache-2.0 */
/* See pool.h. */
#include "pool.h"

#include "base/clock.h"
#include "cell.h"

#include <string.h>

#define QUIET_NS (2 * NS_PER_MS)     /* since the last request: then the pool is filled */
#define IDLE_NS (60 * NS_PER_SECOND) /* without a request: then it goes */
#define RETRY_NS NS_PER_SECOND       /* after a cell that failed */
#define STARTS_BEFORE_ZYGOTE 2
#define PLACES_PER_PARKED 4
#define LOW_MARK 4 /* below a quarter of the size nothing is waited for */

static struct runtime *runtime_of(struct supervisor *supervisor, uint32_t language)
{
    return &supervisor->runtimes[language];
}

static void remove_at(struct pool *pool, size_t index)
{
    pool->count--;
    memmove(&pool->cells[index], &pool->cells[index + 1],
            (pool->count - index) * sizeof(pool->cells[0]));
}

/* Of the places for cells, and of the uids, most stay for requests. */
static size_t spare_places(const struct supervisor *supervisor)
{
    size_t places = supervisor->cell_limit;
    size_t uids = slots_count(supervisor->slots);

    if (uids > 0 && uids < places)
        places = uids;
    return places / PLACES_PER_PARKED;
}

static size_t parked_wanted(const struct supervisor *supervisor)
{
    size_t spare = spare_places(supervisor);

    if (supervisor->warmth != HUTCH_PARKED)
        return 0;
    return supervisor->parked_cells < spare ? supervisor->parked_cells : spare;
}

/* ---- for requests ------------------------------------------------------- */

struct sandbox_cell *pool_take(struct supervisor *supervisor, const struct proto_start *start)
{
    struct pool *pool = &runtime_of(supervisor, start->language)->pool;

    if (!cell_can_fork(supervisor, start))
        return NULL;
    pool->starts++;
    pool->used_ns = clock_now_ns();
    pool->like = *start;
    pool->like.require = 0;
    for (size_t i = pool->count; i-- > 0;) {
        struct sandbox_cell *cell = pool->cells[i];
        if (cell_fits(cell, start)) {
            remove_at(pool, i);
            return cell;
        }
    }
    /* None fits what is wanted now: let the next ones. */
    if (pool->count > 0 && pool->count >= parked_wanted(supervisor))
        cell_abandon(supervisor, pool->cells[0]);
    return NULL;
}

struct zygote *pool_zygote(struct supervisor *supervisor, const struct proto_start *start)
{
    struct zygote *zygote = runtime_of(supervisor, start->language)->zygote;

    if (!zygote || zygote->state != ZYGOTE_READY || !cell_can_fork(supervisor, start))
        return NULL;
    return zygote;
}

/* ---- for cells ---------------------------------------------------------- */

void pool_expect(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    cell->is_expected = true;
    runtime_of(supervisor, cell->start.language)->pool.expected++;
}

void pool_forget(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    struct pool *pool = &runtime_of(supervisor, cell->start.language)->pool;

    /* One that dies before it has parked: more of its kind would, too. */
    if (cell->is_expected && cell->state == CELL_STARTING)
        pool->after_ns = clock_after_ns(RETRY_NS);
    pool->expected -= cell->is_expected;
    cell->is_expected = false;
    for (size_t i = 0; i < pool->count; i++) {
        if (pool->cells[i] == cell) {
            remove_at(pool, i);
            return;
        }
    }
}

bool pool_add(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    struct pool *pool = &runtime_of(supervisor, cell->start.language)->pool;

    pool->expected -= cell->is_expected;
    cell->is_expected = false;
    if (pool->count == LIMIT_PARKED_CELLS || pool->starts == 0) { /* or it was given up */
        cell_abandon(supervisor, cell);
        return false;
    }
    pool->cells[pool->count++] = cell;
    return true;
}

/* ---- in between --------------------------------------------------------- */

/* Of cells whose zygote forks no more, the next ones would be of another address
 * layout; but they are as good as any. The oldest goes first. */
static void empty(struct supervisor *supervisor, struct runtime *runtime)
{
    struct pool *pool = &runtime->pool;

    while (pool->count > 0)
        cell_abandon(supervisor, pool->cells[0]);
    if (runtime->zygote)
        zygote_retire(supervisor, runtime->zygote);
    pool->starts = 0;
}

static uint64_t tick(struct supervisor *supervisor, struct runtime *runtime, uint64_t now_ns)
{
    struct pool *pool = &runtime->pool;

    if (supervisor->warmth == HUTCH_COLD || spare_places(supervisor) == 0 ||
        pool->starts < STARTS_BEFORE_ZYGOTE)
        return NO_DEADLINE;
    if (now_ns >= pool->used_ns + IDLE_NS) {
        empty(supervisor, runtime);
        return NO_DEADLINE;
    }
    if (!runtime->zygote && now_ns >= runtime->zygote_after_ns && runtime->state == RUNTIME_READY)
        zygote_start(supervisor, runtime);
    if (!runtime->zygote)
        return runtime->zygote_after_ns;
    if (now_ns < pool->after_ns)
        return pool->after_ns;
    bool full = pool->count + pool->expected >= parked_wanted(supervisor);
    if (full || pool->expected > 0 || runtime->zygote->state != ZYGOTE_READY)
        return pool->used_ns + IDLE_NS;
    uint64_t quiet_ns = pool->used_ns + QUIET_NS;
    if (now_ns < quiet_ns && pool->count > supervisor->parked_cells / LOW_MARK)
        return quiet_ns;
    cell_park(supervisor, &pool->like, runtime->zygote);
    return pool->used_ns + IDLE_NS;
}

uint64_t pool_tick(struct supervisor *supervisor)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t next_ns = NO_DEADLINE;

    if (supervisor->control_fd < 0)
        return next_ns;
    for (size_t i = 0; i < PROTO_LANGUAGE_COUNT; i++) {
        uint64_t tick_ns = tick(supervisor, &supervisor->runtimes[i], now_ns);
        next_ns = tick_ns < next_ns ? tick_ns : next_ns;
    }
    return next_ns;
}
