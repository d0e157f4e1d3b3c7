/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See transfer.h. Callbacks of libcurl note what went wrong in struct exchange and end the
 * transfer; whoever drives it looks there first.
 */
#include "transfer.h"

#include "base/clock.h"
#include "endpoint.h"
#include "sse.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define AFTER_END_MARK_MS 100 /* for the rest of the answer, so that the connection is kept */
#define HEADER_BYTES 512      /* of a value that is looked at */

enum form { FORM_UNKNOWN, FORM_STREAM, FORM_WHOLE };

struct exchange {
    const struct transfer *transfer;
    struct answer *answer;
    struct model_error *error;
    CURL *easy;
    struct sse sse;
    struct buf whole;
    enum form form;
    bool event_stream;     /* the header says so */
    bool failed;           /* *error is set */
    bool ended;            /* the end mark was seen */
    uint64_t received;     /* bytes of the body */
    uint64_t last_byte_ns; /* 0: there was none */
    uint64_t connected_ns; /* 0: not yet */
    sigset_t own_signals;  /* of the thread, that the callbacks have too */
    char curl_says[CURL_ERROR_SIZE];
};

void answer_done(struct answer *answer)
{
    buf_done(&answer->body);
}

/* ---- headers ---- */

static void take_request_id(struct exchange *exchange, const char *value)
{
    struct answer *answer = exchange->answer;

    model_one_line(value, strlen(value), exchange->transfer->hidden, answer->request_id,
                   sizeof(answer->request_id));
}

static void take_header(struct exchange *exchange, const char *name, const char *value)
{
    struct answer *answer = exchange->answer;

    if (strcasecmp(name, "content-type") == 0)
        exchange->event_stream =
            strncasecmp(value, "text/event-stream", strlen("text/event-stream")) == 0;
    else if (strcasecmp(name, "x-request-id") == 0 ||
             (strcasecmp(name, "x-generation-id") == 0 && answer->request_id[0] == '\0'))
        take_request_id(exchange, value);
    else if (!retry_take_header(&answer->hints, name, value)) {
        time_t date = curl_getdate(value, NULL);
        if (date != (time_t)-1)
            retry_take_date(&answer->hints, difftime(date, time(NULL)));
    }
}

static size_t on_header(char *data, size_t size, size_t count, void *user)
{
    struct exchange *exchange = user;
    size_t length = size * count;
    char line[HEADER_BYTES];

    exchange->last_byte_ns = clock_now_ns();
    if (length >= sizeof(line))
        return length;
    memcpy(line, data, length);
    line[length] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    char *colon = strchr(line, ':');
    if (strncasecmp(line, "HTTP/", strlen("HTTP/")) == 0) { /* another answer begins */
        exchange->answer->hints = RETRY_NO_HINTS;
        exchange->answer->request_id[0] = '\0';
        exchange->event_stream = false;
    } else if (colon) {
        *colon = '\0';
        take_header(exchange, line, colon + 1 + strspn(colon + 1, " \t"));
    }
    return length;
}

/* ---- the body ---- */

/* The reply is more than it may be, or something else of the house. */
static int fail(struct exchange *exchange, enum model_error_kind kind,
                const struct hutch_error *err)
{
    exchange->failed = true;
    return model_error_from(exchange->error, kind, err);
}

static int on_event(void *user, const struct sse_event *event)
{
    struct exchange *exchange = user;

    int code = reply_take_event(exchange->transfer->builder, event, exchange->error);
    if (code < 0)
        exchange->failed = true;
    if (code > 0)
        exchange->ended = true;
    return code;
}

/* Blanks and the byte order mark, in whose place a piece may end. */
static size_t skip_start(const char *data, size_t length)
{
    size_t at = 0;

    while (at < length && strchr(" \t\r\n\xef\xbb\xbf", data[at]) && data[at] != '\0')
        at++;
    return at;
}

/* What the body begins with says more than its header. */
static enum form form_of(const struct exchange *exchange, const char *data, size_t length)
{
    size_t at = skip_start(data, length);

    if (at == length)
        return FORM_UNKNOWN;
    if (data[at] == '{' || data[at] == '[' || data[at] == '<')
        return FORM_WHOLE;
    bool field = memchr("dei:r", data[at], 5) != NULL; /* data, event, id, retry */
    return exchange->event_stream || field ? FORM_STREAM : FORM_WHOLE;
}

static int take_body(struct exchange *exchange, const char *data, size_t length)
{
    struct hutch_error err;

    if (exchange->form == FORM_UNKNOWN) {
        size_t at = skip_start(data, length);
        exchange->form = form_of(exchange, data, length);
        data += at;
        length -= at;
    }
    if (exchange->form == FORM_STREAM) {
        int code = sse_feed(&exchange->sse, data, length, &err);
        if (code < 0 && !exchange->failed)
            fail(exchange, MODEL_TOO_LARGE, &err);
        return code;
    }
    if (exchange->form == FORM_WHOLE)
        buf_append(&exchange->whole, data, length);
    return buf_check(&exchange->whole, &err) < 0 ? fail(exchange, MODEL_TOO_LARGE, &err) : 0;
}

static int http_status(CURL *easy)
{
    long status = 0;

    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

/* Keeps the beginning of an answer that says what is wrong. */
static size_t keep_error_body(struct answer *answer, const char *data, size_t length)
{
    size_t room = answer->body.max - answer->body.length;

    buf_append(&answer->body, data, length < room ? length : room);
    return length;
}

static size_t take_piece(struct exchange *exchange, const char *data, size_t length)
{
    exchange->last_byte_ns = clock_now_ns();
    exchange->received += length;
    if (exchange->received > exchange->transfer->options->max_reply_bytes) {
        model_error_set(exchange->error, MODEL_TOO_LARGE,
                        "the server's answer has more than %llu bytes",
                        (unsigned long long)exchange->transfer->options->max_reply_bytes);
        exchange->failed = true;
        return CURL_WRITEFUNC_ERROR;
    }
    if (http_status(exchange->easy) >= 300)
        return keep_error_body(exchange->answer, data, length);
    if (exchange->ended)
        return length;
    int code = take_body(exchange, data, length);
    return code < 0 ? CURL_WRITEFUNC_ERROR : length;
}

/* The caller is told of text from here, with its own signals open: it may well wait. */
static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    struct exchange *exchange = user;
    sigset_t blocked;

    pthread_sigmask(SIG_SETMASK, &exchange->own_signals, &blocked);
    size_t taken = take_piece(exchange, data, size * count);
    pthread_sigmask(SIG_SETMASK, &blocked, NULL);
    return taken;
}

/* ---- waiting ---- */

static int curl_failed(struct exchange *exchange, const char *what, const char *why)
{
    return model_error_set(exchange->error, MODEL_SYSTEM, "%s: %s", what, why);
}

static int timed_out(struct exchange *exchange, const char *format, unsigned ms)
{
    char limit[32];
    struct buf text = BUF_MAX(sizeof(limit));

    buf_appendf(&text, ms % 1000 == 0 ? "%u s" : "%u ms", ms % 1000 == 0 ? ms / 1000 : ms);
    memcpy(limit, buf_text(&text), text.length + 1);
    buf_done(&text);
    model_error_set(exchange->error, MODEL_TIMEOUT, "%s within %s", format, limit);
    exchange->error->retry_safe = true;
    return -1;
}

/* The next point in time at which something has to have come. */
static uint64_t quiet_until_ns(const struct exchange *exchange)
{
    const struct client_options *options = exchange->transfer->options;
    unsigned ms = options->idle_ms;

    if (exchange->last_byte_ns == 0 && exchange->connected_ns == 0)
        return NO_DEADLINE; /* libcurl watches it */
    if (exchange->last_byte_ns == 0)
        return exchange->connected_ns + options->first_byte_ms * NS_PER_MS;
    if (exchange->ended)
        ms = AFTER_END_MARK_MS;
    else if (reply_is_complete(exchange->transfer->builder))
        ms = options->after_finish_ms;
    return exchange->last_byte_ns + ms * NS_PER_MS;
}

/* Nothing came in time. 1: the reply is complete without; -1: it is an error. */
static int silent(struct exchange *exchange)
{
    if (reply_is_complete(exchange->transfer->builder))
        return 1;
    if (exchange->last_byte_ns == 0)
        return timed_out(exchange, "the server did not answer",
                         exchange->transfer->options->first_byte_ms);
    return timed_out(exchange, "the server went silent: no byte came",
                     exchange->transfer->options->idle_ms);
}

static int check_times(struct exchange *exchange)
{
    uint64_t now = clock_now_ns();
    curl_off_t sent = 0;

    curl_easy_getinfo(exchange->easy, CURLINFO_PRETRANSFER_TIME_T, &sent);
    if (exchange->connected_ns == 0 && sent > 0)
        exchange->connected_ns = now;
    if (now >= exchange->transfer->deadline_ns)
        return model_error_set(exchange->error, MODEL_TIMEOUT,
                               "the time for the whole call is over");
    return now >= quiet_until_ns(exchange) ? silent(exchange) : 0;
}

/* Waits for something to do. -1: cancelled, or waiting failed. */
static int wait_io(struct exchange *exchange)
{
    const struct transfer *transfer = exchange->transfer;
    struct curl_waitfd cancel = {.fd = transfer->cancel_fd, .events = CURL_WAIT_POLLIN};
    uint64_t until = clock_sooner_ns(transfer->deadline_ns, quiet_until_ns(exchange));
    int ms = clock_poll_timeout(until);

    CURLMcode code = curl_multi_poll(transfer->multi, &cancel, transfer->cancel_fd >= 0,
                                     ms < 0 || ms > 60000 ? 60000 : ms, NULL);
    if (code != CURLM_OK)
        return curl_failed(exchange, "wait for the server", curl_multi_strerror(code));
    if (cancel.revents != 0)
        return model_error_set(exchange->error, MODEL_CANCELLED, "cancelled by the caller");
    return 0;
}

/* The result of the transfer, if it has ended. */
static bool has_ended(const struct exchange *exchange, CURLcode *ret_result)
{
    int left;

    for (CURLMsg *message; (message = curl_multi_info_read(exchange->transfer->multi, &left));) {
        if (message->msg == CURLMSG_DONE && message->easy_handle == exchange->easy) {
            *ret_result = message->data.result;
            return true;
        }
    }
    return false;
}

/* With all signals blocked, for the threads that libcurl makes to look up names: signals of the
 * host program are for its own threads, and some outlive a call that was cancelled. */
static CURLMcode perform(struct exchange *exchange)
{
    int running;
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &exchange->own_signals);
    CURLMcode code = curl_multi_perform(exchange->transfer->multi, &running);
    pthread_sigmask(SIG_SETMASK, &exchange->own_signals, NULL);
    return code;
}

/* Drives it to its end. 0: *ret_result says how; 1: the reply is complete, and nothing more
 * is waited for; -1 with the error set. */
static int drive(struct exchange *exchange, CURLcode *ret_result)
{
    for (;;) {
        CURLMcode code = perform(exchange);
        if (code != CURLM_OK)
            return curl_failed(exchange, "talk to the server", curl_multi_strerror(code));
        if (has_ended(exchange, ret_result))
            return 0;
        int stop = check_times(exchange);
        if (stop != 0)
            return stop;
        if (wait_io(exchange) < 0)
            return -1;
    }
}

/* ---- how it ended ---- */

static int no_connection(struct exchange *exchange, const char *why)
{
    auto_buf struct buf place = BUF_MAX(LIMIT_URL_BYTES);

    endpoint_append_place(&place, exchange->transfer->url);
    model_error_set(exchange->error, MODEL_CONNECT,
                    "cannot connect to %s: %s; is the server running, and the base URL right?",
                    buf_text(&place), why);
    exchange->error->retry_safe = true;
    return -1;
}

static int tls_failed(struct exchange *exchange, CURLcode result, const char *why)
{
    auto_buf struct buf place = BUF_MAX(LIMIT_URL_BYTES);

    size_t length = strlen(why);

    endpoint_append_place(&place, exchange->transfer->url);
    while (length > 0 && why[length - 1] == ' ') /* as OpenSSL's words end */
        length--;
    return model_error_set(exchange->error, MODEL_TLS, "no trusted connection to %s: %.*s; %s",
                           buf_text(&place), (int)length, why,
                           result == CURLE_SSL_CONNECT_ERROR
                               ? "is it a server of http:// instead?"
                               : "a private certificate has to be in the file that CURL_CA_BUNDLE "
                                 "names");
}

/* The connection broke. */
static int broke_off(struct exchange *exchange, const char *why)
{
    if (exchange->received > 0 || exchange->last_byte_ns > 0)
        model_error_set(
            exchange->error, MODEL_TRUNCATED,
            "stream truncated: the connection broke: %s; try again, or see the server's log", why);
    else
        model_error_set(exchange->error, MODEL_CONNECT, "the connection broke before an answer: %s",
                        why);
    exchange->error->retry_safe = true;
    return -1;
}

static int judge(struct exchange *exchange, CURLcode result)
{
    const char *why = exchange->curl_says[0] ? exchange->curl_says : curl_easy_strerror(result);

    switch (result) {
    case CURLE_OK:
        return 0;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
        return no_connection(exchange, why);
    case CURLE_OPERATION_TIMEDOUT:
        return timed_out(exchange, "no connection to the server",
                         exchange->transfer->options->connect_ms);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
        return tls_failed(exchange, result, why);
    case CURLE_OUT_OF_MEMORY:
        return model_error_set(exchange->error, MODEL_NO_MEMORY, "out of memory");
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return broke_off(exchange, why);
    default:
        return model_error_set(exchange->error, MODEL_MALFORMED,
                               "the server's answer is not good HTTP: %s", why);
    }
}

/* The body has ended: what is left of it goes into the reply. */
static int end_body(struct exchange *exchange)
{
    struct reply_builder *builder = exchange->transfer->builder;
    struct hutch_error err;

    if (exchange->ended || exchange->answer->http_status >= 300)
        return 0;
    if (exchange->form == FORM_STREAM) {
        int code = sse_end(&exchange->sse, &err);
        if (code < 0 && !exchange->failed)
            fail(exchange, MODEL_TOO_LARGE, &err);
        return code < 0 ? -1 : 0;
    }
    if (exchange->form == FORM_UNKNOWN)
        return 0; /* the builder knows that it got nothing */
    return reply_take_whole(builder, buf_text(&exchange->whole), exchange->whole.length,
                            exchange->error);
}

/* The connection broke, but what came may be enough. */
static int end_broken(struct exchange *exchange, CURLcode result)
{
    const struct reply_builder *builder = exchange->transfer->builder;

    if (exchange->form == FORM_STREAM && end_body(exchange) < 0)
        return -1;
    if (reply_is_complete(builder) || exchange->answer->http_status >= 300)
        return 0;
    return judge(exchange, result);
}

static void take_answer(struct exchange *exchange)
{
    struct answer *answer = exchange->answer;
    char *target = NULL;

    answer->http_status = http_status(exchange->easy);
    curl_easy_getinfo(exchange->easy, CURLINFO_REDIRECT_URL, &target);
    if (target && strlen(target) < sizeof(answer->redirect))
        memcpy(answer->redirect, target, strlen(target) + 1);
}

static int finish(struct exchange *exchange)
{
    CURLcode result = CURLE_OK;
    int code = drive(exchange, &result);

    take_answer(exchange);
    if (exchange->failed || code < 0)
        return -1;
    if (code > 0)
        return 0;
    return result == CURLE_OK ? end_body(exchange) : end_broken(exchange, result);
}

/* ---- the handle ---- */

#define SET(option, value) (failed |= curl_easy_setopt(exchange->easy, option, value) != CURLE_OK)

static bool set_request(struct exchange *exchange)
{
    const struct transfer *transfer = exchange->transfer;
    bool failed = false;

    SET(CURLOPT_URL, transfer->url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_HTTPHEADER, transfer->headers);
    SET(CURLOPT_USERAGENT, "hutch/" HUTCH_VERSION);
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)transfer->body->length);
    SET(CURLOPT_POSTFIELDS, transfer->body->data);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)transfer->options->connect_ms);
    if (transfer->options->ca_file)
        SET(CURLOPT_CAINFO, transfer->options->ca_file);
    return !failed;
}

static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)user;
    (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static bool set_callbacks(struct exchange *exchange)
{
    bool failed = false;

    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* a cancelled look-up of a name is not waited for */
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_ERRORBUFFER, exchange->curl_says);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, exchange);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, exchange);
    return !failed;
}

static int run(struct exchange *exchange)
{
    CURLM *multi = exchange->transfer->multi;

    if (!set_request(exchange) || !set_callbacks(exchange))
        return curl_failed(exchange, "prepare the request", "libcurl refuses an option");
    CURLMcode code = curl_multi_add_handle(multi, exchange->easy);
    if (code != CURLM_OK)
        return curl_failed(exchange, "begin the request", curl_multi_strerror(code));
    int result = finish(exchange);
    curl_multi_remove_handle(multi, exchange->easy);
    return result;
}

int transfer_run(const struct transfer *transfer, struct answer *answer, struct model_error *error)
{
    struct exchange exchange = {
        .transfer = transfer,
        .answer = answer,
        .error = error,
        .whole = BUF_MAX(LIMIT_REPLY_BYTES),
        .easy = curl_easy_init(),
    };

    if (!exchange.easy)
        return model_error_set(error, MODEL_NO_MEMORY, "out of memory");
    sse_init(&exchange.sse, on_event, &exchange);
    int code = run(&exchange);
    curl_easy_cleanup(exchange.easy);
    sse_done(&exchange.sse);
    buf_done(&exchange.whole);
    return code;
}
