/* SPDX-License-Identifier: Apache-2.0 */
/* See schema_parts.h. */
#include "schema_parts.h"

#include "base/error.h"
#include "base/quote.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- places ---- */

#define PLACE_BYTES 112 /* of the 244 of a message */

struct place place_member(const struct place *up, const char *name)
{
    return (struct place){.up = up, .name = name, .depth = up->depth + 1};
}

struct place place_item(const struct place *up, size_t index)
{
    return (struct place){.up = up, .index = index, .depth = up->depth + 1};
}

static bool is_plain(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length <= QUOTE_TEXT_BYTES &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$") ==
               length;
}

int place_tell(const struct place *place, struct hutch_error *err)
{
    char text[PLACE_BYTES] = "";
    size_t start = sizeof(text) - 1; /* it is written from its end */

    for (; place->up; place = place->up) {
        char part[QUOTE_TEXT_BYTES + 8];
        const char *dot = place->up->up && place->name ? "." : "";
        if (!place->name)
            snprintf(part, sizeof(part), "[%zu]", place->index);
        else if (is_plain(place->name))
            snprintf(part, sizeof(part), "%s%s", dot, place->name);
        else
            snprintf(part, sizeof(part), "%s%s", dot, quote_short(place->name).text);
        size_t length = strlen(part);
        if (start < length + strlen("...")) {
            start -= strlen("...");
            memcpy(text + start, "...", strlen("..."));
            break;
        }
        start -= length;
        memcpy(text + start, part, length);
    }
    if (text[start] == '\0')
        return err->code;
    return err_context(err, "%s", text + start);
}

/* ---- references ---- */

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
        return (c | 0x20) - 'a' + 10;
    return -1;
}

/* Takes the next name off a JSON pointer in a URI fragment: %xx, ~0, ~1. False for bad ones. */
static bool next_name(const char **pointer, char *name, size_t room)
{
    const char *at = *pointer;
    size_t length = 0;

    while (*at && *at != '/') {
        int c = (unsigned char)*at++;
        if (c == '%') {
            int high = digit(at[0]), low = high < 0 ? -1 : digit(at[1]);
            if (low < 0)
                return false;
            c = high * 16 + low;
            at += 2;
        }
        if (c == '~') {
            if (*at != '0' && *at != '1')
                return false;
            c = *at++ == '0' ? '~' : '/';
        }
        if (c == 0 || length + 1 == room)
            return false;
        name[length++] = (char)c;
    }
    name[length] = '\0';
    *pointer = at;
    return true;
}

static const json_t *find_item(const json_t *array, const char *name)
{
    size_t index = 0;

    if (*name == '\0' || strlen(name) > 6 || (name[0] == '0' && name[1] != '\0'))
        return NULL;
    for (; *name; name++) {
        if (*name < '0' || *name > '9')
            return NULL;
        index = index * 10 + (size_t)(*name - '0');
    }
    return json_array_get(array, index);
}

const json_t *schema_find(const json_t *root, const char *reference)
{
    const json_t *value = root;
    char name[256];

    if (*reference++ != '#')
        return NULL;
    while (value && *reference == '/') {
        reference++;
        if (!next_name(&reference, name, sizeof(name)))
            return NULL;
        value = json_is_array(value) ? find_item(value, name) : json_object_get(value, name);
    }
    return *reference == '\0' ? value : NULL;
}

/* ---- patterns ---- */

/* What a pattern with counts such as {1,9} is spread out to by regcomp: a few braces in each
 * other take gigabytes. */
#define PATTERN_SPREAD_MAX 4096
#define PATTERN_GROUPS_MAX 16

struct spread {
    size_t group[PATTERN_GROUPS_MAX]; /* sizes of the open groups */
    size_t depth, last;               /* of the last atom */
};

/* Behind a bracket expression; at is behind its [. */
static const char *skip_bracket(const char *at)
{
    if (*at == '^')
        at++;
    if (*at == ']')
        at++;
    while (*at && *at != ']') {
        if (at[0] == '[' && at[1] && strchr(":.=", at[1])) {
            const char *end = strchr(at + 2, ']');
            at = end ? end : at;
        }
        at++;
    }
    return *at ? at + 1 : at;
}

/* The larger count of "{3}", "{3,}" and "{3,9}"; *at becomes what is behind. */
static size_t read_count(const char **at)
{
    size_t most = 1, number = 0;

    for (; **at && **at != '}'; ++*at) {
        number = **at >= '0' && **at <= '9' ? number * 10 + (size_t)(**at - '0') : 0;
        if (number > PATTERN_SPREAD_MAX)
            number = PATTERN_SPREAD_MAX;
        if (number > most)
            most = number;
    }
    *at += **at == '}';
    return most;
}

/* An atom, a group or a count; false where it gets too much. */
static bool spread_add(struct spread *spread, const char **at)
{
    size_t *group = &spread->group[spread->depth];
    char c = *(*at)++;

    if (c == '{') {
        size_t more = spread->last * (read_count(at) - 1);
        *group += more;
        spread->last += more;
    } else if (c == '(') {
        if (++spread->depth == PATTERN_GROUPS_MAX)
            return false;
        spread->group[spread->depth] = 1;
    } else if (c == ')' && spread->depth > 0) {
        spread->last = *group;
        spread->depth--;
        spread->group[spread->depth] += spread->last;
    } else if (!strchr("*+?|^$)", c)) {
        if (c == '[')
            *at = skip_bracket(*at);
        else if (c == '\\' && **at)
            ++*at;
        spread->last = 1;
        ++*group;
    }
    return spread->group[spread->depth] <= PATTERN_SPREAD_MAX;
}

static int check_spread(const char *pattern, struct hutch_error *err)
{
    struct spread spread = {.last = 1};

    while (*pattern) {
        if (!spread_add(&spread, &pattern))
            return err_set(err, HUTCH_ERR_INVALID,
                           "its counts in braces make it too large; allowed are %d characters "
                           "when they are written out, and groups %d deep",
                           PATTERN_SPREAD_MAX, PATTERN_GROUPS_MAX - 1);
    }
    return 0;
}

/* A backslash in brackets stands for itself, and does not in the patterns of most languages. */
static int check_bracket(const char *text, size_t length, struct hutch_error *err)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] != '\\')
            continue;
        if (text[++i] != '\\')
            return err_set(err, HUTCH_ERR_INVALID,
                           "a backslash in brackets stands for itself in a POSIX extended "
                           "expression; allowed is \\\\ for it, and names such as [[:digit:]_]");
    }
    return 0;
}

/* \d and its kin mean a plain letter here, and \1 takes exponential time. */
static int check_escapes(const char *pattern, struct hutch_error *err)
{
    while (*pattern) {
        char c = *pattern++;
        if (c == '[') {
            const char *end = skip_bracket(pattern);
            if (check_bracket(pattern, (size_t)(end - pattern), err) < 0)
                return err->code;
            pattern = end;
        } else if (c == '\\' && *pattern) {
            c = *pattern++;
            bool is_name = is_plain((char[]){c, '\0'}) && !strchr("-$_", c);
            if (is_name && !strchr("wWsSbB", c))
                return err_set(err, HUTCH_ERR_INVALID,
                               "\\%c is not known; a POSIX extended expression has [0-9] for a "
                               "digit, \\w, \\s, \\b, and no references to groups",
                               c);
        }
    }
    return 0;
}

/* regcomp in UTF-8 and with English messages, whatever locale the host program has. */
static int compile(regex_t *ret_regex, const char *pattern, struct hutch_error *err)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    char problem[80] = "";

    if (!plain)
        return err_set(err, HUTCH_ERR_SYSTEM, "the locale C.UTF-8 is missing on this host");
    locale_t before = uselocale(plain);
    int code = regcomp(ret_regex, pattern, REG_EXTENDED | REG_NOSUB);
    if (code != 0)
        regerror(code, ret_regex, problem, sizeof(problem));
    uselocale(before);
    freelocale(plain);
    if (code == REG_ESPACE)
        return err_no_memory(err);
    if (code != 0)
        return err_set(err, HUTCH_ERR_INVALID, "%s is no POSIX extended regular expression: %s",
                       quote_text(pattern).text, problem);
    return 0;
}

int pattern_accept(const char *pattern, struct hutch_error *err)
{
    regex_t regex;

    if (strlen(pattern) > SCHEMA_PATTERN_BYTES)
        return err_set(err, HUTCH_ERR_INVALID, "has %zu bytes; allowed are at most %d",
                       strlen(pattern), SCHEMA_PATTERN_BYTES);
    if (check_escapes(pattern, err) < 0 || check_spread(pattern, err) < 0 ||
        compile(&regex, pattern, err) < 0)
        return err->code;
    regfree(&regex);
    return 0;
}

void pattern_cache_done(struct pattern_cache *cache)
{
    for (size_t i = 0; i < PATTERN_CACHE && cache->slots[i].pattern; i++)
        regfree(&cache->slots[i].regex);
    cache->made = 0;
}

static int find_compiled(struct pattern_cache *cache, const char *pattern,
                         const regex_t **ret_regex, struct hutch_error *err)
{
    regex_t regex;

    for (size_t i = 0; i < PATTERN_CACHE; i++) {
        if (cache->slots[i].pattern == pattern) {
            *ret_regex = &cache->slots[i].regex;
            return 0;
        }
    }
    if (compile(&regex, pattern, err) < 0)
        return err->code;
    size_t at = cache->made++ % PATTERN_CACHE;
    if (cache->slots[at].pattern)
        regfree(&cache->slots[at].regex);
    cache->slots[at].pattern = pattern;
    cache->slots[at].regex = regex;
    *ret_regex = &cache->slots[at].regex;
    return 0;
}

int pattern_matches(struct pattern_cache *cache, const char *pattern, const char *text,
                    size_t length, struct hutch_error *err)
{
    regmatch_t range = {.rm_eo = (regoff_t)length};
    const regex_t *regex = NULL;

    if (length > SCHEMA_MATCHED_BYTES)
        return err_set(err, HUTCH_ERR_INVALID,
                       "is too long to be compared with a pattern: %zu bytes; allowed are %d",
                       length, SCHEMA_MATCHED_BYTES);
    if (find_compiled(cache, pattern, &regex, err) < 0)
        return err->code;
    int code = regexec(regex, text, 1, &range, REG_STARTEND);
    if (code == REG_ESPACE)
        return err_no_memory(err);
    return code == 0;
}

/* ---- numbers ---- */

bool number_is_whole(const json_t *value)
{
    if (json_is_integer(value))
        return true;
    return json_is_real(value) && trunc(json_real_value(value)) == json_real_value(value);
}

int number_compare(const json_t *one, const json_t *other)
{
    if (json_is_integer(one) && json_is_integer(other)) {
        json_int_t a = json_integer_value(one), b = json_integer_value(other);
        return (a > b) - (a < b);
    }
    double a = json_number_value(one), b = json_number_value(other);
    return (a > b) - (a < b);
}
