/* SPDX-License-Identifier: Apache-2.0 */
/* See proc_text.h. Formats: proc(5). */
#include "proc_text.h"

#include "base/limits.h"
#include "base/parse.h"

#include <string.h>

#define PF_EXITING 0x4u /* of the kernel's linux/sched.h */

uint64_t proc_text_pss(const char *text)
{
    static const char key[] = "\nPss:";
    const char *line = strstr(text, key);

    return line ? KIB(parse_leading(line + strlen(key))) : 0;
}

uint64_t proc_text_resident_pages(const char *text)
{
    const char *blank = strchr(text, ' ');

    return blank ? parse_leading(blank) : 0;
}

bool proc_text_is_exiting(const char *text)
{
    const char *rest = strrchr(text, ')');

    /* ") S ppid pgrp session tty tpgid flags": the seventh word from here. */
    for (int word = 0; word < 7 && rest; word++)
        rest = strchr(rest + 1, ' ');
    return !rest || (parse_leading(rest) & PF_EXITING) != 0;
}

bool proc_text_uid_0_is_root(const char *text)
{
    text += strspn(text, " ");
    if (text[0] != '0' || text[1] != ' ')
        return false;
    text += 1 + strspn(text + 1, " ");
    return text[0] == '0' && text[1] == ' ';
}
