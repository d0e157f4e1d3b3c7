/* SPDX-License-Identifier: Apache-2.0 */
/* See sample.h. */
#include "sample.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "proc_text.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

int sample_open(pid_t init_pid, struct hutch_error *err)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/root/proc", (int)init_pid);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open the cell's '/proc'");
    return fd;
}

/* The file of a process; empty when it is gone. */
static void read_process(int proc_fd, const char *pid, const char *file, struct buf *text)
{
    char path[300];
    struct hutch_error ignored;

    snprintf(path, sizeof(path), "%s/%s", pid, file);
    if (buf_read_file(text, proc_fd, path, &ignored) < 0)
        buf_clear(text);
}

static uint64_t pss_of(int proc_fd, const char *pid)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);

    read_process(proc_fd, pid, "smaps_rollup", &text);
    return proc_text_pss(buf_text(&text));
}

static uint64_t resident_of(int proc_fd, const char *pid)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);

    read_process(proc_fd, pid, "statm", &text);
    return proc_text_resident_pages(buf_text(&text)) * (uint64_t)sysconf(_SC_PAGESIZE);
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
