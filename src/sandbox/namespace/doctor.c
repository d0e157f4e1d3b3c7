/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a layer is missing, and what to do about it. The layers themselves were
 * probed by a cell (verify.c); here the host's settings are read to find the
 * likely cause. Every cause has one line of mend.
 */
#include "doctor.h"

#include "acorn.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"
#include "blocker.h"
#include "cgroup.h"
#include "cjk_font.h"
#include "landlock.h"
#include "scope.h"
#include "slots.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static void diagnose_namespaces(struct blocker *diagnosis, const char *failure)
{
    auto_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    blocker_find(root, geteuid() == 0, failure, diagnosis);
}

static void diagnose_landlock(struct blocker *diagnosis)
{
    if (landlock_abi() == 0)
        blocker_set(diagnosis, "the kernel has no Landlock, or it is off",
                    "use kernel 5.13 or later, with landlock in the boot parameter lsm=");
    else
        blocker_set(diagnosis, "the Landlock rules could not be applied", "");
}

/* ---- what the run directory and the cgroups say ------------------------ */

struct resources {
    int run_dir;
    struct slots_record record;
    struct slots *slots;
    struct cgroup_host *cgroups;
    struct hutch_error error; /* code 0: all could be opened */
};

static void resources_done(struct resources *resources)
{
    bool all_gone = cgroup_host_close(resources->cgroups);
    slots_record_close(&resources->record, all_gone);
    slots_close(resources->slots);
    if (resources->run_dir >= 0)
        close(resources->run_dir);
}

/* The same way that the supervisor takes. */
static void resources_open(struct resources *resources, const struct helper_options *options,
                           const char *scope)
{
    struct hutch_error *err = &resources->error;
    const char *named = options->cgroup[0] ? options->cgroup : NULL;
    const char *parent = scope[0] ? scope : named;

    resources->run_dir = slots_run_dir_open(NULL, err);
    if (resources->run_dir >= 0 &&
        slots_open(resources->run_dir, options->uid_base, options->uid_count, NULL,
                   &resources->slots, err) == 0 &&
        slots_record_create(resources->run_dir, &resources->record, err) == 0 &&
        cgroup_host_open(&resources->record, parent, NULL, &resources->cgroups, err) == 0)
        err->code = 0;
}

static void diagnose_uid(struct blocker *diagnosis, const struct resources *resources)
{
    if (geteuid() != 0)
        blocker_set(diagnosis, "only root can give each cell a user of its own",
                    "run hutch as root");
    else if (resources->slots)
        blocker_set(diagnosis, slots_reason(resources->slots), slots_mend(resources->slots));
    else
        blocker_set(diagnosis, resources->error.message, "");
}

static void diagnose_cgroup(struct blocker *diagnosis, const struct resources *resources,
                            enum cgroup_controller controller)
{
    if (!resources->cgroups)
        blocker_set(diagnosis, resources->error.message, "");
    else
        blocker_set(diagnosis, resources->cgroups->status[controller].reason,
                    scope_is_wanted() && !scope_is_offered(&(struct scope_start){0})
                        ? "loginctl enable-linger, so that a systemd of yours gives hutch a group"
                        : resources->cgroups->status[controller].mend);
}

static void diagnose_layer(struct blocker *diagnosis, uint32_t layer,
                           const struct resources *resources)
{
    switch (layer) {
    case HUTCH_LAYER_DISTINCT_UID:
        diagnose_uid(diagnosis, resources);
        break;
    case HUTCH_LAYER_LANDLOCK:
        diagnose_landlock(diagnosis);
        break;
    case HUTCH_LAYER_CGROUP_MEMORY:
        diagnose_cgroup(diagnosis, resources, CGROUP_MEMORY);
        break;
    case HUTCH_LAYER_CGROUP_PIDS:
        diagnose_cgroup(diagnosis, resources, CGROUP_PIDS);
        break;
    case HUTCH_LAYER_CGROUP_CPU:
        diagnose_cgroup(diagnosis, resources, CGROUP_CPU);
        break;
    default:
        diagnose_namespaces(diagnosis, "");
    }
}

/* ---- the report -------------------------------------------------------- */

static void append_field(struct buf *out, const char *name, const char *text)
{
    buf_appendf(out, ",\"%s\":", name);
    json_append_text(out, text && text[0] ? text : NULL);
}

static void append_flag(struct buf *out, const char *name, bool flag)
{
    buf_appendf(out, ",\"%s\":%s", name, flag ? "true" : "false");
}

static void append_layers(struct buf *out, uint32_t layers, const struct resources *resources)
{
    buf_append_text(out, ",\"layers\":[");
    for (uint32_t layer = 1; layer <= HUTCH_LAYERS_NAMESPACE; layer <<= 1) {
        struct blocker diagnosis = {{0}, {0}};
        bool in_force = (layers & layer) != 0;
        if (!in_force)
            diagnose_layer(&diagnosis, layer, resources);
        buf_append_text(out, layer == 1 ? "{\"name\":" : ",{\"name\":");
        json_append_text(out, hutch_layer_name(layer));
        append_flag(out, "in_force", in_force);
        append_field(out, "reason", diagnosis.reason);
        append_field(out, "mend", diagnosis.mend);
        buf_append_text(out, "}");
    }
    buf_append_text(out, "]");
}

/* What programs can do without: a font, where there is matplotlib to use it. */
static const char *lacking(const char *language, const char **package)
{
    if (strcmp(language, "python") != 0 || access("/usr/share/matplotlib", F_OK) < 0 ||
        cjk_font_find())
        return NULL;
    *package = CJK_FONT_PACKAGE;
    return "no font has Chinese, Japanese and Korean characters, which figures show as boxes";
}

/* An available one may have a reason, too: what its programs lack. */
static void append_runtime(struct buf *out, const char *language, const char *interpreter,
                           const char *package)
{
    const char *reason = access(interpreter, X_OK) < 0 ? strerrordesc_np(errno) : NULL;
    char mend[64] = "";

    if (!reason && strcmp(language, "javascript") == 0 && !acorn_find()) {
        reason = "acorn, with which programs are read, is missing";
        package = ACORN_PACKAGE;
    }
    bool available = !reason;
    if (available)
        reason = lacking(language, &package);
    if (reason)
        snprintf(mend, sizeof(mend), "apt-get install %s", package);
    buf_append_text(out, "{\"language\":");
    json_append_text(out, language);
    append_field(out, "interpreter", interpreter);
    append_flag(out, "available", available);
    append_field(out, "reason", reason);
    append_field(out, "mend", mend);
    buf_append_text(out, "}");
}

static void append_runtimes(struct buf *out, const struct helper_options *options)
{
    buf_append_text(out, ",\"runtimes\":[");
    append_runtime(out, "python", options->python, "python3");
    buf_append_text(out, ",");
    append_runtime(out, "javascript", options->node, "nodejs");
    buf_append_text(out, ",");
    append_runtime(out, "shell", options->bash, "bash");
    buf_append_text(out, "]");
}

static const char *cgroup_layout(const struct cgroup_host *cgroups)
{
    bool v1 = false, v2 = false;

    for (size_t i = 0; cgroups && i < cgroups->count; i++) {
        v1 |= !cgroups->hierarchies[i].v2;
        v2 |= cgroups->hierarchies[i].v2;
    }
    return v1 && v2 ? "hybrid" : v1 ? "v1" : v2 ? "v2" : "none";
}

static void append_cgroups(struct buf *out, const struct cgroup_host *cgroups)
{
    buf_append_text(out, ",\"cgroup\":{\"layout\":");
    json_append_text(out, cgroup_layout(cgroups));
    buf_append_text(out, ",\"controllers\":{");
    for (unsigned i = 0; cgroups && i < CGROUP_CONTROLLERS; i++) {
        enum cgroup_controller controller = (enum cgroup_controller)i;
        const struct cgroup_hierarchy *hierarchy = cgroup_host_find(cgroups, controller);
        buf_append_text(out, i == 0 ? "" : ",");
        json_append_text(out, cgroup_controller_name(controller));
        buf_append_text(out, ":");
        json_append_text(out, hierarchy ? hierarchy->v2 ? "v2" : "v1" : NULL);
    }
    buf_append_text(out, "}}");
}

/* The average of the cells that were looked at; null where there was none. */
static void append_memory(struct buf *out, const char *name, const struct proto_memory *memory)
{
    if (memory->cells == 0) {
        append_field(out, name, NULL);
        return;
    }
    buf_appendf(out, ",\"%s\":{\"cells\":%u,\"private_dirty_bytes\":%llu,\"pss_bytes\":%llu}", name,
                memory->cells, (unsigned long long)(memory->private_dirty_bytes / memory->cells),
                (unsigned long long)(memory->pss_bytes / memory->cells));
}

/* How cells came to be, which wait, and what those hold. */
static void append_cells(struct buf *out, const struct proto_status *status)
{
    static const char *const origins[] = {
        [PROTO_COLD] = "cold", [PROTO_FORKED] = "forked", [PROTO_PARKED] = "parked"};
    static const char *const languages[] = {
        [PROTO_PYTHON] = "python", [PROTO_SHELL] = "shell", [PROTO_JAVASCRIPT] = "javascript"};
    const char *comma = "";

    buf_append_text(out, ",\"cells\":{\"starts\":{");
    for (size_t i = 0; i < PROTO_ORIGIN_COUNT; i++)
        buf_appendf(out, "%s\"%s\":%llu", i > 0 ? "," : "", origins[i],
                    (unsigned long long)status->starts[i]);
    buf_append_text(out, "},\"warm\":[");
    for (size_t i = 0; i < PROTO_LANGUAGE_COUNT; i++) {
        const struct proto_warmth *warmth = &status->runtimes[i];
        if (warmth->zygotes + warmth->zygote_deaths + warmth->parked == 0)
            continue;
        buf_appendf(out,
                    "%s{\"language\":\"%s\",\"pools\":%u,\"parked\":%u,\"zygotes\":%u,"
                    "\"zygote_deaths\":%u,\"log\":",
                    comma, languages[i], warmth->pools, warmth->parked, warmth->zygotes,
                    warmth->zygote_deaths);
        json_append_text(out, warmth->log);
        append_memory(out, "zygote_memory", &warmth->zygote_memory);
        append_memory(out, "parked_memory", &warmth->parked_memory);
        buf_append_text(out, "}");
        comma = ",";
    }
    buf_append_text(out, "]}");
}

static void append_report(struct buf *out, const struct helper_options *options,
                          const struct probe *probe, const struct resources *resources)
{
    const struct hutch_error *failure = probe->failure.code != 0 ? &probe->failure : NULL;
    struct blocker diagnosis = {{0}, {0}};
    const char *reason = failure ? failure->message : NULL;

    if (failure && failure->code == HUTCH_ERR_ISOLATION)
        diagnose_namespaces(&diagnosis, failure->message);
    buf_append_text(out, "\"version\":");
    json_append_text(out, hutch_version());
    append_flag(out, "can_run", !failure);
    append_field(out, "reason", reason);
    append_field(out, "mend", diagnosis.mend);
    buf_append_text(out, ",\"backends\":[{\"name\":\"namespace\"");
    append_flag(out, "available", !failure);
    append_field(out, "reason", reason);
    buf_append_text(out, "}]");
    append_layers(out, probe->layers, resources);
    append_runtimes(out, options);
    append_cgroups(out, resources->cgroups);
    append_cells(out, &probe->status);
}

void doctor_append_report(const struct helper_options *options, const char *scope,
                          const struct probe *probe, struct buf *out)
{
    __attribute__((cleanup(resources_done))) struct resources resources = {
        .run_dir = -1,
        .record = SLOTS_RECORD_NONE,
    };

    resources_open(&resources, options, scope);
    append_report(out, options, probe, &resources);
}
