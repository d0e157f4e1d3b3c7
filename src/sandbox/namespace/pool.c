/* SPDX-License-Identifier: Apache-2.0 */
/* See pool.h. */
#include "pool.h"

#include "base/clock.h"
#include "cell.h"
#include "footprint.h"

#include <stdlib.h>
#include <string.h>

#define QUIET_NS (2 * NS_PER_MS)     /* after a program: then a pool is filled */
#define SHORT_NS (50 * NS_PER_MS)    /* that a program may take without the pool being filled */
#define IDLE_NS (60 * NS_PER_SECOND) /* without a request: then it goes */
#define STARTS_BEFORE_WARMTH 2
#define LOW_MARK 4 /* below a quarter of the size nothing is waited for */

static struct runtime *runtime_of(struct supervisor *supervisor, uint32_t language)
{
    return &supervisor->runtimes[language];
}

static struct zygote_place *place_of(const struct supervisor *supervisor, struct pool *pool)
{
    return supervisor->zygotes_are_owners ? &pool->own_zygotes : &pool->runtime->zygotes;
}

static void remove_at(struct pool *pool, size_t index)
{
    pool->count--;
    memmove(&pool->cells[index], &pool->cells[index + 1],
            (pool->count - index) * sizeof(pool->cells[0]));
}

/* ---- demand ------------------------------------------------------------- */

static void note_start(struct demand *demand)
{
    demand->starts++;
    demand->used_ns = clock_now_ns();
}

static bool is_wanted(const struct demand *demand, uint64_t now_ns)
{
    return demand->starts >= STARTS_BEFORE_WARMTH && now_ns < demand->used_ns + IDLE_NS;
}

/* ---- how many ----------------------------------------------------------- */

/* Of the places for cells, and of the uids, most stay for requests. */
static size_t spare_places(const struct supervisor *supervisor)
{
    size_t places = supervisor->cell_limit;
    size_t uids = slots_count(supervisor->slots);

    if (uids > 0 && uids < places)
        places = uids;
    return places / LIMIT_PARKED_PART;
}

/* An owner's zygote takes a place like a cell that waits. */
static size_t parked_in_all(const struct supervisor *supervisor)
{
    size_t count = 0;

    for (size_t i = 0; i < supervisor->pool_count; i++) {
        const struct pool *pool = supervisor->pools[i];
        count += pool->count + pool->expected;
        count += pool->own_zygotes.zygote ? 1 : 0;
        count += pool->own_zygotes.successor ? 1 : 0;
    }
    return count;
}

static bool is_full(const struct supervisor *supervisor, const struct pool *pool)
{
    return supervisor->warmth != HUTCH_PARKED ||
           pool->count + pool->expected >= supervisor->parked_cells ||
           parked_in_all(supervisor) >= spare_places(supervisor);
}

/* ---- the pools ---------------------------------------------------------- */

static struct pool *find(const struct supervisor *supervisor, const struct proto_start *start)
{
    for (size_t i = 0; i < supervisor->pool_count; i++) {
        struct pool *pool = supervisor->pools[i];
        if (pool->runtime->language == start->language &&
            memcmp(pool->owner, start->owner, sizeof(pool->owner)) == 0)
            return pool;
    }
    return NULL;
}

/* Its cells go, also those that are still being made. */
static void empty(struct supervisor *supervisor, struct pool *pool)
{
    for (size_t i = 0; i < LIMIT_CELLS && pool->count + pool->expected > 0; i++) {
        if (supervisor->cells[i] && supervisor->cells[i]->pool == pool)
            cell_abandon(supervisor, supervisor->cells[i]);
    }
}

static void retire(struct supervisor *supervisor, struct zygote_place *place)
{
    if (place->successor)
        zygote_retire(supervisor, place->successor);
    if (place->zygote)
        zygote_retire(supervisor, place->zygote);
    place->demand.starts = 0;
}

static void remove_pool(struct supervisor *supervisor, size_t index)
{
    struct pool *pool = supervisor->pools[index];

    empty(supervisor, pool);
    retire(supervisor, &pool->own_zygotes);
    supervisor->pools[index] = supervisor->pools[--supervisor->pool_count];
    free(pool);
}

/* The one that was not used for longest makes room. */
static void make_room(struct supervisor *supervisor)
{
    size_t oldest = 0;

    if (supervisor->pool_count < LIMIT_POOLS)
        return;
    for (size_t i = 1; i < supervisor->pool_count; i++) {
        if (supervisor->pools[i]->demand.used_ns < supervisor->pools[oldest]->demand.used_ns)
            oldest = i;
    }
    remove_pool(supervisor, oldest);
}

/* NULL when there is no memory. */
static struct pool *find_or_make(struct supervisor *supervisor, const struct proto_start *start)
{
    struct pool *pool = find(supervisor, start);

    if (pool)
        return pool;
    make_room(supervisor);
    pool = calloc(1, sizeof(*pool));
    if (!pool)
        return NULL;
    pool->runtime = pool->own_zygotes.runtime = runtime_of(supervisor, start->language);
    memcpy(pool->owner, start->owner, sizeof(pool->owner));
    supervisor->pools[supervisor->pool_count++] = pool;
    return pool;
}

/* ---- for requests ------------------------------------------------------- */

struct sandbox_cell *pool_take(struct supervisor *supervisor, const struct proto_start *start)
{
    struct pool *pool = cell_can_wait(supervisor, start) ? find_or_make(supervisor, start) : NULL;

    if (!pool)
        return NULL;
    note_start(&pool->demand);
    note_start(&place_of(supervisor, pool)->demand);
    pool->like = *start;
    pool->like.require = 0;
    /* The oldest first: it may be all that keeps a zygote's cell which is no more. */
    for (size_t i = 0; i < pool->count; i++) {
        struct sandbox_cell *cell = pool->cells[i];
        if (cell_fits(cell, start)) {
            remove_at(pool, i);
            cell->pool = NULL;
            return cell;
        }
    }
    /* None fits what is wanted now: let the next ones. */
    if (pool->count > 0 && is_full(supervisor, pool))
        cell_abandon(supervisor, pool->cells[0]);
    return NULL;
}

static struct zygote *ready_zygote(const struct zygote_place *place)
{
    return place->zygote && place->zygote->state == ZYGOTE_READY ? place->zygote : NULL;
}

struct zygote *pool_zygote(struct supervisor *supervisor, const struct proto_start *start)
{
    struct pool *pool = cell_can_fork(supervisor, start) ? find(supervisor, start) : NULL;

    return pool ? ready_zygote(place_of(supervisor, pool)) : NULL;
}

/* ---- for cells ---------------------------------------------------------- */

void pool_forget(struct sandbox_cell *cell)
{
    struct pool *pool = cell->pool;

    if (!pool)
        return;
    cell->pool = NULL;
    for (size_t i = 0; i < pool->count; i++) {
        if (pool->cells[i] == cell) {
            remove_at(pool, i);
            return;
        }
    }
    pool->expected--;
    backoff_fail(&pool->backoff); /* more of its kind would die before they park, too */
}

bool pool_add(struct supervisor *supervisor, struct sandbox_cell *cell)
{
    struct pool *pool = cell->pool;

    pool->expected--;
    pool->backoff = BACKOFF_NONE;
    if (is_full(supervisor, pool)) {
        cell->pool = NULL;
        cell_abandon(supervisor, cell);
        return false;
    }
    pool->cells[pool->count++] = cell;
    return true;
}

void pool_log(struct supervisor *supervisor, struct sandbox_cell *cell, const char *text,
              size_t length)
{
    if (cell->pool)
        zygote_log(place_of(supervisor, cell->pool), text, length);
}

/* ---- in between --------------------------------------------------------- */

static uint64_t tick_place(struct supervisor *supervisor, struct zygote_place *place,
                           uint64_t now_ns)
{
    bool needs_one = !place->zygote || (zygote_is_used_up(place->zygote) && !place->successor);

    if (place->runtime->language != PROTO_PYTHON || supervisor->warmth == HUTCH_COLD)
        return NO_DEADLINE;
    if (!is_wanted(&place->demand, now_ns)) {
        if (place->demand.starts >= STARTS_BEFORE_WARMTH)
            retire(supervisor, place);
        return NO_DEADLINE;
    }
    if (needs_one && place->runtime->state == RUNTIME_READY &&
        parked_in_all(supervisor) < spare_places(supervisor)) {
        if (now_ns < place->backoff.after_ns)
            return place->backoff.after_ns;
        zygote_start(supervisor, place);
    }
    return place->demand.used_ns + IDLE_NS;
}

/* When to fill a pool that is not nearly empty: making a cell would hold up a program
 * that is about to end, and the request that may follow it. */
static uint64_t quiet_after(const struct supervisor *supervisor)
{
    uint64_t ended_ns = supervisor->ended_ns + QUIET_NS;
    uint64_t short_ns = supervisor->running > 0 ? supervisor->started_ns + SHORT_NS : 0;

    return ended_ns > short_ns ? ended_ns : short_ns;
}

/* Fills a pool that is wanted, one cell at a time. */
static uint64_t tick_pool(struct supervisor *supervisor, struct pool *pool, uint64_t now_ns)
{
    struct zygote *zygote = ready_zygote(place_of(supervisor, pool));
    uint64_t idle_ns = pool->demand.used_ns + IDLE_NS;
    uint64_t quiet_ns = quiet_after(supervisor);

    if (pool->demand.starts < STARTS_BEFORE_WARMTH || pool->expected > 0 ||
        is_full(supervisor, pool) || (!zygote && pool->runtime->language == PROTO_PYTHON) ||
        pool->runtime->state != RUNTIME_READY)
        return idle_ns;
    if (now_ns < pool->backoff.after_ns)
        return clock_sooner_ns(pool->backoff.after_ns, idle_ns);
    if (now_ns < quiet_ns && pool->count > supervisor->parked_cells / LOW_MARK)
        return quiet_ns;
    cell_park(supervisor, pool, zygote);
    return idle_ns;
}

uint64_t pool_tick(struct supervisor *supervisor)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t next_ns = NO_DEADLINE;

    if (supervisor->control_fd < 0)
        return next_ns;
    for (size_t i = 0; i < PROTO_LANGUAGE_COUNT; i++)
        next_ns = clock_sooner_ns(next_ns,
                                  tick_place(supervisor, &supervisor->runtimes[i].zygotes, now_ns));
    for (size_t i = supervisor->pool_count; i-- > 0;) {
        struct pool *pool = supervisor->pools[i];
        if (now_ns >= pool->demand.used_ns + IDLE_NS) {
            remove_pool(supervisor, i);
            continue;
        }
        next_ns = clock_sooner_ns(next_ns, tick_place(supervisor, &pool->own_zygotes, now_ns));
        next_ns = clock_sooner_ns(next_ns, tick_pool(supervisor, pool, now_ns));
    }
    return next_ns;
}

/* ---- for doctor --------------------------------------------------------- */

static void describe_place(const struct zygote_place *place, struct proto_warmth *ret)
{
    const struct zygote *zygote = ready_zygote(place);

    if (zygote) {
        ret->zygotes++;
        footprint_add(zygote->cell, &ret->zygote_memory);
    }
    ret->zygote_deaths += place->deaths;
    if (place->log[0])
        memcpy(ret->log, place->log, sizeof(ret->log));
}

void pool_describe(const struct supervisor *supervisor, const struct runtime *runtime,
                   struct proto_warmth *ret)
{
    *ret = (struct proto_warmth){0};
    describe_place(&runtime->zygotes, ret);
    for (size_t i = 0; i < supervisor->pool_count; i++) {
        const struct pool *pool = supervisor->pools[i];
        if (pool->runtime != runtime)
            continue;
        ret->pools++;
        ret->parked += (uint32_t)pool->count;
        for (size_t at = 0; at < pool->count; at++)
            footprint_add(pool->cells[at], &ret->parked_memory);
        describe_place(&pool->own_zygotes, ret);
    }
}
