/* SPDX-License-Identifier: Apache-2.0 */
/* See cgroup_text.h. Formats: cgroups(7), proc(5), and the kernel's
 * admin-guide/cgroup-v2.rst and admin-guide/cgroup-v1. */
#include "cgroup_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The usual period of CPU bandwidth; a short run never meets its end. */
#define CPU_PERIOD_US 100000u
/* The kernel refuses a quota under 1 ms. */
#define CPU_QUOTA_MIN_US 1000u

static const char *const controller_names[] = {
    [CGROUP_MEMORY] = "memory",
    [CGROUP_PIDS] = "pids",
    [CGROUP_CPU] = "cpu",
    [CGROUP_CPUACCT] = "cpuacct",
};
_Static_assert(ARRAY_LENGTH(controller_names) == CGROUP_CONTROLLERS, "a name for each");

/* A piece of text. */
struct str {
    const char *data;
    size_t length;
};

const char *cgroup_controller_name(enum cgroup_controller controller)
{
    return controller_names[controller];
}

static bool str_is(struct str str, const char *text)
{
    return str.length == strlen(text) && memcmp(str.data, text, str.length) == 0;
}

/* Copies; false when it does not fit. */
static bool str_copy(struct str str, char *ret, size_t size)
{
    if (str.length >= size)
        return false;
    memcpy(ret, str.data, str.length);
    ret[str.length] = '\0';
    return true;
}

/* Takes what stands before the next of the separators, and one separator. */
static struct str take_word(struct str *rest, const char *separators)
{
    struct str word = {rest->data, 0};
    while (word.length < rest->length && !strchr(separators, word.data[word.length]))
        word.length++;
    size_t used = word.length < rest->length ? word.length + 1 : word.length;
    rest->data += used;
    rest->length -= used;
    return word;
}

/* Takes the next line of *text; false at the end. */
static bool take_line(const char **text, struct str *ret_line)
{
    if (**text == '\0')
        return false;
    ret_line->data = *text;
    ret_line->length = strcspn(*text, "\n");
    *text += ret_line->length;
    if (**text == '\n')
        (*text)++;
    return true;
}

bool cgroup_text_digits(const char *text, size_t length, uint64_t *ret_number)
{
    uint64_t number = 0;

    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number))
            return false;
    }
    *ret_number = number;
    return true;
}

bool cgroup_text_number(const char *text, uint64_t *ret_number)
{
    size_t length = strlen(text);
    if (length > 0 && text[length - 1] == '\n')
        length--;
    return cgroup_text_digits(text, length, ret_number);
}

bool cgroup_text_value(const char *text, const char *key, uint64_t *ret_number)
{
    struct str line;

    while (take_line(&text, &line)) {
        if (str_is(take_word(&line, " "), key))
            return cgroup_text_digits(line.data, line.length, ret_number);
    }
    return false;
}

static unsigned controller_bit(struct str word)
{
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (str_is(word, controller_names[i]))
            return CGROUP_BIT(i);
    }
    return 0;
}

static unsigned controllers_of(struct str words)
{
    unsigned mask = 0;
    while (words.length > 0)
        mask |= controller_bit(take_word(&words, " ,\n"));
    return mask;
}

unsigned cgroup_text_controllers(const char *text)
{
    return controllers_of((struct str){text, strlen(text)});
}

static bool has_word(struct str words, const char *wanted)
{
    while (words.length > 0) {
        if (str_is(take_word(&words, ","), wanted))
            return true;
    }
    return false;
}

bool cgroup_text_own(const char *text, const char *controller, char *ret_path, size_t size)
{
    struct str line;

    /* id:controllers:path, and only the path may hold colons */
    while (take_line(&text, &line)) {
        struct str id = take_word(&line, ":");
        struct str names = take_word(&line, ":");
        bool match =
            controller ? has_word(names, controller) : str_is(id, "0") && names.length == 0;
        if (match && line.length > 0 && line.data[0] == '/')
            return str_copy(line, ret_path, size);
    }
    return false;
}

/* Whether the components of group stand in path one after the other. */
static bool path_holds(struct str path, const char *group)
{
    size_t length = strlen(group);

    for (size_t i = 0; i + length <= path.length; i++) {
        bool ends = i + length == path.length || path.data[i + length] == '/';
        if (ends && memcmp(path.data + i, group, length) == 0)
            return true;
    }
    return false;
}

bool cgroup_text_in_group(const char *text, const char *group)
{
    struct str line;

    while (take_line(&text, &line)) {
        take_word(&line, ":");
        take_word(&line, ":");
        if (path_holds(line, group))
            return true;
    }
    return false;
}

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

/* Copies a field of mountinfo, where blanks, tabs, line feeds and backslashes
 * stand as \ooo. */
static bool unescape(struct str field, char *ret, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < field.length; i++) {
        const char *at = field.data + i;
        char c = *at;
        if (c == '\\' && field.length - i >= 4 && at[1] <= '3' && is_octal(at[1]) &&
            is_octal(at[2]) && is_octal(at[3])) {
            c = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0'));
            i += 3;
        }
        if (c == '\0' || used + 1 >= size)
            return false;
        ret[used++] = c;
    }
    ret[used] = '\0';
    return used > 0;
}

/* id parent major:minor root point options [tags …] - type source options */
static bool read_mount(struct str line, struct cgroup_mount *ret)
{
    for (int skipped = 0; skipped < 3; skipped++)
        take_word(&line, " ");
    struct str root = take_word(&line, " ");
    struct str point = take_word(&line, " ");
    while (line.length > 0 && !str_is(take_word(&line, " "), "-"))
        continue;
    struct str type = take_word(&line, " ");
    take_word(&line, " ");

    bool v2 = str_is(type, "cgroup2");
    if (!v2 && !str_is(type, "cgroup"))
        return false;
    if (!unescape(root, ret->root, sizeof(ret->root)) ||
        !unescape(point, ret->point, sizeof(ret->point)) || ret->point[0] != '/')
        return false;
    ret->v2 = v2;
    ret->controllers = v2 ? 0 : controllers_of(line);
    ret->cpuset = !v2 && has_word(line, "cpuset");
    return true;
}

bool cgroup_text_next_mount(const char **text, struct cgroup_mount *ret_mount)
{
    struct str line;

    while (take_line(text, &line)) {
        if (read_mount(line, ret_mount))
            return true;
    }
    return false;
}

bool cgroup_text_relative(const char *path)
{
    struct str rest = {path, strlen(path)};

    if (rest.length > 0 && path[rest.length - 1] == '/')
        return false;
    while (rest.length > 0) {
        struct str name = take_word(&rest, "/");
        if (name.length == 0 || str_is(name, ".") || str_is(name, ".."))
            return false;
    }
    return true;
}

bool cgroup_text_below(const char *root, const char *own, char *ret_place, size_t size)
{
    size_t skip = strcmp(root, "/") == 0 ? 0 : strlen(root);

    if (strncmp(own, root, skip) != 0 || (own[skip] != '/' && own[skip] != '\0'))
        return false;
    const char *place = own + skip;
    if (*place == '/')
        place++;
    return cgroup_text_relative(place) &&
           str_copy((struct str){place, strlen(place)}, ret_place, size);
}

bool cgroup_text_token(const char *token)
{
    size_t digits = strspn(token, "0123456789");
    uint64_t pid;

    return token[digits] == '-' && cgroup_text_digits(token, digits, &pid) && pid > 0 &&
           pid <= INT32_MAX && strspn(token + digits + 1, "0123456789abcdef") == 16 &&
           token[digits + 1 + 16] == '\0';
}

bool cgroup_text_ends_in(const char *path, const char *name)
{
    if (path[0] != '/' || !cgroup_text_relative(path + 1))
        return false;
    return strcmp(strrchr(path, '/') + 1, name) == 0;
}

static struct cgroup_setting setting_u64(const char *file, uint64_t number)
{
    struct cgroup_setting setting = {.file = file};
    snprintf(setting.value, sizeof(setting.value), "%" PRIu64, number);
    return setting;
}

/* Of the kernel's optional files: swap accounting may be off, the kernel old. */
static struct cgroup_setting optional_u64(const char *file, uint64_t number)
{
    struct cgroup_setting setting = setting_u64(file, number);
    setting.tolerated = ENOENT;
    return setting;
}

static uint64_t cpu_quota_us(uint32_t cpu_millis)
{
    uint64_t quota = (uint64_t)cpu_millis * (CPU_PERIOD_US / 1000);
    return quota < CPU_QUOTA_MIN_US ? CPU_QUOTA_MIN_US : quota;
}

static size_t settings_v1(enum cgroup_controller controller, const struct cgroup_limits *limits,
                          struct cgroup_setting ret[CGROUP_SETTINGS_MAX])
{
    switch (controller) {
    case CGROUP_MEMORY:
        ret[0] = setting_u64("memory.limit_in_bytes", limits->memory_bytes);
        ret[1] = optional_u64("memory.memsw.limit_in_bytes", limits->memory_bytes);
        ret[2] = optional_u64("memory.swappiness", 0);
        /* buffers of TCP and UDP, which v1 counts only when they have a limit */
        ret[3] = optional_u64("memory.kmem.tcp.limit_in_bytes", limits->memory_bytes);
        return 4;
    case CGROUP_PIDS:
        ret[0] = setting_u64("pids.max", limits->max_processes);
        return 1;
    case CGROUP_CPU:
        ret[0] = setting_u64("cpu.cfs_period_us", CPU_PERIOD_US);
        ret[1] = setting_u64("cpu.cfs_quota_us", cpu_quota_us(limits->cpu_millis));
        /* more than a group above allows: that one's quota is in force */
        ret[1].tolerated = EINVAL;
        return 2;
    case CGROUP_CPUACCT:
        return 0;
    }
    return 0;
}

static size_t settings_v2(enum cgroup_controller controller, const struct cgroup_limits *limits,
                          struct cgroup_setting ret[CGROUP_SETTINGS_MAX])
{
    switch (controller) {
    case CGROUP_MEMORY:
        ret[0] = setting_u64("memory.max", limits->memory_bytes);
        ret[1] = optional_u64("memory.swap.max", 0);
        ret[2] = optional_u64("memory.oom.group", limits->one_by_one ? 0 : 1);
        return 3;
    case CGROUP_PIDS:
        ret[0] = setting_u64("pids.max", limits->max_processes);
        return 1;
    case CGROUP_CPU:
        ret[0] = (struct cgroup_setting){.file = "cpu.max"};
        snprintf(ret[0].value, sizeof(ret[0].value), "%" PRIu64 " %u",
                 cpu_quota_us(limits->cpu_millis), CPU_PERIOD_US);
        return 1;
    case CGROUP_CPUACCT:
        return 0;
    }
    return 0;
}

size_t cgroup_settings(bool v2, enum cgroup_controller controller,
                       const struct cgroup_limits *limits,
                       struct cgroup_setting ret_settings[CGROUP_SETTINGS_MAX])
{
    return v2 ? settings_v2(controller, limits, ret_settings)
              : settings_v1(controller, limits, ret_settings);
}
