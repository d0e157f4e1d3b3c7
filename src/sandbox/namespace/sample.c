/* SPDX-License-Identifier: Apache-2.0 */
/* See sample.h. */
#include "sample.h"

#include "base/buf.h"
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

/* The number of KiB behind "Pss:". */
static uint64_t pss_of(int proc_fd, const char *pid)
{
    char path[300];
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    struct hutch_error ignored;

    snprintf(path, sizeof(path), "%s/smaps_rollup", pid);
    if (buf_read_file(&text, proc_fd, path, &ignored) < 0)
        return 0;
    const char *line = strstr(buf_text(&text), "\nPss:");
    uint64_t kib = 0;
    for (line = line ? line + strlen("\nPss:") : ""; *line == ' ';)
        line++;
    for (; *line >= '0' && *line <= '9' && kib < UINT32_MAX; line++)
        kib = kib * 10 + (uint64_t)(*line - '0');
    return KIB(kib);
}

struct sample sample_take(int proc_fd)
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
        sample.processes++;
        sample.memory_bytes += pss_of(proc_fd, entry->d_name);
    }
    closedir(folder);
    return sample;
}
