/* SPDX-License-Identifier: Apache-2.0 */
/* See helper_dir.h. */
#include "helper_dir.h"

#include "base/error.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* libexec/hutch near the folder of a file, where it holds the supervisor; else NULL. */
static char *helper_dir_near(const char *file)
{
    static const char *const ways[] = {"libexec/hutch", "../libexec/hutch", "../../libexec/hutch"};
    const char *slash = strrchr(file, '/');

    for (size_t i = 0; slash && i < ARRAY_LENGTH(ways); i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof(path), "%.*s/%s/hutch-supervisor", (int)(slash - file),
                              file, ways[i]);
        if (length < 0 || (size_t)length >= sizeof(path) || access(path, X_OK) < 0)
            continue;
        *strrchr(path, '/') = '\0';
        return realpath(path, NULL);
    }
    return NULL;
}

int helper_dir_find(char **ret_dir, struct hutch_error *err)
{
    char path[PATH_MAX];
    Dl_info info;
    char *dir = NULL;

    if (dladdr((void *)(uintptr_t)helper_dir_find, &info) != 0 && info.dli_fname &&
        realpath(info.dli_fname, path))
        dir = helper_dir_near(path);
    if (!dir && realpath("/proc/self/exe", path))
        dir = helper_dir_near(path);
    if (!dir)
        return err_set(err, HUTCH_ERR_HELPER,
                       "libexec/hutch/hutch-supervisor not found near libhutch or the program");
    *ret_dir = dir;
    return 0;
}
