/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request over HTTP and its answer, which goes into a reply builder as it comes.
 * libcurl's multi interface on the caller's thread: curl_multi_poll waits on the sockets
 * and on the descriptor that cancels.
 */
#pragma once

#include "client.h"
#include "retry.h"

#include <curl/curl.h>

struct transfer {
    CURLM *multi;
    const struct client_options *options; /* its times and sizes, ca_file */
    const char *url;
    struct curl_slist *headers;
    const struct buf *body;
    const char *const *hidden; /* see reply_options */
    int cancel_fd;
    uint64_t deadline_ns;
    struct reply_builder *builder;
};

/* What the server said besides of the reply. */
struct answer {
    int http_status; /* 0: nothing */
    struct retry_hints hints;
    char request_id[MODEL_REQUEST_ID_BYTES];
    char redirect[LIMIT_URL_BYTES + 1]; /* where a status of 3xx leads; "" for nowhere */
    struct buf body;                    /* of a status from 300 on, its beginning */
};
#define ANSWER_NONE                                                                                \
    ((struct answer){.hints = RETRY_NO_HINTS, .body = BUF_MAX(LIMIT_ERROR_BODY_BYTES)})
void answer_done(struct answer *answer);
#define auto_answer __attribute__((cleanup(answer_done)))

/* Sends the request and reads the answer to its end. Returns 0 when there was one: with a
 * status below 300 the builder has it all; or -1 with *error set, kind and message and
 * retry_safe, whatever *answer says then. *answer is the caller's, ANSWER_NONE before. */
MUST_CHECK int transfer_run(const struct transfer *transfer, struct answer *answer,
                            struct model_error *error);
