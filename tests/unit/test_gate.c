/* SPDX-License-Identifier: Apache-2.0 */
/* The gate's lists: what may stand in them, and the frame that they make. */
#include "sandbox/gate.h"

#include "sandbox/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void accept(const struct hutch_gate *gate)
{
    struct hutch_error err = {0};

    if (gate_check(gate, HUTCH_PYTHON, &err) != 0)
        fail_msg("refused: %s", err.message);
}

static void refuse(const struct hutch_gate *gate, const char *message)
{
    struct hutch_error err = {0};

    assert_int_equal(gate_check(gate, HUTCH_PYTHON, &err), HUTCH_ERR_INVALID);
    assert_true(hutch_error_retry_safe(&err));
    assert_string_equal(err.message, message);
}

static struct hutch_gate initial(void)
{
    struct hutch_gate gate;

    memset(&gate, 0xff, sizeof(gate));
    hutch_gate_init(&gate);
    return gate;
}

/* The entries of the frame, each followed by a space. */
static void same_frame(const struct hutch_gate *gate, uint16_t flags, const char *entries)
{
    auto_buf struct buf payload = BUF_MAX(WIRE_MAX_GATE);
    auto_buf struct buf shown = BUF_MAX(WIRE_MAX_GATE);

    assert_int_equal(gate_append(gate, &payload), flags);
    for (size_t i = 0; i < payload.length; i++)
        buf_append(&shown, payload.data[i] ? &payload.data[i] : " ", 1);
    assert_string_equal(buf_text(&shown), entries);
}

static void a_new_gate_has_the_default_lists(void **state)
{
    (void)state;
    struct hutch_gate gate = initial();

    assert_int_equal(gate.size, sizeof(gate));
    accept(&gate);
    same_frame(&gate, 0,
               "mos msubprocess msocket murllib mrequests mhttp ceval cexec ccompile c__import__ "
               "aos.* asubprocess.* asocket.* ");
}

static void a_list_replaces_its_default_alone(void **state)
{
    (void)state;
    static const char *const modules[] = {"urllib.request", "ctypes"};
    static const char *const none[] = {NULL};
    struct hutch_gate gate = initial();

    gate.modules = modules;
    gate.module_count = 2;
    gate.attributes = none;
    accept(&gate);
    same_frame(&gate, 0, "murllib.request mctypes ceval cexec ccompile c__import__ ");
    gate.modules = gate.calls = none;
    gate.module_count = 0;
    same_frame(&gate, 0, "");
}

static void allowed_imports_take_the_place_of_refused_ones(void **state)
{
    (void)state;
    static const char *const allowed[] = {"math", "os.path"};
    static const char *const modules[] = {"os"};
    struct hutch_gate gate = initial();

    gate.allowed_imports = allowed;
    gate.allowed_import_count = 2;
    accept(&gate);
    same_frame(&gate, WIRE_GATE_ALLOWED_ONLY, "ceval cexec ccompile c__import__ imath ios.path ");
    gate.allowed_import_count = 0;
    gate.modules = modules;
    gate.module_count = 1;
    same_frame(&gate, WIRE_GATE_ALLOWED_ONLY, "mos ceval cexec ccompile c__import__ ");
}

static void the_largest_lists_fit_the_frame(void **state)
{
    (void)state;
    static const char *names[1001];
    char longest[257];
    struct hutch_gate gate = initial();
    auto_buf struct buf payload = BUF_MAX(WIRE_MAX_GATE);
    struct hutch_error err;

    memset(longest, 'n', sizeof(longest));
    longest[100] = '.';
    longest[255] = '\0';
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        names[i] = longest;
    gate.modules = gate.attributes = gate.allowed_imports = names;
    gate.module_count = gate.attribute_count = gate.allowed_import_count = 1000;
    accept(&gate);
    gate.calls = names; /* the same size, though no call has a dot */
    gate.call_count = 1000;
    gate_append(&gate, &payload);
    assert_int_equal(buf_check(&payload, &err), 0);
    assert_int_equal(payload.length, WIRE_MAX_GATE);
    gate = initial();
    gate.modules = names;
    gate.module_count = 1001;
    refuse(&gate, "gate.modules: 1001 names; allowed are at most 1000");
    longest[255] = 'n';
    longest[256] = '\0';
    gate.module_count = 1;
    refuse(&gate, "gate.modules: 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...' is longer "
                  "than 255 bytes");
}

/* A gate whose list of that kind is the one name. */
static struct hutch_gate with(char kind, const char *const *name)
{
    struct hutch_gate gate = initial();

    switch (kind) {
    case WIRE_GATE_MODULE:
        gate.modules = name;
        gate.module_count = 1;
        break;
    case WIRE_GATE_CALL:
        gate.calls = name;
        gate.call_count = 1;
        break;
    case WIRE_GATE_ATTRIBUTE:
        gate.attributes = name;
        gate.attribute_count = 1;
        break;
    default:
        gate.allowed_imports = name;
        gate.allowed_import_count = 1;
    }
    return gate;
}

static void names_have_the_form_of_their_list(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *kinds; /* of the lists that take it */
    } rows[] = {
        {"os", "mci"},    {"_x9", "mci"},     {"é", "mci"}, {"os.path", "mai"}, {"a.b.c", "mai"},
        {"os.*", "a"},    {"os.path.*", "a"}, {"*", ""},    {".*", ""},         {"os.**", ""},
        {"os.*.x", ""},   {"os.", ""},        {".os", ""},  {"a..b", ""},       {"", ""},
        {"9a", ""},       {"a.9", ""},        {"a b", ""},  {"a\n", ""},        {"eval()", ""},
        {"os.path*", ""}, {"a-b", ""},        {"\xff", ""}, {"a.*x", ""},       {" os", ""},
    };
    static const char kinds[] = "mcai";
    struct hutch_error err;

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        for (const char *kind = kinds; *kind; kind++) {
            struct hutch_gate gate = with(*kind, &rows[i].name);
            int expected = strchr(rows[i].kinds, *kind) ? 0 : HUTCH_ERR_INVALID;
            if (gate_check(&gate, HUTCH_PYTHON, &err) != expected)
                fail_msg("'%s' as %c: %s", rows[i].name, *kind,
                         expected ? "accepted" : err.message);
        }
    }
}

static void refusals_name_list_and_form(void **state)
{
    (void)state;
    static const char *const wrong[] = {"a b"};
    static const char *const null[] = {NULL};

    struct hutch_gate gate = with(WIRE_GATE_MODULE, wrong);
    refuse(&gate, "gate.modules: 'a b' is no such name; allowed are names of modules such as "
                  "urllib.request");
    gate = with(WIRE_GATE_CALL, wrong);
    refuse(&gate, "gate.calls: 'a b' is no such name; allowed are names of functions such as eval");
    gate = with(WIRE_GATE_ATTRIBUTE, wrong);
    refuse(&gate, "gate.attributes: 'a b' is no such name; allowed are names such as os.system "
                  "and os.*");
    gate = with(WIRE_GATE_ALLOWED, wrong);
    refuse(&gate, "gate.allowed_imports: 'a b' is no such name; allowed are names of modules such "
                  "as urllib.request");
    gate = with(WIRE_GATE_CALL, null);
    refuse(&gate, "gate.calls: a name is NULL");
    gate = with(WIRE_GATE_CALL, NULL);
    refuse(&gate, "gate.calls: NULL with a count of 1");
}

struct newer_gate {
    struct hutch_gate gate;
    char field[16];
};

static void gates_of_other_versions(void **state)
{
    (void)state;
    struct newer_gate newer = {.gate = initial()};

    newer.gate.size = sizeof(newer);
    accept(&newer.gate);
    newer.field[15] = 1;
    refuse(&newer.gate,
           "size: the gate uses a field that libhutch " HUTCH_VERSION " does not know");
    newer.gate.size = 0;
    refuse(&newer.gate, "size: 0 is no size of a gate; allowed is what hutch_gate_init sets");
}

static void only_python_has_a_gate(void **state)
{
    (void)state;
    struct hutch_gate gate = initial();
    struct hutch_error err = {0};

    assert_int_equal(gate_check(&gate, HUTCH_SHELL, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "gate: reads python alone, and the language is shell; run it "
                                     "without a gate");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_gate_has_the_default_lists),
        cmocka_unit_test(a_list_replaces_its_default_alone),
        cmocka_unit_test(allowed_imports_take_the_place_of_refused_ones),
        cmocka_unit_test(the_largest_lists_fit_the_frame),
        cmocka_unit_test(names_have_the_form_of_their_list),
        cmocka_unit_test(refusals_name_list_and_form),
        cmocka_unit_test(gates_of_other_versions),
        cmocka_unit_test(only_python_has_a_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
