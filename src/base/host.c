/* SPDX-License-Identifier: Apache-2.0 */
/* See host.h. */
#include "host.h"

#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

uint32_t host_cpus(void)
{
    cpu_set_t allowed;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
        return (uint32_t)CPU_COUNT(&allowed);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than a cpu_set_t holds */
    return online > 0 ? (uint32_t)online : 1;
}

uint64_t host_memory_mb(void)
{
    struct sysinfo info;

    if (sysinfo(&info) < 0)
        return 0;
    return (uint64_t)info.totalram * info.mem_unit >> 20;
}
