/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames by which a shell cell gets its program: what is taken is a program
 * that stands in its file just as it was sent, and an environment of NAME=VALUE
 * strings in which no name of the cell's own is lost.
 *
 * Input: the frames.
 */
#include "fuzz.h"

#include "guest/script.h"
#include "sandbox/wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const own_env[] = {"HOME=/home/user", "LANG=C.UTF-8", NULL};

static bool is_sent(const char *entry, const uint8_t *data, size_t size)
{
    return memmem(data, size, entry, strlen(entry) + 1) != NULL;
}

static void check_env(const char *const *env, const uint8_t *data, size_t size)
{
    bool home = false, language = false;

    for (size_t i = 0; env[i]; i++) {
        assert(strchr(env[i], '='));
        assert(env[i] == own_env[0] || env[i] == own_env[1] || is_sent(env[i], data, size));
        home = home || strncmp(env[i], "HOME=", 5) == 0;
        language = language || strncmp(env[i], "LANG=", 5) == 0;
    }
    assert(home && language);
}

static void check_file(const char *path, const uint8_t *data, size_t size)
{
    auto_buf struct buf code = BUF_MAX(WIRE_MAX_RUN);
    struct hutch_error err;

    int done = buf_read_file(&code, AT_FDCWD, path, &err);
    assert(done == 0 && code.length > 0 && code.length <= size);
    assert(memmem(data, size, code.data, code.length));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    const char *const *argv = NULL;
    const char *const *envp = own_env;
    struct input input = {data, size};

    snprintf(path, sizeof(path), "/tmp/hutch-fuzz-script-%d", (int)getpid());
    int error = script_receive(input_file(&input), "/bin/bash", path, &argv, &envp);
    assert(error <= 0);
    if (error == 0) {
        check_env(envp, data, size);
        check_file(path, data, size);
        assert(strcmp(argv[0], "/bin/bash") == 0);
    }
    unlink(path);
    return 0;
}
