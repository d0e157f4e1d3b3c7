/* SPDX-License-Identifier: Apache-2.0 */
/* See schema.h. Here: strict following, and the nulls that come of it. */
#include "schema.h"

#include "base/error.h"
#include "base/json.h"
#include "schema_parts.h"

#include <string.h>

#define REFERENCES_MAX 64 /* one behind the other */

/* A schema that cannot be followed strictly. */
#define TOO_OPEN 1

/* ---- the strict copy ---- */

static int make_strict(json_t *schema, struct hutch_error *err);

static int make_all_strict(json_t *container, struct hutch_error *err)
{
    int end = 0;

    for (size_t i = 0; i < json_array_size(container) && end == 0; i++)
        end = make_strict(json_array_get(container, i), err);
    for (void *i = json_object_iter(container); i && end == 0;
         i = json_object_iter_next(container, i))
        end = make_strict(json_object_iter_value(i), err);
    return end;
}

static bool names(const json_t *array, const char *name)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *other = json_string_value(json_array_get(array, i));
        if (other && strcmp(other, name) == 0)
            return true;
    }
    return false;
}

static bool has_type(const json_t *schema, const char *name)
{
    const json_t *type = json_object_get(schema, "type");
    const char *only = json_string_value(type);
    return only ? strcmp(only, name) == 0 : names(type, name);
}

/* The schema, or null: {"anyOf": [schema, {"type": "null"}]}. NULL: no memory. */
static json_t *or_null(json_t *schema)
{
    auto_json json_t *list = json_array();
    json_t *null = json_pack("{s:s}", "type", "null");

    if (json_array_append(list, schema) < 0 || json_array_append_new(list, null) < 0)
        return NULL;
    return json_pack("{s:O}", "anyOf", list);
}

/* A member that may be left out becomes one that may be null. */
static int make_nullable(json_t *properties, const char *name, struct hutch_error *err)
{
    json_t *schema = json_object_get(properties, name);
    json_t *type = json_object_get(schema, "type");

    if (has_type(schema, "null"))
        return 0;
    if (!type || json_object_get(schema, "enum") || json_object_get(schema, "const"))
        return json_object_set_new(properties, name, or_null(schema)) < 0 ? err_no_memory(err) : 0;
    json_t *types = json_is_array(type) ? json_incref(type) : json_pack("[O]", type);
    int code = json_array_append_new(types, json_string("null"));
    if (json_object_set_new(schema, "type", types) < 0 || code < 0)
        return err_no_memory(err);
    return 0;
}

static int close_object(json_t *schema, struct hutch_error *err)
{
    json_t *properties = json_object_get(schema, "properties");
    const json_t *others = json_object_get(schema, "additionalProperties");
    auto_json json_t *required = json_array();

    if (!properties && !has_type(schema, "object"))
        return 0;
    if (!properties || (others && !json_is_false(others)))
        return TOO_OPEN;
    for (void *i = json_object_iter(properties); i; i = json_object_iter_next(properties, i)) {
        const char *name = json_object_iter_key(i);
        if (json_array_append_new(required, json_string(name)) < 0)
            return err_no_memory(err);
        if (!names(json_object_get(schema, "required"), name) &&
            make_nullable(properties, name, err) < 0)
            return err->code;
    }
    if (json_object_set(schema, "required", required) < 0 ||
        json_object_set_new(schema, "additionalProperties", json_false()) < 0)
        return err_no_memory(err);
    return 0;
}

static int make_strict(json_t *schema, struct hutch_error *err)
{
    static const char *const containers[] = {"properties", "$defs", "definitions",
                                             "allOf",      "anyOf", "oneOf"};
    int end = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(containers) && end == 0; i++)
        end = make_all_strict(json_object_get(schema, containers[i]), err);
    if (end == 0 && json_is_object(json_object_get(schema, "items")))
        end = make_strict(json_object_get(schema, "items"), err);
    return end == 0 ? close_object(schema, err) : end;
}

int schema_strict(const json_t *schema, json_t **ret_strict, struct hutch_error *err)
{
    auto_json json_t *copy = json_deep_copy(schema);

    if (!copy)
        return err_no_memory(err);
    int end = make_strict(copy, err);
    if (end == 0)
        *ret_strict = TAKE_POINTER(copy);
    return end;
}

/* ---- nulls ---- */

struct dropping {
    const json_t *root;
    struct hutch_error *err;
};

static int drop(struct dropping *walk, const json_t *schema, json_t *value, unsigned depth);

/* Without what $ref and an anyOf of one form and null put around it. */
static const json_t *unwrap(const struct dropping *walk, const json_t *schema)
{
    for (unsigned i = 0; i < REFERENCES_MAX; i++) {
        const char *reference = json_string_value(json_object_get(schema, "$ref"));
        const json_t *forms = json_object_get(schema, "anyOf");
        if (reference) {
            schema = schema_find(walk->root, reference);
        } else if (json_array_size(forms) == 2) {
            const json_t *one = json_array_get(forms, 0), *other = json_array_get(forms, 1);
            if (!has_type(one, "null") && !has_type(other, "null"))
                break;
            schema = has_type(one, "null") ? other : one;
        } else {
            break;
        }
    }
    return schema;
}

/* 1: the member is a null that may not be there, but need not be either. */
static int is_needless(struct dropping *walk, const json_t *object, const char *name,
                       const json_t *member)
{
    struct hutch_error other;

    if (names(json_object_get(object, "required"), name))
        return 0;
    int code = schema_check_part(walk->root, member, json_null(), &other);
    if (code == HUTCH_ERR_NO_MEMORY)
        return err_no_memory(walk->err);
    return code < 0;
}

static int drop_members(struct dropping *walk, const json_t *schema, json_t *value, unsigned depth)
{
    json_t *properties = json_object_get(schema, "properties");

    for (void *i = json_object_iter(properties); i; i = json_object_iter_next(properties, i)) {
        const char *name = json_object_iter_key(i);
        json_t *member = json_object_get(value, name);
        const json_t *own = json_object_iter_value(i);
        int end = json_is_null(member) ? is_needless(walk, schema, name, own)
                                       : drop(walk, own, member, depth + 1);
        if (end < 0)
            return end;
        if (end == 1)
            json_object_del(value, name);
    }
    return 0;
}

static int drop(struct dropping *walk, const json_t *schema, json_t *value, unsigned depth)
{
    int end = 0;

    schema = unwrap(walk, schema);
    if (depth > JSON_DEPTH_MAX)
        return 0;
    if (json_is_object(value))
        return drop_members(walk, schema, value, depth);
    for (size_t i = 0; i < json_array_size(value) && end == 0; i++)
        end = drop(walk, json_object_get(schema, "items"), json_array_get(value, i), depth + 1);
    return end;
}

int schema_drop_nulls(const json_t *schema, const json_t *value, json_t **ret_value,
                      struct hutch_error *err)
{
    struct dropping walk = {.root = schema, .err = err};
    auto_json json_t *copy = json_deep_copy(value);

    if (!copy)
        return err_no_memory(err);
    if (drop(&walk, schema, copy, 0) < 0)
        return err->code;
    *ret_value = TAKE_POINTER(copy);
    return 0;
}
