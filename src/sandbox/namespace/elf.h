/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an ELF file asks of the dynamic loader: which loader, which libraries,
 * and where to look for them. For 64-bit little-endian files of this machine.
 * The file is not trusted: every offset and length in it is checked.
 */
#pragma once

#include "string_list.h"

#define ELF_SEGMENTS_MAX 64  /* program headers that are looked at */
#define ELF_DYNAMIC_MAX 4096 /* entries of the dynamic section */
#define ELF_STRING_MAX 4096  /* bytes of one string, the NUL included */

struct elf_object {
    char *loader;  /* PT_INTERP; NULL in a library */
    char *rpath;   /* DT_RPATH and DT_RUNPATH as they stand, with colons */
    char *runpath; /* and $ORIGIN; NULL where there is none */
    struct string_list needed;
};

void elf_done(struct elf_object *object);
#define auto_elf __attribute__((cleanup(elf_done)))

/* Reads the file behind fd, whose position stays. 1: *ret_object is filled and
 * is the caller's; 0: this is no executable or shared ELF file for this
 * machine (a script, 32 bits, another processor). Errors: RUNTIME for a file
 * that contradicts itself, SYSTEM, NO_MEMORY. */
MUST_CHECK int elf_read(int fd, struct elf_object *ret_object, struct hutch_error *err);
