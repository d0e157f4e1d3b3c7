/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel writes about cgroups, mounts and maps of uids, and the account
 * files: whatever stands there, what is read has its form and stays in its bounds.
 *
 * Input: four bytes for a range of uids, the text; its first line also serves as a
 * name, a path, a number.
 */
#include "fuzz.h"

#include "sandbox/namespace/cgroup_text.h"
#include "sandbox/namespace/slots.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_PATH 16

static char *first_line(const char *text)
{
    char *line = strndup(text, strcspn(text, "\n"));

    assert(line);
    return line;
}

static void check_numbers(const char *text, const char *line)
{
    uint64_t number, same;
    char shown[32];

    if (cgroup_text_digits(line, strlen(line), &number)) {
        snprintf(shown, sizeof(shown), "%" PRIu64, number);
        const char *digits = line + strspn(line, "0");
        assert(strcmp(number == 0 ? "" : shown, digits) == 0);
        assert(cgroup_text_number(line, &same) && same == number);
    }
    if (cgroup_text_number(text, &number))
        assert(cgroup_text_digits(line, strlen(line), &same) && same == number);
    if (cgroup_text_value(text, "oom_kill", &number))
        assert(strstr(text, "oom_kill "));
}

static void check_own(const char *text, const char *controller)
{
    char path[CGROUP_PATH_BYTES], small[SMALL_PATH];

    memset(path, 'x', sizeof(path));
    bool found = cgroup_text_own(text, controller, path, sizeof(path));
    if (found) {
        assert(path[0] == '/' && strlen(path) < sizeof(path));
        assert(!strchr(path, '\n') && strstr(text, path));
    } else {
        assert(path[0] == 'x' && path[sizeof(path) - 1] == 'x');
    }
    if (cgroup_text_own(text, controller, small, sizeof(small)))
        assert(found && strcmp(path, small) == 0);
}

static void check_place(const char *root, const char *own)
{
    char place[CGROUP_PATH_BYTES], joined[3 * CGROUP_PATH_BYTES];

    if (!cgroup_text_below(root, own, place, sizeof(place)))
        return;
    assert(cgroup_text_relative(place) && place[0] != '/');
    snprintf(joined, sizeof(joined), "%s%s%s", strcmp(root, "/") == 0 ? "" : root,
             place[0] ? "/" : "", place);
    size_t length = strlen(joined);
    assert(strncmp(own, joined, length) == 0);
    assert(own[length] == '\0' || strcmp(own + length, "/") == 0);
}

/* Every mount that is found is a line, and the text comes to its end. */
static void check_mounts(const char *text, const char *own)
{
    struct cgroup_mount mount;
    const char *rest = text;

    for (const char *before = rest; cgroup_text_next_mount(&rest, &mount); before = rest) {
        assert(rest > before);
        assert(mount.point[0] == '/' && mount.root[0] != '\0');
        assert(memchr(mount.point, '\0', sizeof(mount.point)));
        assert(memchr(mount.root, '\0', sizeof(mount.root)));
        assert((mount.controllers & ~CGROUP_ALL) == 0);
        assert(!mount.v2 || (mount.controllers == 0 && !mount.cpuset));
        check_place(mount.root, own);
    }
    assert(*rest == '\0' && rest == text + strlen(text));
}

static void check_components(const char *path)
{
    for (const char *name = path;; name++) {
        size_t length = strcspn(name, "/");
        assert(length > 0);
        assert(length != strspn(name, ".") || length > 2);
        name += length;
        if (*name == '\0')
            return;
    }
}

static void check_paths(const char *text, const char *line)
{
    if (cgroup_text_relative(line) && line[0] != '\0')
        check_components(line);
    if (cgroup_text_ends_in(line, "cell-1"))
        assert(line[0] == '/' && strcmp(strrchr(line, '/'), "/cell-1") == 0);
    if (cgroup_text_token(line))
        assert(strlen(line) >= 18 && strlen(line) < SLOTS_TOKEN_BYTES && !strchr(line, '/'));
    if (cgroup_text_in_group(text, "/hutch-1/cell-1"))
        assert(strstr(text, "/hutch-1/cell-1"));
    assert((cgroup_text_controllers(text) & ~CGROUP_ALL) == 0);
}

/* A range is covered exactly when both of its halves are. */
static void check_map(const char *text, uint32_t base, uint32_t count)
{
    uint32_t half = count / 2;

    bool covered = slots_map_covers(text, base, count);
    assert(covered == (slots_map_covers(text, base, half) &&
                       slots_map_covers(text, base + half, count - half)));
    bool touched = slots_text_overlaps(text, 2, 0, base, count);
    assert(touched == (slots_text_overlaps(text, 2, 0, base, half) ||
                       slots_text_overlaps(text, 2, 0, base + half, count - half)));
    touched = slots_text_overlaps(text, 1, 2, base, count);
    assert(touched == (slots_text_overlaps(text, 1, 2, base, half) ||
                       slots_text_overlaps(text, 1, 2, base + half, count - half)));
}

/* An account of so many uids from start on, and whether it touches the range. */
static bool touches(uint32_t start, uint32_t ids, uint32_t base, uint32_t count)
{
    char line[64];

    snprintf(line, sizeof(line), "user:%" PRIu32 ":%" PRIu32 "\n", start, ids);
    return slots_text_overlaps(line, 1, 2, base, count);
}

static void check_neighbours(uint32_t base, uint32_t count)
{
    const uint32_t ids = 5;

    assert(!touches(base - ids, ids, base, count));
    assert(touches(base - ids, ids + 1, base, count));
    assert(touches(base + count - 1, ids, base, count));
    assert(!touches(base + count, ids, base, count));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    uint32_t base = 1000 + ((uint32_t)input_number(&input, 2) << 8);
    uint32_t count = 2 + (uint32_t)input_number(&input, 2);
    auto_free char *text = input_text(&input);
    auto_free char *line = first_line(text);

    check_numbers(text, line);
    check_own(text, NULL);
    check_own(text, "memory");
    check_place(line, text);
    check_place("/", line);
    check_mounts(text, line);
    check_paths(text, line);
    check_map(text, base, count);
    check_neighbours(base, count);
    return 0;
}
