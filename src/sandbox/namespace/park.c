/* SPDX-License-Identifier: Apache-2.0 */
/* See park.h. */
#include "park.h"

#include "base/fd.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

void park_say_ready(const struct parking *parking, const char *log, size_t length)
{
    struct park_ready ready = {.log = ""};

    memcpy(ready.log, log, length < sizeof(ready.log) ? length : sizeof(ready.log));
    IGNORE_RESULT(send(parking->socket, &ready, sizeof(ready), MSG_NOSIGNAL) < 0);
}

/* On the processor where it is, if that is one of them. */
static bool stay_on_one(const struct parking *parking, const cpu_set_t *cpus)
{
    cpu_set_t one;
    int current = sched_getcpu();
    size_t cpu = current < 0 ? 0 : (size_t)current;

    for (size_t i = 0; i < CPU_SETSIZE && !CPU_ISSET(cpu, cpus); i++)
        cpu = i;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return parking->set_cpu(&one);
}

/* What getting ready took of the processor is not the program's: whole seconds, as the
 * limit has room for what is left over. */
static rlim_t seconds_used(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) < 0)
        return 0;
    return (rlim_t)usage.ru_utime.tv_sec + (rlim_t)usage.ru_stime.tv_sec;
}

static bool set_limits(const struct parking *parking, const struct park_go *go)
{
    bool limited = stay_on_one(parking, &go->cpus);

    for (size_t i = 0; i < PARK_RLIMITS; i++) {
        struct plan_rlimit entry = go->rlimits[i];
        if (entry.resource == RLIMIT_CPU && entry.limit.rlim_max != RLIM_INFINITY) {
            rlim_t used = seconds_used();
            entry.limit.rlim_cur += used;
            entry.limit.rlim_max += used;
        }
        limited = syscall(SYS_prlimit64, 0, entry.resource, &entry.limit, NULL) == 0 && limited;
    }
    return limited;
}

bool park(const struct parking *parking)
{
    const int places[PARK_FDS_MAX] = {1, 2, parking->socket, 0};
    struct park_go go;
    int fds[PARK_FDS_MAX];
    size_t count = PARK_FDS_MAX;

    ssize_t length = fd_receive(parking->socket, &go, sizeof(go), fds, &count);
    if (length == 0)
        _exit(0); /* given up by the supervisor */
    if (length != (ssize_t)sizeof(go) || count < PARK_FDS_MAX - 1)
        _exit(WIRE_EXIT_FAILED);
    bool limited = set_limits(parking, &go);
    for (size_t i = 0; i < count; i++) {
        if (dup3(fds[i], places[i], parking->flags) < 0) /* python's without O_CLOEXEC */
            _exit(WIRE_EXIT_FAILED);
        close(fds[i]);
    }
    if (!limited) {
        static const char message[] = "hutch: the limits of the cell could not be set\n";
        IGNORE_RESULT(write(2, message, sizeof(message) - 1) < 0);
        _exit(WIRE_EXIT_FAILED);
    }
    return count == PARK_FDS_MAX;
}
