/* SPDX-License-Identifier: Apache-2.0 */
/* See sample.h. */
#include "sample.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/parse.h"
#include "folder.h"
#include "proc_text.h"

#include <fcntl.h>
#include <stdio.h>

int sample_open(pid_t init_pid, struct sampler *sampler, struct hutch_error *err)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/root/proc", (int)init_pid);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open the cell's '/proc'");
    *sampler = (struct sampler){.proc_fd = fd};
    return 0;
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

/* The next process of the list, which the kernel gives by rising pid; 0 at its end. */
static uint32_t next_process(DIR *list, const char **ret_name)
{
    const struct dirent *entry;

    while ((entry = folder_next(list))) {
        *ret_name = entry->d_name;
        uint64_t pid = parse_leading(entry->d_name);
        if (pid > 0)
            return (uint32_t)pid;
    }
    return 0;
}

/* What is resident, and the last process there is. */
static struct sample add_up_resident(int proc_fd, uint32_t *ret_last_pid)
{
    struct sample sample = {0};
    auto_dir DIR *list = folder_list(proc_fd);
    const char *name;
    uint32_t pid;

    while (list && (pid = next_process(list, &name)) != 0) {
        sample.processes++;
        sample.memory_bytes += resident_of(proc_fd, name);
        *ret_last_pid = pid;
    }
    return sample;
}

/* Goes on with the round of asking. Whether it is over. */
static bool add_shares(struct sampler *sampler)
{
    auto_dir DIR *list = folder_list(sampler->proc_fd);
    uint64_t stop_ns = clock_after_ns(SAMPLE_BUDGET_NS);
    bool last_look = ++sampler->looks >= SAMPLE_LOOKS_MAX;
    const char *name;
    uint32_t pid;

    while (list && (pid = next_process(list, &name)) != 0 && pid <= sampler->end_pid) {
        if (pid <= sampler->asked_pid)
            continue;
        bool in_time = clock_now_ns() < stop_ns;
        if (!in_time && !last_look)
            return false;
        sampler->shares +=
            in_time ? pss_of(sampler->proc_fd, name) : resident_of(sampler->proc_fd, name);
        sampler->asked_pid = pid;
    }
    return true;
}

struct sample sample_take(struct sampler *sampler, uint64_t limit_bytes)
{
    uint32_t last_pid = 0;
    struct sample sample = add_up_resident(sampler->proc_fd, &last_pid);

    if (sample.memory_bytes <= limit_bytes) {
        sampler->looks = 0;
        return sample;
    }
    if (sampler->looks == 0) {
        sampler->shares = sampler->asked_pid = 0;
        sampler->end_pid = last_pid;
    }
    if (add_shares(sampler))
        sampler->looks = 0;
    sample.memory_bytes = sampler->shares;
    return sample;
}
