/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a run on their way to its caller: from any thread of the run, one at a time. */
#pragma once

#include "base/buf.h"

#include <hutch-agent.h>
#include <pthread.h>

struct events {
    hutch_agent_event_fn fn; /* NULL: nobody listens, and all calls do nothing */
    void *user;
    uint32_t step;        /* that is on; set while no tools run */
    pthread_mutex_t lock; /* guards what follows, and is held while fn runs */
    struct buf text;      /* where a text that has no NUL behind it gets one */
};
void events_init(struct events *events, hutch_agent_event_fn fn, void *user);
void events_done(struct events *events);

/* Tells of an event whose text has a NUL behind it; size and step are filled in. */
void events_tell(struct events *events, const struct hutch_agent_event *event);

/* The same of any text, as a copy. Without memory for that the event is dropped. */
void events_tell_bytes(struct events *events, const struct hutch_agent_event *event);
