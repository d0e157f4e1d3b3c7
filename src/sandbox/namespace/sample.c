/* SPDX-License-Identifier: Apache-2.0 */
/* See sample.h. */
#include "sample.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int sample_open(pid_t init_pid, struct hutch_error *err)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/root/proc", (int)init_pid);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open the cell's '/proc'");
    return fd;
}

/* The number that a text begins with, after blanks; 0 for none. */
static uint64_t number_in(const char *text)
{
    uint64_t number = 0;

    for (text += strspn(text, " "); *text >= '0' && *text <= '9' && number < UINT32_MAX; text++)
        number = number * 10 + (uint64_t)(*text - '0');
    return number;
}

static uint64_t pss_of(int proc_fd, const char *pid)
{
    char path[300];
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    struct hutch_error ignored;

    snprintf(path, sizeof(path), "%s/smaps_rollup", pid);
    if (buf_read_file(&text, proc_fd, path, &ignored) < 0)
        return 0;
    const char *line = strstr(buf_text(&text), "\nPss:");
    return line ? KIB(number_in(line + strlen("\nPss:"))) : 0;
}

/* The second number of statm, in pages. */
static uint64_t resident_of(int proc_fd, const char *pid)
{
    char path[300];
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    struct hutch_error ignored;

    snprintf(path, sizeof(path), "%s/statm", pid);
    if (buf_read_file(&text, proc_fd, path, &ignored) < 0)
        return 0;
    const char *blank = strchr(buf_text(&text), ' ');
    return blank ? number_in(blank) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Adds the processes up, each by its share until the deadline. */
static struct sample add_up(int proc_fd, uint64_t share_until_ns)
{
    struct sample sample = {0};
    int copy = openat(proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = copy >= 0 ? fdopendir(copy) : NULL;

    if (!folder) {
        if (copy >= 0)
            close(copy);
        return sample;
    }
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        bool share = share_until_ns != 0 && clock_now_ns() < share_until_ns;
        sample.processes++;
        sample.memory_bytes +=
            share ? pss_of(proc_fd, entry->d_name) : resident_of(proc_fd, entry->d_name);
    }
    closedir(folder);
    return sample;
}

struct sample sample_take(int proc_fd, uint64_t limit_bytes)
{
    struct sample sample = add_up(proc_fd, 0);

    if (sample.memory_bytes > limit_bytes)
        sample = add_up(proc_fd, clock_after_ns(SAMPLE_BUDGET_NS));
    return sample;
}
