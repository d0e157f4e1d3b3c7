/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of an OpenAI-compatible server: chat completions over libcurl.
 *
 * A client keeps its connections, and remembers what its server does not take. It belongs
 * to one thread at a time; any number of them may be used at once. Everything happens on
 * the thread of the caller, callbacks too. Proxies are those of the variables http_proxy,
 * HTTPS_PROXY, ALL_PROXY and NO_PROXY, as libcurl reads them. While a call runs, SIGPIPE is
 * blocked in its thread.
 *
 * The key goes to the host of the base URL alone; neither it nor the longer words of the values
 * of headers are in an error or a log. A reply that repeats them is given as it came.
 *
 * Connections are closed in programs that the process starts. What libcurl has besides for its own
 * waking up, a pair of descriptors for each client, is not: it opens it itself, and cannot be
 * told how.
 */
#pragma once

#include "chat_request.h"
#include "reply.h"
#include "secret.h"

#include <stdint.h>

struct client_options {
    const char *base_url;       /* endpoint.h; copied */
    const struct secret *key;   /* NULL: none; copied */
    const char *const *headers; /* "Name: value" each, at most LIMIT_HEADERS, ended by NULL;
                                   NULL: none; an Authorization among them takes the place
                                   of the key; copied */
    const char *ca_file;        /* certificates to trust; NULL: the system's; copied */
    unsigned connect_ms;        /* until there is a connection, 1 to 600000 as all of these */
    unsigned first_byte_ms;     /* from there to the first byte of the answer */
    unsigned idle_ms;           /* between two bytes of it */
    unsigned after_finish_ms;   /* of silence, when the reply is complete */
    unsigned retry_ms;          /* before the first retry, see retry.h */
    unsigned retries;           /* 0 to 100 */
    uint64_t max_reply_bytes;   /* 1 to LIMIT_REPLY_BYTES */
};

/* 10 s to connect, 120 s without a byte, 5 s after the finish, 5 retries from 0.5 s on,
 * LIMIT_REPLY_BYTES; no URL. */
void client_options_init(struct client_options *options);

struct client;

/* Makes a client; nothing is sent. The error names the option. Errors: INVALID, NO_MEMORY,
 * SYSTEM when libcurl cannot be used. */
MUST_CHECK int client_new(const struct client_options *options, struct client **ret_client,
                          struct hutch_error *err);

/* NULL is ignored. */
void client_free(struct client *client);

/* Of one call; zeroed but for cancel_fd -1 and deadline_ns NO_DEADLINE, none of it counts. */
struct client_call {
    reply_text_fn on_text;      /* as it comes; after it was called nothing is retried */
    reply_text_fn on_reasoning; /* the same */
    void *user;
    int cancel_fd;        /* -1: none; the call ends as soon as this is readable */
    uint64_t deadline_ns; /* monotonic, for all tries together */
};
#define CLIENT_CALL_NONE ((struct client_call){.cancel_fd = -1, .deadline_ns = UINT64_MAX})

/* Asks the model, and again where that is of use: after a connection that failed, a
 * timeout, 408, 409, 429, 5xx, a stream that broke before anything was shown, each at most
 * options.retries times, and once after an empty reply; at once, and without counting, in
 * another form where the server does not take one (struct chat_quirks).
 *
 * Returns 0; *ret_reply is the caller's, its message knows its origin. Or -1 with *error
 * set; then *ret_reply holds what error->text_shown says was shown. Its usage is the sum of what
 * all tries took, in both cases. It is to be freed in any case. */
MUST_CHECK int client_chat(struct client *client, const struct chat_request *request,
                           const struct client_call *call, struct reply *ret_reply,
                           struct model_error *error);
