/* SPDX-License-Identifier: Apache-2.0 */
/* See runtime.h. */
#include "runtime.h"

#include "base/fd.h"
#include "namespaces.h"
#include "tree.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define BUILD_LIMIT_SECONDS 600
#define BUILD_RESULT_FD 3

static const char *const names[] = {
    [PROTO_PYTHON] = "python",
    [PROTO_SHELL] = "shell",
    [PROTO_JAVASCRIPT] = "javascript",
};

void runtime_init(struct runtime *runtime, enum proto_language language, const char *interpreter)
{
    *runtime = (struct runtime){
        .language = language,
        .interpreter = interpreter,
        .tree = TREE_NONE,
        .mount_ns_fd = -1,
        .build_fd = -1,
        .preload = "",
        .zygotes.runtime = runtime,
    };
}

/* Where the cache's file system keeps no device nodes, the host's are bound
 * on the files that stand for them. */
static int bind_devices(struct hutch_error *err)
{
    static const char *const devices[] = {"null", "zero", "full", "random", "urandom"};

    for (size_t i = 0; i < ARRAY_LENGTH(devices); i++) {
        char source[32];
        char target[32];
        snprintf(source, sizeof(source), "/dev/%s", devices[i]);
        snprintf(target, sizeof(target), "root/dev/%s", devices[i]);
        if (mount(source, target, NULL, MS_BIND, NULL) < 0)
            return err_errno(err, HUTCH_ERR_ISOLATION, errno, "bind '%s' into the tree", source);
    }
    return 0;
}

/* The folder of the tree as this mount namespace has it: a descriptor belongs
 * to the namespace that it was opened in. */
static int reopen_tree(const struct tree *tree, struct hutch_error *err)
{
    struct stat before, now;

    auto_close int fd = open(tree->path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &now) < 0 || fstat(tree->fd, &before) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open the tree '%s'", tree->path);
    if (now.st_dev != before.st_dev || now.st_ino != before.st_ino)
        return err_set(err, HUTCH_ERR_SYSTEM, "the tree '%s' was replaced", tree->path);
    return TAKE_FD(fd);
}

/* Attaches the tree on itself, read-only, and makes it the working folder. */
static int mount_tree(const struct tree *tree, struct hutch_error *err)
{
    unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID;

    if (!tree->has_devices)
        flags |= MS_NODEV;
    auto_close int place = reopen_tree(tree, err);
    if (place < 0)
        return err->code;
    auto_close int fd = open_tree(place, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (fd < 0 ||
        move_mount(fd, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "mount the tree '%s'", tree->path);
    if (fchdir(fd) < 0 || mount(NULL, ".", NULL, flags, NULL) < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "make the tree '%s' read-only",
                         tree->path);
    return 0;
}

/* In the new mount namespace: the tree becomes the root, and nothing of the
 * host stays but its proc. That lies where each cell mounts its own over it:
 * the kernel lets a user namespace mount proc only where one can be seen. */
static int fill_template(struct runtime *runtime, struct hutch_error *err)
{
    if (mount_tree(&runtime->tree, err) < 0)
        return err->code;
    if (!runtime->tree.has_devices && bind_devices(err) < 0)
        return err->code;
    if (mount("/proc", "root/proc", NULL, MS_BIND | MS_REC, NULL) < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "bind '/proc' into the tree");
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "pivot_root into the tree");
    runtime->mount_ns_fd = open("/root/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (runtime->mount_ns_fd < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "open the tree's mount namespace");
    return 0;
}

/* Makes the mount namespace that the cells of this runtime are cloned from. A
 * cell has then nothing of the host's to detach, which would cost it a grace
 * period of the kernel. The supervisor steps into it and back. */
static int make_template(struct supervisor *supervisor, struct runtime *runtime,
                         struct hutch_error *err)
{
    if (unshare(CLONE_NEWNS) < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "make a mount namespace");
    int code = fill_template(runtime, err);
    namespaces_return(supervisor->mount_ns_fd, CLONE_NEWNS);
    return code;
}

static struct tree_spec spec_of(const struct supervisor *supervisor, const struct runtime *runtime)
{
    return (struct tree_spec){
        .name = names[runtime->language],
        .interpreter = runtime->interpreter,
        .helper_dir = supervisor->helper_dir,
        .cache_dir = supervisor->cache_dir,
    };
}

/* 1 when the tree was found and is ready, 0 when there is none. */
static int find(struct supervisor *supervisor, struct runtime *runtime, struct hutch_error *err)
{
    struct tree_spec spec = spec_of(supervisor, runtime);
    int found = tree_find(&spec, &runtime->tree, err);

    if (found <= 0)
        return found;
    if (make_template(supervisor, runtime, err) < 0) {
        if (runtime->mount_ns_fd >= 0)
            close(TAKE_FD(runtime->mount_ns_fd));
        tree_close(&runtime->tree);
        runtime->state = RUNTIME_UNKNOWN;
        return err->code;
    }
    runtime->state = RUNTIME_READY;
    return 1;
}

NORETURN static void build_in_child(const struct tree_spec *spec, int result_fd)
{
    struct hutch_error err;

    /* Copies of the supervisor's descriptors would keep them open and watched. */
    if (dup2(result_fd, BUILD_RESULT_FD) < 0 || close_range(BUILD_RESULT_FD + 1, ~0U, 0) < 0)
        _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(BUILD_LIMIT_SECONDS);
    if (tree_build(spec, &err) == 0)
        memset(&err, 0, sizeof(err));
    IGNORE_RESULT(write(BUILD_RESULT_FD, &err, sizeof(err)) != (ssize_t)sizeof(err));
    _exit(0);
}

static int start_build(struct supervisor *supervisor, struct runtime *runtime,
                       struct hutch_error *err)
{
    struct tree_spec spec = spec_of(supervisor, runtime);
    int fds[2];

    if (fd_pipe(fds) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make a pipe");
    pid_t pid = fork();
    if (pid == 0)
        build_in_child(&spec, fds[1]);
    int error = errno;
    close(fds[1]);
    runtime->build_fd = fds[0];
    if (pid < 0)
        err_fork(err, HUTCH_ERR_SYSTEM, error, "fork to build a tree");
    if (pid < 0 ||
        supervisor_watch(supervisor, runtime->build_fd, WATCH_BUILD, runtime->language, err) < 0) {
        supervisor_close(supervisor, &runtime->build_fd);
        if (pid > 0) {
            kill(pid, SIGKILL);
            IGNORE_RESULT(waitpid(pid, NULL, 0) < 0);
        }
        return err->code;
    }
    runtime->build_pid = pid;
    runtime->state = RUNTIME_BUILDING;
    return 0;
}

int runtime_prepare(struct supervisor *supervisor, struct runtime *runtime, struct hutch_error *err)
{
    switch (runtime->state) {
    case RUNTIME_READY:
        return 1;
    case RUNTIME_BUILDING:
        return 0;
    case RUNTIME_UNKNOWN:
        break;
    }
    int found = find(supervisor, runtime, err);
    return found != 0 ? found : start_build(supervisor, runtime, err);
}

int runtime_finish(struct supervisor *supervisor, struct runtime *runtime, struct hutch_error *err)
{
    struct hutch_error result;
    ssize_t count = read(runtime->build_fd, &result, sizeof(result));

    supervisor_close(supervisor, &runtime->build_fd);
    IGNORE_RESULT(waitpid(runtime->build_pid, NULL, 0) < 0);
    runtime->state = RUNTIME_UNKNOWN;
    if (count != (ssize_t)sizeof(result))
        return err_set(err, HUTCH_ERR_SYSTEM,
                       "the child that builds the tree '%s' died or took over 10 minutes",
                       names[runtime->language]);
    if (result.code != 0) {
        *err = result;
        return err->code;
    }
    int found = find(supervisor, runtime, err);
    if (found == 0)
        return err_set(err, HUTCH_ERR_SYSTEM,
                       "the host's files changed while the tree '%s' was "
                       "built; try again",
                       names[runtime->language]);
    return found < 0 ? found : 0;
}
