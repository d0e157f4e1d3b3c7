/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part in C of a javascript cell that waits for its request: an addon of
 * node's stable ABI, for every node from 18 on. runner.cjs has the rest.
 *
 *   park()   says to the supervisor that the process is ready, waits until the
 *            cell gets its request, and takes its descriptors over: true; or
 *            false at once where the channel is no park socket
 *   turn()   lets node's event loop wait for what is under way and handle it;
 *            false when nothing is
 *   pipe()   a descriptor that reads what was written to it
 *   open(path)        a descriptor that writes to a named pipe, -1 where it is none; does
 *                     not wait for a reader
 *   replace(fd, old)  puts fd in the place of another one, and closes fd
 *
 * turn and pipe are for the rehearsal of a run, before there is one; open and replace for
 * sessions.
 *
 * What is used of node is declared here: it is little, and all of it is to stay as
 * it is. The package with node's headers would bring along a node of its own,
 * which need not be the one that the host runs.
 */
#include "park.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* ---- Node-API, and libuv ------------------------------------------------ */

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_callback_info__ *napi_callback_info;
typedef napi_value (*napi_callback)(napi_env env, napi_callback_info info);

struct uv_loop_s;

struct napi_property {
    const char *name;
    napi_value name_value;
    napi_callback method, getter, setter;
    napi_value value;
    int attributes;
    void *data;
};

/* They return 0 when all is well. */
extern int napi_define_properties(napi_env env, napi_value object, size_t count,
                                  const struct napi_property *properties);
extern int napi_get_boolean(napi_env env, bool value, napi_value *ret_boolean);
extern int napi_create_int32(napi_env env, int32_t value, napi_value *ret_number);
extern int napi_get_cb_info(napi_env env, napi_callback_info info, size_t *count,
                            napi_value *ret_arguments, napi_value *ret_this, void **ret_data);
extern int napi_get_value_int32(napi_env env, napi_value value, int32_t *ret_number);
extern int napi_get_value_string_utf8(napi_env env, napi_value value, char *text, size_t size,
                                      size_t *ret_length);
extern int napi_get_uv_event_loop(napi_env env, struct uv_loop_s **ret_loop);

#define UV_RUN_ONCE 1
extern int uv_loop_alive(const struct uv_loop_s *loop);
extern int uv_run(struct uv_loop_s *loop, int mode);

/* What node calls when it has loaded the file, and the exports that it returns. */
__attribute__((visibility("default"))) napi_value napi_register_module_v1(napi_env env,
                                                                          napi_value exports);

static napi_value boolean(napi_env env, bool value)
{
    napi_value answer = NULL; /* undefined */
    IGNORE_RESULT(napi_get_boolean(env, value, &answer));
    return answer;
}

/* ---- park --------------------------------------------------------------- */

static bool is_park_socket(int fd)
{
    int type = 0;
    socklen_t length = sizeof(type);
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

/* Of a thread's folder in proc, whose name is plain digits; 0 of "." and "..". */
static pid_t thread_of(const char *name)
{
    pid_t thread = 0;

    for (; *name >= '0' && *name <= '9'; name++)
        thread = thread * 10 + (*name - '0');
    return thread;
}

/* Each thread has a set of its own. New ones come from this one, the main one,
 * which begins with itself: so none of them has another. */
static bool set_cpu_of_threads(const cpu_set_t *cpu)
{
    DIR *threads = opendir("/proc/self/task");
    const struct dirent *entry;
    bool done = threads && sched_setaffinity(0, sizeof(*cpu), cpu) == 0;

    for (errno = 0; done && (entry = readdir(threads)); errno = 0) {
        pid_t thread = thread_of(entry->d_name);
        done = thread == 0 || sched_setaffinity(thread, sizeof(*cpu), cpu) == 0 || errno == ESRCH;
    }
    done = done && errno == 0;
    if (threads)
        closedir(threads);
    return done;
}

static napi_value park_process(napi_env env, napi_callback_info info)
{
    const struct parking parking = {
        .socket = WIRE_CHANNEL_FD_NODE,
        .flags = O_CLOEXEC, /* as node makes all that it inherits; children get copies */
        .set_cpu = set_cpu_of_threads,
    };
    (void)info;

    if (!is_park_socket(parking.socket))
        return boolean(env, false);
    park_say_ready(&parking, "", 0);
    IGNORE_RESULT(!park(&parking));
    return boolean(env, true);
}

/* ---- for the rehearsal -------------------------------------------------- */

static napi_value turn_loop(napi_env env, napi_callback_info info)
{
    struct uv_loop_s *loop = NULL;
    (void)info;

    bool alive = napi_get_uv_event_loop(env, &loop) == 0 && uv_loop_alive(loop) != 0;
    if (alive)
        IGNORE_RESULT(uv_run(loop, UV_RUN_ONCE));
    return boolean(env, alive);
}

static napi_value open_pipe(napi_env env, napi_callback_info info)
{
    napi_value answer = NULL;
    int fds[2], both = -1;
    char path[32];
    (void)info;

    if (pipe2(fds, O_CLOEXEC) == 0) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
        both = open(path, O_RDWR | O_CLOEXEC);
        close(fds[0]);
        close(fds[1]);
    }
    IGNORE_RESULT(napi_create_int32(env, both, &answer));
    return answer;
}

/* ---- for sessions --------------------------------------------------------- */

static int open_named(const char *path)
{
    struct stat status;
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0 && (fstat(fd, &status) < 0 || !S_ISFIFO(status.st_mode) ||
                    fcntl(fd, F_SETFL, 0) < 0)) { /* which makes it block */
        close(fd);
        return -1;
    }
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); /* that place is to be filled */
    close(fd);
    return higher;
}

static napi_value open_named_pipe(napi_env env, napi_callback_info info)
{
    napi_value answer = NULL, argument = NULL;
    size_t count = 1, length = 0;
    char path[64];
    int fd = -1;

    if (napi_get_cb_info(env, info, &count, &argument, NULL, NULL) == 0 && count == 1 &&
        napi_get_value_string_utf8(env, argument, path, sizeof(path), &length) == 0)
        fd = open_named(path);
    IGNORE_RESULT(napi_create_int32(env, fd, &answer));
    return answer;
}

static napi_value replace_descriptor(napi_env env, napi_callback_info info)
{
    napi_value arguments[2] = {NULL, NULL};
    size_t count = 2;
    int32_t fd = -1, old = -1;

    bool done = napi_get_cb_info(env, info, &count, arguments, NULL, NULL) == 0 && count == 2 &&
                napi_get_value_int32(env, arguments[0], &fd) == 0 &&
                napi_get_value_int32(env, arguments[1], &old) == 0 && dup2(fd, old) >= 0;
    if (done && fd != old)
        close(fd);
    return boolean(env, done);
}

/* ---- the addon ---------------------------------------------------------- */

napi_value napi_register_module_v1(napi_env env, napi_value exports)
{
    static const struct napi_property functions[] = {
        {.name = "park", .method = park_process},
        {.name = "turn", .method = turn_loop},
        {.name = "pipe", .method = open_pipe},
        {.name = "open", .method = open_named_pipe},
        {.name = "replace", .method = replace_descriptor},
    };

    IGNORE_RESULT(napi_define_properties(env, exports, ARRAY_LENGTH(functions), functions));
    return exports;
}
