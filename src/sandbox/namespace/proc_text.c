/* SPDX-License-Identifier: Apache-2.0 */
/* See proc_text.h. Formats: proc(5). */
#include "proc_text.h"

#include "base/limits.h"
#include "base/parse.h"

#include <string.h>

#define PF_EXITING 0x4u /* of the kernel's linux/sched.h */

/* The value, in bytes, of a line that key begins. */
static uint64_t bytes_of(const char *text, const char *key)
{
    const char *line = strstr(text, key);

    return line ? KIB(parse_leading(line + strlen(key))) : 0;
}

uint64_t proc_text_pss(const char *text)
{
    return bytes_of(text, "\nPss:");
}

uint64_t proc_text_private_dirty(const char *text)
{
    return bytes_of(text, "\nPrivate_Dirty:");
}

uint64_t proc_text_resident_pages(const char *text)
{
    const char *blank = strchr(text, ' ');

    return blank ? parse_leading(blank) : 0;
}

/* stat: the blank before a word that follows the name: ") S ppid pgrp session tty tpgid flags". */
static const char *word_of_stat(const char *text, int number)
{
    const char *rest = strrchr(text, ')');

    for (int word = 0; word < number && rest; word++)
        rest = strchr(rest + 1, ' ');
    return rest;
}

bool proc_text_is_exiting(const char *text)
{
    const char *flags = word_of_stat(text, 7);

    return !flags || (parse_leading(flags) & PF_EXITING) != 0;
}

bool proc_text_ends_silently(const char *text)
{
    const char *exit_signal = word_of_stat(text, 36);

    return exit_signal && exit_signal[1] == '0';
}

bool proc_text_uid_0_is_root(const char *text)
{
    text += strspn(text, " ");
    if (text[0] != '0' || text[1] != ' ')
        return false;
    text += 1 + strspn(text + 1, " ");
    return text[0] == '0' && text[1] == ' ';
}

uint32_t proc_text_pid(const char *text)
{
    static const char key[] = "\nPid:\t";
    const char *line = strstr(text, key);
    uint64_t pid = line ? parse_leading(line + strlen(key)) : 0;

    return pid <= INT32_MAX ? (uint32_t)pid : 0;
}

uint32_t proc_text_innermost_pid(const char *text)
{
    static const char key[] = "\nNSpid:";
    const char *line = strstr(text, key);
    const char *end = line ? strchr(line + 1, '\n') : NULL;
    uint64_t pid = 0;

    for (const char *at = end ? line + strlen(key) : NULL; at && at < end; at = strchr(at, '\t'))
        pid = parse_leading(++at);
    return pid <= INT32_MAX ? (uint32_t)pid : 0;
}

/* Whether the mask of a line, in hexadecimal digits, has the signal. */
static bool mask_has(const char *text, const char *key, int signal_number)
{
    const char *line = strstr(text, key);
    const char *digits = line ? line + strlen(key) : "";
    size_t count = strspn(digits, "0123456789abcdef");
    size_t place = (size_t)(signal_number - 1) / 4; /* from the right */

    if (place >= count)
        return false;
    char digit = digits[count - 1 - place];
    int value = digit <= '9' ? digit - '0' : digit - 'a' + 10;
    return (value >> (signal_number - 1) % 4 & 1) != 0;
}

bool proc_text_has_default(const char *text, int signal_number)
{
    return !mask_has(text, "\nSigIgn:\t", signal_number) &&
           !mask_has(text, "\nSigCgt:\t", signal_number);
}

/* Whether a number of a line is 0. */
static bool is_zero(const char *text, const char *line, const char *name)
{
    const char *at = strstr(text, line);
    const char *end = at ? strchr(at + 1, '\n') : NULL;

    at = at ? strstr(at, name) : NULL;
    if (!end || !at || at >= end)
        return false;
    at += strlen(name);
    return at[0] == '0' && (at[1] == ' ' || at[1] == '\n');
}

bool proc_text_has_no_socket(const char *text)
{
    return is_zero(text, "sockets:", " used ") && is_zero(text, "\nTCP:", " inuse ") &&
           is_zero(text, "\nTCP:", " tw ") && is_zero(text, "\nUDP:", " inuse ") &&
           is_zero(text, "\nFRAG:", " inuse ");
}
