/* SPDX-License-Identifier: Apache-2.0 */
/* See blocker.h. */
#include "blocker.h"

#include "base/buf.h"
#include "base/limits.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* What a container runtime hangs over /proc, one of which is enough. */
static const char *const masks[] = {" /proc/kcore ", " /proc/keys ", " /proc/timer_list ",
                                    " /proc/sysrq-trigger ", " /proc/sys "};

void blocker_set(struct blocker *blocker, const char *reason, const char *mend)
{
    snprintf(blocker->reason, sizeof(blocker->reason), "%s", reason);
    snprintf(blocker->mend, sizeof(blocker->mend), "%s", mend);
}

static bool file_begins(int root_fd, const char *path, const char *text)
{
    auto_buf struct buf content = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    struct hutch_error ignored;

    return buf_read_file(&content, root_fd, path, &ignored) == 0 &&
           strncmp(buf_text(&content), text, strlen(text)) == 0;
}

/* Whether the file has any of the texts. */
static bool file_has(int root_fd, const char *path, const char *const *texts, size_t count)
{
    auto_buf struct buf content = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    struct hutch_error ignored;

    if (buf_read_file(&content, root_fd, path, &ignored) < 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (strstr(buf_text(&content), texts[i]))
            return true;
    }
    return false;
}

static bool status_says(int root_fd, const char *line)
{
    return file_has(root_fd, "proc/self/status", &line, 1);
}

/* In a chroot the root is no mount point, so mountinfo has no line for "/". */
static bool in_chroot(int root_fd)
{
    static const char *const root_mounts[] = {" / / ", " / rw", " / ro"};

    return faccessat(root_fd, "proc/self/mountinfo", R_OK, 0) == 0 &&
           !file_has(root_fd, "proc/self/mountinfo", root_mounts, ARRAY_LENGTH(root_mounts));
}

static bool in_container(int root_fd)
{
    static const char *const signs[] = {".dockerenv", "run/.containerenv", "run/systemd/container"};

    for (size_t i = 0; i < ARRAY_LENGTH(signs); i++) {
        if (faccessat(root_fd, signs[i], F_OK, 0) == 0)
            return true;
    }
    return false;
}

void blocker_find(int root_fd, bool is_root, const char *failure, struct blocker *ret_blocker)
{
    if (file_begins(root_fd, "proc/sys/user/max_user_namespaces", "0\n"))
        blocker_set(ret_blocker, "user.max_user_namespaces is 0",
                    "sysctl -w user.max_user_namespaces=15000");
    else if (in_chroot(root_fd))
        blocker_set(ret_blocker, "inside a chroot the kernel makes no user namespaces",
                    "enter the tree with pivot_root instead, for example by systemd-nspawn");
    else if (!is_root && file_begins(root_fd, "proc/sys/kernel/unprivileged_userns_clone", "0\n"))
        blocker_set(ret_blocker, "kernel.unprivileged_userns_clone is 0",
                    "sysctl -w kernel.unprivileged_userns_clone=1");
    else if (!is_root &&
             file_begins(root_fd, "proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n"))
        blocker_set(ret_blocker, "AppArmor restricts user namespaces of ordinary users",
                    "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
    else if (strncmp(failure, "mount proc", 10) == 0 &&
             file_has(root_fd, "proc/self/mountinfo", masks, ARRAY_LENGTH(masks)))
        blocker_set(ret_blocker,
                    "parts of /proc are masked, so the kernel lets no cell have its own",
                    "start the container with --security-opt systempaths=unconfined");
    else if (status_says(root_fd, "Seccomp:\t2"))
        blocker_set(ret_blocker, "a seccomp filter around this process refuses namespaces",
                    "start the container with --security-opt seccomp=unconfined --security-opt "
                    "apparmor=unconfined --security-opt systempaths=unconfined");
    else if (is_root && status_says(root_fd, "CapEff:\t0000000000000000"))
        blocker_set(ret_blocker, "root has no capabilities here",
                    "run hutch as an ordinary user, or give root CAP_SYS_ADMIN, CAP_SETUID and "
                    "CAP_SETGID");
    else if (in_container(root_fd))
        blocker_set(ret_blocker, "the container lacks the capability to make namespaces",
                    "start the container with --cap-add SYS_ADMIN --security-opt "
                    "apparmor=unconfined --security-opt systempaths=unconfined");
    else
        blocker_set(ret_blocker, "the kernel refuses namespaces", "");
}
