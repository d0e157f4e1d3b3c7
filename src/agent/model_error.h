/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a model gave no reply: what kind of fault, whether the same request may be sent
 * again, and one line that says what to do. A value; nothing here allocates. The key is
 * never part of it.
 */
#pragma once

#include "base/attrs.h"

#include <hutch.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum model_error_kind {
    MODEL_OK = 0,
    MODEL_INVALID,     /* the caller's: an option or the conversation; nothing was sent */
    MODEL_NO_KEY,      /* the server wants a key, and there is none; nothing was sent */
    MODEL_KEY_REFUSED, /* 401, 403 */
    MODEL_NO_CREDIT,   /* 402 */
    MODEL_NOT_FOUND,   /* 404: the model or the address */
    MODEL_REFUSED,     /* 400, 413, 422 and what else is not worth trying again */
    MODEL_RATE_LIMIT,  /* 429 */
    MODEL_SERVER,      /* 5xx, 408, 409 */
    MODEL_CONNECT,     /* no connection, or one that broke before an answer */
    MODEL_TLS,
    MODEL_TIMEOUT,
    MODEL_TRUNCATED, /* the answer ended early */
    MODEL_MALFORMED, /* the answer is none */
    MODEL_TOO_LARGE, /* more than the limits of a reply */
    MODEL_REDIRECT,  /* to another host, in circles, or nowhere */
    MODEL_EMPTY,     /* neither text nor calls */
    MODEL_CANCELLED,
    MODEL_NO_MEMORY,
    MODEL_SYSTEM, /* libcurl or the system failed */
};

#define MODEL_ERROR_BYTES 1024
#define MODEL_REQUEST_ID_BYTES 128

struct model_error {
    enum model_error_kind kind;
    int http_status;   /* 0: there was none */
    bool retry_safe;   /* nothing was shown, and the same may do later */
    bool text_shown;   /* deltas of the reply that broke were given to the caller */
    unsigned attempts; /* requests that were sent */
    char request_id[MODEL_REQUEST_ID_BYTES]; /* the server's; "" for none */
    char message[MODEL_ERROR_BYTES];         /* one line of UTF-8, no full stop */
};

/* "rate_limit" for MODEL_RATE_LIMIT, and so on; "unknown" for other numbers. Static. */
const char *model_error_name(enum model_error_kind kind);

/* Sets kind and message, everything else to nothing. Returns -1. The text is made one line
 * of valid UTF-8. */
int model_error_set(struct model_error *error, enum model_error_kind kind, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* The same from an error of the house: NO_MEMORY stays that, other codes become kind. */
int model_error_from(struct model_error *error, enum model_error_kind kind,
                     const struct hutch_error *err);

/* The kind of an HTTP status from 400 on, and of the numbers that servers put into an error
 * inside of an answer. */
enum model_error_kind model_error_kind_of(int http_status);

/* Whether a status is worth another try: 408, 409, 429, 5xx. */
bool model_status_retried(int http_status);

/* The status that an error inside of an answer stands for, by its "code" or "type": a
 * number, a numeric string, or a name such as rate_limit_exceeded; 400 where it is none of
 * these. value: that of "error", or an object with "code" beside the message. */
int model_status_of(const json_t *value);

/* What a server says in an answer that is an error, the first that exists of error.message,
 * error as a string, [0].error.message, message, detail; else the body, cut at 500 bytes.
 * Written into text (at least 1 byte) as model_one_line does. body may be any bytes; what is
 * not JSON is taken as text. */
void model_server_words(const char *body, size_t length, const char *const *hidden, char *text,
                        size_t size);

/* The same of a JSON value; false if it has none of these. */
bool model_words_of(const json_t *value, const char *const *hidden, char *text, size_t size);

/* Copies foreign bytes as one line: control characters and line ends become blanks, bad
 * UTF-8 becomes U+FFFD, each of the secrets (see secret_at) its mask; then cut at a character
 * when longer than size - 1, so that no part of a secret is left. */
void model_one_line(const char *data, size_t length, const char *const *hidden, char *text,
                    size_t size);
