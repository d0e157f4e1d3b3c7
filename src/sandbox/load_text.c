/* SPDX-License-Identifier: Apache-2.0 */
/* See load_text.h. Formats: proc(5), and the kernel's accounting/psi.rst. */
#include "load_text.h"

#include "base/limits.h"
#include "base/parse.h"

#include <string.h>

#define PRESSURE_MOST 10000 /* a hundred percent */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* What stands behind a name at the beginning of a line; NULL where there is none. */
static const char *behind(const char *text, const char *name)
{
    size_t length = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0)
            return line + length;
    }
    return NULL;
}

bool load_text_memory(const char *text, const char *name, uint64_t *ret_bytes)
{
    const char *at = behind(text, name);

    if (!at || *at != ':')
        return false;
    at++;
    if (!is_digit(at[strspn(at, " ")]))
        return false;
    *ret_bytes = KIB(parse_leading(at));
    return true;
}

bool load_text_runnable(const char *text, uint32_t *ret_threads)
{
    /* "0.50 0.69 0.88 2/124 7992" */
    for (int word = 0; word < 3 && text; word++) {
        text = strchr(text, ' ');
        text = text ? text + 1 : NULL;
    }
    if (!text || !is_digit(*text) || text[strspn(text, "0123456789")] != '/')
        return false;
    uint64_t threads = parse_leading(text);
    *ret_threads = threads < UINT32_MAX ? (uint32_t)threads : UINT32_MAX;
    return true;
}

bool load_text_pressure(const char *text, uint32_t *ret_hundredths)
{
    const char *at = behind(text, "some avg10=");

    if (!at || !is_digit(*at))
        return false;
    uint64_t hundredths = parse_leading(at) * 100;
    at += strspn(at, "0123456789");
    if (at[0] == '.' && is_digit(at[1])) {
        hundredths += (uint64_t)(at[1] - '0') * 10;
        hundredths += is_digit(at[2]) ? (uint64_t)(at[2] - '0') : 0;
    }
    *ret_hundredths = hundredths < PRESSURE_MOST ? (uint32_t)hundredths : PRESSURE_MOST;
    return true;
}

uint64_t load_headroom(uint64_t limit, uint64_t usage, uint64_t inactive_file)
{
    usage -= inactive_file < usage ? inactive_file : usage;
    return usage < limit ? limit - usage : 0;
}
