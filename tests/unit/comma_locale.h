/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a test in a locale whose decimal point is a comma. Minimal systems have
 * no such locale and nothing to compile one with, so the file that localedef
 * would write is written here: the numeric category, 6 items (point, separator,
 * grouping, the first two as wide characters, name of the encoding).
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    uint32_t magic, items, at[6];
    char texts[4]; /* point, separator, grouping */
    uint32_t wide_point, wide_separator;
    char encoding[16];
} comma_numeric = {
    .magic = 0x20031114,
    .items = 6,
    .at = {32, 34, 35, 36, 40, 44},
    .texts = ",",
    .wide_point = ',',
    .encoding = "ANSI_X3.4-1968",
};

extern char **environ;

/* Writes the file below a new folder, enters the locale, removes both. False,
 * with errno, when this libc does not take it. */
static inline bool enter_comma_locale(void)
{
    char dir[] = "/tmp/hutch-locale-XXXXXX";
    char name_dir[64], file[80], locpath[64];
    if (!mkdtemp(dir))
        return false;
    snprintf(name_dir, sizeof(name_dir), "%s/comma", dir);
    snprintf(file, sizeof(file), "%s/LC_NUMERIC", name_dir);
    snprintf(locpath, sizeof(locpath), "LOCPATH=%s", dir);

    bool entered = false;
    if (mkdir(name_dir, 0700) == 0) {
        int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0 &&
            write(fd, &comma_numeric, sizeof(comma_numeric)) == (ssize_t)sizeof(comma_numeric)) {
            char **saved = environ;
            environ = (char *[]){locpath, NULL};
            entered = setlocale(LC_NUMERIC, "comma") != NULL;
            environ = saved;
        }
        int failed = errno;
        if (fd >= 0)
            close(fd);
        unlink(file);
        rmdir(name_dir);
        errno = failed;
    }
    rmdir(dir);
    return entered;
}

static inline void leave_comma_locale(void)
{
    setlocale(LC_NUMERIC, "C");
}
