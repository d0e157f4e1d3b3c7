/* SPDX-License-Identifier: Apache-2.0 */
/* See layers.h. Bit n of a mask is row n of the table. */
#include "layers.h"

#include "base/attrs.h"

#include <hutch.h>
#include <string.h>

static const char *const names[] = {
    "user_ns",       "pid_ns",       "mount_ns",   "net_ns",       "ipc_ns",       "uts_ns",
    "cgroup_ns",     "distinct_uid", "no_caps",    "no_new_privs", "seccomp",      "landlock",
    "cgroup_memory", "cgroup_pids",  "cgroup_cpu", "rlimits",      "private_root",
};

_Static_assert(HUTCH_LAYERS_NAMESPACE == (1u << ARRAY_LENGTH(names)) - 1, "a name for each bit");

static const char *const microvm_names[] = {"vm", "kvm", "tcg", "qemu_sandbox"};

const char *hutch_layer_name(uint32_t layer)
{
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (layer == 1u << i)
            return names[i];
    }
    return NULL;
}

uint32_t hutch_layer_from_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (strcmp(name, names[i]) == 0)
            return 1u << i;
    }
    return 0;
}

bool layer_is_of_microvm(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(microvm_names); i++) {
        if (strcmp(name, microvm_names[i]) == 0)
            return true;
    }
    return false;
}

static void append_names(struct buf *out, uint32_t layers, const char *quote, const char *separator)
{
    const char *before = "";

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (layers & 1u << i) {
            buf_appendf(out, "%s%s%s%s", before, quote, names[i], quote);
            before = separator;
        }
    }
}

void layers_append_names(struct buf *out, uint32_t layers)
{
    append_names(out, layers, "", ", ");
}

void layers_append_json(struct buf *out, uint32_t layers)
{
    buf_append_text(out, "[");
    append_names(out, layers, "\"", ",");
    buf_append_text(out, "]");
}
