/* SPDX-License-Identifier: Apache-2.0 */
/* See process.h. */
#include "process.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "proc_text.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t process_number(const char *proc, int pidfd)
{
    char path[64];
    auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    struct hutch_error ignored;

    snprintf(path, sizeof(path), "%s/self/fdinfo/%d", proc, pidfd);
    if (buf_read_file(&text, AT_FDCWD, path, &ignored) < 0)
        return 0;
    return (pid_t)proc_text_pid(buf_text(&text));
}

int process_write_maps(const char *proc, pid_t pid, const struct id_maps *maps)
{
    const struct {
        const char *file, *text;
    } files[] = {
        {"uid_map", maps->uid},
        {"setgroups", maps->deny_setgroups ? "deny" : NULL},
        {"gid_map", maps->gid},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        char path[64];
        snprintf(path, sizeof(path), "%s/%d/%s", proc, (int)pid, files[i].file);
        if (files[i].text && fd_write_file(path, files[i].text) < 0)
            return -1;
    }
    return 0;
}

bool process_reap(int pidfd, int *ret_status, struct rusage *ret_usage)
{
    siginfo_t info = {.si_pid = 0};

    if (syscall(SYS_waitid, P_PIDFD, pidfd, &info, WEXITED | WNOHANG, ret_usage) < 0) {
        /* Somebody else's now: what it did is not known, and no success. */
        info = (siginfo_t){.si_code = CLD_KILLED, .si_pid = -1};
        info.si_status = SIGKILL;
        if (ret_usage)
            memset(ret_usage, 0, sizeof(*ret_usage));
    }
    if (info.si_pid == 0)
        return false;
    if (ret_status) {
        *ret_status = info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0)
                                                 : W_EXITCODE(0, info.si_status);
        *ret_status |= info.si_code == CLD_DUMPED ? WCOREFLAG : 0;
    }
    return true;
}

pid_t process_clone(uint64_t flags, int cgroup_fd, int *ret_pidfd)
{
    struct clone_args args = {
        .flags = flags | CLONE_PIDFD | (cgroup_fd >= 0 ? CLONE_INTO_CGROUP : 0ULL),
        .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
        .exit_signal = flags & CLONE_PARENT ? 0 : SIGCHLD, /* then the parent's counts */
        .cgroup = cgroup_fd >= 0 ? (unsigned)cgroup_fd : 0,
    };
    return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}
