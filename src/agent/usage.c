/* SPDX-License-Identifier: Apache-2.0 */
/* See usage.h. */
#include "usage.h"

#include "base/error.h"
#include "base/json.h"

#include <math.h>

static json_t *sum_of(const json_t *one, const json_t *other)
{
    json_int_t sum;

    if (json_is_integer(one) && json_is_integer(other) &&
        !__builtin_add_overflow(json_integer_value(one), json_integer_value(other), &sum))
        return json_integer(sum);
    double real = json_number_value(one) + json_number_value(other);
    return json_real(isfinite(real) ? real : 0);
}

static int add_member(json_t *sum, const char *name, const json_t *value, struct hutch_error *err)
{
    json_t *had = json_object_get(sum, name);

    if (json_is_object(value) && (!had || json_is_object(had))) {
        json_t *inner = had ? json_incref(had) : NULL;
        int code = usage_add(&inner, value, err);
        if (code == 0 && json_object_set(sum, name, inner) < 0)
            code = err_no_memory(err);
        json_decref(inner);
        return code;
    }
    if (!json_is_number(value) || (had && !json_is_number(had)))
        return 0;
    auto_json json_t *zero = json_integer(0);
    json_t *new = zero ? sum_of(had ? had : zero, value) : NULL;
    return json_object_set_new(sum, name, new) < 0 ? err_no_memory(err) : 0;
}

int usage_add(json_t **sum, const json_t *usage, struct hutch_error *err)
{
    json_t *members = (json_t *)usage; /* is not changed by being walked through */

    if (!*sum)
        *sum = json_object();
    if (!*sum)
        return err_no_memory(err);
    for (void *at = json_object_iter(members); at; at = json_object_iter_next(members, at)) {
        if (add_member(*sum, json_object_iter_key(at), json_object_iter_value(at), err) < 0)
            return err->code;
    }
    return 0;
}

static uint64_t count_of(const json_t *usage, const char *name)
{
    double value = json_number_value(json_object_get(usage, name));

    return value > 0 && value < 1e18 ? (uint64_t)value : 0;
}

uint64_t usage_total(const json_t *usage)
{
    uint64_t parts = count_of(usage, "prompt_tokens") + count_of(usage, "completion_tokens");
    uint64_t total = count_of(usage, "total_tokens");

    return total > parts ? total : parts;
}
