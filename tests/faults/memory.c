/* SPDX-License-Identifier: Apache-2.0 */
/*
 * malloc and its kin, for the programs that inject.c watches: each call first
 * asks it, by a system call that it can see, whether to fail. Built in two ways:
 * into a dynamic program these are the functions themselves, for its libraries
 * too; into a static one, with WRAPPED, they are what the linker's --wrap puts in
 * front of the C library's.
 */
#include "memory.h"

#include "mark.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>

#ifdef WRAPPED
#define OURS(name) __wrap_##name
#else
#define OURS(name) name
#endif

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void __libc_free(void *memory);

void *OURS(malloc)(size_t size);
void *OURS(calloc)(size_t count, size_t size);
void *OURS(realloc)(void *memory, size_t size);
void OURS(free)(void *memory);

static atomic_long live;

long memory_live(void)
{
    return live;
}

/* errno stays as it is, but for the failure. */
static bool may_have(void)
{
    int saved = errno;
    bool refused = syscall(SYS_prctl, MARK, MARK_MEMORY, 0, 0, 0) < 0 && errno == ENOMEM;

    errno = refused ? ENOMEM : saved;
    return !refused;
}

static void *count(void *memory)
{
    live += memory != NULL;
    return memory;
}

void *OURS(malloc)(size_t size)
{
    return may_have() ? count(__libc_malloc(size)) : NULL;
}

void *OURS(calloc)(size_t number, size_t size)
{
    return may_have() ? count(__libc_calloc(number, size)) : NULL;
}

void *OURS(realloc)(void *memory, size_t size)
{
    if (!may_have())
        return NULL;
    void *moved = __libc_realloc(memory, size);
    return memory ? moved : count(moved);
}

void OURS(free)(void *memory)
{
    live -= memory != NULL;
    __libc_free(memory);
}
