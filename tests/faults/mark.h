/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs of this folder say to inject.c: a system call that every
 * kernel refuses with EINVAL, so that without inject.c it means nothing.
 *
 *     prctl(MARK, MARK_BEGIN)   from here on the engine's calls count
 *     prctl(MARK, MARK_END)     and up to here
 *     prctl(MARK, MARK_MEMORY)  memory is asked for; ENOMEM: do not give it
 */
#pragma once

#define MARK 0x66617573

enum { MARK_BEGIN, MARK_END, MARK_MEMORY };
