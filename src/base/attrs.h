/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes and cleanup helpers that the whole tree uses: locals that free
 * themselves, and the one macro that lets ownership leave a scope.
 */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))
#define NORETURN __attribute__((noreturn))

/* Looks at a result on purpose and drops it; gcc warns of a cast to void. */
#define IGNORE_RESULT(expression)                                                                  \
    do {                                                                                           \
        if ((expression) != 0) { /* by intention */                                                \
        }                                                                                          \
    } while (0)

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static inline void cleanup_free_(void *pointer)
{
    int saved = errno;
    free(*(void **)pointer);
    errno = saved;
}

static inline void cleanup_close_(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        errno = saved;
    }
}

/* A heap pointer, or a descriptor, that the end of the scope releases. Both
 * are initialised where they are declared (NULL, -1). */
#define auto_free __attribute__((cleanup(cleanup_free_)))
#define auto_close __attribute__((cleanup(cleanup_close_)))

/* Moves ownership out of such a variable. */
static inline int take_fd_(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}
#define TAKE_FD(fd) take_fd_(&(fd))
#define TAKE_POINTER(pointer)                                                                      \
    __extension__({                                                                                \
        __typeof__(pointer) taken_pointer_ = (pointer);                                            \
        (pointer) = NULL;                                                                          \
        taken_pointer_;                                                                            \
    })
