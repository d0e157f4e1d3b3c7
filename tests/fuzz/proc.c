/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc says of processes: numbers stay in their bounds, and the name of a
 * program, which may hold anything, does not change what is read.
 *
 * Input: the text.
 */
#include "fuzz.h"

#include "base/limits.h"
#include "base/parse.h"
#include "sandbox/namespace/proc_text.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_MOST (UINT64_C(1) << 40)

/* The kernel writes a process's name, up to 15 bytes, into its stat as it is. */
static void check_name(const char *name, unsigned flags)
{
    auto_buf struct buf stat = BUF_MAX(LIMIT_PROC_FILE_BYTES);

    buf_appendf(&stat, "7 (%.15s) S 1 7 7 0 -1 %u 12 0 0 0\n", name, flags);
    assert(stat.failure == BUF_OK);
    assert(proc_text_is_exiting(stat.data) == ((flags & 4) != 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    auto_free char *text = input_text(&input);

    assert(proc_text_pss(text) <= KIB(NUMBER_MOST));
    assert(proc_text_pss(text) == 0 || strstr(text, "Pss:"));
    assert(proc_text_resident_pages(text) <= NUMBER_MOST);
    assert(parse_leading(text) <= NUMBER_MOST);
    assert(strchr(text, ')') || proc_text_is_exiting(text));
    assert(!proc_text_uid_0_is_root(text) || strstr(text, "0 "));
    assert(proc_text_pid(text) == 0 || strstr(text, "Pid:"));
    assert(!proc_text_has_no_socket(text) || strstr(text, " tw 0"));
    assert(proc_text_has_default(text, 2) || strstr(text, "\nSigIgn:\t") ||
           strstr(text, "\nSigCgt:\t"));
    check_name(text, 0x400100);
    check_name(text, 0x400104);
    return 0;
}
