/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hostile hutch-init answers when the engine asks it for files: entries by
 * themselves, and whole calls over a socket. Whatever it sends, a call ends, gives no more
 * than was asked for, and no name that is none.
 *
 * Input: a byte for the call, a byte of the most that a GET takes, the answers.
 */
#include "fuzz.h"

#include "base/clock.h"
#include "sandbox/file_call.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALLS 2 /* one after the other, on the same bytes */
#define PUT_BYTES 3000
#define DEADLINE_NS (5 * NS_PER_SECOND) /* the other end is closed: no call waits */

struct taken {
    bool lists_paths;
    uint64_t bytes, entries;
};

static void check_name(const char *name, bool is_path)
{
    size_t length = strlen(name);

    assert(length > 0 && length <= (is_path ? WIRE_MAX_PATH : WIRE_MAX_NAME));
    assert(is_path || !strchr(name, '/'));
}

static void check_entries(const struct hutch_text *text, bool is_path)
{
    char *name = malloc(WIRE_MAX_PATH + 1);
    struct file_entry entry;
    size_t used;

    assert(name);
    for (size_t at = 0; at < text->length; at += used) {
        used = file_entry_read(text->data + at, text->length - at, is_path, name, &entry);
        if (used == 0)
            break;
        assert(used == sizeof(struct wire_entry) + strlen(name) && used <= text->length - at);
        assert(entry.name == name && entry.size <= INT64_MAX);
        check_name(name, is_path);
    }
    free(name);
}

static int give_data(void *user, char *data, size_t length, struct hutch_error *err)
{
    (void)user, (void)err;
    memset(data, 'x', length);
    return 0;
}

static int take_data(void *user, const char *data, size_t length, struct hutch_error *err)
{
    struct taken *taken = user;

    (void)data, (void)err;
    taken->bytes += length;
    return 0;
}

static int take_entry(void *user, const struct file_entry *entry, struct hutch_error *err)
{
    struct taken *taken = user;

    (void)err;
    check_name(entry->name, taken->lists_paths);
    taken->entries++;
    return 0;
}

/* Returns the call's code. */
static int check_call(struct file_link *link, enum wire_file_type type, uint64_t max_bytes)
{
    struct taken taken = {.lists_paths = type == WIRE_FILE_CHANGES};
    struct hutch_error err;
    struct file_call call = {
        .type = type,
        .path = type == WIRE_FILE_MARK || type == WIRE_FILE_CHANGES ? "" : "a/b",
        .size = PUT_BYTES,
        .max_bytes = max_bytes,
        .user = &taken,
        .read = give_data,
        .write = take_data,
        .entry = take_entry,
    };
    int code = file_link_call(link, &call, clock_after_ns(DEADLINE_NS), -1, &err);

    assert(code == 0 || !call.is_lost || code == HUTCH_ERR_HELPER);
    assert(code != 0 || (!call.is_lost && call.sys_errno == 0));
    assert(taken.bytes <= max_bytes && taken.entries <= WIRE_MAX_ENTRIES);
    assert(type == WIRE_FILE_GET || taken.bytes == 0);
    assert(type == WIRE_FILE_LIST || type == WIRE_FILE_CHANGES || taken.entries == 0);
    if (code < 0)
        check_error(code, &err);
    return code;
}

static void check_calls(const struct hutch_text *answers, enum wire_file_type type,
                        uint64_t max_bytes)
{
    struct file_link *link;
    struct hutch_error err;
    int ends[2];

    int code = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
    assert(code == 0);
    ssize_t sent = send(ends[1], answers->data, answers->length, MSG_DONTWAIT);
    assert(sent == (ssize_t)answers->length);
    code = shutdown(ends[1], SHUT_WR);
    assert(code == 0);
    code = file_link_new(ends[0], &link, &err);
    assert(code == 0);
    for (int i = 0, broken = 0; i < CALLS; i++) {
        code = check_call(link, type, max_bytes);
        assert(!broken || code == HUTCH_ERR_HELPER);
        broken = code == HUTCH_ERR_HELPER;
    }
    file_link_free(link);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum wire_file_type types[] = {WIRE_FILE_PUT,  WIRE_FILE_GET,
                                                WIRE_FILE_LIST, WIRE_FILE_DELETE,
                                                WIRE_FILE_MARK, WIRE_FILE_CHANGES};
    struct input input = {data, size};
    enum wire_file_type type = types[input_number(&input, 1) % (sizeof(types) / sizeof(types[0]))];
    uint64_t max_bytes = input_number(&input, 1);
    struct hutch_text answers = input_bytes(&input, input.length);

    check_entries(&answers, false);
    check_entries(&answers, true);
    check_calls(&answers, type, max_bytes);
    free(answers.data);
    return 0;
}
