/* SPDX-License-Identifier: Apache-2.0 */
/* See stop.h. A signal handler takes no argument, hence the state of this file. */
#include "stop.h"

#include "base/error.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct {
    hutch_cancel *cancel;
    int fd;
    volatile sig_atomic_t signal; /* the first one that came; another goes before SIGINT */
} stop = {.fd = -1};

static void on_signal(int number)
{
    int saved = errno;
    const uint64_t one = 1;

    if (stop.signal == 0 || stop.signal == SIGINT)
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

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

int stop_install(hutch_cancel **ret_cancel, struct hutch_error *err)
{
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

int stop_renew(hutch_cancel **ret_cancel, struct hutch_error *err)
{
    sigset_t set, before;
    uint64_t count;
    hutch_cancel *cancel;

    if (hutch_cancel_new(&cancel, err) < 0)
        return err->code;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        sigaddset(&set, numbers[i]);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    hutch_cancel *old = stop.cancel;
    stop.cancel = cancel;
    bool goes_on = stop.signal == SIGINT;
    if (goes_on) {
        stop.signal = 0;
        IGNORE_RESULT(read(stop.fd, &count, sizeof(count)) < 0);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    hutch_cancel_free(old);
    if (!goes_on && stop.signal != 0)
        hutch_cancel_trigger(cancel);
    *ret_cancel = cancel;
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
