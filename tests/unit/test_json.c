/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON from outside: what is mended, what is refused; writing strings. */
#include "base/json.h"
#include "base/limits.h"

#include "base/utf8.h"
#include "comma_locale.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define FFFD UTF8_REPLACEMENT

/* The value of {"k": "..."} for the text between the quotes. */
static void check_string(const char *source, size_t source_length, const char *expected,
                         size_t expected_length)
{
    struct hutch_error err;
    auto_buf struct buf text = BUF_MAX(1000);
    auto_json json_t *root = NULL;

    buf_append_text(&text, "{\"k\": \"");
    buf_append(&text, source, source_length);
    buf_append_text(&text, "\"}");
    assert_int_equal(json_read(text.data, text.length, 1000, &root, &err), 0);
    json_t *value = json_object_get(root, "k");
    assert_int_equal(json_string_length(value), expected_length);
    assert_memory_equal(json_string_value(value), expected, expected_length);
}

static void lone_surrogates_become_replacement_characters(void **state)
{
    (void)state;
    static const struct {
        const char *source, *expected;
    } cases[] = {
        {"\\ud800", FFFD},
        {"\\uDFFF", FFFD},
        {"a\\ud83d", "a" FFFD},
        {"\\ud83d\\udc0d", "🐍"},
        {"\\uD83D\\uDC0D", "🐍"},
        {"\\udc0d\\ud83d", FFFD FFFD},
        {"\\ud83d\\ud83d\\udc0d", FFFD "🐍"},
        {"\\ud83d\\udc0d\\udc0d", "🐍" FFFD},
        {"\\ud83d\\u0041", FFFD "A"},
        {"\\ud83dx\\udc0d", FFFD "x" FFFD},
        {"\\ud83d\\n", FFFD "\n"},
        {"\\ud83d\\ue000", FFFD "\xee\x80\x80"},
        {"\\\\ud800", "\\ud800"},
        {"\\\\\\ud800", "\\" FFFD},
        {"\\\"\\ud800", "\"" FFFD},
        {"\\u00e9\\ufffd", "é" FFFD},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        check_string(cases[i].source, strlen(cases[i].source), cases[i].expected,
                     strlen(cases[i].expected));
}

static void bad_utf8_becomes_replacement_characters(void **state)
{
    (void)state;
    static const struct {
        const char *source, *expected;
    } cases[] = {
        {"caf\xe9", "caf" FFFD}, {"\xed\xa0\x80", FFFD FFFD FFFD}, {"\xf0\x9f\x90", FFFD},
        {"\xc0\x80", FFFD FFFD}, {"\xf0\x9f\x90\x8d", "🐍"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        check_string(cases[i].source, strlen(cases[i].source), cases[i].expected,
                     strlen(cases[i].expected));
}

static void nul_is_kept_for_the_field_to_judge(void **state)
{
    (void)state;
    check_string("a\\u0000b", 8, "a\0b", 3);
}

static void refuse_text(const char *text, const char *message)
{
    struct hutch_error err;
    json_t *root = NULL;

    assert_int_equal(json_read(text, strlen(text), 100000, &root, &err), HUTCH_ERR_INVALID);
    assert_null(root);
    assert_non_null(strstr(err.message, message));
    assert_null(strchr(err.message, '\n'));
}

static void what_has_no_plain_meaning_is_refused(void **state)
{
    (void)state;
    refuse_text("", "line 1, column 1: a value expected, not the end of the text");
    refuse_text("{\"a\": 1", "line 1, column 8: ',' or '}' expected, not the end of the text");
    refuse_text("{\"a\": 1}x", "line 1, column 9: the end of the text expected, not 'x'");
    refuse_text("{\"a\": 1]", "',' or '}' expected, not ']'");
    refuse_text("[1 2]", "line 1, column 4: ',' or ']' expected, not '2'");
    refuse_text("[1,]", "a value expected, not ']'");
    refuse_text("{\"a\": 1,}", "a member's name in '\"' expected, not '}'");
    refuse_text("{a: 1}", "a member's name in '\"' expected, not 'a'");
    refuse_text("{'a': 1}", "a member's name in '\"' expected");
    refuse_text("{\"a\" 1}", "':' expected, not '1'");
    refuse_text("{\"a\":}", "a value expected, not '}'");
    refuse_text("[\n\n  tru]", "line 3, column 3: a value expected, not 't'");
    refuse_text("[\"é漢🐍\", x]", "line 1, column 9: a value expected, not 'x'");
    refuse_text("[NaN]", "a value expected, not 'N'");
    refuse_text("[nul]", "a value expected");
    refuse_text("[truex]", "',' or ']' expected, not 'x'");
    refuse_text("[// x\n1]", "a value expected, not '/'");
    refuse_text("\xef\xbb\xbf{}", "a value expected");
}

static void members_are_named_once(void **state)
{
    (void)state;
    refuse_text("{\"a\": 1, \"a\": 2}", "line 1, column 10: the member 'a' is there twice");
    refuse_text("{\"a\": 1, \"\\u0061\": 2}", "the member 'a' is there twice");
    refuse_text("{\"\\ud800\": 1, \"\\ud801\": 2}", "is there twice");
    refuse_text("{\"a\\u0000\": 1}", "line 1, column 2: NUL in the name of a member");
}

static void strings_are_whole(void **state)
{
    (void)state;
    refuse_text("[\"abc", "line 1, column 6: '\"' expected, not the end of the text");
    refuse_text("[\"\\", "malformed escape");
    refuse_text("[\"\\\"", "'\"' expected, not the end of the text");
    refuse_text("[\"\\x\"]", "line 1, column 3: malformed escape in a string");
    refuse_text("[\"\\u12\"]", "malformed escape");
    refuse_text("[\"\\u12g4\"]", "malformed escape");
    refuse_text("[\"\\ud800\\u12\"]", "malformed escape");
    refuse_text("[\"x\ny\"]", "line 1, column 4: control character in a string");
    refuse_text("[\"\x01\"]", "control character in a string");
    check_string("\\\"\\\\\\/\\b\\f\\n\\r\\t\x7f", 17, "\"\\/\b\f\n\r\t\x7f", 9);
    check_string("\\u007f\\u0080\\u07ff\\u0800\\uffff\\ud800\\udc00\\udbff\\udfff", 54,
                 "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
                 19);
}

static void numbers_follow_the_grammar(void **state)
{
    (void)state;
    static const char *const wrong[] = {"+1",  "01",  "-",   "-x",   ".5",  "1.",  "1.e1",    "1e",
                                        "1e+", "0x1", "1_0", "1,5.", "--1", "-01", "Infinity"};
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        char text[32];
        snprintf(text, sizeof(text), "[%s]", wrong[i]);
        refuse_text(text, "expected, not ");
    }
    refuse_text("[99999999999999999999]",
                "line 1, column 2: '99999999999999999999' is a whole number over 64 bits");
    refuse_text("[9223372036854775808]", "over 64 bits");
    refuse_text("[-9223372036854775809]", "over 64 bits");
    refuse_text("[1e999]", "line 1, column 2: '1e999' is not a number");
    refuse_text("[-1e999]", "'-1e999' is not a number");
}

static void values_are_read(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_json json_t *root = NULL, *word = NULL;
    const char *text = " [9223372036854775807,\t-9223372036854775808 , 1e-400,-0,0.5,2E+2\r\n,"
                       "true,false,null,{},[ ],\"\"] ";

    assert_int_equal(json_read(text, strlen(text), 100, &root, &err), 0);
    assert_int_equal(json_array_size(root), 12);
    assert_true(json_integer_value(json_array_get(root, 0)) == INT64_MAX);
    assert_true(json_integer_value(json_array_get(root, 1)) == INT64_MIN);
    assert_true(json_is_real(json_array_get(root, 2)));
    assert_true(json_real_value(json_array_get(root, 2)) == 0);
    assert_true(json_is_integer(json_array_get(root, 3)));
    assert_true(json_real_value(json_array_get(root, 4)) == 0.5);
    assert_true(json_real_value(json_array_get(root, 5)) == 200);
    assert_true(json_is_true(json_array_get(root, 6)));
    assert_true(json_is_false(json_array_get(root, 7)));
    assert_true(json_is_null(json_array_get(root, 8)));
    assert_int_equal(json_object_size(json_array_get(root, 9)), 0);
    assert_int_equal(json_array_size(json_array_get(root, 10)), 0);
    assert_int_equal(json_string_length(json_array_get(root, 11)), 0);
    assert_int_equal(json_read("true", 4, 4, &word, &err), 0);
    assert_true(json_is_true(word));
}

static void the_depth_is_bounded(void **state)
{
    (void)state;
    struct hutch_error err;

    for (int depth = 63; depth <= 66; depth++) {
        auto_buf struct buf text = BUF_MAX(1000);
        auto_json json_t *root = NULL;
        for (int i = 0; i < depth; i++)
            buf_append_text(&text, i % 2 ? "{\"[[[\": " : "[");
        buf_append_text(&text, "0");
        for (int i = depth - 1; i >= 0; i--)
            buf_append_text(&text, i % 2 ? "}" : "]");
        int expected = depth <= JSON_DEPTH_MAX ? 0 : HUTCH_ERR_INVALID;
        assert_int_equal(json_read(text.data, text.length, 1000, &root, &err), expected);
    }
    assert_non_null(strstr(err.message, "nested deeper than 64 levels"));

    /* nor is it without an end */
    for (size_t values = JSON_VALUES_MAX; values <= JSON_VALUES_MAX + 1; values++) {
        auto_buf struct buf many = BUF_MAX(MIB(4));
        auto_json json_t *array = NULL;
        buf_append_text(&many, "[0");
        for (size_t i = 2; i < values; i++)
            buf_append_text(&many, ",0");
        buf_append_text(&many, "]");
        int expected = values == JSON_VALUES_MAX ? 0 : HUTCH_ERR_INVALID;
        assert_int_equal(json_read(many.data, many.length, MIB(4), &array, &err), expected);
    }
    assert_non_null(strstr(err.message, "more than a million values"));

    /* breadth is not depth */
    auto_buf struct buf wide = BUF_MAX(10000);
    auto_json json_t *root = NULL;
    buf_append_text(&wide, "[");
    for (int i = 0; i < 1000; i++)
        buf_append_text(&wide, "[{}],");
    buf_append_text(&wide, "\"\\\"[[{\"]");
    assert_int_equal(json_read(wide.data, wide.length, 10000, &root, &err), 0);
    assert_int_equal(json_array_size(root), 1001);
}

static void deep_text_costs_no_stack(void **state)
{
    (void)state;
    struct hutch_error err;
    json_t *root = NULL;
    auto_buf struct buf text = BUF_MAX(2000000);

    for (int i = 0; i < 1000000; i++)
        buf_append(&text, "[", 1);
    assert_int_equal(json_read(text.data, text.length, text.max, &root, &err), HUTCH_ERR_INVALID);
    assert_non_null(strstr(err.message, "nested deeper than 64 levels"));
}

static void the_size_is_bounded(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_json json_t *root = NULL;

    assert_int_equal(json_read("[1,2]", 5, 5, &root, &err), 0);
    json_t *none = NULL;
    assert_int_equal(json_read("[1,2]", 5, 4, &none, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "5 bytes of JSON; allowed are at most 4");
    assert_null(none);
}

/* Random text of JSON's own characters: the answer is a value or a refusal of
 * one line, and for what jansson reads, the same value. */
static void the_reader_agrees_with_jansson(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "[",       "]",    "{",       "}",     "\"",   ",",       ":",          "1",  "-2.5",
        "e3",      "0",    "\"a\":",  "true",  "null", "\"\\n\"", " ",          "\n", "🐍",
        "\\u00e9", "\xff", "\\ud800", "[1,2]", "{}",   "\"b\"",   "99999999999"};
    uint32_t random = 1;
    int agreed = 0, refused = 0;

    for (int round = 0; round < 60000; round++) {
        char text[200] = "[";
        for (int i = round % 9; i >= 0; i--) {
            random = random * 1664525 + 1013904223;
            size_t length = strlen(text);
            snprintf(text + length, sizeof(text) - length, "%s%s", i % 3 ? "" : ",",
                     pieces[(random >> 16) % ARRAY_LENGTH(pieces)]);
        }
        size_t length = strlen(text);
        text[length] = random & 1024 ? ']' : '\0';
        if (text[1] == ',')
            text[1] = ' ';
        length = strlen(text);
        struct hutch_error err = {0};
        auto_json json_t *ours = NULL, *theirs = NULL;
        theirs = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        if (json_read(text, length, sizeof(text), &ours, &err) == 0) {
            assert_true(!theirs || json_equal(ours, theirs));
            agreed += theirs != NULL;
        } else {
            assert_int_equal(err.code, HUTCH_ERR_INVALID);
            assert_true(strncmp(err.message, "line ", 5) == 0 && !strchr(err.message, '\n'));
            assert_null(theirs);
            refused++;
        }
    }
    assert_true(agreed > 1000 && refused > 1000);
}

static void numbers_are_read_in_any_locale(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_json json_t *root = NULL;
    auto_buf struct buf ms = BUF_MAX(100);

    assert_true(enter_comma_locale());
    int status = json_read("[0.25]", 6, 100, &root, &err);
    json_append_ms(&ms, 12.3456);
    leave_comma_locale();
    assert_int_equal(status, 0);
    assert_true(json_real_value(json_array_get(root, 0)) == 0.25);
    assert_string_equal(ms.data, "12.346");
}

static void strings_are_written_for_any_reader(void **state)
{
    (void)state;
    auto_buf struct buf out = BUF_MAX(1000);

    json_append_string(&out, "a\"b\\c\n\t\x1b\x7f\0é漢🐍\xff", 20);
    assert_string_equal(out.data, "\"a\\\"b\\\\c\\n\\u0009\\u001b\\u007f\\u0000é漢🐍" FFFD "\"");
    buf_clear(&out);
    json_append_text(&out, "\xc2\x85|\xc2\x9b|\xe2\x80\xa8|\xe2\x80\xa9|\xe2\x80\xaa|\xc2\xa0");
    assert_string_equal(out.data, "\"\\u0085|\\u009b|\\u2028|\\u2029|\xe2\x80\xaa|\xc2\xa0\"");
    buf_clear(&out);
    json_append_text(&out, NULL);
    assert_string_equal(out.data, "null");
    buf_clear(&out);
    json_append_text(&out, "");
    assert_string_equal(out.data, "\"\"");
}

static void written_strings_read_back(void **state)
{
    (void)state;
    uint32_t random = 7;

    for (int round = 0; round < 5000; round++) {
        char data[16];
        size_t length = (size_t)round % sizeof(data);
        for (size_t i = 0; i < length; i++) {
            random = random * 1664525 + 1013904223;
            data[i] = (char)(random >> 24);
        }
        struct hutch_error err;
        auto_json json_t *root = NULL;
        auto_buf struct buf text = BUF_MAX(200), repaired = BUF_MAX(100);
        buf_append_text(&text, "[");
        json_append_string(&text, data, length);
        buf_append_text(&text, "]");
        assert_true(utf8_valid(text.data, text.length));
        assert_int_equal(json_read(text.data, text.length, 200, &root, &err), 0);
        utf8_repair(&repaired, data, length);
        json_t *value = json_array_get(root, 0);
        assert_int_equal(json_string_length(value), repaired.length);
        assert_memory_equal(json_string_value(value), buf_text(&repaired), repaired.length);
    }
}

static void times_have_three_decimals(void **state)
{
    (void)state;
    static const struct {
        double ms;
        const char *text;
    } cases[] = {{0, "0.000"},      {1, "1.000"},           {0.0004, "0.000"},
                 {0.0005, "0.001"}, {12.9996, "13.000"},    {300000.25, "300000.250"},
                 {-1, "0.000"},     {(double)NAN, "0.000"}, {(double)INFINITY, "0.000"}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        auto_buf struct buf out = BUF_MAX(100);
        json_append_ms(&out, cases[i].ms);
        assert_string_equal(out.data, cases[i].text);
    }
}

static void kinds_have_words(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_json json_t *root = NULL;
    const char *text = "[{}, [], \"\", 1, 1.0, true, false, null]";
    static const char *const words[] = {"an object",     "an array", "a string", "a whole number",
                                        "a real number", "true",     "false",    "null"};

    assert_int_equal(json_read(text, strlen(text), 100, &root, &err), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
        assert_string_equal(json_kind(json_array_get(root, i)), words[i]);
}

static void texts_are_judged_without_reading_them(void **state)
{
    (void)state;
    static const char *const valid[] = {
        "null",
        " true ",
        "-0.5e+10",
        "0",
        "\"\\ud800\\n\"",
        "[]",
        "{}",
        "[1, 2]",
        "{\"a\":{}}",
        "[[],{},[0]]",
        "1e999",
        "{\"a\":1,\"a\":2}",
        "\t[\n]\r",
        "{\"a\" : [ { \"b\" : null } , \"x\" ] , \"c\" : 1E-2 }",
    };
    static const char *const invalid[] = {
        "",           " ",         "nul",         "nulls", "NaN",   "Infinity",  "01",
        "-",          "1.",        ".5",          "1e",    "+1",    "\"",        "\"\n\"",
        "\"\\x\"",    "\"\\u12\"", "\"\\u12g4\"", "[",     "]",     "[1",        "[1,]",
        "[,1]",       "[1 2]",     "{",           "}",     "{a:1}", "{\"a\"}",   "{\"a\":}",
        "{\"a\":1,}", "{1:2}",     "[}",          "{]",    "[1}",   "{\"a\":1]", "1 2",
        "[]]",        "'a'",       "\"a",         "\"\\",
    };
    char deep[2 * (JSON_DEPTH_MAX + 1) + 1] = {0};

    for (size_t i = 0; i < ARRAY_LENGTH(valid); i++)
        assert_true(json_valid(valid[i], strlen(valid[i])));
    for (size_t i = 0; i < ARRAY_LENGTH(invalid); i++)
        assert_false(json_valid(invalid[i], strlen(invalid[i])));
    assert_false(json_valid("1\0", 2));
    assert_false(json_valid("\"\0\"", 3));
    for (size_t depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        memset(deep, '[', depth);
        memset(deep + depth, ']', depth);
        assert_int_equal(json_valid(deep, 2 * depth), depth == JSON_DEPTH_MAX);
    }
}

static void a_prefix_is_read_with_what_is_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned take;
        size_t at;
        const char *written; /* NULL: refused */
    } rows[] = {
        {" {} {}", 0, 3, "{}"},
        {"[1,2]x", 0, 5, "[1,2]"},
        {"{\"a\":1,\"a\":2}", 0, 7, NULL},
        {"{\"a\":1,\"a\":2}", JSON_TAKE_TWICE, 13, "{\"a\":2}"},
        {"123456789012345678901234567890 ", 0, 0, NULL},
        {"123456789012345678901234567890 ", JSON_TAKE_BIG, 30, "1.2345678901234568e+29"},
        {"\"a\nb\"", 0, 2, NULL},
        {"\"a\nb\"", JSON_TAKE_CONTROLS, 5, "\"a\\nb\""},
        {"{\"a\":", JSON_TAKE_CONTROLS, 5, NULL},
        {"[\"a", 0, 3, NULL},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct hutch_error err;
        auto_json json_t *value = NULL;
        auto_buf struct buf written = BUF_MAX(100);
        size_t at;
        int code =
            json_read_prefix(rows[i].text, strlen(rows[i].text), rows[i].take, &at, &value, &err);
        assert_int_equal(code, rows[i].written ? 0 : HUTCH_ERR_INVALID);
        assert_int_equal(at, rows[i].at);
        if (!rows[i].written)
            continue;
        json_append_value(&written, value);
        assert_string_equal(buf_text(&written), rows[i].written);
    }
}

static void values_are_written_as_they_were(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"b\":[1,-2,0.1,1.0,-0.0,1e+300,true,false,null],\"a\":{\"\":\"x\\u0000\"}}",
        "[]",
        "{}",
        "\"\"",
        "3.141592653589793",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        struct hutch_error err;
        auto_json json_t *value = NULL;
        auto_buf struct buf written = BUF_MAX(100);
        assert_int_equal(json_read(texts[i], strlen(texts[i]), 100, &value, &err), 0);
        json_append_value(&written, value);
        assert_string_equal(buf_text(&written), texts[i]);
    }
}

static void values_that_are_too_deep_are_not_written(void **state)
{
    (void)state;
    auto_buf struct buf written = BUF_MAX(1000);
    auto_json json_t *value = json_array();

    for (int depth = 1; depth < JSON_DEPTH_MAX; depth++) {
        json_t *outer = json_array();
        json_array_append_new(outer, value);
        value = outer;
    }
    json_append_value(&written, value);
    assert_int_equal(written.failure, BUF_OK);
    assert_int_equal(written.length, 2 * JSON_DEPTH_MAX);
    json_t *outer = json_array();
    json_array_append_new(outer, value);
    value = outer;
    json_append_value(&written, value);
    assert_int_equal(written.failure, BUF_TOO_LONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lone_surrogates_become_replacement_characters),
        cmocka_unit_test(bad_utf8_becomes_replacement_characters),
        cmocka_unit_test(nul_is_kept_for_the_field_to_judge),
        cmocka_unit_test(what_has_no_plain_meaning_is_refused),
        cmocka_unit_test(members_are_named_once),
        cmocka_unit_test(strings_are_whole),
        cmocka_unit_test(numbers_follow_the_grammar),
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(the_depth_is_bounded),
        cmocka_unit_test(deep_text_costs_no_stack),
        cmocka_unit_test(the_size_is_bounded),
        cmocka_unit_test(the_reader_agrees_with_jansson),
        cmocka_unit_test(numbers_are_read_in_any_locale),
        cmocka_unit_test(strings_are_written_for_any_reader),
        cmocka_unit_test(written_strings_read_back),
        cmocka_unit_test(times_have_three_decimals),
        cmocka_unit_test(kinds_have_words),
        cmocka_unit_test(texts_are_judged_without_reading_them),
        cmocka_unit_test(a_prefix_is_read_with_what_is_chosen),
        cmocka_unit_test(values_are_written_as_they_were),
        cmocka_unit_test(values_that_are_too_deep_are_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
