/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that follow a schema, and what is counted of tokens. */
#include "agent/agent_result.h"
#include "agent/answer.h"
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

static json_t *parse(const char *text)
{
    struct hutch_error err;
    json_t *value = NULL;

    assert_int_equal(json_read(text, strlen(text), KIB(64), &value, &err), 0);
    return value;
}

static const char schema_text[] = "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":"
                                  "\"integer\"},\"a\":{\"type\":\"string\"}},"
                                  "\"required\":[\"n\"]}";

/* The answer in a text, or NULL and the error. */
static const char *read_answer(const char *text, struct buf *out, struct hutch_error *err)
{
    const struct hutch_text whole = {(char *)text, text ? strlen(text) : 0};
    json_t *schema = parse(schema_text);

    buf_clear(out);
    int code = answer_read(schema, &whole, out, err);
    json_decref(schema);
    return code < 0 ? NULL : buf_text(out);
}

static void test_answers(void **state)
{
    static const struct {
        const char *text, *answer;
    } cases[] = {
        {"{\"n\": 1}", "{\"n\": 1}"},
        {" \n{\"n\": 1.0 }\r\n", "{\"n\": 1.0 }"},
        {"{\"n\": 354224848179261915075}", "{\"n\": 354224848179261915075}"},
        {"```json\n{\"n\": 1}\n```", "{\"n\": 1}"},
        {"So:\n```\nnot it\n```\nbut\n```json\n{\"n\": 2}\n```\n", "{\"n\": 2}"},
        {"{\"n\": 1, \"a\": null}", "{\"n\":1}"},
        {"{\"n\": 1, \"a\": \"b\tc\"}", "{\"n\":1,\"a\":\"b\\u0009c\"}"},
    };
    struct buf out = BUF_MAX(KIB(64));
    struct hutch_error err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        assert_string_equal(read_answer(cases[i].text, &out, &err), cases[i].answer);
    buf_done(&out);
}

static void test_no_answers(void **state)
{
    static const struct {
        const char *text, *problem;
    } cases[] = {
        {NULL, "it is not JSON: "},
        {"It is 4.", "it is not JSON: "},
        {"{\"n\": 1", "it is not JSON: "},
        {"{\"n\": 1} and {\"n\": 2}", "it is not JSON alone"},
        {"```\n{\"n\": 1}", "it is not JSON: "},
        {"{\"n\": null}", "n: "},
        {"{\"a\": \"b\"}", "n: "},
        {"{\"n\": 1, \"n\": 2}", "it is not JSON: "},
    };
    struct buf out = BUF_MAX(KIB(64));
    struct hutch_error err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        assert_null(read_answer(cases[i].text, &out, &err));
        assert_int_equal(err.code, HUTCH_ERR_INVALID);
        assert_memory_equal(err.message, cases[i].problem, strlen(cases[i].problem));
    }
    buf_done(&out);
}

/* Strict where the schema can be followed so. */
static void test_format(void **state)
{
    static const char *const schemas[] = {schema_text, "{\"type\":\"object\"}"};
    struct hutch_error err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(schemas); i++) {
        json_t *schema = parse(schemas[i]), *format = NULL;
        assert_int_equal(answer_format(schema, true, &format, &err), 0);
        json_t *inner = json_object_get(format, "json_schema");
        assert_int_equal(json_is_true(json_object_get(inner, "strict")), i == 0);
        assert_int_equal(json_equal(json_object_get(inner, "schema"), schema), i == 1);
        json_decref(format);
        json_decref(schema);
    }
}

static void test_usage(void **state)
{
    static const char *const parts[] = {
        "{\"total_tokens\":3,\"in\":{\"cached\":1,\"x\":null},\"name\":\"m\",\"cost\":0.5}",
        "{\"total_tokens\":4,\"in\":{\"cached\":2},\"cost\":0.25,\"new\":{\"n\":1}}",
        "{\"total_tokens\":9223372036854775807,\"in\":7,\"new\":{\"n\":1}}",
    };
    struct buf out = BUF_MAX(KIB(4));
    struct hutch_error err;
    json_t *sum = NULL;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(parts); i++) {
        json_t *part = parse(parts[i]);
        assert_int_equal(usage_add(&sum, part, &err), 0);
        json_decref(part);
    }
    json_append_value(&out, sum);
    assert_string_equal(buf_text(&out),
                        "{\"total_tokens\":9.223372036854776e+18,\"in\":{\"cached\":3},"
                        "\"cost\":0.75,\"new\":{\"n\":2}}");
    buf_done(&out);
    json_decref(sum);
}

static void test_total(void **state)
{
    static const struct {
        const char *usage;
        uint64_t total;
    } cases[] = {
        {"{\"total_tokens\":7,\"prompt_tokens\":1}", 7},
        {"{\"prompt_tokens\":3,\"completion_tokens\":2}", 5},
        {"{\"total_tokens\":-7}", 0},
        {"{\"total_tokens\":\"7\"}", 0},
        {"{}", 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        json_t *usage = parse(cases[i].usage);
        assert_int_equal(usage_total(usage), cases[i].total);
        json_decref(usage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers), cmocka_unit_test(test_no_answers),
        cmocka_unit_test(test_format),  cmocka_unit_test(test_usage),
        cmocka_unit_test(test_total),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
