/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See schema.h. Here: whether values follow a schema.
 *
 * Both the schema and the value may be made to take long (anyOf in each other, large arrays
 * of which all items have to differ, long texts for many patterns), so the steps are counted.
 */
#include "schema.h"

#include "base/error.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/quote.h"
#include "schema_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEPS_MAX 5000000 /* a tenth of a second to a second */
#define SCHEMA_STEPS 8    /* for a schema that is held against a value, with its message */
#define COMPILE_STEPS 10000
#define COUNT_BYTES 64   /* of a text whose characters are counted, for a step */
#define MATCH_SQUARE 256 /* of the length of a text that a pattern is laid on, likewise */
#define NESTING_MAX 512  /* schemas and values in each other */
#define LIST_BYTES 120   /* of names in a message */

/* Not an error of ours: the value does not follow the schema, and err says how. */
#define DIFFERS 1

struct checking {
    const json_t *root;
    unsigned long steps;
    unsigned nesting;
    unsigned depth; /* of the place that differed last */
    struct pattern_cache patterns;
    struct hutch_error *err;
};

static int check(struct checking *walk, const struct place *at, const json_t *schema,
                 const json_t *value);

/* To be called with err filled. */
static int differs(struct checking *walk, const struct place *at)
{
    walk->depth = at->depth;
    place_tell(at, walk->err);
    return DIFFERS;
}

static int take_steps(struct checking *walk, unsigned long count)
{
    walk->steps += count;
    if (walk->steps > STEPS_MAX)
        return err_set(walk->err, HUTCH_ERR_INVALID,
                       "the value takes too long to check; a smaller one is needed");
    return 0;
}

static int take_step(struct checking *walk)
{
    return take_steps(walk, 1);
}

/* ---- values in messages ---- */

struct value_text {
    char text[sizeof(struct quote)];
};

static struct value_text value_text(const json_t *value)
{
    struct value_text out;

    if (json_is_string(value))
        snprintf(out.text, sizeof(out.text), "%s", quote_short(json_string_value(value)).text);
    else if (json_is_integer(value))
        snprintf(out.text, sizeof(out.text), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(out.text, sizeof(out.text), "%s", number_text(json_real_value(value)).text);
    else
        snprintf(out.text, sizeof(out.text), "%s", json_kind(value));
    return out;
}

/* "'x' is a string", "null". */
struct kind_text {
    char text[sizeof(struct value_text) + 24];
};

static struct kind_text kind_text(const json_t *value)
{
    bool has_text = json_is_string(value) || json_is_number(value);
    struct kind_text out;

    snprintf(out.text, sizeof(out.text), "%s%s%s", has_text ? value_text(value).text : "",
             has_text ? " is " : "", json_kind(value));
    return out;
}

/* Appends to a list in a message; false where it is full, which it then says. */
static bool list_add(char list[LIST_BYTES], const char *between, const char *text)
{
    size_t length = strlen(list);
    size_t room = LIST_BYTES - length - sizeof(", ...");

    if (strlen(between) + strlen(text) > room) {
        snprintf(list + length, LIST_BYTES - length, ", ...");
        return false;
    }
    snprintf(list + length, LIST_BYTES - length, "%s%s", length > 0 ? between : "", text);
    return true;
}

/* ---- equality ---- */

static int same(struct checking *walk, const json_t *one, const json_t *other);

static int same_arrays(struct checking *walk, const json_t *one, const json_t *other)
{
    int equal = json_array_size(one) == json_array_size(other);

    for (size_t i = 0; equal == 1 && i < json_array_size(one); i++)
        equal = same(walk, json_array_get(one, i), json_array_get(other, i));
    return equal;
}

static int same_objects(struct checking *walk, const json_t *one, const json_t *other)
{
    json_t *members = (json_t *)one; /* is not changed by being walked through */
    int equal = json_object_size(one) == json_object_size(other);

    for (void *i = json_object_iter(members); equal == 1 && i;
         i = json_object_iter_next(members, i)) {
        const json_t *found = json_object_get(other, json_object_iter_key(i));
        equal = found ? same(walk, json_object_iter_value(i), found) : 0;
    }
    return equal;
}

/* 1, 0, or negative. 1 and 1.0 are the same. */
static int same(struct checking *walk, const json_t *one, const json_t *other)
{
    if (take_step(walk) < 0)
        return walk->err->code;
    if (json_is_number(one) && json_is_number(other))
        return number_compare(one, other) == 0;
    if (json_typeof(one) != json_typeof(other))
        return 0;
    if (json_is_array(one))
        return same_arrays(walk, one, other);
    if (json_is_object(one))
        return same_objects(walk, one, other);
    if (json_is_string(one) && take_steps(walk, json_string_length(one) / COUNT_BYTES) < 0)
        return walk->err->code;
    return json_equal(one, other);
}

/* ---- keywords that any value has ---- */

static bool has_type(const json_t *value, const char *type)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return strcmp(type, "object") == 0;
    case JSON_ARRAY:
        return strcmp(type, "array") == 0;
    case JSON_STRING:
        return strcmp(type, "string") == 0;
    case JSON_INTEGER:
    case JSON_REAL:
        return strcmp(type, "number") == 0 ||
               (strcmp(type, "integer") == 0 && number_is_whole(value));
    case JSON_TRUE:
    case JSON_FALSE:
        return strcmp(type, "boolean") == 0;
    case JSON_NULL:
        break;
    }
    return strcmp(type, "null") == 0;
}

static int check_type(struct checking *walk, const struct place *at, const json_t *types,
                      const json_t *value)
{
    size_t count = json_is_array(types) ? json_array_size(types) : 1;
    char list[LIST_BYTES] = "";

    for (size_t i = 0; i < count; i++) {
        const json_t *type = json_is_array(types) ? json_array_get(types, i) : types;
        if (has_type(value, json_string_value(type)))
            return 0;
        list_add(list, " or ", json_string_value(type));
    }
    err_set(walk->err, HUTCH_ERR_INVALID, "%s; allowed is %s", kind_text(value).text, list);
    return differs(walk, at);
}

static int check_enum(struct checking *walk, const struct place *at, const json_t *allowed,
                      const json_t *value)
{
    char list[LIST_BYTES] = "";
    bool more = true;

    for (size_t i = 0; i < json_array_size(allowed); i++) {
        int equal = same(walk, json_array_get(allowed, i), value);
        if (equal != 0)
            return equal < 0 ? equal : 0;
        more = more && list_add(list, ", ", value_text(json_array_get(allowed, i)).text);
    }
    err_set(walk->err, HUTCH_ERR_INVALID, "%s is not allowed; allowed are %s",
            value_text(value).text, list);
    return differs(walk, at);
}

static int check_const(struct checking *walk, const struct place *at, const json_t *allowed,
                       const json_t *value)
{
    int equal = same(walk, allowed, value);

    if (equal != 0)
        return equal < 0 ? equal : 0;
    err_set(walk->err, HUTCH_ERR_INVALID, "%s is not allowed; allowed is %s",
            value_text(value).text, value_text(allowed).text);
    return differs(walk, at);
}

/* ---- numbers ---- */

static bool is_multiple(const json_t *value, const json_t *divisor)
{
    if (json_is_integer(value) && json_is_integer(divisor))
        return json_integer_value(value) % json_integer_value(divisor) == 0;
    /* 0.3 is a multiple of 0.1, which as doubles it is not quite. */
    double quotient = json_number_value(value) / json_number_value(divisor);
    return isfinite(quotient) && fabs(quotient - nearbyint(quotient)) <= 1e-9 * fabs(quotient);
}

static int check_bound(struct checking *walk, const struct place *at, const json_t *schema,
                       const json_t *value)
{
    static const struct bound {
        const char *keyword, *text;
        int low, high; /* of number_compare */
    } bounds[] = {
        {"minimum", "at least", 0, 1},
        {"maximum", "at most", -1, 0},
        {"exclusiveMinimum", "more than", 1, 1},
        {"exclusiveMaximum", "less than", -1, -1},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(bounds); i++) {
        const json_t *bound = json_object_get(schema, bounds[i].keyword);
        int order = bound ? number_compare(value, bound) : bounds[i].low;
        if (order >= bounds[i].low && order <= bounds[i].high)
            continue;
        err_set(walk->err, HUTCH_ERR_INVALID, "%s is not allowed; allowed is %s %s",
                value_text(value).text, bounds[i].text, value_text(bound).text);
        return differs(walk, at);
    }
    return 0;
}

static int check_number(struct checking *walk, const struct place *at, const json_t *schema,
                        const json_t *value)
{
    const json_t *divisor = json_object_get(schema, "multipleOf");

    if (divisor && !is_multiple(value, divisor)) {
        err_set(walk->err, HUTCH_ERR_INVALID, "%s is no multiple of %s", value_text(value).text,
                value_text(divisor).text);
        return differs(walk, at);
    }
    return check_bound(walk, at, schema, value);
}

/* ---- sizes ---- */

/* A count between two keywords' values; what: "characters" ... */
static int check_size(struct checking *walk, const struct place *at, const json_t *least,
                      const json_t *most, size_t count, const char *what)
{
    bool too_few = least && (double)count < json_number_value(least);

    if (!too_few && !(most && (double)count > json_number_value(most)))
        return 0;
    err_set(walk->err, HUTCH_ERR_INVALID, "has %zu %s; allowed are at %s %s", count, what,
            too_few ? "least" : "most", value_text(too_few ? least : most).text);
    return differs(walk, at);
}

static int check_length(struct checking *walk, const struct place *at, const json_t *schema,
                        const json_t *value)
{
    const json_t *least = json_object_get(schema, "minLength");
    const json_t *most = json_object_get(schema, "maxLength");
    const char *text = json_string_value(value);
    size_t length = json_string_length(value), characters = 0;

    if (!least && !most)
        return 0;
    for (size_t i = 0; i < length; i++)
        characters += ((unsigned char)text[i] & 0xc0) != 0x80;
    if (take_steps(walk, length / COUNT_BYTES) < 0)
        return walk->err->code;
    return check_size(walk, at, least, most, characters, "characters");
}

/* A pattern may make the matcher go back over all of the text from each of its places. */
static int check_pattern(struct checking *walk, const struct place *at, const char *pattern,
                         const json_t *value)
{
    const char *text = json_string_value(value);
    size_t length = json_string_length(value), made = walk->patterns.made;

    int matches = pattern_matches(&walk->patterns, pattern, text, length, walk->err);
    if (matches == HUTCH_ERR_INVALID)
        return differs(walk, at);
    if (matches < 0)
        return matches;
    if (take_steps(walk, length * length / MATCH_SQUARE +
                             (walk->patterns.made - made) * COMPILE_STEPS) < 0)
        return walk->err->code;
    if (matches > 0)
        return 0;
    err_set(walk->err, HUTCH_ERR_INVALID, "%s does not match the pattern %s",
            quote_short(text).text, quote_text(pattern).text);
    return differs(walk, at);
}

static int check_string(struct checking *walk, const struct place *at, const json_t *schema,
                        const json_t *value)
{
    const char *pattern = json_string_value(json_object_get(schema, "pattern"));
    int end = check_length(walk, at, schema, value);

    return end != 0 || !pattern ? end : check_pattern(walk, at, pattern, value);
}

/* ---- arrays ---- */

static int check_unique(struct checking *walk, const struct place *at, const json_t *array)
{
    for (size_t i = 1; i < json_array_size(array); i++) {
        for (size_t k = 0; k < i; k++) {
            int equal = same(walk, json_array_get(array, i), json_array_get(array, k));
            if (equal < 0)
                return equal;
            if (equal == 0)
                continue;
            err_set(walk->err, HUTCH_ERR_INVALID, "items %zu and %zu are the same; no two may be",
                    k, i);
            return differs(walk, at);
        }
    }
    return 0;
}

static int check_array(struct checking *walk, const struct place *at, const json_t *schema,
                       const json_t *value)
{
    const json_t *items = json_object_get(schema, "items");
    int end = check_size(walk, at, json_object_get(schema, "minItems"),
                         json_object_get(schema, "maxItems"), json_array_size(value), "items");

    for (size_t i = 0; items && end == 0 && i < json_array_size(value); i++) {
        const struct place here = place_item(at, i);
        end = check(walk, &here, items, json_array_get(value, i));
    }
    if (end != 0 || !json_is_true(json_object_get(schema, "uniqueItems")))
        return end;
    return check_unique(walk, at, value);
}

/* ---- objects ---- */

static int check_required(struct checking *walk, const struct place *at, const json_t *names,
                          const json_t *object)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        const json_t *name = json_array_get(names, i);
        if (json_object_get(object, json_string_value(name)))
            continue;
        const struct place here = place_member(at, json_string_value(name));
        err_set(walk->err, HUTCH_ERR_INVALID, "is missing");
        return differs(walk, &here);
    }
    return 0;
}

static int tell_unknown(struct checking *walk, const struct place *at, const json_t *properties)
{
    json_t *members = (json_t *)properties; /* is not changed by being walked through */
    char list[LIST_BYTES] = "";

    for (void *i = json_object_iter(members); i; i = json_object_iter_next(members, i)) {
        if (!list_add(list, ", ", quote_short(json_object_iter_key(i)).text))
            break;
    }
    err_set(walk->err, HUTCH_ERR_INVALID, "is not known; allowed %s%s",
            *list ? "are " : "is nothing", list);
    return differs(walk, at);
}

static int check_member(struct checking *walk, const struct place *at, const json_t *schema,
                        const json_t *value)
{
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *own = json_object_get(properties, at->name);
    const json_t *others = json_object_get(schema, "additionalProperties");

    if (own)
        return check(walk, at, own, value);
    if (json_is_false(others))
        return tell_unknown(walk, at, properties);
    return others ? check(walk, at, others, value) : 0;
}

static int check_object(struct checking *walk, const struct place *at, const json_t *schema,
                        const json_t *value)
{
    json_t *members = (json_t *)value; /* is not changed by being walked through */
    int end = check_required(walk, at, json_object_get(schema, "required"), value);

    for (void *i = json_object_iter(members); i && end == 0;
         i = json_object_iter_next(members, i)) {
        const struct place here = place_member(at, json_object_iter_key(i));
        end = check_member(walk, &here, schema, json_object_iter_value(i));
    }
    if (end != 0)
        return end;
    return check_size(walk, at, json_object_get(schema, "minProperties"),
                      json_object_get(schema, "maxProperties"), json_object_size(value), "members");
}

/* ---- schemas of schemas ---- */

static int check_all(struct checking *walk, const struct place *at, const json_t *list,
                     const json_t *value)
{
    int end = 0;
    for (size_t i = 0; i < json_array_size(list) && end == 0; i++)
        end = check(walk, at, json_array_get(list, i), value);
    return end;
}

/* How many of a list the value follows, at most enough. Of those that it does not the error
 * of the one that it follows farthest is kept. */
static int count_followed(struct checking *walk, const struct place *at, const json_t *list,
                          const json_t *value, int enough)
{
    struct hutch_error *err = walk->err, other, best = {0};
    unsigned deepest = 0;
    int count = 0, end = 0;

    walk->err = &other;
    for (size_t i = 0; i < json_array_size(list) && count < enough && end >= 0; i++) {
        end = check(walk, at, json_array_get(list, i), value);
        count += end == 0;
        if (end < 0 || (end == DIFFERS && (best.code == 0 || walk->depth > deepest))) {
            best = other;
            deepest = walk->depth;
        }
    }
    walk->err = err;
    walk->depth = deepest;
    if (count == 0 || end < 0)
        *err = best;
    return end < 0 ? end : count;
}

static int follows_none(struct checking *walk, const json_t *list)
{
    if (json_array_size(list) > 1)
        err_context(walk->err, "none of the %zu forms that are allowed fits; the nearest",
                    json_array_size(list));
    return DIFFERS;
}

static int check_any(struct checking *walk, const struct place *at, const json_t *list,
                     const json_t *value)
{
    int count = list ? count_followed(walk, at, list, value, 1) : 1;

    if (count == 0)
        return follows_none(walk, list);
    return count < 0 ? count : 0;
}

static int check_one(struct checking *walk, const struct place *at, const json_t *list,
                     const json_t *value)
{
    int count = list ? count_followed(walk, at, list, value, 2) : 1;

    if (count < 0 || count == 1)
        return count < 0 ? count : 0;
    if (count == 0)
        return follows_none(walk, list);
    err_set(walk->err, HUTCH_ERR_INVALID, "%s follows more than one of oneOf; allowed is one",
            value_text(value).text);
    return differs(walk, at);
}

static int check_not(struct checking *walk, const struct place *at, const json_t *schema,
                     const json_t *value)
{
    struct hutch_error *err = walk->err, other;

    if (!schema)
        return 0;
    walk->err = &other;
    int end = check(walk, at, schema, value);
    walk->err = err;
    if (end < 0)
        *err = other;
    if (end != 0)
        return end < 0 ? end : 0;
    err_set(err, HUTCH_ERR_INVALID, "%s is what \"not\" forbids", value_text(value).text);
    return differs(walk, at);
}

static int check_combined(struct checking *walk, const struct place *at, const json_t *schema,
                          const json_t *value)
{
    const char *reference = json_string_value(json_object_get(schema, "$ref"));
    int end = reference ? check(walk, at, schema_find(walk->root, reference), value) : 0;

    if (end == 0)
        end = check_all(walk, at, json_object_get(schema, "allOf"), value);
    if (end == 0)
        end = check_any(walk, at, json_object_get(schema, "anyOf"), value);
    if (end == 0)
        end = check_one(walk, at, json_object_get(schema, "oneOf"), value);
    if (end == 0)
        end = check_not(walk, at, json_object_get(schema, "not"), value);
    return end;
}

/* ---- the whole ---- */

static int check_plain(struct checking *walk, const struct place *at, const json_t *schema,
                       const json_t *value)
{
    const json_t *types = json_object_get(schema, "type");
    const json_t *list = json_object_get(schema, "enum");
    const json_t *one = json_object_get(schema, "const");
    int end = types ? check_type(walk, at, types, value) : 0;

    if (end == 0 && list)
        end = check_enum(walk, at, list, value);
    if (end == 0 && one)
        end = check_const(walk, at, one, value);
    if (end != 0)
        return end;
    if (json_is_number(value))
        return check_number(walk, at, schema, value);
    if (json_is_string(value))
        return check_string(walk, at, schema, value);
    if (json_is_array(value))
        return check_array(walk, at, schema, value);
    return json_is_object(value) ? check_object(walk, at, schema, value) : 0;
}

/* 0, DIFFERS, or negative. */
static int check(struct checking *walk, const struct place *at, const json_t *schema,
                 const json_t *value)
{
    if (take_steps(walk, SCHEMA_STEPS) < 0)
        return walk->err->code;
    if (json_is_true(schema))
        return 0;
    if (json_is_false(schema)) {
        err_set(walk->err, HUTCH_ERR_INVALID, "nothing is allowed here");
        return differs(walk, at);
    }
    if (walk->nesting == NESTING_MAX)
        return err_set(walk->err, HUTCH_ERR_INVALID,
                       "the value is nested too deep to be checked; a flatter one is needed");
    walk->nesting++;
    int end = check_plain(walk, at, schema, value);
    if (end == 0)
        end = check_combined(walk, at, schema, value);
    walk->nesting--;
    return end;
}

int schema_check_part(const json_t *root, const json_t *part, const json_t *value,
                      struct hutch_error *err)
{
    struct checking walk = {.root = root, .err = err};
    int end = check(&walk, &PLACE_ROOT, part, value);

    pattern_cache_done(&walk.patterns);
    return end == 0 ? 0 : err->code;
}

int schema_check(const json_t *schema, const json_t *value, struct hutch_error *err)
{
    return schema_check_part(schema, schema, value, err);
}
