/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine believes of what comes over a files socket. The test is hutch-init. */
#include "base/clock.h"
#include "sandbox/file_call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct got {
    char bytes[256];
    size_t length, entries;
};

static int take_bytes(void *user, const char *data, size_t length, struct hutch_error *err)
{
    struct got *got = user;
    (void)err;
    memcpy(got->bytes + got->length, data, length);
    got->length += length;
    return 0;
}

static int take_entry(void *user, const struct file_entry *entry, struct hutch_error *err)
{
    struct got *got = user;
    got->entries++;
    return take_bytes(user, entry->name, strlen(entry->name), err);
}

static void say(int fd, uint16_t type, uint32_t call, const void *data, size_t length)
{
    struct wire_header header = {.length = (uint32_t)length, .type = type, .exec_id = call};
    assert_int_equal(write(fd, &header, sizeof(header)), sizeof(header));
    if (length > 0)
        assert_int_equal(write(fd, data, length), length);
}

static void answer(int fd, uint32_t call, int32_t error, uint64_t size)
{
    struct wire_answer answer = {.error = error, .size = size};
    say(fd, WIRE_FILE_ANSWER, call, &answer, sizeof(answer));
}

static size_t put_entry(char *at, const char *name, size_t length, uint64_t size)
{
    struct wire_entry entry = {.size = size, .name_length = (uint16_t)length};
    memcpy(at, &entry, sizeof(entry));
    memcpy(at + sizeof(entry), name, length);
    return sizeof(entry) + length;
}

static struct file_link *start(int *ret_fd)
{
    struct hutch_error err;
    struct file_link *link = NULL;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(file_link_new(pair[0], &link, &err), 0);
    *ret_fd = pair[1];
    return link;
}

/* What a call says when this is the answer, which is there already; then the connection
 * ends. */
static int call_of(struct file_link *link, int fd, struct file_call *call, struct hutch_error *err)
{
    shutdown(fd, SHUT_WR);
    int code = file_link_call(link, call, clock_after_ns(5 * NS_PER_SECOND), -1, err);
    file_link_free(link);
    close(fd);
    return code;
}

static void a_file_comes_in_pieces(void **state)
{
    (void)state;
    struct hutch_error err;
    struct got got = {.length = 0};
    struct file_call call = {
        .type = WIRE_FILE_GET, .path = "a", .max_bytes = 10, .write = take_bytes, .user = &got};
    int fd;
    struct file_link *link = start(&fd);

    say(fd, WIRE_FILE_DATA, 1, "abc", 3);
    say(fd, WIRE_FILE_DATA, 1, "de", 2);
    answer(fd, 1, 0, 5);
    assert_int_equal(call_of(link, fd, &call, &err), 0);
    assert_memory_equal(got.bytes, "abcde", 5);
}

static void refusals_become_errors(void **state)
{
    (void)state;
    static const struct {
        int32_t error;
        int code;
        const char *text;
    } rows[] = {
        {ENOENT, HUTCH_ERR_INVALID, "No such file"},
        {ENOSPC, HUTCH_ERR_INVALID, "disk_mb"},
        {EFBIG, HUTCH_ERR_INVALID, "has 77 bytes; allowed are 10"},
        {EWOULDBLOCK, HUTCH_ERR_INVALID, "busy"},
        {EIO, HUTCH_ERR_SYSTEM, "Input/output error"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct hutch_error err;
        struct got got = {.length = 0};
        struct file_call call = {
            .type = WIRE_FILE_GET, .path = "a", .max_bytes = 10, .write = take_bytes, .user = &got};
        int fd;
        struct file_link *link = start(&fd);
        answer(fd, 1, rows[i].error, 77);
        assert_int_equal(call_of(link, fd, &call, &err), rows[i].code);
        assert_non_null(strstr(err.message, rows[i].text));
        assert_int_equal(call.sys_errno, rows[i].error);
        assert_false(call.is_lost);
    }
}

/* Each is an answer to the first call, a GET of at most 10 bytes. */
static void broken_get(int fd, unsigned which)
{
    struct wire_header huge = {.length = WIRE_MAX_DATA + 1, .type = WIRE_FILE_DATA, .exec_id = 1};

    switch (which) {
    case 0:
        say(fd, WIRE_FILE_DATA, 1, "0123456789a", 11);
        break;
    case 1:
        say(fd, WIRE_FILE_DATA, 2, "x", 1);
        break;
    case 2:
        say(fd, WIRE_FILE_DATA, 1, "", 0);
        break;
    case 3:
        say(fd, WIRE_FILE_ENTRIES, 1, "x", 1);
        break;
    case 4:
        answer(fd, 1, -1, 0);
        break;
    case 5:
        say(fd, WIRE_FILE_ANSWER, 1, "x", 1);
        break;
    case 6:
        assert_int_equal(write(fd, &huge, sizeof(huge)), sizeof(huge));
        break;
    case 7:
        say(fd, 3, 1, "", 0);
        break;
    default: /* the end */
        break;
    }
}

static void what_breaks_the_form_ends_it(void **state)
{
    (void)state;
    for (unsigned which = 0; which <= 8; which++) {
        struct hutch_error err;
        struct got got = {.length = 0};
        struct file_call call = {
            .type = WIRE_FILE_GET, .path = "a", .max_bytes = 10, .write = take_bytes, .user = &got};
        int fd;
        struct file_link *link = start(&fd);
        broken_get(fd, which);
        assert_int_equal(call_of(link, fd, &call, &err), HUTCH_ERR_HELPER);
        assert_int_equal(call.is_lost, which == 8);
    }
}

static void lists_are_looked_at(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t length;
        uint64_t size;
        bool expected;
    } rows[] = {
        {"a", 1, 5, true},    {"a\xff\n", 3, 0, true}, {"", 0, 0, false},
        {"a/b", 3, 0, false}, {"a\0b", 3, 0, false},   {"a", 1, UINT64_MAX, false},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        char frame[64];
        struct hutch_error err;
        struct got got = {.length = 0};
        struct file_call call = {
            .type = WIRE_FILE_LIST, .path = "", .entry = take_entry, .user = &got};
        int fd;
        struct file_link *link = start(&fd);
        size_t length = put_entry(frame, rows[i].name, rows[i].length, rows[i].size);
        say(fd, WIRE_FILE_ENTRIES, 1, frame, length);
        answer(fd, 1, 0, 0);
        assert_int_equal(call_of(link, fd, &call, &err), rows[i].expected ? 0 : HUTCH_ERR_HELPER);
    }
}

static void entries_end_where_they_say(void **state)
{
    (void)state;
    char frame[64], name[WIRE_MAX_PATH + 1];
    struct file_entry entry;
    size_t length = put_entry(frame, "a/b", 3, 9);

    assert_int_equal(file_entry_read(frame, length, true, name, &entry), length);
    assert_string_equal(entry.name, "a/b");
    assert_int_equal(entry.size, 9);
    for (size_t cut = 0; cut < length; cut++)
        assert_int_equal(file_entry_read(frame, cut, true, name, &entry), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_comes_in_pieces),       cmocka_unit_test(refusals_become_errors),
        cmocka_unit_test(what_breaks_the_form_ends_it), cmocka_unit_test(lists_are_looked_at),
        cmocka_unit_test(entries_end_where_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
