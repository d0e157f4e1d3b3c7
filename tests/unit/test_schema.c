/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON Schema: what is a schema, what follows one, what is said of what does not, and that
 * nothing takes long. In the tables ' stands for the quotes of JSON.
 */
#include "agent/schema.h"

#include "base/error.h"
#include "base/json.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static json_t *value_of(const char *text)
{
    auto_free char *copy = strdup(text);
    struct hutch_error err;
    json_t *value;

    assert_non_null(copy);
    for (char *at = copy; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    if (json_read(copy, strlen(copy), MIB(4), &value, &err) < 0)
        fail_msg("%s: %s", copy, err.message);
    return value;
}

/* ---- schemas ---- */

static const struct {
    const char *schema, *problem; /* NULL: none */
} schemas[] = {
    {"true", NULL},
    {"{}", NULL},
    {"{'type':'object','properties':{'a':{'type':['string','null'],'default':1}}}", NULL},
    {"{'title':1,'description':1,'default':1,'examples':1,'format':1,'$schema':1,'$id':1,"
     "'$comment':1,'$defs':{},'definitions':{}}",
     NULL},
    {"{'$ref':'#/$defs/a~1b','$defs':{'a/b':{'items':{'$ref':'#'}}}}", NULL},
    {"{'pattern':'^[[:alpha:]_]{1,9}(a|b)+$'}", NULL},
    {"[]", "a schema, which is an object, true or false, expected, not an empty array"},
    {"{'properties':{'code':{'minLength':-1}}}",
     "properties.code.minLength: a whole number from 0 expected, not -1"},
    {"{'properties':{'code':{'minLength':1.5}}}",
     "properties.code.minLength: a whole number from 0 expected, not 1.5"},
    {"{'items':{'if':{}}}", "items.if: is a keyword that is not supported"},
    {"{'properties':{'a b':{'x':1}}}", "properties.'a b'.x: is a keyword that is not supported"},
    {"{'type':'text'}", "type: one or an array of null, boolean, integer, number, string, array, "
                        "object expected"},
    {"{'type':[]}", "type: one or an array of null, boolean, integer, number, string, array, "
                    "object expected"},
    {"{'enum':[]}", "enum: an array that is not empty expected, not an empty array"},
    {"{'required':'a'}", "required: an array of names expected, not a string"},
    {"{'required':['a',1]}", "required[1]: a string expected, not 1"},
    {"{'anyOf':{}}", "anyOf: an array of schemas that is not empty expected, not an object"},
    {"{'anyOf':[true,1]}",
     "anyOf[1]: a schema, which is an object, true or false, expected, not 1"},
    {"{'uniqueItems':1}", "uniqueItems: true or false expected, not 1"},
    {"{'multipleOf':0}", "multipleOf: a number above 0 expected, not 0"},
    {"{'maximum':'1'}", "maximum: a number expected, not a string"},
    {"{'properties':[]}", "properties: an object of schemas expected, not an empty array"},
    {"{'$ref':'#/$defs/no'}", "$ref: '#/$defs/no' is nothing in this schema; allowed are "
                              "references such as '#/$defs/name'"},
    {"{'$ref':'http://a/b'}", "$ref: 'http://a/b' is nothing in this schema; allowed are "
                              "references such as '#/$defs/name'"},
    {"{'$ref':'#/examples/0','examples':[{'odd':1}]}",
     "$ref.odd: is a keyword that is not supported"},
    {"{'$ref':'#'}", "$ref: '#' leads back to itself"},
    {"{'$defs':{'a':{'anyOf':[{'$ref':'#/$defs/b'}]},'b':{'not':{'$ref':'#/$defs/a'}}}}",
     "$ref: none leads back to itself"},
    {"{'pattern':'('}", "pattern: '(' is no POSIX extended regular expression: "
                        "Unmatched ( or \\("},
    {"{'pattern':'\\\\d'}", "pattern: \\d is not known; a POSIX extended expression has [0-9] for "
                            "a digit, \\w, \\s, \\b, and no references to groups"},
    {"{'pattern':'(a)\\\\1'}", "pattern: \\1 is not known; a POSIX extended expression has [0-9] "
                               "for a digit, \\w, \\s, \\b, and no references to groups"},
    {"{'pattern':'[\\\\d]'}", "pattern: a backslash in brackets stands for itself in a POSIX "
                              "extended expression; allowed is \\\\ for it, and names such as "
                              "[[:digit:]_]"},
    {"{'pattern':'((a{99}){99}){99}'}",
     "pattern: its counts in braces make it too large; allowed are 4096 characters when they are "
     "written out, and groups 15 deep"},
    {"{'pattern':'((((((((((((((((a))))))))))))))))'}",
     "pattern: its counts in braces make it too large; allowed are 4096 characters when they are "
     "written out, and groups 15 deep"},
    {"{'pattern':'a\\u0000'}", "pattern: a regular expression expected, not a string"},
};

static void schemas_are_taken_or_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(schemas); i++) {
        auto_json json_t *schema = value_of(schemas[i].schema);
        struct hutch_error err = {.message = "taken"};
        int code = schema_accept(schema, &err);
        assert_int_equal(code, schemas[i].problem ? HUTCH_ERR_INVALID : 0);
        assert_string_equal(err.message, schemas[i].problem ? schemas[i].problem : "taken");
    }
}

/* ---- values ---- */

#define CODE_SCHEMA                                                                                \
    "{'type':'object','properties':{'code':{'type':'string','minLength':1},"                       \
    "'n':{'type':'integer'},'l':{'enum':['python','shell',null]},"                                 \
    "'items':{'items':{'properties':{'n':{'type':'integer'}}}}},"                                  \
    "'required':['code'],'additionalProperties':false}"

static const struct {
    const char *schema, *value, *problem; /* NULL: none */
} values[] = {
    {CODE_SCHEMA, "{'code':'1','n':2.0,'l':null,'items':[{'n':1},{}]}", NULL},
    {CODE_SCHEMA, "[]", "an array; allowed is object"},
    {CODE_SCHEMA, "{}", "code: is missing"},
    {CODE_SCHEMA, "{'code':''}", "code: has 0 characters; allowed are at least 1"},
    {CODE_SCHEMA, "{'code':null}", "code: null; allowed is string"},
    {CODE_SCHEMA, "{'code':'1','n':'x'}", "n: 'x' is a string; allowed is integer"},
    {CODE_SCHEMA, "{'code':'1','n':1.5}", "n: 1.5 is a real number; allowed is integer"},
    {CODE_SCHEMA, "{'code':'1','items':[{},{},{'n':true}]}",
     "items[2].n: true; allowed is integer"},
    {CODE_SCHEMA, "{'code':'1','l':'perl'}",
     "l: 'perl' is not allowed; allowed are 'python', 'shell', null"},
    {CODE_SCHEMA, "{'code':'1','lang':1}",
     "lang: is not known; allowed are 'code', 'n', 'l', 'items'"},
    {"{'additionalProperties':{'type':'string'}}", "{'a':1}",
     "a: 1 is a whole number; allowed is string"},
    {"{'additionalProperties':false}", "{'a':1}", "a: is not known; allowed is nothing"},
    {"{'type':['string','null']}", "1", "1 is a whole number; allowed is string or null"},
    {"{'const':1}", "1.0", NULL},
    {"{'const':{'a':[1]}}", "{'a':[1.0]}", NULL},
    {"{'const':1}", "true", "true is not allowed; allowed is 1"},
    {"{'minimum':1,'maximum':3}", "3", NULL},
    {"{'minimum':1,'maximum':3}", "0", "0 is not allowed; allowed is at least 1"},
    {"{'minimum':1,'maximum':3}", "3.5", "3.5 is not allowed; allowed is at most 3"},
    {"{'exclusiveMinimum':1}", "1", "1 is not allowed; allowed is more than 1"},
    {"{'exclusiveMaximum':1}", "1", "1 is not allowed; allowed is less than 1"},
    {"{'maximum':9007199254740992}", "9007199254740993",
     "9007199254740993 is not allowed; allowed is at most 9007199254740992"},
    {"{'multipleOf':0.1}", "0.3", NULL},
    {"{'multipleOf':2}", "3", "3 is no multiple of 2"},
    {"{'maxLength':2}", "'\xc3\xa9\xc3\xa9'", NULL},
    {"{'maxLength':2}", "'abc'", "has 3 characters; allowed are at most 2"},
    {"{'pattern':'^.$'}", "'\xc3\xa9'", NULL},
    {"{'pattern':'b'}", "'a\\u0000b'", NULL},
    {"{'pattern':'^a'}", "'ba'", "'ba' does not match the pattern '^a'"},
    {"{'minItems':1}", "[]", "has 0 items; allowed are at least 1"},
    {"{'uniqueItems':true}", "[1,2,1.0]", "items 0 and 2 are the same; no two may be"},
    {"{'minProperties':1,'maxProperties':1}", "{'a':1,'b':2}",
     "has 2 members; allowed are at most 1"},
    {"{'anyOf':[{'type':'string'},{'type':'null'}]}", "1",
     "none of the 2 forms that are allowed fits; the nearest: 1 is a whole number; allowed is "
     "string"},
    {"{'anyOf':[{'type':'null'},{'properties':{'a':{'type':'string'}}}]}", "{'a':1}",
     "none of the 2 forms that are allowed fits; the nearest: a: 1 is a whole number; allowed is "
     "string"},
    {"{'oneOf':[{'type':'integer'},{'minimum':2}]}", "1", NULL},
    {"{'oneOf':[{'type':'integer'},{'minimum':2}]}", "3",
     "3 follows more than one of oneOf; allowed is one"},
    {"{'allOf':[{'minimum':2},{'maximum':3}]}", "4", "4 is not allowed; allowed is at most 3"},
    {"{'not':{'type':'string'}}", "'a'", "'a' is what \"not\" forbids"},
    {"{'not':{'type':'string'}}", "1", NULL},
    {"{'properties':{'a':false}}", "{'a':1}", "a: nothing is allowed here"},
    {"{'$defs':{'t':{'type':'object','properties':{'next':{'$ref':'#/$defs/t'}},"
     "'required':['v']}},'$ref':'#/$defs/t'}",
     "{'v':1,'next':{'v':1,'next':{}}}", "next.next.v: is missing"},
};

static void values_are_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(values); i++) {
        auto_json json_t *schema = value_of(values[i].schema);
        auto_json json_t *value = value_of(values[i].value);
        struct hutch_error err = {.message = "follows"};
        assert_int_equal(schema_accept(schema, &err), 0);
        int code = schema_check(schema, value, &err);
        assert_string_equal(err.message, values[i].problem ? values[i].problem : "follows");
        assert_int_equal(code, values[i].problem ? HUTCH_ERR_INVALID : 0);
    }
}

/* ---- bounds ---- */

static void many_schemas_are_refused(void **state)
{
    auto_json json_t *schema = json_object(), *list = json_array();
    struct hutch_error err;

    (void)state;
    for (int i = 0; i < LIMIT_SCHEMA_PARTS; i++)
        json_array_append_new(list, json_object());
    json_object_set(schema, "anyOf", list);
    assert_int_equal(schema_accept(schema, &err), HUTCH_ERR_INVALID);
    assert_non_null(strstr(err.message, "more than 4096 schemas in one"));
}

static void long_chains_of_references_are_refused(void **state)
{
    auto_json json_t *schema = json_object(), *defs = json_object();
    struct hutch_error err;
    char name[16], reference[32];

    (void)state;
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "d%d", i);
        snprintf(reference, sizeof(reference), "#/$defs/d%d", i + 1);
        json_object_set_new(defs, name,
                            i == 99 ? json_true() : json_pack("{s:s}", "$ref", reference));
    }
    json_object_set(schema, "$defs", defs);
    assert_int_equal(schema_accept(schema, &err), HUTCH_ERR_INVALID);
    assert_non_null(strstr(err.message, "more than 64 schemas in each other"));
}

/* Two ways at each level, and the wrong one at the bottom: without a bound, 2^60 steps. */
static void checking_ends_soon(void **state)
{
    auto_json json_t *schema = value_of("{'anyOf':[{'items':{'$ref':'#'},'minItems':1},"
                                        "{'items':{'$ref':'#'},'minItems':1}]}");
    auto_json json_t *value = json_array();
    struct hutch_error err;

    (void)state;
    assert_int_equal(schema_accept(schema, &err), 0);
    for (int i = 0; i < 60; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, value);
        value = outer;
    }
    assert_int_equal(schema_check(schema, value, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "the value takes too long to check; a smaller one is needed");
}

static void comparing_all_items_ends_soon(void **state)
{
    auto_json json_t *schema = value_of("{'uniqueItems':true}"), *value = json_array();
    struct hutch_error err;

    (void)state;
    for (int i = 0; i < 100000; i++)
        json_array_append_new(value, json_integer(i));
    assert_int_equal(schema_check(schema, value, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "the value takes too long to check; a smaller one is needed");
}

static void long_strings_are_not_matched(void **state)
{
    auto_json json_t *schema = value_of("{'pattern':'a$'}");
    auto_free char *text = calloc(1, 70001);
    struct hutch_error err;

    (void)state;
    assert_non_null(text);
    memset(text, 'a', 70000);
    auto_json json_t *value = json_string(text);
    assert_int_equal(schema_check(schema, value, &err), HUTCH_ERR_INVALID);
    assert_non_null(strstr(err.message, "is too long to be compared with a pattern"));
}

/* {"allOf": [{"pattern": "^(0)?a"}, {"pattern": "^(1)?a"}, ...]} */
static json_t *many_patterns(int count)
{
    json_t *list = json_array();

    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:o}", "pattern", json_sprintf("^(%d)?a", i)));
    return json_pack("{s:o}", "allOf", list);
}

static json_t *many_strings(int count)
{
    json_t *list = json_array();

    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_string("ab"));
    return list;
}

/* More than are kept compiled, so that some are compiled again. */
static void patterns_are_compiled_once_and_counted(void **state)
{
    auto_json json_t *one = value_of("{'items':{'pattern':'^a'}}");
    auto_json json_t *some = json_pack("{s:o}", "items", many_patterns(100));
    auto_json json_t *many = many_patterns(2000), *strings = many_strings(100000);
    auto_json json_t *few = many_strings(4), *last = json_string("99b");
    struct hutch_error err;

    (void)state;
    assert_int_equal(schema_check(one, strings, &err), 0);
    assert_int_equal(schema_check(some, few, &err), 0);
    json_array_append(few, last);
    assert_int_equal(schema_check(some, few, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "[4]: '99b' does not match the pattern '^(0)?a'");
    assert_int_equal(schema_check(many, json_array_get(few, 0), &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "the value takes too long to check; a smaller one is needed");
}

static void long_strings_count_where_they_are_matched(void **state)
{
    auto_json json_t *schema = value_of("{'items':{'pattern':'a'}}"), *value = json_array();
    auto_free char *text = calloc(1, 8001);
    struct hutch_error err;

    (void)state;
    assert_non_null(text);
    memset(text, 'b', 8000);
    text[7999] = 'a';
    for (int i = 0; i < 1000; i++)
        json_array_append_new(value, json_string(text));
    assert_int_equal(schema_check(schema, value, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "the value takes too long to check; a smaller one is needed");
}

/* ---- strict following ---- */

static const struct {
    const char *schema, *strict; /* NULL: cannot be */
} stricts[] = {
    {"{'type':'object','properties':{'a':{'type':'string'},'b':{'type':'integer','default':1}},"
     "'required':['a']}",
     "{'type':'object','properties':{'a':{'type':'string'},'b':{'type':['integer','null'],"
     "'default':1}},'required':['a','b'],'additionalProperties':false}"},
    {"{'type':'object','properties':{'a':{'enum':['x']},'b':{'$ref':'#/$defs/c'},"
     "'d':{'type':['null','string']}},'$defs':{'c':{'type':'object','properties':{}}}}",
     "{'type':'object','properties':{'a':{'anyOf':[{'enum':['x']},{'type':'null'}]},"
     "'b':{'anyOf':[{'$ref':'#/$defs/c'},{'type':'null'}]},'d':{'type':['null','string']}},"
     "'$defs':{'c':{'type':'object','properties':{},'required':[],'additionalProperties':false}},"
     "'required':['a','b','d'],'additionalProperties':false}"},
    {"{'type':'array','items':{'type':'object','properties':{'a':true},'required':['a']}}",
     "{'type':'array','items':{'type':'object','properties':{'a':true},'required':['a'],"
     "'additionalProperties':false}}"},
    {"{'type':'object'}", NULL},
    {"{'type':'object','properties':{'a':{'type':'object','additionalProperties':true,"
     "'properties':{}}}}",
     NULL},
};

static void schemas_are_made_strict(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(stricts); i++) {
        auto_json json_t *schema = value_of(stricts[i].schema), *before = json_deep_copy(schema);
        auto_json json_t *strict = NULL;
        auto_json json_t *expected = stricts[i].strict ? value_of(stricts[i].strict) : NULL;
        struct hutch_error err;
        assert_int_equal(schema_strict(schema, &strict, &err), expected ? 0 : 1);
        assert_true(json_equal(schema, before));
        if (!expected)
            assert_null(strict);
        else if (!json_equal(strict, expected))
            fail_msg("row %zu", i);
        else
            assert_int_equal(schema_accept(strict, &err), 0);
    }
}

static const struct {
    const char *schema, *value, *kept;
} nulls[] = {
    {"{'properties':{'a':{'type':'string'},'b':{'type':'string'},'c':{'type':['string','null']}},"
     "'required':['b']}",
     "{'a':null,'b':null,'c':null,'d':null}", "{'b':null,'c':null,'d':null}"},
    {"{'properties':{'a':{'anyOf':[{'$ref':'#/$defs/t'},{'type':'null'}]}},"
     "'$defs':{'t':{'properties':{'x':{'type':'integer'}}}}}",
     "{'a':{'x':null}}", "{'a':{}}"},
    {"{'items':{'properties':{'x':{'const':1}}}}", "[{'x':null},null,{'x':1}]",
     "[{},null,{'x':1}]"},
    {"true", "{'a':null}", "{'a':null}"},
};

static void nulls_for_what_was_left_out_are_dropped(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(nulls); i++) {
        auto_json json_t *schema = value_of(nulls[i].schema), *value = value_of(nulls[i].value);
        auto_json json_t *expected = value_of(nulls[i].kept), *kept = NULL;
        struct hutch_error err;
        assert_int_equal(schema_accept(schema, &err), 0);
        assert_int_equal(schema_drop_nulls(schema, value, &kept, &err), 0);
        if (!json_equal(kept, expected))
            fail_msg("row %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas_are_taken_or_refused_by_name),
        cmocka_unit_test(values_are_checked),
        cmocka_unit_test(many_schemas_are_refused),
        cmocka_unit_test(long_chains_of_references_are_refused),
        cmocka_unit_test(checking_ends_soon),
        cmocka_unit_test(comparing_all_items_ends_soon),
        cmocka_unit_test(long_strings_are_not_matched),
        cmocka_unit_test(patterns_are_compiled_once_and_counted),
        cmocka_unit_test(long_strings_count_where_they_are_matched),
        cmocka_unit_test(schemas_are_made_strict),
        cmocka_unit_test(nulls_for_what_was_left_out_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
