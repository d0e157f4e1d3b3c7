/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See helper.h. The supervisor inherits two descriptors and no more: its
 * control socket, whose end tells it that the engine is gone, and a pidfd of
 * this process, which tells it the same even where the host program was
 * forked and a copy of the socket lives on.
 */
#include "helper.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/quote.h"
#include "helper_dir.h"
#include "proto.h"
#include "scope.h"
#include "slots.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define HELLO_SECONDS 10
#define SCOPE_SECONDS 5 /* for systemd to start a scope, and the hello */
#define END_SECONDS 5
#define PARKED_DEFAULT 4
#define DEFAULT_PYTHON "/usr/bin/python3"
#define DEFAULT_BASH "/bin/bash"
#define DEFAULT_NODE "/usr/bin/node"

/* ---- options ----------------------------------------------------------- */

static int copy_text(const char *field, const char *given, const char *fallback, bool absolute,
                     char **ret_text, struct hutch_error *err)
{
    const char *text = given ? given : fallback;
    if (given && (strlen(given) >= PATH_MAX || (absolute && given[0] != '/')))
        return err_set(err, HUTCH_ERR_INVALID,
                       "%s: '%.80s' is not an absolute path of at most %d "
                       "bytes",
                       field, given, PATH_MAX - 1);
    char *copy = strdup(text);
    if (!copy)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    *ret_text = copy;
    return 0;
}

/* ~/.cache/hutch of the user's entry in the passwd database, not of $HOME:
 * the library reads no environment. */
static int default_cache_dir(char **ret_dir, struct hutch_error *err)
{
    char text[4096];
    char path[PATH_MAX];
    struct passwd entry;
    struct passwd *found = NULL;

    if (getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) != 0 || !found ||
        found->pw_dir[0] != '/')
        snprintf(path, sizeof(path), "/tmp/hutch-cache-%u", geteuid());
    else
        snprintf(path, sizeof(path), "%s/.cache/hutch", found->pw_dir);
    return copy_text("cache_dir", NULL, path, false, ret_dir, err);
}

/* A list of module names, which the zygote imports. */
static int check_preload(const char *preload, struct hutch_error *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,";

    if (preload &&
        (strlen(preload) > LIMIT_PRELOAD_BYTES || strspn(preload, allowed) != strlen(preload)))
        return err_set(err, HUTCH_ERR_INVALID,
                       "preload: %s is not a list of module names with commas, of at most %u bytes",
                       quote_bytes(preload, strlen(preload)).text, (unsigned)LIMIT_PRELOAD_BYTES);
    return 0;
}

static int fill_options(const struct hutch_engine_options *given, struct helper_options *options,
                        struct hutch_error *err)
{
    if (given->size < sizeof(*given))
        return err_set(err, HUTCH_ERR_INVALID, "size: %zu is not set by hutch_engine_options_init",
                       given->size);
    options->uid_base = given->uid_base ? given->uid_base : SLOTS_DEFAULT_BASE;
    options->uid_count = given->uid_count ? given->uid_count : SLOTS_DEFAULT_COUNT;
    if (options->uid_count > SLOTS_COUNT_MAX ||
        options->uid_base > UINT32_MAX - 1 - SLOTS_COUNT_MAX || options->uid_base < 1000)
        return err_set(err, HUTCH_ERR_INVALID,
                       "uid_base, uid_count: %u, %u is not a range of 1 to %u uids from 1000 up",
                       options->uid_base, options->uid_count, SLOTS_COUNT_MAX);
    options->warmth = given->warmth;
    options->zygotes_are_owners = given->zygote_per_owner;
    options->parked_cells = given->parked_cells ? given->parked_cells : PARKED_DEFAULT;
    if (options->warmth > HUTCH_COLD)
        return err_set(err, HUTCH_ERR_INVALID, "warmth: %u is not 0 to %u", options->warmth,
                       (unsigned)HUTCH_COLD);
    if (options->parked_cells > LIMIT_PARKED_CELLS)
        return err_set(err, HUTCH_ERR_INVALID, "parked_cells: %u is not 1 to %u",
                       options->parked_cells, (unsigned)LIMIT_PARKED_CELLS);
    if (check_preload(given->preload, err) < 0 ||
        copy_text("preload", given->preload, "", false, &options->preload, err) < 0)
        return err->code;
    if (copy_text("python", given->python, DEFAULT_PYTHON, true, &options->python, err) < 0 ||
        copy_text("bash", given->bash, DEFAULT_BASH, true, &options->bash, err) < 0 ||
        copy_text("node", given->node, DEFAULT_NODE, true, &options->node, err) < 0 ||
        copy_text("cgroup", given->cgroup, "", false, &options->cgroup, err) < 0)
        return err->code;
    if (given->cache_dir
            ? copy_text("cache_dir", given->cache_dir, NULL, true, &options->cache_dir, err) < 0
            : default_cache_dir(&options->cache_dir, err) < 0)
        return err->code;
    return given->helper_dir
               ? copy_text("helper_dir", given->helper_dir, NULL, true, &options->helper_dir, err)
               : helper_dir_find(&options->helper_dir, err);
}

int helper_options_init(const struct hutch_engine_options *given,
                        struct helper_options *ret_options, struct hutch_error *err)
{
    struct hutch_engine_options defaults;
    struct helper_options options = {0};

    hutch_engine_options_init(&defaults);
    if (fill_options(given ? given : &defaults, &options, err) < 0) {
        helper_options_done(&options);
        return err->code;
    }
    *ret_options = options;
    return 0;
}

void helper_options_done(struct helper_options *options)
{
    free(options->helper_dir);
    free(options->cache_dir);
    free(options->python);
    free(options->bash);
    free(options->node);
    free(options->cgroup);
    free(options->preload);
    memset(options, 0, sizeof(*options));
}

/* ---- places for cells -------------------------------------------------- */

/* Of the engine, for a run: four that stay, and some while it begins. Half of all are
 * for something else. */
#define FILES_PER_RUN (2 * 6)
#define SPARE_CELLS 8     /* zygotes, of which there are two for a while, and the doctor's */
#define PLACES_PER_END 16 /* cells that are being taken down, which takes milliseconds */

/* Like limit_cells() of supervisor.c and spare_places() of pool.c, and with fewer uids
 * as few cells. */
static uint64_t places_of(const struct helper_options *options, uint64_t hard_files)
{
    uint64_t files = hard_files > LIMIT_SUPERVISOR_FILES ? hard_files - LIMIT_SUPERVISOR_FILES : 0;
    uint64_t places = files / LIMIT_CELL_FILES;

    if (geteuid() == 0 && options->uid_count < places)
        places = options->uid_count;
    if (places > LIMIT_CELLS)
        places = LIMIT_CELLS;
    uint64_t spare = SPARE_CELLS + places / PLACES_PER_END;
    if (options->warmth == HUTCH_PARKED) /* of all owners: pool.c */
        spare += places / LIMIT_PARKED_PART;
    return places > spare ? places - spare : 1;
}

uint32_t helper_max_cells(const struct helper_options *options)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return 1;
    uint64_t runs = files.rlim_cur / FILES_PER_RUN;
    uint64_t places = places_of(options, files.rlim_max);
    if (runs < places)
        places = runs > 0 ? runs : 1;
    return (uint32_t)places;
}

/* ---- spawning ---------------------------------------------------------- */

/* Above the places that the supervisor finds them in, so that no dup2 of the
 * file actions overwrites the source of the next. */
static int move_up(int *fd)
{
    int moved = fcntl(*fd, F_DUPFD_CLOEXEC, PROTO_ENGINE_PIDFD + 1);
    if (moved < 0)
        return -1;
    close(*fd);
    *fd = moved;
    return 0;
}

static int spawn_prepared(char *const *argv, char *const *environment, int control_fd,
                          int engine_fd, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;

    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (error != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return error;
    }
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, 0, 1);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, 0, 2);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, control_fd, PROTO_CONTROL_FD);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, engine_fd, PROTO_ENGINE_PIDFD);
    if (error == 0)
        error = posix_spawn_file_actions_addclosefrom_np(&actions, PROTO_ENGINE_PIDFD + 1);
    if (error == 0)
        error = posix_spawn(ret_pid, argv[0], &actions, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Of a supervisor that said nothing. The kernel kills what it has no memory to
 * load. */
static int explain_end(const struct helper *helper, struct hutch_error *err)
{
    siginfo_t info = {0};
    bool dead = helper->pidfd >= 0 &&
                fd_wait(helper->pidfd, POLLIN, clock_after_ns(NS_PER_SECOND)) > 0 &&
                waitid(P_PIDFD, (id_t)helper->pidfd, &info, WEXITED | WNOWAIT) == 0;

    if (!dead)
        return err_set(err, HUTCH_ERR_HELPER, "hutch-supervisor ended before it answered");
    if (info.si_code == CLD_EXITED)
        return err_set(err, HUTCH_ERR_HELPER, "hutch-supervisor exited with %d before it answered",
                       info.si_status);
    return err_set(err, HUTCH_ERR_HELPER,
                   "hutch-supervisor was killed by signal %d before it answered; is there memory "
                   "for it (ulimit -v, -d, or a cgroup)",
                   info.si_status);
}

static int wait_for_hello(struct helper *helper, unsigned seconds, bool *ret_answered,
                          struct hutch_error *err)
{
    struct proto_hello hello;

    int ready = fd_wait(helper->control_fd, POLLIN, clock_after_ns(seconds * NS_PER_SECOND));
    if (ready == 0)
        return err_set(err, HUTCH_ERR_HELPER, "hutch-supervisor did not answer within %u seconds",
                       seconds);
    ssize_t count = ready < 0 ? -1 : recv(helper->control_fd, &hello, sizeof(hello), MSG_TRUNC);
    *ret_answered = count > 0;
    if (count >= (ssize_t)sizeof(hello.version) && hello.version != PROTO_VERSION)
        return err_set(err, HUTCH_ERR_HELPER,
                       "hutch-supervisor speaks protocol version %u, this library %u",
                       hello.version, (unsigned)PROTO_VERSION);
    if (ready < 0 || (count < 0 && errno != ECONNRESET))
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read from hutch-supervisor");
    if (count <= 0)
        return explain_end(helper, err);
    if (!proto_is_hello(&hello, (size_t)count))
        return err_set(err, HUTCH_ERR_HELPER, "hutch-supervisor sent a malformed hello");
    if (hello.error.code != 0) {
        *err = hello.error;
        return err->code;
    }
    memcpy(helper->scope, hello.scope, sizeof(helper->scope));
    return 0;
}

/* The arguments of the supervisor, after those of what starts it, if any. */
struct command {
    const char *words[SCOPE_WORDS + PROTO_ARG_END + 1];
    char path[PATH_MAX + 32];
    char uid_base[16], uid_count[16], warmth[16], parked[16];
};

static void fill_command(struct command *command, const struct helper_options *options,
                         const struct scope_start *scope)
{
    const char **words = command->words;

    memset(command->words, 0, sizeof(command->words));
    snprintf(command->path, sizeof(command->path), "%s/hutch-supervisor", options->helper_dir);
    snprintf(command->uid_base, sizeof(command->uid_base), "%u", options->uid_base);
    snprintf(command->uid_count, sizeof(command->uid_count), "%u", options->uid_count);
    snprintf(command->warmth, sizeof(command->warmth), "%u", options->warmth);
    snprintf(command->parked, sizeof(command->parked), "%u", options->parked_cells);
    if (scope) {
        memcpy(words, scope->words, sizeof(scope->words));
        words += SCOPE_WORDS;
    }
    words[0] = command->path;
    words[PROTO_ARG_HELPER_DIR] = options->helper_dir;
    words[PROTO_ARG_CACHE_DIR] = options->cache_dir;
    words[PROTO_ARG_PYTHON] = options->python;
    words[PROTO_ARG_BASH] = options->bash;
    words[PROTO_ARG_NODE] = options->node;
    words[PROTO_ARG_CGROUP] = options->cgroup;
    words[PROTO_ARG_IN_SCOPE] = scope ? "yes" : "no";
    words[PROTO_ARG_UID_BASE] = command->uid_base;
    words[PROTO_ARG_UID_COUNT] = command->uid_count;
    words[PROTO_ARG_WARMTH] = command->warmth;
    words[PROTO_ARG_PARKED] = command->parked;
    words[PROTO_ARG_PRELOAD] = options->preload;
    words[PROTO_ARG_OWNERS] = options->zygotes_are_owners ? "yes" : "no";
}

static int spawn_and_greet(const struct helper_options *options, struct scope_start *scope,
                           struct helper *ret_helper, bool *ret_answered, struct hutch_error *err)
{
    struct command command;
    char *environment[] = {scope ? scope->environment : NULL, NULL};
    int sockets[2];

    fill_command(&command, options, scope);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make the supervisor's control socket");
    auto_close int theirs = sockets[1];
    struct helper helper = {.owner = getpid(), .pidfd = -1, .control_fd = sockets[0]};
    auto_close int engine_fd = pidfd_open(getpid(), 0);
    if (engine_fd < 0 || move_up(&theirs) < 0 || move_up(&engine_fd) < 0) {
        err_errno(err, HUTCH_ERR_SYSTEM, errno, "prepare the supervisor's descriptors");
        helper_end(&helper);
        return err->code;
    }
    /* posix_spawn takes what it does not write as writable, for old times' sake */
    int error =
        spawn_prepared((char *const *)command.words, environment, theirs, engine_fd, &helper.pid);
    if (error != 0) {
        helper.pid = 0;
        char what[sizeof(command.path) + 16];
        snprintf(what, sizeof(what), "start '%s'", command.words[0]);
        err_fork(err, HUTCH_ERR_HELPER, error, what);
        helper_end(&helper);
        return err->code;
    }
    close(TAKE_FD(theirs));
    helper.pidfd = pidfd_open(helper.pid, 0);
    if (helper.pidfd < 0 && errno == ESRCH) /* dead, and the host reaps for us */
        helper.pid = 0;
    else if (helper.pidfd < 0) {
        err_errno(err, HUTCH_ERR_SYSTEM, errno, "hold on to hutch-supervisor");
        helper_end(&helper);
        return err->code;
    }
    if (wait_for_hello(&helper, scope ? SCOPE_SECONDS : HELLO_SECONDS, ret_answered, err) < 0) {
        /* systemd-run does not look at the control socket */
        if (scope && !*ret_answered && helper.pidfd >= 0)
            pidfd_send_signal(helper.pidfd, SIGKILL, NULL, 0);
        helper_end(&helper);
        return err->code;
    }
    *ret_helper = helper;
    return 0;
}

int helper_spawn(const struct helper_options *options, struct helper *ret_helper,
                 struct hutch_error *err)
{
    struct scope_start scope;
    bool answered = false;

    if (options->cgroup[0] == '\0' && scope_is_offered(&scope)) {
        int code = spawn_and_greet(options, &scope, ret_helper, &answered, err);
        if (code == 0 || answered)
            return code;
    }
    return spawn_and_greet(options, NULL, ret_helper, &answered, err);
}

void helper_end(struct helper *helper)
{
    if (helper->control_fd >= 0)
        close(helper->control_fd);
    if (helper->pid > 0 && helper->owner == getpid()) {
        if (helper->pidfd >= 0 &&
            fd_wait(helper->pidfd, POLLIN, clock_after_ns(END_SECONDS * NS_PER_SECOND)) <= 0)
            pidfd_send_signal(helper->pidfd, SIGKILL, NULL, 0);
        /* ECHILD where the host program ignores SIGCHLD: reaped already. Without a
         * pidfd it has just been started, and ends for want of its socket. */
        if (helper->pidfd >= 0)
            IGNORE_RESULT(waitid(P_PIDFD, (id_t)helper->pidfd, &(siginfo_t){0}, WEXITED));
        else
            IGNORE_RESULT(waitid(P_PID, (id_t)helper->pid, &(siginfo_t){0}, WEXITED));
    }
    if (helper->pidfd >= 0)
        close(helper->pidfd);
    *helper = HELPER_NONE;
}
