/* SPDX-License-Identifier: Apache-2.0 */
/* Base64: the examples of RFC 4648, all bytes, any length. */
#include "base/base64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void examples_of_the_rfc(void **state)
{
    (void)state;
    static const char *const codes[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                        "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (size_t length = 0; length < ARRAY_LENGTH(codes); length++) {
        auto_buf struct buf out = BUF_MAX(100);
        base64_append(&out, "foobar", length);
        assert_string_equal(buf_text(&out), codes[length]);
    }
}

static int digit(char c)
{
    const char *alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = strchr(alphabet, c);
    return c != '\0' && at ? (int)(at - alphabet) : -1;
}

static void every_length_reads_back(void **state)
{
    (void)state;
    unsigned char data[3000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 7 + i / 256);

    for (size_t length = 0; length < sizeof(data); length += 1 + length / 7) {
        auto_buf struct buf out = BUF_MAX(5000);
        base64_append(&out, data, length);
        assert_int_equal(out.length, (length + 2) / 3 * 4);
        unsigned int bits = 0, held = 0;
        size_t read = 0;
        for (size_t i = 0; i < out.length && out.data[i] != '='; i++) {
            assert_true(digit(out.data[i]) >= 0);
            bits = (bits << 6 | (unsigned int)digit(out.data[i])) & 0xffff;
            held += 6;
            if (held >= 8) {
                held -= 8;
                assert_int_equal(bits >> held & 0xff, data[read++]);
            }
        }
        assert_int_equal(read, length);
    }
}

static void what_is_canonical_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *data; /* NULL: refused */
    } rows[] = {
        {"", ""},
        {"Zg==", "f"},
        {"Zm9vYmE=", "fooba"},
        {"Zm9v", "foo"},
        {"Zm9vYg==", "foob"},
        {"Zg", NULL},
        {"Zg=", NULL},
        {"Z===", NULL},
        {"====", NULL},
        {"Zh==", NULL},
        {"Zm9=", NULL},
        {"Zg==Zg==", NULL},
        {"Zm 9", NULL},
        {"Zm9v\n", NULL},
        {"Zm9-", NULL},
        {"\xff\xff\xff\xff", NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char data[16];
        size_t length = 0;
        bool taken = base64_decode(rows[i].text, strlen(rows[i].text), data, &length);
        assert_int_equal(taken, rows[i].data != NULL);
        if (taken) {
            assert_int_equal(length, strlen(rows[i].data));
            assert_memory_equal(data, rows[i].data, length);
        }
    }
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    char data[700], read[700];

    for (size_t length = 0; length < sizeof(data); length++) {
        auto_buf struct buf out = BUF_MAX(1000);
        size_t got = 0;
        data[length] = (char)(length * 31 + length / 256);
        base64_append(&out, data, length);
        assert_true(base64_decode(buf_text(&out), out.length, read, &got));
        assert_int_equal(got, length);
        assert_memory_equal(read, data, length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_of_the_rfc),
        cmocka_unit_test(every_length_reads_back),
        cmocka_unit_test(what_is_canonical_is_read),
        cmocka_unit_test(what_was_written_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
