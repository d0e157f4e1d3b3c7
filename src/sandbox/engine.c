/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: a backend and nothing else yet. Runs do not meet in it, so it
 * has no lock of its own.
 */
#include "engine.h"

#include "base/error.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

struct hutch_cancel {
    int fd; /* an eventfd that is never read: once set it stays readable */
};

void hutch_engine_options_init(struct hutch_engine_options *options)
{
    *options = (struct hutch_engine_options){.size = sizeof(*options)};
}

int hutch_engine_new(const struct hutch_engine_options *options, hutch_engine **ret_engine,
                     struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;

    struct hutch_engine *engine = calloc(1, sizeof(*engine));
    if (!engine)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    if (namespace_backend_new(options, &engine->backend, err) < 0) {
        free(engine);
        return err->code;
    }
    *ret_engine = engine;
    return 0;
}

void hutch_engine_free(hutch_engine *engine)
{
    if (!engine)
        return;
    engine->backend->ops->free(engine->backend);
    free(engine);
}

int hutch_doctor(hutch_engine *engine, char **ret_json, struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;

    return engine->backend->ops->doctor(engine->backend, ret_json, err);
}

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

int cancel_fd(const struct hutch_cancel *cancel)
{
    return cancel ? cancel->fd : -1;
}

const char *hutch_version(void)
{
    return HUTCH_VERSION;
}
