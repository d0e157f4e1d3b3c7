/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of fonts that matplotlib makes for itself when it is first used, which takes it a
 * fifth of a second and more: made once, for the fonts of the tree.
 */
#pragma once

#include "base/buf.h"

#include <stdint.h>

/* Folders whose fonts every Python tree has, where the host has them. */
#define TREE_FONTS_DEJAVU "/usr/share/fonts/truetype/dejavu"
#define TREE_FONTS_LYX "/usr/share/fonts/truetype/lyx"

struct font_list {
    char name[64]; /* of the file, which has matplotlib's version in it; "" for no list */
    struct buf content;
};

#define FONT_LIST_NONE ((struct font_list){.content = BUF_MAX(FONT_LIST_MAX)})
#define FONT_LIST_MAX (1u << 20)

void font_list_done(struct font_list *list);
#define auto_font_list __attribute__((cleanup(font_list_done)))

/* Has the host's interpreter (an absolute path) make the list, until deadline_ns, with the
 * rights of the caller. Without matplotlib, or where that fails, there is none: programs then
 * make their own. Errors: NO_MEMORY. */
MUST_CHECK int font_list_make(const char *interpreter, uint64_t deadline_ns,
                              struct font_list *ret_list, struct hutch_error *err);
