/* SPDX-License-Identifier: Apache-2.0 */
/* See events.h. */
#include "events.h"

#include "base/limits.h"

void events_init(struct events *events, hutch_agent_event_fn fn, void *user)
{
    *events = (struct events){.fn = fn, .user = user, .text = BUF_MAX(LIMIT_CALL_ANSWER_BYTES)};
    pthread_mutex_init(&events->lock, NULL);
}

void events_done(struct events *events)
{
    buf_done(&events->text);
    pthread_mutex_destroy(&events->lock);
}

static void tell_locked(struct events *events, const struct hutch_agent_event *event)
{
    struct hutch_agent_event whole = *event;

    whole.size = sizeof(whole);
    whole.step = events->step;
    events->fn(events->user, &whole);
}

void events_tell(struct events *events, const struct hutch_agent_event *event)
{
    if (!events->fn)
        return;
    pthread_mutex_lock(&events->lock);
    tell_locked(events, event);
    pthread_mutex_unlock(&events->lock);
}

void events_tell_bytes(struct events *events, const struct hutch_agent_event *event)
{
    struct hutch_agent_event piece = *event;

    if (!events->fn || event->length == 0)
        return;
    pthread_mutex_lock(&events->lock);
    for (size_t at = 0; at < event->length; at += piece.length) {
        size_t left = event->length - at;
        buf_clear(&events->text);
        piece.length = left < events->text.max ? left : events->text.max;
        buf_append(&events->text, event->text + at, piece.length);
        piece.text = events->text.data;
        if (events->text.failure == BUF_OK)
            tell_locked(events, &piece);
    }
    pthread_mutex_unlock(&events->lock);
}
