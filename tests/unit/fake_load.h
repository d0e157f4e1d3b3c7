/* SPDX-License-Identifier: Apache-2.0 */
/* A host that a test makes up: its memory, its pace and its time. */
#pragma once

#include "base/limits.h"
#include "sandbox/admission.h"

#include <stdatomic.h>

struct fake_load {
    _Atomic uint64_t total_bytes, available_bytes, now_ns;
    _Atomic uint32_t runnable, pressure, processors;
    _Atomic unsigned memory_reads, pace_reads;
};

static void fake_read_memory(void *user, struct load_memory *ret_memory)
{
    struct fake_load *fake = user;

    fake->memory_reads++;
    *ret_memory = (struct load_memory){.total_bytes = fake->total_bytes,
                                       .available_bytes = fake->available_bytes};
}

static void fake_read_pace(void *user, struct load_pace *ret_pace)
{
    struct fake_load *fake = user;

    fake->pace_reads++;
    *ret_pace = (struct load_pace){
        .runnable = fake->runnable, .pressure = fake->pressure, .processors = fake->processors};
}

static uint64_t fake_now_ns(void *user)
{
    struct fake_load *fake = user;
    return fake->now_ns;
}

/* A machine of 24 GiB and two processors on which little happens. */
static void fake_load_init(struct fake_load *fake)
{
    fake->total_bytes = MIB(24 << 10);
    fake->available_bytes = MIB(23 << 10);
    fake->now_ns = 0;
    fake->runnable = 1;
    fake->pressure = 0;
    fake->processors = 2;
    fake->memory_reads = fake->pace_reads = 0;
}

static struct load_source fake_source(struct fake_load *fake)
{
    return (struct load_source){.read_memory = fake_read_memory,
                                .read_pace = fake_read_pace,
                                .now_ns = fake_now_ns,
                                .user = fake};
}
