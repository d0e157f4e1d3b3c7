/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See script.h. A shell program becomes a file, because bash reads a program
 * of any length from there with the line numbers, the $0 and the exit codes
 * that people know; a -c argument ends at 128 KiB.
 */
#include "script.h"

#include "../sandbox/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENV_POINTERS 160

static char code[WIRE_MAX_RUN];
static char env_text[WIRE_MAX_ENV];
static const char *env_pointers[ENV_POINTERS + 1];

/* A program with a first line of its own is exec'd as a file. When that line
 * names an interpreter that is not there, the kernel says no more than that
 * something is missing; this says what. */
#define EXEC_SCRIPT                                                                                \
    "IFS= read -r line <\"$0\"\n"                                                                  \
    "read -r line rest <<<\"${line#'#!'}\"\n"                                                      \
    "[ -e \"$line\" ] || { echo \"$0: $line: no such interpreter\" >&2; exit 127; }\n"             \
    "exec \"$0\"\n"
static char script_path[64];
static const char *run_by_bash[] = {NULL, script_path, NULL};
static const char *run_by_first_line[] = {NULL, "-c", EXEC_SCRIPT, script_path, NULL};

static int read_all(int fd, void *data, size_t length)
{
    char *next = data;

    while (length > 0) {
        ssize_t count = read(fd, next, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? -errno : -EPIPE;
        next += count;
        length -= (size_t)count;
    }
    return 0;
}

static int write_all(int fd, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t count = write(fd, data, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -errno;
        data += count;
        length -= (size_t)count;
    }
    return 0;
}

static int write_script(const char *path, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700);
    if (fd < 0)
        return -errno;
    int error = write_all(fd, code, length);
    close(fd);
    return error;
}

/* Puts the request's variables behind the given ones, except that a name that
 * is given already takes the request's value. */
static int merge_env(const char *const *given, size_t length)
{
    size_t count = 0;
    while (given[count] && count < ENV_POINTERS) {
        env_pointers[count] = given[count];
        count++;
    }
    for (const char *entry = env_text; entry < env_text + length; entry += strlen(entry) + 1) {
        const char *equals = strchr(entry, '=');
        if (!equals)
            return -EPROTO;
        size_t name_length = (size_t)(equals - entry) + 1;
        size_t place = 0;
        while (place < count && strncmp(env_pointers[place], entry, name_length) != 0)
            place++;
        if (place == ENV_POINTERS)
            return -EPROTO;
        env_pointers[place] = entry;
        if (place == count)
            count++;
    }
    env_pointers[count] = NULL;
    return 0;
}

/* The kernel takes arguments and environment up to a quarter of the stack's
 * limit; a large environment needs a larger one. */
static void make_room_for_env(size_t length)
{
    struct rlimit stack;

    if (length < WIRE_MAX_RUN || getrlimit(RLIMIT_STACK, &stack) < 0)
        return;
    stack.rlim_cur = stack.rlim_max;
    setrlimit(RLIMIT_STACK, &stack);
}

int script_receive(int channel_fd, const char *bash, const char *path, const char *const **argv,
                   const char *const **envp)
{
    struct wire_header header;

    int error = read_all(channel_fd, &header, sizeof(header));
    if (error < 0)
        return error;
    if (header.type == WIRE_ENV) {
        if (header.length > sizeof(env_text))
            return -EPROTO;
        error = read_all(channel_fd, env_text, header.length);
        if (error < 0)
            return error;
        if (header.length > 0 && env_text[header.length - 1] != '\0')
            return -EPROTO;
        error = merge_env(*envp, header.length);
        if (error < 0)
            return error;
        *envp = env_pointers;
        make_room_for_env(header.length);
        error = read_all(channel_fd, &header, sizeof(header));
        if (error < 0)
            return error;
    }
    if (header.type != WIRE_RUN || header.length == 0 || header.length > sizeof(code))
        return -EPROTO;
    error = read_all(channel_fd, code, header.length);
    if (error == 0)
        error = write_script(path, header.length);
    if (error < 0)
        return error;

    if (strlen(path) >= sizeof(script_path))
        return -ENAMETOOLONG;
    memcpy(script_path, path, strlen(path) + 1);
    run_by_bash[0] = run_by_first_line[0] = bash;
    bool first_line = header.length > 2 && code[0] == '#' && code[1] == '!';
    *argv = first_line ? run_by_first_line : run_by_bash;
    return 0;
}
