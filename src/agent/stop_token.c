/* SPDX-License-Identifier: Apache-2.0 */
/* See stop_token.h. */
#include "stop_token.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

static int watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int set_timer(int fd, uint64_t deadline_ns)
{
    const struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(deadline_ns / NS_PER_SECOND),
                     .tv_nsec = (long)(deadline_ns % NS_PER_SECOND)},
    };
    return timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL);
}

int stop_token_init(struct stop_token *token, const struct hutch_cancel *caller,
                    uint64_t deadline_ns, struct hutch_error *err)
{
    struct hutch_cancel *cancel = &token->cancel;

    *token = STOP_TOKEN_NONE;
    cancel->source_fd = caller ? caller->source_fd : -1;
    cancel->deadline_ns = caller ? clock_sooner_ns(deadline_ns, caller->deadline_ns) : deadline_ns;
    cancel->fd = epoll_create1(EPOLL_CLOEXEC);
    token->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (cancel->fd < 0 || token->timer_fd < 0 ||
        set_timer(token->timer_fd, cancel->deadline_ns) < 0 ||
        watch(cancel->fd, token->timer_fd) < 0 ||
        (cancel->source_fd >= 0 && watch(cancel->fd, cancel->source_fd) < 0)) {
        err_errno(err, HUTCH_ERR_SYSTEM, errno, "make a cancel token");
        stop_token_done(token);
        return err->code;
    }
    return 0;
}

void stop_token_done(struct stop_token *token)
{
    fd_close(&token->cancel.fd);
    fd_close(&token->timer_fd);
}

bool stop_token_is_cancelled(const struct stop_token *token)
{
    return token->cancel.source_fd >= 0 && fd_wait(token->cancel.source_fd, POLLIN, 0) > 0;
}

bool stop_token_is_late(const struct stop_token *token)
{
    return clock_now_ns() >= token->cancel.deadline_ns;
}
