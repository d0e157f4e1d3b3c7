/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: a backend, and a scheduler that says when a run may start. Runs meet in
 * the scheduler alone, which has the only lock.
 */
#include "engine.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "cancel.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

void hutch_engine_options_init(struct hutch_engine_options *options)
{
    *options = (struct hutch_engine_options){.size = sizeof(*options)};
}

/* ---- the engine -------------------------------------------------------- */

static void read_memory(void *user, struct load_memory *ret_memory)
{
    const struct hutch_engine *engine = user;
    load_read_memory(&engine->host, ret_memory);
}

static void read_pace(void *user, struct load_pace *ret_pace)
{
    const struct hutch_engine *engine = user;
    load_read_pace(&engine->host, ret_pace);
}

static uint64_t now_ns(void *user)
{
    (void)user;
    return clock_now_ns();
}

int hutch_engine_new(const struct hutch_engine_options *options, hutch_engine **ret_engine,
                     struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;

    struct hutch_engine *engine = calloc(1, sizeof(*engine));
    if (!engine)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    const struct load_source source = {
        .read_memory = read_memory, .read_pace = read_pace, .now_ns = now_ns, .user = engine};
    if (namespace_backend_new(options, &engine->backend, err) < 0) {
        free(engine);
        return err->code;
    }
    if (scheduler_init(&engine->scheduler, options, engine->backend->max_cells, &source, err) < 0) {
        engine->backend->ops->free(engine->backend);
        free(engine);
        return err->code;
    }
    load_host_init(&engine->host, AT_FDCWD, options ? options->cgroup : NULL);
    *ret_engine = engine;
    return 0;
}

void hutch_engine_free(hutch_engine *engine)
{
    if (!engine)
        return;
    engine->backend->ops->free(engine->backend);
    scheduler_done(&engine->scheduler);
    free(engine);
}

/* The backend's report, and in the same object what the engine itself has to say. */
int hutch_doctor(hutch_engine *engine, char **ret_json, struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;

    auto_buf struct buf out = BUF_MAX(LIMIT_REPORT_BYTES);
    buf_append_text(&out, "{");
    engine->backend->ops->doctor(engine->backend, &out);
    buf_append_text(&out, ",\"scheduler\":");
    scheduler_append_report(&engine->scheduler, &out);
    buf_append_text(&out, "}");
    if (buf_check(&out, err) < 0)
        return err_context(err, "report as JSON");
    *ret_json = TAKE_BUF(out).data;
    return 0;
}

/* ---- cancelling -------------------------------------------------------- */

int hutch_cancel_new(hutch_cancel **ret_cancel, struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;

    struct hutch_cancel *cancel = malloc(sizeof(*cancel));
    if (!cancel)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    cancel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cancel->fd < 0) {
        err_errno(err, HUTCH_ERR_SYSTEM, errno, "make a cancel token");
        free(cancel);
        return err->code;
    }
    cancel->source_fd = cancel->fd;
    cancel->deadline_ns = NO_DEADLINE;
    *ret_cancel = cancel;
    return 0;
}

void hutch_cancel_trigger(hutch_cancel *cancel)
{
    int saved = errno;
    IGNORE_RESULT(write(cancel->fd, &(uint64_t){1}, sizeof(uint64_t)) < 0);
    errno = saved;
}

void hutch_cancel_free(hutch_cancel *cancel)
{
    if (!cancel)
        return;
    close(cancel->fd);
    free(cancel);
}

int random_id(char ret_id[33], struct hutch_error *err)
{
    unsigned char random[16];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make a run id");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(ret_id + 2 * i, 3, "%02x", random[i]);
    return 0;
}

int cancel_fd(const struct hutch_cancel *cancel)
{
    return cancel ? cancel->fd : -1;
}

const char *hutch_version(void)
{
    return HUTCH_VERSION;
}
