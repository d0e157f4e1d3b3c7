/* SPDX-License-Identifier: Apache-2.0 */
/* See footprint.h. */
#include "footprint.h"

#include "cell.h"
#include "proc_text.h"

#include <fcntl.h>

static bool add_process(pid_t pid, struct proto_memory *sum)
{
    char path[48];
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    struct hutch_error ignored;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    if (buf_read_file(&text, AT_FDCWD, path, &ignored) < 0)
        return false;
    uint64_t pss_bytes = proc_text_pss(buf_text(&text));
    sum->pss_bytes += pss_bytes;
    sum->private_dirty_bytes += proc_text_private_dirty(buf_text(&text));
    return pss_bytes > 0; /* else it is dying */
}

void footprint_add(const struct sandbox_cell *cell, struct proto_memory *sum)
{
    struct proto_memory with = *sum;

    /* Both of its processes, or nothing. */
    if (sum->cells == FOOTPRINT_CELLS_MAX || cell->init_pidfd < 0 || cell->run_pidfd < 0 ||
        !add_process(cell->init_pid, &with) || !add_process(cell->run_pid, &with))
        return;
    with.cells++;
    *sum = with;
}
