/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output kept as head and tail. Streams of every sort are fed in pieces of
 * every size; what comes out depends on the bytes alone, and always fits the
 * contract in capture.h.
 */
#include "sandbox/capture.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define STREAM_MAX 4096

static void free_text(struct hutch_text *text)
{
    free(text->data);
}
#define auto_text __attribute__((cleanup(free_text)))

/* Captures a stream that arrives in pieces of the given size. */
static struct hutch_text captured(const char *data, size_t length, uint64_t max, size_t piece,
                                  enum hutch_encoding encoding, bool *ret_truncated)
{
    struct capture capture;
    struct hutch_error err;
    struct hutch_text text;

    capture_init(&capture, max);
    for (size_t at = 0; at < length; at += piece) {
        size_t count = length - at < piece ? length - at : piece;
        assert_int_equal(capture_add(&capture, data + at, count, &err), 0);
        assert_int_equal(capture.total, at + count);
    }
    assert_int_equal(capture_finish(&capture, encoding, &text, ret_truncated, &err), 0);
    assert_int_equal(text.data[text.length], '\0');
    capture_done(&capture);
    return text;
}

/* A text taken apart at its marker. */
struct parts {
    const char *head, *tail;
    size_t head_length, tail_length;
    uint64_t missing;
};

static struct parts take_apart(const struct hutch_text *text)
{
    static const char begin[] = "\n[... ", end[] = " bytes missing ...]\n";
    const char *marker = memmem(text->data, text->length, begin, strlen(begin));
    assert_non_null(marker);
    struct parts parts = {.head = text->data, .head_length = (size_t)(marker - text->data)};
    const char *digit = marker + strlen(begin);
    while (*digit >= '0' && *digit <= '9')
        parts.missing = parts.missing * 10 + (uint64_t)(*digit++ - '0');
    assert_memory_equal(digit, end, strlen(end));
    parts.tail = digit + strlen(end);
    parts.tail_length = text->length - (size_t)(parts.tail - text->data);
    return parts;
}

static bool is_repaired(const char *data, size_t length, const char *text, size_t text_length)
{
    auto_buf struct buf out = BUF_MAX(3 * STREAM_MAX);

    utf8_repair(&out, data, length);
    return out.length == text_length && memcmp(buf_text(&out), text, text_length) == 0;
}

/* Checks what was kept of a stream against the contract. */
static void check_text(const char *data, size_t length, size_t max, const struct hutch_text *text,
                       bool truncated)
{
    assert_true(utf8_valid(text->data, text->length));
    assert_int_equal(truncated, length > max);
    if (!truncated) {
        assert_true(is_repaired(data, length, text->data, text->length));
        return;
    }
    struct parts parts = take_apart(text);
    size_t kept = length - (size_t)parts.missing, half = max / 2, fitting = 0;
    for (size_t head = half < 3 ? 0 : half - 3; head <= half; head++) {
        size_t tail = kept - head;
        if (kept < head || tail > max - half || tail + 3 < max - half)
            continue;
        fitting += is_repaired(data, head, parts.head, parts.head_length) &&
                   is_repaired(data + length - tail, tail, parts.tail, parts.tail_length);
    }
    assert_true(fitting > 0);
}

/* A stream of bytes of a sort, of any length, the same every time. */
enum sort { ASCII, CHARACTERS, SNAKES, RANDOM, CONTINUATIONS, LEADS, SORTS };

static void fill(char *data, size_t length, enum sort sort)
{
    static const char characters[] = "aé漢🐍 ü\n🐍漢éz", snakes[] = "🐍";
    uint32_t random = 42;

    for (size_t i = 0; i < length; i++) {
        random = random * 1664525 + 1013904223;
        switch (sort) {
        case ASCII:
            data[i] = (char)('a' + i % 26);
            break;
        case CHARACTERS:
            data[i] = characters[i % strlen(characters)];
            break;
        case SNAKES:
            data[i] = snakes[i % 4];
            break;
        case RANDOM:
            data[i] = (char)(random >> 24);
            break;
        case CONTINUATIONS:
            data[i] = (char)0x90;
            break;
        case LEADS:
            data[i] = (char)0xf0;
            break;
        case SORTS:
            break;
        }
    }
}

static void every_length_around_the_maximum_keeps_the_contract(void **state)
{
    (void)state;
    char data[STREAM_MAX];

    for (enum sort sort = 0; sort < SORTS; sort++) {
        fill(data, sizeof(data), sort);
        for (size_t max = 8; max <= 23; max++) {
            for (size_t length = 0; length <= 4 * max; length++) {
                bool truncated;
                auto_text struct hutch_text text =
                    captured(data, length, max, STREAM_MAX, HUTCH_TEXT, &truncated);
                check_text(data, length, max, &text, truncated);
            }
        }
    }
}

static void the_borders_of_reads_do_not_matter(void **state)
{
    (void)state;
    char data[200];

    for (enum sort sort = 0; sort < SORTS; sort++) {
        fill(data, sizeof(data), sort);
        for (size_t length = 0; length <= sizeof(data); length += 1 + length / 8) {
            for (enum hutch_encoding encoding = HUTCH_TEXT; encoding <= HUTCH_BASE64; encoding++) {
                bool truncated;
                auto_text struct hutch_text whole =
                    captured(data, length, 40, STREAM_MAX, encoding, &truncated);
                for (size_t piece = 1; piece <= length; piece++) {
                    auto_text struct hutch_text text =
                        captured(data, length, 40, piece, encoding, &truncated);
                    assert_int_equal(text.length, whole.length);
                    assert_memory_equal(text.data, whole.data, whole.length);
                }
            }
        }
    }
}

/* Two reads with the border at every place, and a character across it. */
static void a_character_survives_every_read_border(void **state)
{
    (void)state;
    static const char text[] = "aé漢🐍 caf\xe9 \xf0\x9f\x90 \xed\xa0\x80 🐍";
    static const char expected[] = "aé漢🐍 caf" UTF8_REPLACEMENT " " UTF8_REPLACEMENT
                                   " " UTF8_REPLACEMENT UTF8_REPLACEMENT UTF8_REPLACEMENT " 🐍";
    size_t length = strlen(text);

    for (size_t first = 0; first <= length; first++) {
        for (size_t max = length; max <= 4 * length; max++) {
            struct capture capture;
            struct hutch_error err;
            auto_text struct hutch_text kept = {0};
            bool truncated;
            capture_init(&capture, max);
            assert_int_equal(capture_add(&capture, text, first, &err), 0);
            assert_int_equal(capture_add(&capture, text + first, length - first, &err), 0);
            assert_int_equal(capture_finish(&capture, HUTCH_TEXT, &kept, &truncated, &err), 0);
            assert_false(truncated);
            assert_string_equal(kept.data, expected);
        }
    }
}

static void no_character_is_broken_by_the_cut(void **state)
{
    (void)state;
    char data[STREAM_MAX];

    for (enum sort sort = ASCII; sort <= SNAKES; sort++) {
        for (size_t shift = 0; shift < 4; shift++) { /* every place in a character */
            memset(data, 'x', shift);
            fill(data + shift, sizeof(data) - shift, sort);
            for (size_t max = 1024; max < 1029; max++) {
                bool truncated;
                auto_text struct hutch_text text =
                    captured(data, 3984 + shift, max, 777, HUTCH_TEXT, &truncated);
                assert_true(truncated);
                assert_null(memmem(text.data, text.length, UTF8_REPLACEMENT, 3));
                struct parts parts = take_apart(&text);
                /* of valid text, what is kept are bytes of the program as they were */
                assert_int_equal(parts.head_length + parts.tail_length + parts.missing,
                                 3984 + shift);
                assert_memory_equal(parts.head, data, parts.head_length);
                assert_memory_equal(parts.tail, data + 3984 + shift - parts.tail_length,
                                    parts.tail_length);
                assert_true(parts.head_length <= max / 2 && parts.head_length + 3 >= max / 2);
                assert_true(parts.tail_length <= max - max / 2 &&
                            parts.tail_length + 3 >= max - max / 2);
            }
        }
    }
}

static void bytes_are_kept_exactly(void **state)
{
    (void)state;
    char data[STREAM_MAX];

    fill(data, sizeof(data), RANDOM);
    for (size_t length = 0; length <= sizeof(data); length += 61) {
        bool truncated;
        auto_text struct hutch_text text =
            captured(data, length, 1025, 100, HUTCH_BASE64, &truncated);
        assert_int_equal(truncated, length > 1025);
        if (!truncated) {
            assert_int_equal(text.length, length);
            assert_memory_equal(text.data, data, length);
            continue;
        }
        char marker[64];
        snprintf(marker, sizeof(marker), "\n[... %zu bytes missing ...]\n", length - 1025);
        assert_int_equal(text.length, 1025 + strlen(marker));
        assert_memory_equal(text.data, data, 512);
        assert_memory_equal(text.data + 512, marker, strlen(marker));
        assert_memory_equal(text.data + 512 + strlen(marker), data + length - 513, 513);
    }
}

static void an_empty_stream_is_an_empty_string(void **state)
{
    (void)state;
    bool truncated = true;
    auto_text struct hutch_text text = captured("", 0, 1024, 1, HUTCH_TEXT, &truncated);

    assert_non_null(text.data);
    assert_int_equal(text.length, 0);
    assert_false(truncated);
}

static void nul_bytes_are_kept(void **state)
{
    (void)state;
    bool truncated;
    auto_text struct hutch_text text = captured("a\0b\0", 4, 1024, 1, HUTCH_TEXT, &truncated);

    assert_int_equal(text.length, 4);
    assert_memory_equal(text.data, "a\0b\0", 4);
}

static size_t held(const struct capture *capture)
{
    return capture->head.capacity + capture->tail.capacity;
}

static void memory_follows_what_is_printed_and_ends_at_the_maximum(void **state)
{
    (void)state;
    static char piece[65536];
    const size_t max = 1 << 20;
    struct capture capture;
    struct hutch_error err;
    auto_text struct hutch_text text = {0};
    bool truncated;

    memset(piece, 'y', sizeof(piece));
    capture_init(&capture, max);
    assert_int_equal(held(&capture), 0);
    assert_int_equal(capture_add(&capture, piece, 10, &err), 0);
    assert_true(held(&capture) <= 512);
    uint64_t total = 10;
    while (total < (100u << 20)) {
        assert_int_equal(capture_add(&capture, piece, sizeof(piece), &err), 0);
        total += sizeof(piece);
        assert_true(held(&capture) <= 2 * max + 2);
        assert_true(held(&capture) <= 4 * total + 512);
    }
    assert_int_equal(capture.total, total);
    assert_int_equal(capture_finish(&capture, HUTCH_TEXT, &text, &truncated, &err), 0);
    assert_int_equal(held(&capture), 0);
    assert_true(truncated);
    assert_int_equal(take_apart(&text).missing, total - max);
    capture_done(&capture);
}

static void one_write_beyond_everything_is_taken(void **state)
{
    (void)state;
    char data[STREAM_MAX];
    fill(data, sizeof(data), ASCII);

    for (size_t first = 0; first < 40; first++) { /* with the ring filled to any degree */
        struct capture capture;
        struct hutch_error err;
        auto_text struct hutch_text text = {0};
        bool truncated;
        capture_init(&capture, 16);
        assert_int_equal(capture_add(&capture, data, first, &err), 0);
        assert_int_equal(capture_add(&capture, data + first, sizeof(data) - first, &err), 0);
        assert_int_equal(capture_finish(&capture, HUTCH_TEXT, &text, &truncated, &err), 0);
        struct parts parts = take_apart(&text);
        assert_memory_equal(parts.head, data, 8);
        assert_int_equal(parts.tail_length, 8);
        assert_memory_equal(parts.tail, data + sizeof(data) - 8, 8);
        assert_int_equal(parts.missing, sizeof(data) - 16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_around_the_maximum_keeps_the_contract),
        cmocka_unit_test(the_borders_of_reads_do_not_matter),
        cmocka_unit_test(a_character_survives_every_read_border),
        cmocka_unit_test(no_character_is_broken_by_the_cut),
        cmocka_unit_test(bytes_are_kept_exactly),
        cmocka_unit_test(an_empty_stream_is_an_empty_string),
        cmocka_unit_test(nul_bytes_are_kept),
        cmocka_unit_test(memory_follows_what_is_printed_and_ends_at_the_maximum),
        cmocka_unit_test(one_write_beyond_everything_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
