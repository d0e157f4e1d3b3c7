/* SPDX-License-Identifier: Apache-2.0 */
/* What this host has to give. */
#pragma once

#include <stdint.h>

/* The processors that this process may use; at least 1. */
uint32_t host_cpus(void);

/* The memory of the machine in MiB; 0 where the kernel does not say. */
uint64_t host_memory_mb(void);
