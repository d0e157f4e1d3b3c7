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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_of_the_rfc),
        cmocka_unit_test(every_length_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
