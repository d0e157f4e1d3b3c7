/* SPDX-License-Identifier: Apache-2.0 */
/* See stop.h. A signal handler takes no argument, hence the state of this file. */
#include "stop.h"

#include "base/error.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct {
    hutch_cancel *cancel;
    int fd;
    volatile sig_atomic_t signal; /* the first one that came */
} stop = {.fd = -1};

static void on_signal(int number)
{
    int saved = errno;
    const uint64_t one = 1;

    if (stop.signal == 0)
        stop.signal = number;
    IGNORE_RESULT(write(stop.fd, &one, sizeof(one)) < 0);
    hutch_cancel_trigger(stop.cancel);
    errno = saved;
}

static int install_one(int number, struct hutch_error *err)
{
    struct sigaction old;
    const struct sigaction action = {.sa_handler = on_signal};

    if (sigaction(number, NULL, &old) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "read the action of signal %d", number);
    if (old.sa_handler == SIG_IGN)
        return 0;
    if (sigaction(number, &action, NULL) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "set the action of signal %d", number);
    return 0;
}

int stop_install(hutch_cancel **ret_cancel, struct hutch_error *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

    if (hutch_cancel_new(&stop.cancel, err) < 0)
        return err->code;
    stop.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop.fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make an event descriptor");
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++) {
        if (install_one(numbers[i], err) < 0)
            return err->code;
    }
    *ret_cancel = stop.cancel;
    return 0;
}

int stop_fd(void)
{
    return stop.fd;
}

int stop_status(void)
{
    return stop.signal ? 128 + (int)stop.signal : 0;
}
