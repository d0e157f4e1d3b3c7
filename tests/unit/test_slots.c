/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory, uids and records, as far as they need no privilege; what
 * a sweep does to real groups is in integration/test_cgroup_host.c. */
#include "sandbox/namespace/slots.h"

#include "base/buf.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>

struct place {
    char dir[64];
    int run;
};

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof(*place));
    char path[128];
    struct hutch_error err;

    snprintf(place->dir, sizeof(place->dir), "/tmp/hutch-test-slots-XXXXXX");
    assert_non_null(mkdtemp(place->dir));
    snprintf(path, sizeof(path), "%s/run", place->dir);
    place->run = slots_run_dir_open(path, &err);
    assert_true(place->run >= 0);
    *state = place;
    return 0;
}

static void unlink_in(const struct place *place, const char *name, int flags)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", place->dir, name);
    unlinkat(AT_FDCWD, path, flags);
}

static int teardown(void **state)
{
    static const char *const files[] = {"run/uids", "uid_map", "gid_map", "passwd",
                                        "group",    "subuid",  "subgid"};
    struct place *place = *state;
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++)
        unlink_in(place, files[i], 0);
    close(place->run);
    unlink_in(place, "run", AT_REMOVEDIR);
    /* anything that a test or a call left behind makes this fail */
    assert_int_equal(rmdir(place->dir), 0);
    free(place);
    return 0;
}

static void put_file(const struct place *place, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", place->dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static bool is_there(const struct place *place, const char *name)
{
    return faccessat(place->run, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- pure functions ---------------------------------------------------- */

static void maps_cover_what_their_lines_join_to(void **state)
{
    (void)state;
    const char *host = "         0          0 4294967295\n";
    const char *container = "0 100000 65536";
    const char *pieces = "2000 9 1000\n0 5 1000\n1000\t7\t1000\n";

    assert_true(slots_map_covers(host, SLOTS_DEFAULT_BASE, SLOTS_DEFAULT_COUNT));
    assert_true(slots_map_covers(host, 4294967294u, 1));
    assert_false(slots_map_covers(host, 4294967294u, 2));
    assert_false(slots_map_covers(container, SLOTS_DEFAULT_BASE, 1));
    assert_true(slots_map_covers(container, 40000, 4096));
    assert_true(slots_map_covers(container, 65535, 1));
    assert_false(slots_map_covers(container, 65535, 2));
    assert_true(slots_map_covers(pieces, 0, 3000));
    assert_false(slots_map_covers(pieces, 0, 3001));
    static const char *const bad[] = {
        "", "\n\n", "0", "0 0", "x 0 10", "0 0 99999999999999999999", "0 0 0", "-1 0 10"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_false(slots_map_covers(bad[i], 0, 1));
}

static void accounts_overlap_by_their_own_fields(void **state)
{
    (void)state;
    const char *passwd = "root:x:0:0::/root:/bin/sh\nann:x:40007:50:::\nbroken\n\nbob:x:zz:1:::";
    const char *subuid = "ann:100000:65536\nbob:39000:1001";

    assert_true(slots_text_overlaps(passwd, 2, 0, 40000, 8));
    assert_false(slots_text_overlaps(passwd, 2, 0, 40000, 7));
    assert_false(slots_text_overlaps(passwd, 2, 0, 40008, 100));
    assert_true(slots_text_overlaps(passwd, 3, 0, 50, 1));
    assert_true(slots_text_overlaps(subuid, 1, 2, 40000, 1));
    assert_false(slots_text_overlaps(subuid, 1, 2, 40001, 100));
    assert_true(slots_text_overlaps(subuid, 1, 2, 165535, 10));
    assert_false(slots_text_overlaps(subuid, 1, 2, 165536, 10));
    assert_true(slots_text_overlaps("a:0:18446744073709551615", 1, 2, 4294967290u, 1));
    assert_false(slots_text_overlaps("", 2, 0, 0, 100));
    assert_false(slots_text_overlaps("::::\n:::", 1, 2, 0, 100));
}

/* ---- the run directory ------------------------------------------------- */

static void run_dir_is_private(void **state)
{
    struct place *place = *state;
    struct hutch_error err;
    struct stat info;
    char path[128];

    assert_int_equal(fstat(place->run, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    snprintf(path, sizeof(path), "%s/run", place->dir);
    auto_close int again = slots_run_dir_open(path, &err);
    assert_true(again >= 0);

    assert_int_equal(fchmod(place->run, 0750), 0);
    assert_int_equal(slots_run_dir_open(path, &err), HUTCH_ERR_SYSTEM);
    assert_non_null(strstr(err.message, "open to others (mode 0750)"));
    assert_int_equal(fchmod(place->run, 0700), 0);

    char link[128];
    snprintf(link, sizeof(link), "%s/link", place->dir);
    assert_int_equal(symlink("run", link), 0);
    assert_int_equal(slots_run_dir_open(link, &err), HUTCH_ERR_SYSTEM);
    assert_int_equal(unlink(link), 0);

    snprintf(path, sizeof(path), "%s/no/such", place->dir);
    assert_int_equal(slots_run_dir_open(path, &err), HUTCH_ERR_SYSTEM);
    assert_int_equal(err.sys_errno, ENOENT);
}

/* ---- uids -------------------------------------------------------------- */

static struct slots *open_slots(const struct place *place, uint32_t base, uint32_t count, uid_t uid)
{
    const struct slots_host host = {uid, place->dir, place->dir};
    struct slots *slots = NULL;
    struct hutch_error err;
    if (slots_open(place->run, base, count, &host, &slots, &err) < 0)
        fail_msg("%s", err.message);
    return slots;
}

static void put_maps(const struct place *place, const char *uid_map, const char *gid_map)
{
    put_file(place, "uid_map", uid_map);
    put_file(place, "gid_map", gid_map);
}

#define WHOLE_MAP "0 0 4294967295\n"
#define CONTAINER_MAP "0 100000 65536\n"

static void nobody_else_gets_a_uid_that_is_taken(void **state)
{
    struct place *place = *state;
    struct hutch_error err;
    uid_t uid[4];
    put_maps(place, WHOLE_MAP, WHOLE_MAP);
    struct slots *one = open_slots(place, 0, 3, 0);
    struct slots *two = open_slots(place, 0, 3, 0);
    /* a range of another beginning that meets the same uids */
    struct slots *shifted = open_slots(place, SLOTS_DEFAULT_BASE + 2, 1, 0);

    assert_int_equal(slots_count(one), 3);
    assert_int_equal(slots_base(one), SLOTS_DEFAULT_BASE);
    assert_string_equal(slots_reason(one), "");
    assert_int_equal(slots_acquire(one, &uid[0], &err), 0);
    assert_int_equal(slots_acquire(two, &uid[1], &err), 0);
    assert_int_equal(slots_acquire(one, &uid[2], &err), 0);
    assert_int_equal(uid[0], SLOTS_DEFAULT_BASE);
    assert_int_equal(uid[1], SLOTS_DEFAULT_BASE + 1);
    assert_int_equal(uid[2], SLOTS_DEFAULT_BASE + 2);
    assert_int_equal(slots_acquire(one, &uid[3], &err), HUTCH_ERR_BUSY);
    assert_int_equal(slots_acquire(two, &uid[3], &err), HUTCH_ERR_BUSY);
    assert_int_equal(slots_acquire(shifted, &uid[3], &err), HUTCH_ERR_BUSY);

    slots_release(two, uid[0]); /* not its own: nothing happens */
    assert_int_equal(slots_acquire(two, &uid[3], &err), HUTCH_ERR_BUSY);
    slots_release(one, uid[2]);
    assert_int_equal(slots_acquire(shifted, &uid[3], &err), 0);
    assert_int_equal(uid[3], uid[2]);
    slots_close(one);
    assert_int_equal(slots_acquire(two, &uid[3], &err), 0);
    assert_int_equal(uid[3], uid[0]);
    slots_close(two);
    slots_close(shifted);
    slots_close(NULL);
}

static void a_uid_is_not_used_again_soon(void **state)
{
    struct place *place = *state;
    struct hutch_error err;
    uid_t first, second;
    put_maps(place, WHOLE_MAP, WHOLE_MAP);
    struct slots *slots = open_slots(place, 5000, 8, 0);

    assert_int_equal(slots_acquire(slots, &first, &err), 0);
    slots_release(slots, first);
    assert_int_equal(slots_acquire(slots, &second, &err), 0);
    assert_int_equal(first, 5000);
    assert_int_equal(second, 5001);
    slots_close(slots);
}

static void a_range_that_is_not_mapped_falls_back_or_says_why(void **state)
{
    struct place *place = *state;
    struct hutch_error err;
    uid_t uid;

    put_maps(place, CONTAINER_MAP, CONTAINER_MAP);
    put_file(place, "passwd", "ann:x:1000:1000:::\n");
    struct slots *slots = open_slots(place, 0, 0, 0);
    assert_int_equal(slots_count(slots), SLOTS_DEFAULT_COUNT);
    assert_int_equal(slots_base(slots), SLOTS_FALLBACK_BASE);
    assert_string_equal(slots_reason(slots),
                        "uids and gids 1879048192 to 1879052287 are not mapped (container); "
                        "40000 to 44095 serve");
    slots_close(slots);

    /* a named range has no fallback */
    slots = open_slots(place, 70000, 10, 0);
    assert_int_equal(slots_count(slots), 0);
    assert_int_equal(slots_acquire(slots, &uid, &err), HUTCH_ERR_LAYER);
    assert_string_equal(slots_reason(slots),
                        "uids and gids 70000 to 70009 are not mapped (container)");
    assert_true(slots_mend(slots)[0] != '\0');
    slots_close(slots);

    put_file(place, "subgid", "ann:44095:1\n");
    slots = open_slots(place, 0, 0, 0);
    assert_int_equal(slots_count(slots), 0);
    slots_close(slots);
    put_file(place, "subgid", "ann:44096:1\n");
    slots = open_slots(place, 0, 0, 0);
    assert_int_equal(slots_count(slots), SLOTS_DEFAULT_COUNT);
    slots_close(slots);

    put_maps(place, CONTAINER_MAP, "0 0 1000\n");
    slots = open_slots(place, 0, 0, 0);
    assert_int_equal(slots_count(slots), 0);
    slots_close(slots);
}

static void without_root_there_are_none(void **state)
{
    struct place *place = *state;
    struct slots *slots = open_slots(place, 0, 0, 1000);

    assert_int_equal(slots_count(slots), 0);
    assert_string_equal(slots_reason(slots), "hutch was not started as root");
    assert_string_equal(slots_mend(slots), "start hutch as root");
    slots_close(slots);
}

static void impossible_ranges_are_refused(void **state)
{
    struct place *place = *state;
    static const uint32_t bad[][2] = {
        {999, 10}, {1, 1}, {UINT32_MAX, 1}, {UINT32_MAX - 9, 10}, {5000, SLOTS_COUNT_MAX + 1}};
    struct slots *slots = NULL;
    struct hutch_error err;

    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_int_equal(slots_open(place->run, bad[i][0], bad[i][1], NULL, &slots, &err),
                         HUTCH_ERR_INVALID);
    assert_null(slots);
}

/* ---- records ----------------------------------------------------------- */

static void record_of(const struct slots_record *record, char *ret, size_t size)
{
    snprintf(ret, size, "supervisor-%s", record->token);
}

static void a_record_lives_as_long_as_its_owner(void **state)
{
    struct place *place = *state;
    struct slots_record record = SLOTS_RECORD_NONE;
    struct hutch_error err;
    char name[64];

    slots_record_close(&record, true);
    assert_int_equal(slots_record_create(place->run, &record, &err), 0);
    record_of(&record, name, sizeof(name));
    assert_true(is_there(place, name));
    assert_int_equal(slots_record_add(&record, "/a/b", &err), 0);
    assert_int_equal(slots_sweep(place->run, &err), 0);
    assert_true(is_there(place, name));
    slots_record_close(&record, true);
    assert_false(is_there(place, name));
    slots_record_close(&record, true);
}

static void a_record_of_what_is_left_is_swept_later(void **state)
{
    struct place *place = *state;
    struct slots_record record;
    struct hutch_error err;
    char name[64];

    assert_int_equal(slots_record_create(place->run, &record, &err), 0);
    record_of(&record, name, sizeof(name));
    slots_record_close(&record, false);
    assert_true(is_there(place, name));
    assert_int_equal(slots_sweep(place->run, &err), 0);
    assert_false(is_there(place, name));
}

static void a_sweep_touches_nothing_but_groups_of_the_record(void **state)
{
    struct place *place = *state;
    struct slots_record record;
    struct hutch_error err;
    char name[64];
    char dir[256];
    char path[512];

    assert_int_equal(slots_record_create(place->run, &record, &err), 0);
    record_of(&record, name, sizeof(name));
    /* a folder of the right name that is not on a cgroup file system */
    snprintf(dir, sizeof(dir), "%s/%s", place->dir, record.group);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(slots_record_add(&record, dir, &err), 0);
    snprintf(path, sizeof(path), "%s/../%s", place->dir, record.group);
    assert_int_equal(slots_record_add(&record, path, &err), 0);
    assert_int_equal(slots_record_add(&record, place->dir, &err), 0);
    assert_int_equal(slots_record_add(&record, "", &err), 0);
    slots_record_close(&record, false);
    assert_int_equal(slots_sweep(place->run, &err), 0);
    assert_false(is_there(place, name));
    assert_int_equal(rmdir(dir), 0);
}

static void a_sweep_passes_over_files_that_are_no_records(void **state)
{
    struct place *place = *state;
    static const char *const names[] = {"supervisor-", "supervisor-1",
                                        "supervisor-1-0123456789abcdeF", "other"};
    const char *folder = "supervisor-1-0123456789abcdef";
    const char *link = "supervisor-2-0123456789abcdef";
    struct hutch_error err;
    char path[256];

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        snprintf(path, sizeof(path), "run/%s", names[i]);
        put_file(place, path, "/x\n");
    }
    assert_int_equal(mkdirat(place->run, folder, 0700), 0);
    assert_int_equal(symlinkat("other", place->run, link), 0);
    assert_int_equal(slots_sweep(place->run, &err), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        assert_true(is_there(place, names[i]));
        assert_int_equal(unlinkat(place->run, names[i], 0), 0);
    }
    assert_int_equal(unlinkat(place->run, folder, AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(place->run, link, 0), 0);
}

#define test_with_place(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_cover_what_their_lines_join_to),
        cmocka_unit_test(accounts_overlap_by_their_own_fields),
        test_with_place(run_dir_is_private),
        test_with_place(nobody_else_gets_a_uid_that_is_taken),
        test_with_place(a_uid_is_not_used_again_soon),
        test_with_place(a_range_that_is_not_mapped_falls_back_or_says_why),
        test_with_place(without_root_there_are_none),
        test_with_place(impossible_ranges_are_refused),
        test_with_place(a_record_lives_as_long_as_its_owner),
        test_with_place(a_record_of_what_is_left_is_swept_later),
        test_with_place(a_sweep_touches_nothing_but_groups_of_the_record),
        test_with_place(a_sweep_passes_over_files_that_are_no_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
