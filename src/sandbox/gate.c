/* SPDX-License-Identifier: Apache-2.0 */
/* See gate.h. */
#include "gate.h"

#include "base/error.h"
#include "base/limits.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "request.h"
#include "wire.h"

#include <string.h>

_Static_assert(WIRE_MAX_GATE == 4 * LIMIT_GATE_NAMES * (1 + LIMIT_GATE_NAME_BYTES + 1),
               "a gate of the largest lists is the largest frame");

static const char *const default_modules[] = {"os",     "subprocess", "socket",
                                              "urllib", "requests",   "http"};
static const char *const default_calls[] = {"eval", "exec", "compile", "__import__"};
static const char *const default_attributes[] = {"os.*", "subprocess.*", "socket.*"};

struct list {
    const char *field; /* as in "gate.calls" */
    char kind;         /* WIRE_GATE_* */
    const char *const *names;
    size_t count;
};

enum { MODULES, CALLS, ATTRIBUTES, ALLOWED, LISTS };

static void fill_lists(const struct hutch_gate *gate, struct list lists[LISTS])
{
    lists[MODULES] = (struct list){"modules", WIRE_GATE_MODULE, gate->modules, gate->module_count};
    lists[CALLS] = (struct list){"calls", WIRE_GATE_CALL, gate->calls, gate->call_count};
    lists[ATTRIBUTES] =
        (struct list){"attributes", WIRE_GATE_ATTRIBUTE, gate->attributes, gate->attribute_count};
    lists[ALLOWED] = (struct list){"allowed_imports", WIRE_GATE_ALLOWED, gate->allowed_imports,
                                   gate->allowed_import_count};
}

static void set_default(struct list *list, const char *const *names, size_t count)
{
    if (list->names)
        return;
    list->names = names;
    list->count = count;
}

void hutch_gate_init(struct hutch_gate *gate)
{
    *gate = (struct hutch_gate){.size = sizeof(*gate)};
}

/* ---- rules ---- */

/* The bytes of an identifier at the beginning of a text; 0 for none. Any letter
 * beyond ASCII counts as one: the interpreter knows which are. */
static size_t identifier_length(const char *text)
{
    size_t length = 0;

    for (;;) {
        unsigned char c = (unsigned char)text[length];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80;
        if (!letter && !(c >= '0' && c <= '9' && length > 0))
            return length;
        length++;
    }
}

/* Whether a name has a form that its list may hold. */
static bool is_name(const char *name, char kind)
{
    size_t parts = 0;

    for (;;) {
        size_t length = identifier_length(name);
        if (length == 0)
            return kind == WIRE_GATE_ATTRIBUTE && parts > 0 && strcmp(name, "*") == 0;
        parts++;
        name += length;
        if (*name == '\0')
            return kind == WIRE_GATE_CALL ? parts == 1 : kind != WIRE_GATE_ATTRIBUTE || parts > 1;
        if (*name++ != '.')
            return false;
    }
}

static const char *form_of(char kind)
{
    switch (kind) {
    case WIRE_GATE_CALL:
        return "names of functions such as eval";
    case WIRE_GATE_ATTRIBUTE:
        return "names such as os.system and os.*";
    default:
        return "names of modules such as urllib.request";
    }
}

static int check_name(const struct list *list, const char *name, struct hutch_error *err)
{
    if (!name)
        return err_set(err, HUTCH_ERR_INVALID, "gate.%s: a name is NULL", list->field);
    if (strnlen(name, LIMIT_GATE_NAME_BYTES + 1) > LIMIT_GATE_NAME_BYTES)
        return err_set(err, HUTCH_ERR_INVALID, "gate.%s: %s is longer than %d bytes", list->field,
                       quote_bytes(name, LIMIT_GATE_NAME_BYTES).text, LIMIT_GATE_NAME_BYTES);
    if (!is_name(name, list->kind) || !utf8_valid(name, strlen(name)))
        return err_set(err, HUTCH_ERR_INVALID, "gate.%s: %s is no such name; allowed are %s",
                       list->field, quote_text(name).text, form_of(list->kind));
    return 0;
}

static int check_list(const struct list *list, struct hutch_error *err)
{
    if (list->count > LIMIT_GATE_NAMES)
        return err_set(err, HUTCH_ERR_INVALID, "gate.%s: %zu names; allowed are at most %d",
                       list->field, list->count, LIMIT_GATE_NAMES);
    if (list->count > 0 && !list->names)
        return err_set(err, HUTCH_ERR_INVALID, "gate.%s: NULL with a count of %zu", list->field,
                       list->count);
    for (size_t i = 0; i < list->count; i++) {
        if (check_name(list, list->names[i], err) < 0)
            return err->code;
    }
    return 0;
}

int gate_check(const struct hutch_gate *gate, enum hutch_language language, struct hutch_error *err)
{
    struct list lists[LISTS];

    if (language != HUTCH_PYTHON)
        return err_set(err, HUTCH_ERR_INVALID,
                       "gate: reads python alone, and the language is %s; run it without a gate",
                       language_name(language));
    if (request_check_size("gate", gate, gate->size, sizeof(*gate), sizeof(*gate), err) < 0)
        return err->code;
    fill_lists(gate, lists);
    for (size_t i = 0; i < LISTS; i++) {
        if (check_list(&lists[i], err) < 0)
            return err->code;
    }
    return 0;
}

/* ---- the frame ---- */

uint16_t gate_append(const struct hutch_gate *gate, struct buf *payload)
{
    struct list lists[LISTS];

    fill_lists(gate, lists);
    set_default(&lists[CALLS], default_calls, ARRAY_LENGTH(default_calls));
    if (!gate->allowed_imports) {
        set_default(&lists[MODULES], default_modules, ARRAY_LENGTH(default_modules));
        set_default(&lists[ATTRIBUTES], default_attributes, ARRAY_LENGTH(default_attributes));
    }
    for (size_t i = 0; i < LISTS; i++) {
        for (size_t name = 0; name < lists[i].count; name++) {
            buf_append(payload, &lists[i].kind, 1);
            buf_append(payload, lists[i].names[name], strlen(lists[i].names[name]) + 1);
        }
    }
    return gate->allowed_imports ? WIRE_GATE_ALLOWED_ONLY : 0;
}
