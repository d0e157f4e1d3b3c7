/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the layers are fixed. */
#include "sandbox/layers.h"

#include <hutch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct {
    uint32_t layer;
    const char *name;
} fixed[] = {
    {HUTCH_LAYER_USER_NS, "user_ns"},
    {HUTCH_LAYER_PID_NS, "pid_ns"},
    {HUTCH_LAYER_MOUNT_NS, "mount_ns"},
    {HUTCH_LAYER_NET_NS, "net_ns"},
    {HUTCH_LAYER_IPC_NS, "ipc_ns"},
    {HUTCH_LAYER_UTS_NS, "uts_ns"},
    {HUTCH_LAYER_CGROUP_NS, "cgroup_ns"},
    {HUTCH_LAYER_DISTINCT_UID, "distinct_uid"},
    {HUTCH_LAYER_NO_CAPS, "no_caps"},
    {HUTCH_LAYER_NO_NEW_PRIVS, "no_new_privs"},
    {HUTCH_LAYER_SECCOMP, "seccomp"},
    {HUTCH_LAYER_LANDLOCK, "landlock"},
    {HUTCH_LAYER_CGROUP_MEMORY, "cgroup_memory"},
    {HUTCH_LAYER_CGROUP_PIDS, "cgroup_pids"},
    {HUTCH_LAYER_CGROUP_CPU, "cgroup_cpu"},
    {HUTCH_LAYER_RLIMITS, "rlimits"},
    {HUTCH_LAYER_PRIVATE_ROOT, "private_root"},
};

static void names_are_fixed_both_ways(void **state)
{
    (void)state;
    uint32_t all = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(fixed); i++) {
        assert_string_equal(hutch_layer_name(fixed[i].layer), fixed[i].name);
        assert_int_equal(hutch_layer_from_name(fixed[i].name), fixed[i].layer);
        all |= fixed[i].layer;
    }
    assert_int_equal(all, HUTCH_LAYERS_NAMESPACE);
}

static void what_is_no_layer_has_none(void **state)
{
    (void)state;
    assert_null(hutch_layer_name(0));
    assert_null(hutch_layer_name(HUTCH_LAYER_USER_NS | HUTCH_LAYER_PID_NS));
    assert_null(hutch_layer_name(1u << 17));
    assert_null(hutch_layer_name(1u << 31));
    assert_int_equal(hutch_layer_from_name(""), 0);
    assert_int_equal(hutch_layer_from_name("SECCOMP"), 0);
    assert_int_equal(hutch_layer_from_name("seccomp "), 0);
    assert_int_equal(hutch_layer_from_name("user"), 0);
    assert_int_equal(hutch_layer_from_name("kvm"), 0);
}

static void layers_of_the_other_backend_are_known(void **state)
{
    (void)state;
    assert_true(layer_is_of_microvm("vm"));
    assert_true(layer_is_of_microvm("kvm"));
    assert_true(layer_is_of_microvm("tcg"));
    assert_true(layer_is_of_microvm("qemu_sandbox"));
    assert_false(layer_is_of_microvm("seccomp"));
    assert_false(layer_is_of_microvm(""));
}

static void masks_are_listed(void **state)
{
    (void)state;
    auto_buf struct buf text = BUF_MAX(1000), json = BUF_MAX(1000);

    layers_append_names(&text, HUTCH_LAYER_SECCOMP | HUTCH_LAYER_USER_NS | 1u << 31);
    assert_string_equal(buf_text(&text), "user_ns, seccomp");
    layers_append_json(&json, HUTCH_LAYER_SECCOMP | HUTCH_LAYER_USER_NS | 1u << 31);
    assert_string_equal(buf_text(&json), "[\"user_ns\",\"seccomp\"]");
    buf_clear(&json);
    layers_append_json(&json, 0);
    assert_string_equal(buf_text(&json), "[]");
    buf_clear(&text);
    layers_append_names(&text, 0);
    assert_string_equal(buf_text(&text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_fixed_both_ways),
        cmocka_unit_test(what_is_no_layer_has_none),
        cmocka_unit_test(layers_of_the_other_backend_are_known),
        cmocka_unit_test(masks_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
