/* SPDX-License-Identifier: Apache-2.0 */
/* See fair.h. */
#include "fair.h"

#include <string.h>

void fair_init(struct fair *ret_fair)
{
    memset(ret_fair, 0, sizeof(*ret_fair));
    for (size_t i = 0; i < FAIR_BUCKETS; i++)
        LIST_INIT(&ret_fair->buckets[i]);
    TAILQ_INIT(&ret_fair->owners);
}

/* FNV-1a. Whoever makes names collide gets a long list, of at most as many owners
 * as there are runs. */
static size_t bucket_of(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return (hash ^ hash >> 16) % FAIR_BUCKETS;
}

struct fair_owner *fair_hold(struct fair *fair, const char *name)
{
    struct fair_owner *owner;

    name = name ? name : "";
    size_t bucket = bucket_of(name);
    for (owner = LIST_FIRST(&fair->buckets[bucket]); owner; owner = LIST_NEXT(owner, link)) {
        if (strcmp(owner->name, name) == 0) {
            owner->held++;
            return owner;
        }
    }
    owner = calloc(1, sizeof(*owner));
    if (!owner)
        return NULL;
    memcpy(owner->name, name, strnlen(name, LIMIT_OWNER_BYTES));
    owner->held = 1;
    TAILQ_INIT(&owner->waiters);
    LIST_INSERT_HEAD(&fair->buckets[bucket], owner, link);
    return owner;
}

void fair_release(struct fair_owner *owner)
{
    if (--owner->held > 0)
        return;
    LIST_REMOVE(owner, link);
    free(owner);
}

void fair_begin(struct fair *fair, struct fair_owner *owner)
{
    owner->active++;
    owner->turn = fair->next_number++;
}

void fair_end(struct fair_owner *owner)
{
    owner->active--;
}

void fair_push(struct fair *fair, struct fair_owner *owner, struct fair_waiter *waiter)
{
    waiter->owner = owner;
    waiter->number = fair->next_number++;
    TAILQ_INSERT_TAIL(&owner->waiters, waiter, link);
    if (owner->waiting++ == 0)
        TAILQ_INSERT_TAIL(&fair->owners, owner, waiting_link);
    fair->waiting++;
}

void fair_remove(struct fair *fair, struct fair_waiter *waiter)
{
    struct fair_owner *owner = waiter->owner;

    TAILQ_REMOVE(&owner->waiters, waiter, link);
    if (--owner->waiting == 0)
        TAILQ_REMOVE(&fair->owners, owner, waiting_link);
    fair->waiting--;
}

static struct fair_waiter *first_of(const struct fair_owner *owner, bool with_cell)
{
    struct fair_waiter *waiter = TAILQ_FIRST(&owner->waiters);

    while (waiter && with_cell && !waiter->has_cell)
        waiter = TAILQ_NEXT(waiter, link);
    return waiter;
}

/* Since when the owner of a waiter waits for its next turn. */
static uint64_t since(const struct fair_waiter *waiter)
{
    uint64_t turn = waiter->owner->turn;

    return waiter->number > turn ? waiter->number : turn;
}

struct fair_waiter *fair_first(const struct fair *fair, bool with_cell)
{
    struct fair_waiter *next = NULL;

    for (const struct fair_owner *owner = TAILQ_FIRST(&fair->owners); owner;
         owner = TAILQ_NEXT(owner, waiting_link)) {
        struct fair_waiter *first = first_of(owner, with_cell);
        if (!first)
            continue;
        if (!next || owner->active < next->owner->active ||
            (owner->active == next->owner->active && since(first) < since(next)))
            next = first;
    }
    return next;
}

struct fair_waiter *fair_last(const struct fair *fair)
{
    const struct fair_owner *biggest = NULL;

    for (const struct fair_owner *owner = TAILQ_FIRST(&fair->owners); owner;
         owner = TAILQ_NEXT(owner, waiting_link)) {
        if (!biggest || owner->waiting > biggest->waiting)
            biggest = owner;
    }
    return biggest ? TAILQ_LAST(&biggest->waiters, fair_waiters) : NULL;
}
