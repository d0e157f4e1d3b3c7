/* SPDX-License-Identifier: Apache-2.0 */
/* What the host has left: the kernel's texts, and hosts made of plain files. */
#include "base/attrs.h"
#include "base/limits.h"
#include "sandbox/load.h"
#include "sandbox/load_text.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* ---- texts ------------------------------------------------------------- */

static void memory_is_read(void **state)
{
    (void)state;
    const char *meminfo = "MemTotal:       24683520 kB\nMemFree:        1 kB\n"
                          "MemAvailable:   23924736 kB\nBuffers: 2 kB\n";
    uint64_t bytes = 7;

    assert_true(load_text_memory(meminfo, "MemTotal", &bytes));
    assert_int_equal(bytes, KIB(24683520));
    assert_true(load_text_memory(meminfo, "MemAvailable", &bytes));
    assert_int_equal(bytes, KIB(23924736));
    assert_true(load_text_memory("MemTotal: 99999999999999999999 kB", "MemTotal", &bytes));
    assert_int_equal(bytes, UINT64_C(1) << 50);
    bytes = 7;
    assert_false(load_text_memory(meminfo, "Mem", &bytes));
    assert_false(load_text_memory(meminfo, "Available", &bytes));
    assert_false(load_text_memory("MemTotal: -1 kB\n", "MemTotal", &bytes));
    assert_false(load_text_memory("MemTotal:", "MemTotal", &bytes));
    assert_false(load_text_memory("", "MemTotal", &bytes));
    assert_int_equal(bytes, 7);
}

static void runnable_threads_are_read(void **state)
{
    (void)state;
    uint32_t threads = 7;

    assert_true(load_text_runnable("8.50 4.69 2.88 2/124 7992\n", &threads));
    assert_int_equal(threads, 2);
    assert_true(load_text_runnable("0.00 0.00 0.00 99999999999/1 1", &threads));
    assert_int_equal(threads, UINT32_MAX);
    threads = 7;
    assert_false(load_text_runnable("0.00 0.00 0.00 x/1 1", &threads));
    assert_false(load_text_runnable("0.00 0.00 0.00 5", &threads));
    assert_false(load_text_runnable("0.00 0.00 0.00", &threads));
    assert_false(load_text_runnable("", &threads));
    assert_int_equal(threads, 7);
}

static void pressure_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t expected;
    } rows[] = {
        {"some avg10=0.00 avg60=1.00 avg300=0.00 total=20428670\nfull avg10=9.00\n", 0},
        {"full avg10=9.00 avg60=1.00\nsome avg10=12.34 avg60=1.00\n", 1234},
        {"some avg10=5", 500},
        {"some avg10=5.1 ", 510},
        {"some avg10=5.x", 500},
        {"some avg10=100.00 avg60=1.00", 10000},
        {"some avg10=99999999999999999999", 10000},
    };
    uint32_t pressure = 7;

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        assert_true(load_text_pressure(rows[i].text, &pressure));
        assert_int_equal(pressure, rows[i].expected);
    }
    pressure = 7;
    assert_false(load_text_pressure("full avg10=9.00", &pressure));
    assert_false(load_text_pressure("some avg10=", &pressure));
    assert_false(load_text_pressure("", &pressure));
    assert_int_equal(pressure, 7);
}

static void headroom_counts_what_is_given_up_for_nothing(void **state)
{
    (void)state;
    assert_int_equal(load_headroom(100, 60, 0), 40);
    assert_int_equal(load_headroom(100, 60, 25), 65);
    assert_int_equal(load_headroom(100, 60, 70), 100);
    assert_int_equal(load_headroom(100, 130, 10), 0);
    assert_int_equal(load_headroom(100, 100, 0), 0);
}

/* ---- hosts of files ---------------------------------------------------- */

struct fake {
    char path[64];
    int root;
};

static int setup(void **state)
{
    struct fake *fake = calloc(1, sizeof(*fake));

    snprintf(fake->path, sizeof(fake->path), "/tmp/hutch-test-load-XXXXXX");
    assert_non_null(mkdtemp(fake->path));
    fake->root = open(fake->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(fake->root >= 0);
    *state = fake;
    return 0;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

static int teardown(void **state)
{
    struct fake *fake = *state;

    close(fake->root);
    assert_int_equal(nftw(fake->path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    free(fake);
    return 0;
}

/* A file with the folders that it is in. */
static void put(const struct fake *fake, const char *path, const char *text)
{
    char folder[256];

    for (const char *at = strchr(path, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(at - path), path);
        mkdirat(fake->root, folder, 0700);
    }
    int fd = openat(fake->root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void put_machine(const struct fake *fake)
{
    put(fake, "proc/meminfo", "MemTotal: 4194304 kB\nMemAvailable: 3145728 kB\n");
    put(fake, "proc/loadavg", "0.00 0.00 0.00 3/124 7992\n");
    put(fake, "proc/pressure/memory", "some avg10=1.50 avg60=0.00\n");
}

static struct load_memory memory_of(const struct fake *fake, const char *cgroup)
{
    struct load_host host;
    struct load_memory memory;

    load_host_init(&host, fake->root, cgroup);
    load_read_memory(&host, &memory);
    return memory;
}

static void check_memory(const struct fake *fake, const char *cgroup, uint64_t total_mb,
                         uint64_t available_mb)
{
    struct load_memory memory = memory_of(fake, cgroup);

    assert_int_equal(memory.total_bytes, MIB(total_mb));
    assert_int_equal(memory.available_bytes, MIB(available_mb));
    assert_int_equal(memory.in_group, total_mb != 4096);
}

static void a_host_that_says_nothing(void **state)
{
    struct fake *fake = *state;
    struct load_host host;
    struct load_pace pace;

    struct load_memory memory = memory_of(fake, NULL);
    assert_int_equal(memory.total_bytes, LOAD_UNKNOWN);
    assert_int_equal(memory.available_bytes, LOAD_UNKNOWN);
    load_host_init(&host, fake->root, "x");
    load_read_pace(&host, &pace);
    assert_int_equal(pace.runnable, 0);
    assert_int_equal(pace.pressure, 0);
    assert_true(pace.processors >= 1);
}

static void a_host_without_cgroups(void **state)
{
    struct fake *fake = *state;
    struct load_host host;
    struct load_pace pace;

    put_machine(fake);
    check_memory(fake, NULL, 4096, 3072);
    load_host_init(&host, fake->root, NULL);
    load_read_pace(&host, &pace);
    assert_int_equal(pace.runnable, 3);
    assert_int_equal(pace.pressure, 150);
}

static void groups_of_v1(void **state)
{
    struct fake *fake = *state;

    put_machine(fake);
    put(fake, "proc/self/cgroup", "4:memory:/a/b\n1:cpu:/c\n0::/d\n");
    put(fake, "proc/self/mountinfo",
        "1 0 0:1 / /cg/unified rw - cgroup2 cgroup2 rw\n"
        "2 0 0:2 / /cg/cpu rw - cgroup cgroup rw,cpu\n"
        "3 0 0:3 / /cg/memory rw - cgroup cgroup rw,memory\n");
    put(fake, "cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
    check_memory(fake, NULL, 4096, 3072); /* none below it has files */
    put(fake, "cg/memory/a/memory.limit_in_bytes", "1073741824\n");
    put(fake, "cg/memory/a/memory.usage_in_bytes", "734003200\n");
    put(fake, "cg/memory/a/memory.stat", "inactive_file 7\ntotal_inactive_file 104857600\n");
    check_memory(fake, NULL, 1024, 424);
    put(fake, "cg/memory/a/b/memory.limit_in_bytes", "536870912\n");
    put(fake, "cg/memory/a/b/memory.usage_in_bytes", "104857600\n");
    put(fake, "cg/memory/a/b/memory.stat", "total_inactive_file 0\n");
    check_memory(fake, NULL, 1024, 424); /* 296 of room are less than 348 */
    put(fake, "cg/memory/a/b/memory.usage_in_bytes", "209715200\n");
    check_memory(fake, NULL, 512, 312);
    put(fake, "cg/memory/a/memory.limit_in_bytes", "9663676416\n"); /* more than there is */
    put(fake, "cg/memory/a/b/memory.stat", "");
    check_memory(fake, NULL, 4096, 3072);
}

static void groups_of_v2(void **state)
{
    struct fake *fake = *state;
    struct load_host host;
    struct load_pace pace;

    put_machine(fake);
    put(fake, "proc/self/cgroup", "0::/slice/of/us\n");
    put(fake, "proc/self/mountinfo",
        "1 0 0:1 /slice /cg rw - cgroup2 cgroup2 rw\n" /* as in a container */
        "2 0 0:2 / /cg/cpu rw - cgroup cgroup rw,cpu\n");
    put(fake, "cg/of/us/memory.max", "max\n");
    put(fake, "cg/of/us/memory.high", "max\n");
    put(fake, "cg/of/memory.max", "max\n");
    put(fake, "cg/of/memory.high", "2147483648\n");
    put(fake, "cg/of/memory.current", "1073741824\n");
    put(fake, "cg/of/memory.stat", "anon 1\ninactive_file 536870912\n");
    check_memory(fake, NULL, 2048, 1536);
    put(fake, "cg/memory.max", "1073741824\n");
    put(fake, "cg/memory.current", "943718400\n");
    put(fake, "cg/memory.stat", "inactive_file 0\n");
    check_memory(fake, NULL, 1024, 124);
    put(fake, "cg/of/us/memory.pressure", "some avg10=20.50 avg60=0.00\n");
    load_host_init(&host, fake->root, NULL);
    load_read_pace(&host, &pace);
    assert_int_equal(pace.pressure, 2050);
}

static void the_group_that_is_named(void **state)
{
    struct fake *fake = *state;

    put_machine(fake);
    put(fake, "proc/self/cgroup", "4:memory:/own\n");
    put(fake, "proc/self/mountinfo", "3 0 0:3 / /cg rw - cgroup cgroup rw,memory\n");
    put(fake, "cg/own/memory.limit_in_bytes", "1073741824\n");
    put(fake, "cg/own/memory.usage_in_bytes", "0\n");
    put(fake, "cg/own/memory.stat", "total_inactive_file 0\n");
    put(fake, "cg/named/memory.limit_in_bytes", "536870912\n");
    put(fake, "cg/named/memory.usage_in_bytes", "0\n");
    put(fake, "cg/named/memory.stat", "total_inactive_file 0\n");
    put(fake, "cg/named/below/x", "");
    check_memory(fake, "", 1024, 1024);
    check_memory(fake, "named", 512, 512);
    check_memory(fake, "/named/below", 512, 512);
    check_memory(fake, "missing", 1024, 1024);
    check_memory(fake, "../cg/named", 1024, 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_read),
        cmocka_unit_test(runnable_threads_are_read),
        cmocka_unit_test(pressure_is_read),
        cmocka_unit_test(headroom_counts_what_is_given_up_for_nothing),
        cmocka_unit_test_setup_teardown(a_host_that_says_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_host_without_cgroups, setup, teardown),
        cmocka_unit_test_setup_teardown(groups_of_v1, setup, teardown),
        cmocka_unit_test_setup_teardown(groups_of_v2, setup, teardown),
        cmocka_unit_test_setup_teardown(the_group_that_is_named, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
