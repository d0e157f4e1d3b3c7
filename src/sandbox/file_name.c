/* SPDX-License-Identifier: Apache-2.0 */
/* See file_name.h. */
#include "file_name.h"

#include "base/error.h"
#include "base/quote.h"
#include "wire.h"

#include <string.h>
#include <strings.h>

#define HOME "/home/user"

_Static_assert(LIMIT_PATH_BYTES == WIRE_MAX_PATH && LIMIT_NAME_BYTES == WIRE_MAX_NAME,
               "the cell takes the paths that the engine takes");

/* ---- paths ---- */

static int refuse(const char *field, const char *path, size_t length, const char *why,
                  struct hutch_error *err)
{
    return err_set(err, HUTCH_ERR_INVALID, "%s: path %s %s", field, quote_bytes(path, length).text,
                   why);
}

/* Takes what stands for the home directory off an absolute path. Returns what is left, or
 * NULL. */
static const char *below_home(const char *path, size_t length)
{
    const size_t home = sizeof(HOME) - 1;

    if (length == 0 || path[0] != '/')
        return path;
    if (length < home || memcmp(path, HOME, home) != 0 || (length > home && path[home] != '/'))
        return NULL;
    return path + home;
}

static bool is_dots(const char *name, size_t length, size_t dots)
{
    return length == dots && memcmp(name, "..", dots) == 0;
}

int file_path_read_bytes(const char *field, const char *path, size_t length,
                         struct file_path *ret_path, struct hutch_error *err)
{
    const char *end = path + length;
    struct file_path result;
    size_t used = 0;

    if (memchr(path, '\0', length))
        return refuse(field, path, length, "holds NUL", err);
    if (length > LIMIT_PATH_BYTES)
        return err_set(err, HUTCH_ERR_INVALID, "%s: path %s has %zu bytes; allowed are %d", field,
                       quote_bytes(path, length).text, length, LIMIT_PATH_BYTES);
    const char *name = below_home(path, length);
    if (!name)
        return refuse(field, path, length, "lies outside of " HOME, err);
    for (const char *next; name < end; name = next + 1) {
        next = memchr(name, '/', (size_t)(end - name));
        next = next ? next : end;
        size_t count = (size_t)(next - name);
        if (count > LIMIT_NAME_BYTES)
            return err_set(err, HUTCH_ERR_INVALID,
                           "%s: path %s has a name of %zu bytes; allowed are %d", field,
                           quote_bytes(path, length).text, count, LIMIT_NAME_BYTES);
        if (is_dots(name, count, 2))
            return refuse(field, path, length, "holds '..'", err);
        if (count == 0 || is_dots(name, count, 1))
            continue;
        if (used > 0)
            result.text[used++] = '/';
        memcpy(result.text + used, name, count);
        used += count;
    }
    result.text[used] = '\0';
    *ret_path = result;
    return 0;
}

int file_path_read(const char *field, const char *path, struct file_path *ret_path,
                   struct hutch_error *err)
{
    if (!path)
        return err_set(err, HUTCH_ERR_INVALID, "%s: a path is NULL", field);
    size_t length = strnlen(path, LIMIT_PATH_BYTES + 1);
    if (file_path_read_bytes(field, path, length, ret_path, err) < 0)
        return err->code;
    if (ret_path->text[0] == '\0')
        return refuse(field, path, length, "names no file", err);
    if (path[length - 1] == '/')
        return refuse(field, path, length, "names a directory", err);
    return 0;
}

/* ---- patterns ---- */

/* Whether "[...]" at pattern means a byte; *ret_end is behind it. Without an end, it is
 * the character. */
static bool bracket_matches(const char *pattern, char byte, const char **ret_end)
{
    const char *at = pattern + 1;
    bool negated = *at == '!' || *at == '^';
    bool found = false;

    at += negated;
    for (bool first = true; *at && (*at != ']' || first); first = false) {
        unsigned char low = (unsigned char)*at++;
        unsigned char high = low;
        if (at[0] == '-' && at[1] && at[1] != ']') {
            high = (unsigned char)at[1];
            at += 2;
        }
        found = found || ((unsigned char)byte >= low && (unsigned char)byte <= high);
    }
    if (*at != ']') {
        *ret_end = pattern + 1;
        return byte == '[';
    }
    *ret_end = at + 1;
    return found != negated;
}

/* Whether the next of the pattern, no star, means a byte. */
static bool one_matches(const char *pattern, char byte, const char **ret_end)
{
    *ret_end = pattern + 1;
    if (*pattern == '?')
        return byte != '/';
    if (*pattern == '[')
        return byte != '/' && bracket_matches(pattern, byte, ret_end);
    return *pattern == byte;
}

/* Where to go on when nothing fits: behind a star, with one more byte for it. Behind a
 * globstar and a slash, with one more name. */
struct retry {
    const char *pattern, *path;
    bool by_name;
};

/* Whether a globstar can take more; then it has. */
static bool take_more(struct retry *globstar)
{
    if (!globstar->pattern || *globstar->path == '\0')
        return false;
    const char *slash = globstar->by_name ? strchr(globstar->path, '/') : globstar->path;
    if (slash)
        globstar->path = slash + 1;
    return slash != NULL;
}

bool file_matches(const char *pattern, const char *path)
{
    struct retry star = {.pattern = NULL}, globstar = {.pattern = NULL};

    for (;;) {
        const char *next;
        if (pattern[0] == '*' && pattern[1] == '*') {
            bool by_name = pattern[2] == '/';
            pattern += 2 + by_name; /* which may be none */
            globstar = (struct retry){pattern, path, by_name};
            star.pattern = NULL;
        } else if (*pattern == '*') {
            star = (struct retry){++pattern, path, false};
        } else if (*path == '\0' && *pattern == '\0') {
            return true;
        } else if (*path != '\0' && *pattern != '\0' && one_matches(pattern, *path, &next)) {
            pattern = next;
            path++;
        } else if (star.pattern && *star.path != '\0' && *star.path != '/') {
            pattern = star.pattern;
            path = ++star.path;
        } else if (take_more(&globstar)) {
            pattern = globstar.pattern;
            path = globstar.path;
            star.pattern = NULL;
        } else {
            return false;
        }
    }
}

/* ---- kinds of data ---- */

const char *file_mime(const char *path)
{
    static const struct {
        const char *ending, *mime;
    } rows[] = {
        {"bmp", "image/bmp"},
        {"bz2", "application/x-bzip2"},
        {"c", "text/x-c"},
        {"css", "text/css"},
        {"csv", "text/csv"},
        {"docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
        {"gif", "image/gif"},
        {"gz", "application/gzip"},
        {"htm", "text/html"},
        {"html", "text/html"},
        {"jpeg", "image/jpeg"},
        {"jpg", "image/jpeg"},
        {"js", "text/javascript"},
        {"json", "application/json"},
        {"jsonl", "application/jsonl"},
        {"log", "text/plain"},
        {"md", "text/markdown"},
        {"mjs", "text/javascript"},
        {"mp3", "audio/mpeg"},
        {"mp4", "video/mp4"},
        {"ods", "application/vnd.oasis.opendocument.spreadsheet"},
        {"parquet", "application/vnd.apache.parquet"},
        {"pdf", "application/pdf"},
        {"png", "image/png"},
        {"pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"},
        {"py", "text/x-python"},
        {"sh", "application/x-sh"},
        {"sqlite", "application/vnd.sqlite3"},
        {"svg", "image/svg+xml"},
        {"tar", "application/x-tar"},
        {"tif", "image/tiff"},
        {"tiff", "image/tiff"},
        {"tsv", "text/tab-separated-values"},
        {"txt", "text/plain"},
        {"wav", "audio/wav"},
        {"webp", "image/webp"},
        {"xls", "application/vnd.ms-excel"},
        {"xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
        {"xml", "application/xml"},
        {"yaml", "application/yaml"},
        {"yml", "application/yaml"},
        {"zip", "application/zip"},
    };
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash : path, '.');

    for (size_t i = 0; dot && i < ARRAY_LENGTH(rows); i++) {
        if (strcasecmp(dot + 1, rows[i].ending) == 0)
            return rows[i].mime;
    }
    return "application/octet-stream";
}
