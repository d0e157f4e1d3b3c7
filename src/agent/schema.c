/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See schema.h. Here: whether a schema is one, and what is made of schemas; schema_check.c
 * has values.
 *
 * A schema is walked once, each of its parts that is one noted. What $ref means is walked
 * with them, where it is none of them. Then no way may lead from a part to itself
 * without a step into the value: it would never end.
 */
#include "schema.h"

#include "base/error.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/parse.h"
#include "base/quote.h"
#include "schema_parts.h"

#include <string.h>

#define CHAIN_MAX 64 /* parts that apply to the same value, one within the other */

struct accepting {
    const json_t *root;
    struct part {
        const json_t *schema;
        int height; /* of the parts within it that apply to the same value; 0: not known yet */
    } * parts;
    size_t count;
    struct hutch_error *err;
};

typedef int accept_fn(struct accepting *walk, const struct place *at, const json_t *value);

static int accept_part(struct accepting *walk, const struct place *at, const json_t *schema);

/* Says what is expected in place of a value. */
static int expected(struct accepting *walk, const struct place *at, const json_t *value,
                    const char *what)
{
    bool is_empty = json_is_array(value) && json_array_size(value) == 0;

    if (json_is_number(value))
        err_set(walk->err, HUTCH_ERR_INVALID, "%s expected, not %s", what,
                number_text(json_number_value(value)).text);
    else
        err_set(walk->err, HUTCH_ERR_INVALID, "%s expected, not %s", what,
                is_empty ? "an empty array" : json_kind(value));
    return place_tell(at, walk->err);
}

/* ---- keywords ---- */

static int accept_anything(struct accepting *walk, const struct place *at, const json_t *value)
{
    (void)walk;
    (void)at;
    (void)value;
    return 0;
}

static bool is_type(const json_t *value)
{
    static const char *const types[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};

    for (size_t i = 0; json_is_string(value) && i < ARRAY_LENGTH(types); i++) {
        if (strcmp(json_string_value(value), types[i]) == 0)
            return true;
    }
    return false;
}

static int accept_type(struct accepting *walk, const struct place *at, const json_t *value)
{
    bool good = json_array_size(value) > 0 || is_type(value);

    for (size_t i = 0; i < json_array_size(value); i++)
        good = good && is_type(json_array_get(value, i));
    if (good)
        return 0;
    err_set(walk->err, HUTCH_ERR_INVALID,
            "one or an array of null, boolean, integer, number, string, array, object expected");
    return place_tell(at, walk->err);
}

static int accept_array(struct accepting *walk, const struct place *at, const json_t *value)
{
    if (json_array_size(value) > 0)
        return 0;
    return expected(walk, at, value, "an array that is not empty");
}

static int accept_names(struct accepting *walk, const struct place *at, const json_t *value)
{
    if (!json_is_array(value))
        return expected(walk, at, value, "an array of names");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const struct place here = place_item(at, i);
        if (!json_is_string(json_array_get(value, i)))
            return expected(walk, &here, json_array_get(value, i), "a string");
    }
    return 0;
}

static int accept_map(struct accepting *walk, const struct place *at, const json_t *value)
{
    json_t *members = (json_t *)value; /* is not changed by being walked through */

    if (!json_is_object(value))
        return expected(walk, at, value, "an object of schemas");
    for (void *i = json_object_iter(members); i; i = json_object_iter_next(members, i)) {
        const struct place here = place_member(at, json_object_iter_key(i));
        if (accept_part(walk, &here, json_object_iter_value(i)) < 0)
            return walk->err->code;
    }
    return 0;
}

static int accept_list(struct accepting *walk, const struct place *at, const json_t *value)
{
    if (json_array_size(value) == 0)
        return expected(walk, at, value, "an array of schemas that is not empty");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const struct place here = place_item(at, i);
        if (accept_part(walk, &here, json_array_get(value, i)) < 0)
            return walk->err->code;
    }
    return 0;
}

static int accept_count(struct accepting *walk, const struct place *at, const json_t *value)
{
    if (json_is_number(value) && number_is_whole(value) && json_number_value(value) >= 0)
        return 0;
    return expected(walk, at, value, "a whole number from 0");
}

static int accept_number(struct accepting *walk, const struct place *at, const json_t *value)
{
    return json_is_number(value) ? 0 : expected(walk, at, value, "a number");
}

static int accept_divisor(struct accepting *walk, const struct place *at, const json_t *value)
{
    if (json_is_number(value) && json_number_value(value) > 0)
        return 0;
    return expected(walk, at, value, "a number above 0");
}

static int accept_flag(struct accepting *walk, const struct place *at, const json_t *value)
{
    return json_is_boolean(value) ? 0 : expected(walk, at, value, "true or false");
}

static int accept_pattern(struct accepting *walk, const struct place *at, const json_t *value)
{
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return expected(walk, at, value, "a regular expression");
    if (pattern_accept(json_string_value(value), walk->err) < 0)
        return place_tell(at, walk->err);
    return 0;
}

static int accept_reference(struct accepting *walk, const struct place *at, const json_t *value)
{
    const char *text = json_string_value(value);
    const json_t *target = text ? schema_find(walk->root, text) : NULL;

    if (!target) {
        err_set(walk->err, HUTCH_ERR_INVALID,
                "%s is nothing in this schema; allowed are references such as '#/$defs/name'",
                quote_text(text).text);
        return place_tell(at, walk->err);
    }
    return accept_part(walk, at, target);
}

static const struct keyword {
    const char *name;
    accept_fn *accept;
} keywords[] = {
    {"$comment", accept_anything},
    {"$defs", accept_map},
    {"$id", accept_anything},
    {"$ref", accept_reference},
    {"$schema", accept_anything},
    {"additionalProperties", accept_part},
    {"allOf", accept_list},
    {"anyOf", accept_list},
    {"const", accept_anything},
    {"default", accept_anything},
    {"definitions", accept_map},
    {"description", accept_anything},
    {"enum", accept_array},
    {"examples", accept_anything},
    {"exclusiveMaximum", accept_number},
    {"exclusiveMinimum", accept_number},
    {"format", accept_anything},
    {"items", accept_part},
    {"maxItems", accept_count},
    {"maxLength", accept_count},
    {"maxProperties", accept_count},
    {"maximum", accept_number},
    {"minItems", accept_count},
    {"minLength", accept_count},
    {"minProperties", accept_count},
    {"minimum", accept_number},
    {"multipleOf", accept_divisor},
    {"not", accept_part},
    {"oneOf", accept_list},
    {"pattern", accept_pattern},
    {"properties", accept_map},
    {"required", accept_names},
    {"title", accept_anything},
    {"type", accept_type},
    {"uniqueItems", accept_flag},
};

static const struct keyword *find_keyword(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(keywords); i++) {
        if (strcmp(keywords[i].name, name) == 0)
            return &keywords[i];
    }
    return NULL;
}

/* ---- the walk ---- */

static size_t part_of(const struct accepting *walk, const json_t *schema)
{
    size_t i = 0;
    while (i < walk->count && walk->parts[i].schema != schema)
        i++;
    return i;
}

static int note_part(struct accepting *walk, const struct place *at, const json_t *schema)
{
    if (walk->count == LIMIT_SCHEMA_PARTS) {
        err_set(walk->err, HUTCH_ERR_INVALID, "more than %d schemas in one", LIMIT_SCHEMA_PARTS);
        return place_tell(at, walk->err);
    }
    if (at->depth > SCHEMA_DEPTH_MAX) {
        err_set(walk->err, HUTCH_ERR_INVALID, "nested too deep");
        return place_tell(at, walk->err);
    }
    walk->parts[walk->count++].schema = schema;
    return 0;
}

static int accept_part(struct accepting *walk, const struct place *at, const json_t *schema)
{
    json_t *members = (json_t *)schema; /* is not changed by being walked through */

    if (json_is_boolean(schema))
        return 0;
    if (!json_is_object(schema))
        return expected(walk, at, schema, "a schema, which is an object, true or false,");
    if (part_of(walk, schema) < walk->count)
        return 0;
    if (note_part(walk, at, schema) < 0)
        return walk->err->code;
    for (void *i = json_object_iter(members); i; i = json_object_iter_next(members, i)) {
        const struct place here = place_member(at, json_object_iter_key(i));
        const struct keyword *keyword = find_keyword(here.name);
        if (!keyword) {
            err_set(walk->err, HUTCH_ERR_INVALID, "is a keyword that is not supported");
            return place_tell(&here, walk->err);
        }
        if (keyword->accept(walk, &here, json_object_iter_value(i)) < 0)
            return walk->err->code;
    }
    return 0;
}

/* ---- ways that never end ---- */

#define IN_WORK (-1)

static int follow(struct accepting *walk, const json_t *schema);

/* The greater of height and of those of a list. */
static int follow_list(struct accepting *walk, const json_t *list, int height)
{
    for (size_t i = 0; i < json_array_size(list) && height >= 0; i++) {
        int other = follow(walk, json_array_get(list, i));
        if (other < 0 || other > height)
            height = other;
    }
    return height;
}

static int follow_one(struct accepting *walk, const json_t *schema, int height)
{
    int other = schema && height >= 0 ? follow(walk, schema) : height;
    return other < 0 || other > height ? other : height;
}

/* Its height, at most CHAIN_MAX; 0 for true and false; or negative. */
static int follow(struct accepting *walk, const json_t *schema)
{
    const char *reference = json_string_value(json_object_get(schema, "$ref"));
    size_t number = part_of(walk, schema);

    if (number == walk->count)
        return 0;
    struct part *part = &walk->parts[number];
    if (part->height > 0)
        return part->height;
    if (part->height == IN_WORK)
        return err_set(walk->err, HUTCH_ERR_INVALID, "$ref: %s leads back to itself",
                       quote_text(reference).text);
    part->height = IN_WORK;
    int height = reference ? follow_one(walk, schema_find(walk->root, reference), 0) : 0;
    height = follow_one(walk, json_object_get(schema, "not"), height);
    height = follow_list(walk, json_object_get(schema, "allOf"), height);
    height = follow_list(walk, json_object_get(schema, "anyOf"), height);
    height = follow_list(walk, json_object_get(schema, "oneOf"), height);
    if (height < 0)
        return height;
    if (height == CHAIN_MAX)
        return err_set(walk->err, HUTCH_ERR_INVALID,
                       "more than %d schemas in each other for the same value", CHAIN_MAX);
    part->height = height + 1;
    return part->height;
}

int schema_accept(const json_t *schema, struct hutch_error *err)
{
    struct accepting walk = {.root = schema, .err = err};

    walk.parts = calloc(LIMIT_SCHEMA_PARTS, sizeof(*walk.parts));
    if (!walk.parts)
        return err_no_memory(err);
    int code = accept_part(&walk, &PLACE_ROOT, schema);
    for (size_t i = 0; i < walk.count && code >= 0; i++)
        code = follow(&walk, walk.parts[i].schema);
    free(walk.parts);
    return code < 0 ? code : 0;
}
