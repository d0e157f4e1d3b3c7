/* SPDX-License-Identifier: Apache-2.0 */
/* See scope.h. */
#include "scope.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/limits.h"
#include "cgroup_text.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#define SYSTEMD_RUN "/usr/bin/systemd-run"
#define HIERARCHY "/sys/fs/cgroup"
#define LEAF "supervisor"

bool scope_is_wanted(void)
{
    struct statfs info;

    return geteuid() != 0 && statfs(HIERARCHY, &info) == 0 && info.f_type == CGROUP2_SUPER_MAGIC;
}

bool scope_is_offered(struct scope_start *ret_start)
{
    char path[64];
    struct stat info;
    uid_t uid = geteuid();

    if (!scope_is_wanted() || access(SYSTEMD_RUN, X_OK) < 0)
        return false;
    snprintf(path, sizeof(path), "/run/user/%u/systemd/private", uid);
    if (lstat(path, &info) < 0 || !S_ISSOCK(info.st_mode) || info.st_uid != uid)
        return false;
    *ret_start = (struct scope_start){
        .words = {SYSTEMD_RUN, "--user", "--scope", "--quiet", "--collect", "--no-ask-password",
                  "--description=hutch", "-p", "Delegate=yes", "--"},
    };
    snprintf(ret_start->environment, sizeof(ret_start->environment), "XDG_RUNTIME_DIR=/run/user/%u",
             uid);
    return true;
}

int scope_enter(char *ret_scope, size_t size, struct hutch_error *err)
{
    char scope[CGROUP_PATH_BYTES];
    char leaf[CGROUP_PATH_BYTES + 64];
    char members[sizeof(leaf) + 16];
    auto_buf struct buf own = BUF_MAX(LIMIT_PROC_FILE_BYTES);

    if (buf_read_file(&own, AT_FDCWD, "/proc/self/cgroup", err) < 0)
        return err->code;
    if (!cgroup_text_own(buf_text(&own), NULL, scope, sizeof(scope)) || strlen(scope) >= size)
        return err_set(err, HUTCH_ERR_SYSTEM, "the own group is not to be found");
    snprintf(leaf, sizeof(leaf), HIERARCHY "%s/" LEAF, scope);
    if (mkdir(leaf, 0755) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make the group '%.150s'", leaf);
    snprintf(members, sizeof(members), "%s/cgroup.procs", leaf);
    if (fd_write_file(members, "0") < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "move into the group '%.150s'", leaf);
    snprintf(ret_scope, size, "%s", scope);
    return 0;
}
