/* SPDX-License-Identifier: Apache-2.0 */
/* See runtime.h. */
#include "runtime.h"

#include "base/fd.h"
#include "kernel.h"
#include "tree.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define BUILD_LIMIT_SECONDS 600

static const char *const names[] = {[PROTO_PYTHON] = "python", [PROTO_SHELL] = "shell"};

void runtime_init(struct runtime *runtime, enum proto_language language, const char *interpreter)
{
    *runtime = (struct runtime){
        .language = language,
        .interpreter = interpreter,
        .tree = TREE_NONE,
        .mount_fd = -1,
        .build_fd = -1,
    };
}

/* Where the cache's file system keeps no device nodes, the host's are bound
 * on the files that stand for them. */
static int bind_devices(const struct runtime *runtime, struct hutch_error *err)
{
    static const char *const devices[] = {"null", "zero", "full", "random", "urandom"};

    for (size_t i = 0; i < ARRAY_LENGTH(devices); i++) {
        char source[32];
        char target[64];
        snprintf(source, sizeof(source), "/dev/%s", devices[i]);
        snprintf(target, sizeof(target), "/proc/self/fd/%d/root/dev/%s", runtime->mount_fd,
                 devices[i]);
        if (mount(source, target, NULL, MS_BIND, NULL) < 0)
            return err_errno(err, HUTCH_ERR_ISOLATION, errno, "bind '%s' into the tree", source);
    }
    return 0;
}

/* Attaches the tree, read-only, in our own mount namespace; every cell gets a
 * clone of this mount. */
static int attach(struct runtime *runtime, struct hutch_error *err)
{
    char path[32];
    unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID;

    if (!runtime->tree.has_devices)
        flags |= MS_NODEV;
    runtime->mount_fd =
        open_tree(runtime->tree.fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (runtime->mount_fd < 0 || move_mount(runtime->mount_fd, "", runtime->tree.fd, "",
                                            MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "mount the tree '%s'",
                         runtime->tree.path);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", runtime->mount_fd);
    if (mount(NULL, path, NULL, flags, NULL) < 0)
        return err_errno(err, HUTCH_ERR_ISOLATION, errno, "make the tree '%s' read-only",
                         runtime->tree.path);
    return runtime->tree.has_devices ? 0 : bind_devices(runtime, err);
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

/* 1 when the tree was found and attached, 0 when there is none. */
static int find(struct supervisor *supervisor, struct runtime *runtime, struct hutch_error *err)
{
    struct tree_spec spec = spec_of(supervisor, runtime);
    int found = tree_find(&spec, &runtime->tree, err);

    if (found <= 0)
        return found;
    if (attach(runtime, err) < 0) {
        if (runtime->mount_fd >= 0)
            close(TAKE_FD(runtime->mount_fd));
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

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(BUILD_LIMIT_SECONDS);
    if (tree_build(spec, &err) == 0)
        memset(&err, 0, sizeof(err));
    IGNORE_RESULT(write(result_fd, &err, sizeof(err)) != (ssize_t)sizeof(err));
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
    if (pid < 0) {
        err_errno(err, HUTCH_ERR_SYSTEM, error, "fork to build a tree");
    } else {
        runtime->build_pid = pid;
        runtime->state = RUNTIME_BUILDING;
        if (supervisor_watch(supervisor, runtime->build_fd, WATCH_BUILD, runtime->language, err) ==
            0)
            return 0;
    }
    close(TAKE_FD(runtime->build_fd));
    return err->code;
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

    close(TAKE_FD(runtime->build_fd));
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
