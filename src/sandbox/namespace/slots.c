/* SPDX-License-Identifier: Apache-2.0 */
/* See slots.h. */
#include "slots.h"

#include "base/buf.h"
#include "base/limits.h"
#include "base/parse.h"
#include "cgroup_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#define UIDS_FILE "uids"
#define RECORD_PREFIX "supervisor-"
#define RECORD_ATTEMPTS 16
#define RECORD_BYTES_MAX KIB(64)
#define ACCOUNTS_BYTES_MAX MIB(8)
/* Below are the accounts of the system. */
#define BASE_MIN 1000u

struct slots {
    int fd;
    uint32_t base;
    uint32_t count;
    uint32_t next; /* where to look first */
    bool *taken;   /* by us: a lock does not stand in the way of its own holder */
    char reason[200];
    char mend[200];
};

/* ---- the run directory ------------------------------------------------- */

/* Where an open file lies, for messages. */
static const char *path_of(int fd, char *path, size_t size)
{
    char link[32];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    path[length > 0 ? length : 0] = '\0';
    return path;
}

static int is_directory(const char *path, bool *ret, struct hutch_error *err)
{
    struct stat info = {.st_mode = 0};

    if (stat(path, &info) < 0 && errno != ENOENT && errno != ENOTDIR)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "look for '%s'", path);
    *ret = S_ISDIR(info.st_mode);
    return 0;
}

/* All supervisors of a user have to find the same one: what cannot be looked at
 * is not taken for missing. */
static int default_run_dir(char *ret, size_t size, struct hutch_error *err)
{
    uid_t uid = geteuid();
    char parent[64] = "/run";
    bool found = false;

    if (uid != 0)
        snprintf(parent, sizeof(parent), "/run/user/%u", uid);
    if (is_directory(parent, &found, err) < 0)
        return err->code;
    if (found)
        snprintf(ret, size, "%s/hutch", parent);
    else
        snprintf(ret, size, "/tmp/hutch-%u", uid);
    return 0;
}

int slots_run_dir_open(const char *path, struct hutch_error *err)
{
    char fallback[80];
    if (!path) {
        if (default_run_dir(fallback, sizeof(fallback), err) < 0)
            return err->code;
        path = fallback;
    }
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make run directory '%s'", path);
    auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open run directory '%s'", path);
    struct stat info;
    if (fstat(fd, &info) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "look at run directory '%s'", path);
    if (info.st_uid != geteuid())
        return err_set(err, HUTCH_ERR_SYSTEM, "run directory '%s' belongs to uid %u; remove it",
                       path, info.st_uid);
    if ((info.st_mode & 077) != 0)
        return err_set(err, HUTCH_ERR_SYSTEM,
                       "run directory '%s' is open to others (mode %04o); chmod it to 0700", path,
                       info.st_mode & 07777);
    return TAKE_FD(fd);
}

/* ---- uids: which range ------------------------------------------------- */

/* The numbers of a line, apart by blanks; how many were read. */
static unsigned read_numbers(const char *line, size_t length, uint64_t *numbers, unsigned max)
{
    unsigned count = 0;

    for (size_t at = 0; at < length && count < max;) {
        size_t skip = strspn(line + at, " \t");
        size_t digits = strcspn(line + at + skip, " \t\n");
        if (digits == 0 || !cgroup_text_digits(line + at + skip, digits, &numbers[count]))
            break;
        count++;
        at += skip + digits;
    }
    return count;
}

/* The end of what is mapped without a gap from first on; first when it is not
 * mapped at all. Lines of a map do not overlap. */
static uint64_t mapped_end(const char *map, uint64_t first)
{
    for (const char *line = map; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        uint64_t numbers[3]; /* inside, outside, length */
        if (read_numbers(line, length, numbers, 3) == 3 && first >= numbers[0] &&
            first - numbers[0] < numbers[2])
            return numbers[0] + numbers[2];
        line += length + (line[length] == '\n');
    }
    return first;
}

bool slots_map_covers(const char *map, uint32_t base, uint32_t count)
{
    uint64_t at = base;
    uint64_t end = at + count;

    while (at < end) {
        uint64_t next = mapped_end(map, at);
        if (next <= at)
            return false;
        at = next;
    }
    return true;
}

/* A field of a line whose fields are parted by colons. */
static bool read_field(const char *line, size_t length, unsigned field, uint64_t *ret)
{
    const char *end = line + length;

    for (; field > 0; field--) {
        const char *colon = memchr(line, ':', (size_t)(end - line));
        if (!colon)
            return false;
        line = colon + 1;
    }
    const char *colon = memchr(line, ':', (size_t)(end - line));
    return cgroup_text_digits(line, (size_t)((colon ? colon : end) - line), ret);
}

bool slots_text_overlaps(const char *text, unsigned start_field, unsigned length_field,
                         uint32_t base, uint32_t count)
{
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        uint64_t start;
        uint64_t ids = 1;
        bool known = read_field(line, length, start_field, &start) &&
                     (length_field == 0 || read_field(line, length, length_field, &ids));
        if (known && start < (uint64_t)base + count && (start >= base || ids > base - start))
            return true;
        line += length + (line[length] == '\n');
    }
    return false;
}

static int is_mapped(const char *proc_self, uint32_t base, uint32_t count, bool *ret,
                     struct hutch_error *err)
{
    static const char *const files[] = {"uid_map", "gid_map"};
    bool mapped = true;

    auto_close int dir = open(proc_self, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s'", proc_self);
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        auto_buf struct buf text = BUF_MAX(LIMIT_PROC_FILE_BYTES);
        if (buf_read_file(&text, dir, files[i], err) < 0)
            return err->code;
        mapped = mapped && slots_map_covers(buf_text(&text), base, count);
    }
    *ret = mapped;
    return 0;
}

/* Whether an account may own ids of the range. A file that cannot be read says
 * nothing, and then the answer is yes; one that is missing gives nothing away. */
static bool is_given_away(const char *etc, uint32_t base, uint32_t count)
{
    static const struct {
        const char *name;
        unsigned start_field, length_field;
    } files[] = {
        {"passwd", 2, 0}, {"passwd", 3, 0}, {"group", 2, 0}, {"subuid", 1, 2}, {"subgid", 1, 2}};

    auto_close int dir = open(etc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return true;
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        struct hutch_error err;
        auto_buf struct buf text = BUF_MAX(ACCOUNTS_BYTES_MAX);
        if (buf_read_file(&text, dir, files[i].name, &err) < 0) {
            if (err.sys_errno == ENOENT)
                continue;
            return true;
        }
        if (slots_text_overlaps(buf_text(&text), files[i].start_field, files[i].length_field, base,
                                count))
            return true;
    }
    return false;
}

/* Notes why there is no range, or not the default one. */
static void explain(struct slots *slots, const char *reason, const char *mend)
{
    snprintf(slots->reason, sizeof(slots->reason), "%s", reason);
    snprintf(slots->mend, sizeof(slots->mend), "%s", mend);
}

/* Sets base and count, or leaves the count at 0 with the reason. */
static int choose_range(struct slots *slots, uint32_t base, uint32_t count,
                        const struct slots_host *host, struct hutch_error *err)
{
    bool is_default = base == 0 || base == SLOTS_DEFAULT_BASE;
    bool mapped;
    char reason[sizeof(slots->reason)];

    base = is_default ? SLOTS_DEFAULT_BASE : base;
    if (host->uid != 0) {
        explain(slots, "hutch was not started as root", "start hutch as root");
        return 0;
    }
    if (is_mapped(host->proc_self, base, count, &mapped, err) < 0)
        return err->code;
    if (!mapped) {
        int used = snprintf(reason, sizeof(reason),
                            "uids and gids %" PRIu32 " to %" PRIu32 " are not mapped (container)",
                            base, base + count - 1);
        explain(slots, reason, "give the container more ids, or name a range that it has");
        base = SLOTS_FALLBACK_BASE;
        if (is_default && is_mapped(host->proc_self, base, count, &mapped, err) < 0)
            return err->code;
        if (!mapped || is_given_away(host->etc, base, count))
            return 0;
        snprintf(reason + used, sizeof(reason) - (size_t)used, "; %" PRIu32 " to %" PRIu32 " serve",
                 base, base + count - 1);
        explain(slots, reason, "");
    }
    slots->base = base;
    slots->count = count;
    return 0;
}

static int check_range(uint32_t base, uint32_t count, struct hutch_error *err)
{
    if (count > SLOTS_COUNT_MAX)
        return err_set(err, HUTCH_ERR_INVALID, "uid count %" PRIu32 " is not 1 to %u", count,
                       SLOTS_COUNT_MAX);
    if (base != 0 && (base < BASE_MIN || base > UINT32_MAX - count))
        return err_set(err, HUTCH_ERR_INVALID, "uid base %" PRIu32 " is not %u to %" PRIu32, base,
                       BASE_MIN, UINT32_MAX - count);
    return 0;
}

int slots_open(int run_dir, uint32_t base, uint32_t count, const struct slots_host *host,
               struct slots **ret_slots, struct hutch_error *err)
{
    const struct slots_host this_host = {geteuid(), "/proc/self", "/etc"};

    host = host ? host : &this_host;
    count = count ? count : SLOTS_DEFAULT_COUNT;
    if (check_range(base, count, err) < 0)
        return err->code;
    char path[PATH_MAX];
    struct slots *slots = calloc(1, sizeof(*slots));
    if (!slots)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    slots->fd = openat(run_dir, UIDS_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    slots->taken = calloc(count, sizeof(*slots->taken));
    if (slots->fd < 0)
        err_errno(err, HUTCH_ERR_SYSTEM, errno, "open '%s' in the run directory '%s'", UIDS_FILE,
                  path_of(run_dir, path, sizeof(path)));
    else if (!slots->taken)
        err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    else if (choose_range(slots, base, count, host, err) == 0) {
        *ret_slots = slots;
        return 0;
    }
    slots_close(slots);
    return err->code;
}

uint32_t slots_count(const struct slots *slots)
{
    return slots->count;
}

uid_t slots_base(const struct slots *slots)
{
    return slots->base;
}

const char *slots_reason(const struct slots *slots)
{
    return slots->reason;
}

const char *slots_mend(const struct slots *slots)
{
    return slots->mend;
}

/* ---- uids: taking one -------------------------------------------------- */

static int set_lock(const struct slots *slots, uint32_t index, short type)
{
    struct flock lock = {
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = (off_t)slots->base + index,
        .l_len = 1,
    };
    return fcntl(slots->fd, F_OFD_SETLK, &lock);
}

int slots_acquire(struct slots *slots, uid_t *ret_uid, struct hutch_error *err)
{
    if (slots->count == 0)
        return err_set(err, HUTCH_ERR_LAYER, "no uids for cells: %s", slots->reason);
    for (uint32_t tried = 0; tried < slots->count; tried++) {
        uint32_t index = slots->next;
        slots->next = (index + 1) % slots->count;
        if (slots->taken[index])
            continue;
        if (set_lock(slots, index, F_WRLCK) == 0) {
            slots->taken[index] = true;
            *ret_uid = slots->base + index;
            return 0;
        }
        if (errno != EAGAIN && errno != EACCES)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "lock a uid");
    }
    return err_set(err, HUTCH_ERR_BUSY, "all %" PRIu32 " uids for cells are in use", slots->count);
}

void slots_release(struct slots *slots, uid_t uid)
{
    uint32_t index = uid - slots->base;
    if (uid < slots->base || index >= slots->count || !slots->taken[index])
        return;
    slots->taken[index] = false;
    IGNORE_RESULT(set_lock(slots, index, F_UNLCK));
}

void slots_close(struct slots *slots)
{
    if (!slots)
        return;
    if (slots->fd >= 0)
        close(slots->fd);
    free(slots->taken);
    free(slots);
}

/* ---- records ----------------------------------------------------------- */

static void record_name(const char *token, char *ret, size_t size)
{
    snprintf(ret, size, RECORD_PREFIX "%s", token);
}

static int make_token(char *ret, size_t size, struct hutch_error *err)
{
    uint64_t random;

    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "getrandom");
    snprintf(ret, size, "%d-%016" PRIx64, getpid(), random);
    return 0;
}

/* Whether the open file still has a name; a sweep takes it away under its
 * lock. */
static bool has_name(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

int slots_record_create(int run_dir, struct slots_record *ret_record, struct hutch_error *err)
{
    struct slots_record record = SLOTS_RECORD_NONE;
    char name[NAME_MAX + 1];
    char path[PATH_MAX];

    /* A sweep may come between making a file and locking it, take the file for
     * one that was left, and remove it. Then another is made. */
    for (int attempt = 0; attempt < RECORD_ATTEMPTS; attempt++) {
        if (make_token(record.token, sizeof(record.token), err) < 0)
            return err->code;
        record_name(record.token, name, sizeof(name));
        auto_close int fd =
            openat(run_dir, name, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0)
            return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make '%s' in the run directory '%s'",
                             name, path_of(run_dir, path, sizeof(path)));
        if (flock(fd, LOCK_EX | LOCK_NB) < 0 || !has_name(fd)) {
            IGNORE_RESULT(unlinkat(run_dir, name, 0));
            continue;
        }
        record.run_dir = fcntl(run_dir, F_DUPFD_CLOEXEC, 0);
        if (record.run_dir < 0) {
            err_errno(err, HUTCH_ERR_SYSTEM, errno, "duplicate the run directory");
            IGNORE_RESULT(unlinkat(run_dir, name, 0));
            return err->code;
        }
        record.fd = TAKE_FD(fd);
        snprintf(record.group, sizeof(record.group), "hutch-%s", record.token);
        *ret_record = record;
        return 0;
    }
    return err_set(err, HUTCH_ERR_SYSTEM, "making a record failed %d times", RECORD_ATTEMPTS);
}

int slots_record_add(struct slots_record *record, const char *path, struct hutch_error *err)
{
    auto_buf struct buf line = BUF_MAX(CGROUP_PATH_BYTES + 1);

    buf_appendf(&line, "%s\n", path);
    if (buf_check(&line, err) < 0)
        return err_context(err, "record group '%s'", path);
    ssize_t written = write(record->fd, line.data, line.length);
    if (written == (ssize_t)line.length)
        return 0;
    int error = written < 0 ? errno : ENOSPC;
    char file[PATH_MAX];
    return err_errno(err, HUTCH_ERR_SYSTEM, error, "write to '%s' of the run directory",
                     path_of(record->fd, file, sizeof(file)));
}

void slots_record_close(struct slots_record *record, bool all_gone)
{
    char name[NAME_MAX + 1];

    if (record->fd < 0)
        return;
    record_name(record->token, name, sizeof(name));
    if (all_gone)
        IGNORE_RESULT(unlinkat(record->run_dir, name, 0));
    close(record->fd);
    close(record->run_dir);
    *record = SLOTS_RECORD_NONE;
}

/* ---- sweeping ---------------------------------------------------------- */

/* Reaps the groups that a record names; how many are still busy. */
static int reap_paths(char *text, const char *token)
{
    char group[SLOTS_TOKEN_BYTES + 8];
    int busy = 0;

    snprintf(group, sizeof(group), "hutch-%s", token);
    for (char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        bool whole = line[length] == '\n';
        struct hutch_error err;
        line[length] = '\0';
        /* A line without its end was cut off before its group was made. What is
         * refused stays: it is not ours, or out of our reach. */
        if (whole && cgroup_tree_reap(line, group, &err) == CGROUP_BUSY)
            busy++;
        line += length + whole;
    }
    return busy;
}

/* Children that a killed supervisor had just cloned hold its lock until they die
 * as well. */
static bool is_held_by_orphans(const char *token)
{
    pid_t maker = (pid_t)parse_leading(token);
    return errno == EWOULDBLOCK && maker > 0 && kill(maker, 0) < 0 && errno == ESRCH;
}

/* Whether the record of a dead supervisor has to stay for now. One that cannot
 * be opened or read is none of ours and is passed over. */
static bool sweep_record(int run_dir, const char *name)
{
    const char *token = name + strlen(RECORD_PREFIX);
    auto_buf struct buf text = BUF_MAX(RECORD_BYTES_MAX);
    struct hutch_error ignored;

    auto_close int fd = openat(run_dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return is_held_by_orphans(token);
    if (!has_name(fd) || buf_read_fd(&text, fd, &ignored) < 0)
        return false;
    if (text.length > 0 && reap_paths(text.data, token) > 0)
        return true;
    IGNORE_RESULT(unlinkat(run_dir, name, 0));
    return false;
}

int slots_sweep(int run_dir, struct hutch_error *err)
{
    auto_close int fd = openat(run_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read the run directory");
    TAKE_FD(fd);

    int left = 0;
    const size_t prefix = strlen(RECORD_PREFIX);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, RECORD_PREFIX, prefix) == 0 &&
            cgroup_text_token(entry->d_name + prefix) && sweep_record(run_dir, entry->d_name))
            left++;
    }
    closedir(dir);
    return left;
}
