/* SPDX-License-Identifier: Apache-2.0 */
/* See model_error.h. */
#include "model_error.h"

#include "base/error.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "secret.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WORDS_BYTES 500 /* of a body that says it in no known form */

const char *model_error_name(enum model_error_kind kind)
{
    static const char *const names[] = {
        [MODEL_OK] = "ok",
        [MODEL_CANCELLED] = "cancelled",
        [MODEL_NO_MEMORY] = "out_of_memory",
#define MODEL_ERROR(kind, name, meaning) [kind] = name,
#include "model_errors.def"
#undef MODEL_ERROR
    };
    return (size_t)kind < ARRAY_LENGTH(names) ? names[kind] : "unknown";
}

/* ---- making them ---- */

/* What is shown of the text at data, which has length bytes. Returns how many of them it stands
 * for. */
static size_t shown_for(const char *data, size_t length, const char *const *hidden,
                        const char **ret_shown, size_t *ret_count)
{
    bool valid;
    size_t secret = secret_at(hidden, data, length);
    size_t unit = secret > 0 ? secret : utf8_unit(data, length, &valid);

    *ret_shown = data;
    *ret_count = unit;
    if (secret > 0)
        *ret_shown = SECRET_MASK;
    else if (!valid)
        *ret_shown = UTF8_REPLACEMENT;
    else if (utf8_is_control(data, unit))
        *ret_shown = " ";
    if (*ret_shown != data)
        *ret_count = strlen(*ret_shown);
    return unit;
}

void model_one_line(const char *data, size_t length, const char *const *hidden, char *text,
                    size_t size)
{
    size_t used = 0;

    for (size_t at = 0; at < length;) {
        const char *shown;
        size_t count;
        at += shown_for(data + at, length - at, hidden, &shown, &count);
        if (count == 1 && *shown == ' ' && (used == 0 || text[used - 1] == ' '))
            continue; /* no runs of blanks, none at the start */
        if (count > size - 1 - used)
            break;
        memcpy(text + used, shown, count);
        used += count;
    }
    while (used > 0 && text[used - 1] == ' ')
        used--;
    text[used] = '\0';
}

int model_error_set(struct model_error *error, enum model_error_kind kind, const char *format, ...)
{
    char text[2 * MODEL_ERROR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memset(error, 0, sizeof(*error));
    error->kind = kind;
    model_one_line(text, strlen(text), NULL, error->message, sizeof(error->message));
    return -1;
}

int model_error_from(struct model_error *error, enum model_error_kind kind,
                     const struct hutch_error *err)
{
    return model_error_set(error, err->code == HUTCH_ERR_NO_MEMORY ? MODEL_NO_MEMORY : kind, "%s",
                           err->message);
}

/* ---- statuses ---- */

enum model_error_kind model_error_kind_of(int http_status)
{
    switch (http_status) {
    case 401:
    case 403:
        return MODEL_KEY_REFUSED;
    case 402:
        return MODEL_NO_CREDIT;
    case 404:
        return MODEL_NOT_FOUND;
    case 408:
    case 409:
        return MODEL_SERVER;
    case 429:
        return MODEL_RATE_LIMIT;
    default:
        return http_status >= 500 ? MODEL_SERVER : MODEL_REFUSED;
    }
}

bool model_status_retried(int http_status)
{
    return http_status == 408 || http_status == 409 || http_status == 429 || http_status >= 500;
}

static int status_of_name(const char *name)
{
    static const struct {
        const char *part;
        int status;
    } names[] = {
        {"rate_limit", 429},        {"rate limit", 429},
        {"too_many_requests", 429}, {"overloaded", 503},
        {"unavailable", 503},       {"server_error", 500},
        {"internal", 500},          {"api_error", 500},
        {"timeout", 408},           {"auth", 401},
        {"invalid_api_key", 401},   {"insufficient_quota", 402},
        {"model_not_found", 404},
    };
    struct hutch_error err;
    uint64_t number;

    if (parse_u64(name, 100, 999, &number, &err) == 0)
        return (int)number;
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (strcasestr(name, names[i].part))
            return names[i].status;
    }
    return 0;
}

static int status_of_member(const json_t *value)
{
    if (json_is_integer(value)) {
        json_int_t number = json_integer_value(value);
        return number >= 100 && number <= 999 ? (int)number : 0;
    }
    return json_is_string(value) ? status_of_name(json_string_value(value)) : 0;
}

int model_status_of(const json_t *value)
{
    static const char *const members[] = {"code", "status", "type"};

    for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
        int status = status_of_member(json_object_get(value, members[i]));
        if (status != 0)
            return status;
    }
    return 400;
}

/* ---- the server's words ---- */

static bool take_words(const json_t *value, const char *const *hidden, char *text, size_t size)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return false;
    model_one_line(json_string_value(value), json_string_length(value), hidden, text, size);
    return text[0] != '\0';
}

bool model_words_of(const json_t *value, const char *const *hidden, char *text, size_t size)
{
    const json_t *error = json_object_get(value, "error");

    return take_words(json_object_get(error, "message"), hidden, text, size) ||
           take_words(error, hidden, text, size) ||
           take_words(
               json_object_get(json_object_get(json_array_get(value, 0), "error"), "message"),
               hidden, text, size) ||
           take_words(json_object_get(value, "message"), hidden, text, size) ||
           take_words(json_object_get(value, "detail"), hidden, text, size);
}

void model_server_words(const char *body, size_t length, const char *const *hidden, char *text,
                        size_t size)
{
    struct hutch_error err;
    auto_json json_t *value = NULL;
    size_t at;

    if (json_read_prefix(body, length, JSON_TAKE_TWICE | JSON_TAKE_BIG | JSON_TAKE_CONTROLS, &at,
                         &value, &err) == 0 &&
        model_words_of(value, hidden, text, size))
        return;
    model_one_line(body, length, hidden, text, size <= WORDS_BYTES ? size : WORDS_BYTES + 1);
}
