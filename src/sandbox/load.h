/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host has left for another run: memory, and how busy it is. Memory is
 * that of the tightest place: the machine, or one of the memory cgroups, of either
 * version, that the cells will be in. Whatever the kernel does not say holds
 * nothing back.
 */
#pragma once

#include "namespace/cgroup_text.h"

#include <stdbool.h>
#include <stdint.h>

struct load_memory {
    uint64_t total_bytes; /* of the tightest place; LOAD_UNKNOWN where nothing is known */
    uint64_t available_bytes;
    bool in_group; /* the place is a cgroup */
};
#define LOAD_UNKNOWN UINT64_MAX

struct load_pace {
    uint32_t runnable; /* threads of the machine; 0 where nothing is known */
    uint32_t pressure; /* see load_text_pressure; 0 where nothing is known */
    uint32_t processors;
};

/* What is to stay free in a place of that size: 256 MiB, or a twentieth where that
 * is more; but never more than an eighth. */
uint64_t load_reserve(uint64_t total_bytes);

/* The memory cgroup of the cells, and those above it. */
struct load_group {
    bool is_known;
    bool v2;
    char top[CGROUP_PATH_BYTES];   /* where the hierarchy is mounted */
    char place[CGROUP_PATH_BYTES]; /* of the group below it; "" is the top */
};

struct load_host {
    int root_fd; /* AT_FDCWD, or a folder that stands for "/" */
    uint32_t processors;
    struct load_group group;
};

/* Finds the group: the one that is named (hutch_engine_options.cgroup; NULL or ""
 * for none) where the memory hierarchy has it, else that of this process. root_fd
 * is borrowed. Cannot fail: what is not found is not looked at later. */
void load_host_init(struct load_host *ret_host, int root_fd, const char *cgroup);

/* Reads now. For any number of threads at once; no file stays open. */
void load_read_memory(const struct load_host *host, struct load_memory *ret_memory);
void load_read_pace(const struct load_host *host, struct load_pace *ret_pace);
