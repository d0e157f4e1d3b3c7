/* SPDX-License-Identifier: Apache-2.0 */
/* See cell_options.h. */
#include "cell_options.h"

#include "base/host.h"
#include "sandbox/request.h"

const char *const cell_languages[] = {"python", "javascript", "shell", "raw", NULL};
const char *const cell_backends[] = {"auto", "namespace", NULL};
const char *const cell_backends_later[] = {"microvm", NULL};

double cell_memory_maximum(void)
{
    return (double)host_memory_mb();
}

double cell_cpus_maximum(void)
{
    return host_cpus();
}

void cell_values_init(struct cell_values *values, const struct hutch_request *request)
{
    *values = (struct cell_values){
        .memory_mb = request->memory_mb,
        .cpus = request->cpus,
        .backend = cell_backends[0],
    };
}

void cell_values_done(struct cell_values *values)
{
    text_list_done(&values->require);
}

int cell_values_apply(const struct cell_values *values, struct hutch_request *request,
                      struct hutch_error *err)
{
    request->memory_mb = values->memory_mb;
    request->cpus = values->cpus;
    for (size_t i = 0; i < values->require.count; i++) {
        uint32_t layer;
        if (layer_parse(values->require.items[i], &layer, err) < 0)
            return err->code;
        request->require |= layer;
    }
    return backend_parse(values->backend, &request->backend, err);
}
