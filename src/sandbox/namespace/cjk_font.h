/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fonts with Chinese, Japanese and Korean characters in one file, for the figures of Python
 * programs: each that the host has is in the tree, and the runner names them
 * to matplotlib, behind the usual fonts.
 */
#pragma once

#include "base/attrs.h"

#include <stddef.h>
#include <unistd.h>

#define CJK_FONT_PACKAGE "fonts-wqy-microhei" /* the smallest that has all three */

/* Of fonts-noto-cjk, -droid-fallback, -wqy-microhei and -wqy-zenhei; runner.py knows their
 * families. */
#define CJK_FONTS                                                                                  \
    "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc",                                      \
        "/usr/share/fonts/truetype/droid/DroidSansFallbackFull.ttf",                               \
        "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",                                          \
        "/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc"

/* The first that the host has; NULL for none. */
static inline const char *cjk_font_find(void)
{
    static const char *const paths[] = {CJK_FONTS};

    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++) {
        if (access(paths[i], R_OK) == 0)
            return paths[i];
    }
    return NULL;
}
