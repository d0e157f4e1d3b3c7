/* SPDX-License-Identifier: Apache-2.0 */
/* An interpreter that is a shell script. */
#pragma once

#include "base/attrs.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define SCRIPT_PATH "/tmp/hutch-test-script-XXXXXX"

/* Makes it at path, which begins as SCRIPT_PATH and then is its name; the caller
 * unlinks it. It is closed again: what is open for writing cannot be run. False,
 * with errno, when it could not be made. */
static inline bool script_make(char *path, const char *text)
{
    auto_close int fd = mkstemp(path);

    return fd >= 0 && dprintf(fd, "#!/bin/sh\n%s\n", text) > 0 && fchmod(fd, 0755) == 0;
}
