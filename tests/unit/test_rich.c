/* SPDX-License-Identifier: Apache-2.0 */
/* Rich outputs as a hostile cell may send them: what is kept of them, and how many. */
#include "sandbox/rich.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "sandbox/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define PNG_HEAD "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
#define PNG PNG_HEAD "\0\0\0\1\0\0\0\2\x08\0\0\0\0sum!"

static void add(struct rich_list *list, const char *payload, size_t length)
{
    struct hutch_error err;
    /* a copy of just that size, gone afterwards */
    auto_free char *copy = malloc(length ? length : 1);

    assert_non_null(copy);
    memcpy(copy, payload, length);
    assert_int_equal(rich_add(list, copy, length, &err), 0);
}
#define ADD(list, text) add(list, text, sizeof(text) - 1)

static void outputs_are_kept_in_their_order(void **state)
{
    (void)state;
    struct rich_list list = {0};

    ADD(&list, "text/html\0<b>1</b>");
    ADD(&list, "image/png\0" PNG);
    ADD(&list, "image/svg+xml\0");
    ADD(&list, "application/json\0 {\"a\": [1]} ");
    assert_int_equal(list.count, 4);
    assert_int_equal(list.dropped, 0);
    assert_string_equal(list.items[0].mime, "text/html");
    assert_string_equal(list.items[0].data, "<b>1</b>");
    assert_string_equal(list.items[1].mime, "image/png");
    assert_int_equal(list.items[1].length, sizeof(PNG) - 1);
    assert_memory_equal(list.items[1].data, PNG, sizeof(PNG));
    assert_string_equal(list.items[2].mime, "image/svg+xml");
    assert_int_equal(list.items[2].length, 0);
    assert_string_equal(list.items[2].data, "");
    assert_string_equal(list.items[3].data, " {\"a\": [1]} ");
    rich_list_done(&list);
    assert_null(list.items);
    rich_list_done(&list);
}

static void malformed_ones_are_counted(void **state)
{
    (void)state;
#define ROW(text)                                                                                  \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
    static const struct {
        const char *payload;
        size_t length;
    } rows[] = {
        ROW(""),
        ROW("\0"),
        ROW("\0data"),
        ROW("text/html"),
        ROW("text/html <b>"),
        ROW("text/htm\0x"),
        ROW("text/html5\0x"),
        ROW("TEXT/HTML\0x"),
        ROW("text/plain\0x"),
        ROW("application/javascript\0x"),
        ROW("image/png\0"),
        ROW("image/png\0\x89PNG\r\n\x1a\n"),
        ROW("image/png\0" PNG_HEAD "\0\0\0\1\0\0\0\2\x08\0\0\0\0sum"),
        ROW("image/png\0" PNG_HEAD "\0\0\0\0\0\0\0\2\x08\0\0\0\0sum!"),
        ROW("image/png\0" PNG_HEAD "\0\0\0\1\0\0\0\0\x08\0\0\0\0sum!"),
        ROW("image/png\0GIF89a..........................................."),
        ROW("image/png\0\x89PNG\r\n\x1a\n\0\0\0\x0dIDAT\0\0\0\1\0\0\0\2\x08\0\0\0\0sum!"),
        ROW("application/json\0"),
        ROW("application/json\0{\"a\":}"),
        ROW("application/json\0NaN"),
        ROW("application/json\0[1]\0"),
    };
#undef ROW
    struct rich_list list = {0};

    for (uint32_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        add(&list, rows[i].payload, rows[i].length);
        assert_int_equal(list.dropped, i + 1);
    }
    assert_int_equal(list.count, 0);
    assert_int_equal(list.bytes, 0);
    rich_list_done(&list);
}

static void text_is_made_valid(void **state)
{
    (void)state;
    struct rich_list list = {0};

    ADD(&list, "text/html\0caf\xe9\xff\0<b>");
    ADD(&list, "image/svg+xml\0\xed\xa0\x80");
    ADD(&list, "application/json\0\"\xe9\"");
    assert_int_equal(list.count, 3);
    for (size_t i = 0; i < list.count; i++)
        assert_true(utf8_valid(list.items[i].data, list.items[i].length));
    static const char repaired[] = "caf" UTF8_REPLACEMENT UTF8_REPLACEMENT "\0<b>";
    assert_int_equal(list.items[0].length, sizeof(repaired) - 1);
    assert_memory_equal(list.items[0].data, repaired, sizeof(repaired));
    assert_string_equal(list.items[2].data, "\"" UTF8_REPLACEMENT "\"");
    rich_list_done(&list);
}

static void their_number_is_bounded(void **state)
{
    (void)state;
    struct rich_list list = {0};

    for (size_t i = 0; i < WIRE_MAX_RICH_COUNT - 1; i++)
        ADD(&list, "text/html\0x");
    ADD(&list, "text/html"); /* takes no place */
    ADD(&list, "text/html\0last");
    assert_int_equal(list.count, WIRE_MAX_RICH_COUNT);
    assert_int_equal(list.dropped, 1);
    ADD(&list, "text/html\0one too many");
    assert_int_equal(list.count, WIRE_MAX_RICH_COUNT);
    assert_int_equal(list.dropped, 2);
    assert_string_equal(list.items[WIRE_MAX_RICH_COUNT - 1].data, "last");
    rich_list_done(&list);
}

static void add_html(struct rich_list *list, size_t payload_length)
{
    static const char mime[] = "text/html";
    auto_free char *payload = malloc(payload_length);

    assert_non_null(payload);
    memset(payload, 'x', payload_length);
    memcpy(payload, mime, sizeof(mime));
    add(list, payload, payload_length);
}

static void their_bytes_are_bounded(void **state)
{
    (void)state;
    struct rich_list list = {0};

    add_html(&list, WIRE_MAX_RICH);
    add_html(&list, WIRE_MAX_RICH_BYTES - WIRE_MAX_RICH - 1000);
    assert_int_equal(list.count, 2);
    add_html(&list, 1001);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.dropped, 1);
    add_html(&list, 500); /* a smaller one still fits */
    add_html(&list, 500);
    assert_int_equal(list.count, 4);
    assert_int_equal(list.bytes, WIRE_MAX_RICH_BYTES);
    ADD(&list, "text/html\0");
    assert_int_equal(list.count, 4);
    assert_int_equal(list.dropped, 2);
    rich_list_done(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_kept_in_their_order),
        cmocka_unit_test(malformed_ones_are_counted),
        cmocka_unit_test(text_is_made_valid),
        cmocka_unit_test(their_number_is_bounded),
        cmocka_unit_test(their_bytes_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
