/* SPDX-License-Identifier: Apache-2.0 */
/* See admission.h. */
#include "admission.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/parse.h"

#include <inttypes.h>

#define READING_NS (20 * NS_PER_MS)
#define AMPLE_NS (250 * NS_PER_MS)
#define YOUNG_NS NS_PER_SECOND
/* Of a Python program that imports little; its interpreter alone has about 10. */
#define EXPECTED_FIRST MIB(64)
#define EXPECTED_MIN MIB(32)
#define PEAK_DECAY 16
#define PRESSURE_LIMIT 2000 /* hundredths of a percent */
#define RUNNABLE_PER_PROCESSOR 8

static uint64_t lower(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

void admission_init(struct admission *ret_admission, const struct load_source *source,
                    uint32_t max_cells)
{
    *ret_admission = (struct admission){
        .source = *source,
        .max_cells = max_cells,
        .peak_bytes = EXPECTED_FIRST,
        .memory = {.total_bytes = LOAD_UNKNOWN, .available_bytes = LOAD_UNKNOWN},
        .memory_ns = NO_DEADLINE,
        .pace_ns = NO_DEADLINE,
    };
    TAILQ_INIT(&ret_admission->young);
}

const char *admission_term_name(enum admission_term term)
{
    switch (term) {
    case TERM_CELLS:
        return "cells";
    case TERM_MEMORY:
        return "memory";
    case TERM_PRESSURE:
        return "pressure";
    case TERM_CPU:
        return "cpu";
    case TERM_NONE:
        break;
    }
    return NULL;
}

/* ---- readings ---------------------------------------------------------- */

static uint64_t age_of(const struct admission *admission, uint64_t read_ns)
{
    return read_ns == NO_DEADLINE ? NO_DEADLINE
                                  : admission->source.now_ns(admission->source.user) - read_ns;
}

static void drop_claim(struct admission *admission, struct memory_claim *claim)
{
    if (!claim->is_young)
        return;
    TAILQ_REMOVE(&admission->young, claim, link);
    admission->claimed_bytes -= claim->bytes;
    claim->is_young = false;
}

/* What a run of a second ago uses is in the reading. */
static void read_memory(struct admission *admission)
{
    struct memory_claim *oldest;

    admission->source.read_memory(admission->source.user, &admission->memory);
    admission->memory_ns = admission->source.now_ns(admission->source.user);
    while ((oldest = TAILQ_FIRST(&admission->young)) &&
           admission->memory_ns - oldest->since_ns >= YOUNG_NS)
        drop_claim(admission, oldest);
}

static void read_pace(struct admission *admission)
{
    admission->source.read_pace(admission->source.user, &admission->pace);
    admission->pace_ns = admission->source.now_ns(admission->source.user);
    admission->active_then = admission->active;
    admission->has_passed = false;
}

void admission_read(struct admission *admission)
{
    read_memory(admission);
    read_pace(admission);
}

/* ---- the terms --------------------------------------------------------- */

uint64_t admission_expected(const struct admission *admission, uint64_t memory_mb)
{
    uint64_t expected = admission->peak_bytes > EXPECTED_MIN ? admission->peak_bytes : EXPECTED_MIN;

    return lower(lower(expected, MIB(memory_mb)), admission->memory.total_bytes / 2);
}

/* What is left of the memory when young runs get what they are expected to use. */
static uint64_t room_of(const struct admission *admission)
{
    const struct load_memory *memory = &admission->memory;
    uint64_t taken = load_reserve(memory->total_bytes) + admission->claimed_bytes;

    return memory->available_bytes > taken ? memory->available_bytes - taken : 0;
}

static uint64_t need_of(const struct admission *admission, uint64_t memory_mb)
{
    uint64_t expected = admission_expected(admission, memory_mb);

    return admission->active == 0 ? lower(expected, admission->memory.total_bytes / 8) : expected;
}

static bool fits_memory(struct admission *admission, uint64_t memory_mb)
{
    uint64_t age_ns = age_of(admission, admission->memory_ns);
    uint64_t over = admission->memory.total_bytes / 4;

    if (age_ns >= AMPLE_NS ||
        (age_ns >= READING_NS && room_of(admission) < over + need_of(admission, memory_mb)))
        read_memory(admission);
    return room_of(admission) >= need_of(admission, memory_mb);
}

uint64_t admission_runnable_limit(const struct admission *admission)
{
    return (uint64_t)admission->pace.processors * RUNNABLE_PER_PROCESSOR;
}

/* A cell that meets its own limit waits for memory too, which the machine's pressure
 * shows: it says something only where memory is not plenty.
 *
 * Runs that ended since the reading go off its number: else a machine that is kept
 * busy by short runs would stand still until the next one. */
static enum admission_term pace_term(const struct admission *admission)
{
    const struct load_memory *memory = &admission->memory;
    const struct load_pace *pace = &admission->pace;

    if (pace->pressure >= PRESSURE_LIMIT && memory->available_bytes < memory->total_bytes / 4)
        return TERM_PRESSURE;
    if (pace->runnable + admission->active >=
        admission_runnable_limit(admission) + admission->active_then)
        return TERM_CPU;
    return TERM_NONE;
}

enum admission_term admission_hold(struct admission *admission, size_t owner_active,
                                   uint64_t memory_mb)
{
    if (admission->cells >= admission->max_cells)
        return TERM_CELLS;
    return admission_hold_idle(admission, owner_active, memory_mb);
}

enum admission_term admission_hold_idle(struct admission *admission, size_t owner_active,
                                        uint64_t memory_mb)
{
    if (!fits_memory(admission, memory_mb))
        return TERM_MEMORY;
    if (admission->active == 0)
        return TERM_NONE;
    if (age_of(admission, admission->pace_ns) >= READING_NS)
        read_pace(admission);
    if (owner_active < admission->pace.processors && !admission->has_passed)
        return TERM_NONE;
    return pace_term(admission);
}

/* ---- runs -------------------------------------------------------------- */

static void make_active(struct admission *admission, uint64_t memory_mb,
                        struct memory_claim *ret_claim)
{
    if (pace_term(admission) != TERM_NONE)
        admission->has_passed = true;
    *ret_claim = (struct memory_claim){
        .bytes = admission_expected(admission, memory_mb),
        .since_ns = admission->source.now_ns(admission->source.user),
        .is_young = true,
    };
    TAILQ_INSERT_TAIL(&admission->young, ret_claim, link);
    admission->claimed_bytes += ret_claim->bytes;
    admission->active++;
}

void admission_begin(struct admission *admission, uint64_t memory_mb,
                     struct memory_claim *ret_claim)
{
    make_active(admission, memory_mb, ret_claim);
    admission->cells++;
}

void admission_end(struct admission *admission, struct memory_claim *claim,
                   uint64_t peak_memory_bytes)
{
    uint64_t highest = admission->peak_bytes;

    drop_claim(admission, claim);
    admission->active--;
    admission->cells--;
    if (peak_memory_bytes >= highest)
        admission->peak_bytes = peak_memory_bytes;
    else if (peak_memory_bytes > 0)
        admission->peak_bytes = highest - (highest - peak_memory_bytes) / PEAK_DECAY;
}

/* The oldest of all from now on: the next reading ends it. */
void admission_pause(struct admission *admission, struct memory_claim *claim)
{
    admission->active--;
    if (!claim->is_young)
        return;
    uint64_t now_ns = admission->source.now_ns(admission->source.user);
    TAILQ_REMOVE(&admission->young, claim, link);
    claim->since_ns = now_ns > YOUNG_NS ? now_ns - YOUNG_NS : 0;
    TAILQ_INSERT_HEAD(&admission->young, claim, link);
}

void admission_resume(struct admission *admission, uint64_t memory_mb, struct memory_claim *claim)
{
    drop_claim(admission, claim);
    make_active(admission, memory_mb, claim);
}

void admission_end_idle(struct admission *admission, struct memory_claim *claim)
{
    drop_claim(admission, claim);
    admission->cells--;
}

/* ---- messages ---------------------------------------------------------- */

static uint64_t mib(uint64_t bytes)
{
    return bytes >> 20;
}

int admission_explain(const struct admission *admission, enum admission_term term,
                      double waited_seconds, uint64_t memory_mb, struct hutch_error *err)
{
    const struct load_memory *memory = &admission->memory;
    const struct load_pace *pace = &admission->pace;
    struct number_text waited = number_text(waited_seconds);
    struct number_text pressure = number_text(pace->pressure / 100.0);

    switch (term) {
    case TERM_CELLS:
        return err_set(err, HUTCH_ERR_BUSY,
                       "waited %s s for a cell: %zu are active, %zu are idle sessions, max_cells "
                       "is %u",
                       waited.text, admission->active, admission->cells - admission->active,
                       admission->max_cells);
    case TERM_MEMORY:
        return err_set(err, HUTCH_ERR_BUSY,
                       "waited %s s for memory: %" PRIu64 " MiB available %s, needed are %" PRIu64
                       " MiB reserve + %" PRIu64 " MiB for runs that just began + %" PRIu64
                       " MiB for this one",
                       waited.text, mib(memory->available_bytes),
                       memory->in_group ? "in the cgroup" : "on the host",
                       mib(load_reserve(memory->total_bytes)), mib(admission->claimed_bytes),
                       mib(need_of(admission, memory_mb)));
    case TERM_PRESSURE:
        return err_set(err, HUTCH_ERR_BUSY,
                       "waited %s s for memory pressure to fall: some avg10 is %s, the limit %d",
                       waited.text, pressure.text, PRESSURE_LIMIT / 100);
    case TERM_CPU:
        return err_set(err, HUTCH_ERR_BUSY,
                       "waited %s s for the processors: %u threads are runnable, the limit is "
                       "%" PRIu64 " on %u processors",
                       waited.text, pace->runnable, admission_runnable_limit(admission),
                       pace->processors);
    case TERM_NONE:
        break;
    }
    return err_set(err, HUTCH_ERR_BUSY, "waited %s s behind others: %zu runs are active",
                   waited.text, admission->active);
}
