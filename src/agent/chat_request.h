/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is asked, and its JSON. Pure. */
#pragma once

#include "base/limits.h"
#include "message.h"

#include <stdbool.h>
#include <stdint.h>

/* All of it is the caller's, and only read. */
struct chat_request {
    const char *system; /* a prompt in front of the conversation; NULL or "": none */
    const struct conversation *conversation;
    const char *model;
    const json_t *tools; /* array of {"name", "description", "parameters"}, and "strict" where
                            that is wanted; at most LIMIT_TOOLS, names of 1 to 64 of
                            a-z A-Z 0-9 _ -; NULL or empty: none */
    double temperature;  /* 0 to 2; negative: not said */
    uint64_t max_tokens; /* 0: not said */
    bool max_completion_tokens;    /* it goes by that name */
    const json_t *tool_choice;     /* NULL, or no tools: not said */
    const json_t *response_format; /* NULL: not said */
    const json_t *extra; /* object of further members, such as top_p, stop, seed; nulls are left
                            out; NULL: none. A tool_choice of it is for requests with tools that
                            say none of their own; its max_completion_tokens goes in place of
                            max_tokens; response_format, where there is none above */
    bool stream;
};
#define CHAT_REQUEST_EMPTY ((struct chat_request){.temperature = -1})

/* What a server turned out not to take. */
struct chat_quirks {
    bool no_stream_options;
    bool max_completion_tokens;
    bool only_streams;
    bool empty_content; /* it wants a content in each message */
};

/* Whether all fields are in their ranges. The error names the field. Errors: INVALID. */
MUST_CHECK int chat_request_check(const struct chat_request *request, struct hutch_error *err);

/* Whether it is sent as a stream. */
bool chat_request_streams(const struct chat_request *request, const struct chat_quirks *quirks);

/* Appends the body of a request that was checked. origin: server and model, see
 * conversation_append_wire. Errors: INVALID when it is longer than out may be, NO_MEMORY. */
MUST_CHECK int chat_request_write(const struct chat_request *request,
                                  const struct chat_quirks *quirks, const char *origin,
                                  struct buf *out, struct hutch_error *err);

/* The names of its tools, of a request that was checked, ended by NULL. They live as long
 * as the request. */
void chat_request_tools(const struct chat_request *request, const char *ret_names[LIMIT_TOOLS + 1]);
