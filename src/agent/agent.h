/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of an agent know of it. Only read once it is made, but for what its lock
 * guards. */
#pragma once

#include "base/limits.h"
#include "cell_tools.h"
#include "client.h"
#include "tool.h"

#include <hutch-agent.h>
#include <pthread.h>
#include <stdatomic.h>

struct hutch_agent {
    hutch_engine *engine; /* the caller's; NULL for none */
    struct tool_set tools;
    struct cell_tools *cell_tools; /* NULL for none */

    /* of each request to the model */
    char *model;
    json_t *tool_list;  /* NULL for none */
    json_t *no_call;    /* the tool_choice that forbids calls */
    json_t *extra;      /* NULL for none */
    double temperature; /* negative: not sent */
    uint64_t max_tokens;
    bool strict;
    bool stream;

    /* of the answer */
    json_t *schema;                 /* NULL: free text */
    json_t *response_format;        /* that asks for it; NULL likewise */
    atomic_bool no_response_format; /* the server has refused one */

    /* of a run */
    char *system_prompt; /* "": none */
    uint32_t max_steps;
    uint32_t tool_concurrency;
    uint64_t timeout_ns;
    uint64_t max_total_tokens; /* 0: no limit */
    uint64_t max_answer_bytes;

    /* of its clients: of runs that follow each other the same, which keeps its connections and
     * remembers what the server does not take */
    struct client_options client; /* points to these: */
    char *base_url, *ca_file;
    char *headers[LIMIT_HEADERS + 1]; /* may hold secrets */
    struct secret key;
    pthread_mutex_t lock; /* guards what follows */
    struct client *idle[LIMIT_IDLE_CLIENTS];
    size_t idle_count;
};

/* Takes a client for a run, and takes it back. Errors: NO_MEMORY, SYSTEM. */
MUST_CHECK int agent_take_client(struct hutch_agent *agent, struct client **ret_client,
                                 struct hutch_error *err);
void agent_return_client(struct hutch_agent *agent, struct client *client);
