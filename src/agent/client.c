/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See client.h. A call is a series of tries; each is one or more transfers, as long as the
 * server redirects. What comes of a try is a verdict: done, again in another form, again
 * later, or failed.
 */
#include "client.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/quote.h"
#include "endpoint.h"
#include "transfer.h"
#include "usage.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#define TIME_MS_MAX 600000u
#define RETRIES_MAX 100u
#define HEADER_MAX KIB(8)
#define HIDDEN_WORD_BYTES 8 /* of a header; shorter ones are no secrets, such as Bearer */

struct client {
    struct client_options options; /* pointers are to the copies below, or NULL */
    struct buf url;
    char *base_url, *ca_file;
    struct secret key;
    char *headers[LIMIT_HEADERS];
    size_t header_count;
    bool own_authorization; /* among the headers */
    char **hidden;          /* secrets, ended by NULL; NULL: none */
    size_t hidden_count;
    CURLM *multi;
    struct chat_quirks quirks;
};

/* ---- SIGPIPE ---- */

/* A write to a connection that is gone, which OpenSSL does, must not end the host program:
 * SIGPIPE is blocked in this thread meanwhile, and one that came of it is taken back. */
struct pipe_guard {
    sigset_t before;
    bool was_pending;
};

static sigset_t only_sigpipe(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
}

static bool sigpipe_pending(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

static void pipe_guard_begin(struct pipe_guard *guard)
{
    const sigset_t set = only_sigpipe();

    guard->was_pending = sigpipe_pending();
    pthread_sigmask(SIG_BLOCK, &set, &guard->before);
}

static void pipe_guard_end(const struct pipe_guard *guard)
{
    const sigset_t set = only_sigpipe();
    const struct timespec at_once = {.tv_sec = 0};

    if (!guard->was_pending && sigpipe_pending())
        sigtimedwait(&set, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}

/* ---- making one ---- */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready;

static void prepare_curl(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

void client_options_init(struct client_options *options)
{
    *options = (struct client_options){
        .connect_ms = 10000,
        .first_byte_ms = 120000,
        .idle_ms = 120000,
        .after_finish_ms = 5000,
        .retry_ms = 500,
        .retries = 5,
        .max_reply_bytes = LIMIT_REPLY_BYTES,
    };
}

static int check_options(const struct client_options *options, struct hutch_error *err)
{
    const struct {
        const char *name;
        unsigned ms;
    } times[] = {
        {"connect_ms", options->connect_ms}, {"first_byte_ms", options->first_byte_ms},
        {"idle_ms", options->idle_ms},       {"after_finish_ms", options->after_finish_ms},
        {"retry_ms", options->retry_ms},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(times); i++) {
        if (times[i].ms < 1 || times[i].ms > TIME_MS_MAX)
            return err_set(err, HUTCH_ERR_INVALID, "%s: %u is not from 1 to %u", times[i].name,
                           times[i].ms, TIME_MS_MAX);
    }
    if (options->retries > RETRIES_MAX)
        return err_set(err, HUTCH_ERR_INVALID, "retries: %u is not from 0 to %u", options->retries,
                       RETRIES_MAX);
    if (options->max_reply_bytes < 1 || options->max_reply_bytes > LIMIT_REPLY_BYTES)
        return err_set(err, HUTCH_ERR_INVALID, "max_reply_bytes: not from 1 to %llu",
                       (unsigned long long)LIMIT_REPLY_BYTES);
    return 0;
}

/* A name of letters, digits and dashes, a colon, visible text. */
static bool is_header(const char *text)
{
    size_t name = strcspn(text, ":");

    if (name == 0 || text[name] != ':' || strlen(text) > HEADER_MAX)
        return false;
    if (strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") < name)
        return false;
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    }
    return true;
}

/* Of the words that are in no error. */
static int hide(struct client *client, const char *word, size_t length, struct hutch_error *err)
{
    char **hidden = reallocarray(client->hidden, client->hidden_count + 2, sizeof(*client->hidden));

    if (!hidden)
        return err_no_memory(err);
    client->hidden = hidden;
    hidden[client->hidden_count] = strndup(word, length);
    hidden[client->hidden_count + 1] = NULL;
    return hidden[client->hidden_count++] ? 0 : err_no_memory(err);
}

/* The value of a header may be a secret, or hold one behind a word that is none. */
static int hide_words(struct client *client, const char *header, struct hutch_error *err)
{
    static const char between[] = " \t:=;,";

    for (const char *at = strchr(header, ':'); *at;) {
        at += strspn(at, between);
        size_t length = strcspn(at, between);
        if (length >= HIDDEN_WORD_BYTES && hide(client, at, length, err) < 0)
            return err->code;
        at += length;
    }
    return 0;
}

static int copy_headers(struct client *client, const char *const *headers, struct hutch_error *err)
{
    for (; headers && *headers; headers++) {
        if (client->header_count == LIMIT_HEADERS)
            return err_set(err, HUTCH_ERR_INVALID, "headers: more than %d", LIMIT_HEADERS);
        if (!is_header(*headers)) /* its value may be a secret */
            return err_set(err, HUTCH_ERR_INVALID, "headers[%zu]: not 'Name: value' on one line",
                           client->header_count);
        char *copy = strdup(*headers);
        if (!copy)
            return err_no_memory(err);
        client->headers[client->header_count++] = copy;
        if (hide_words(client, copy, err) < 0)
            return err->code;
        if (strncasecmp(copy, "Authorization:", strlen("Authorization:")) == 0)
            client->own_authorization = true;
    }
    return 0;
}

static int fill(struct client *client, const struct client_options *options,
                struct hutch_error *err)
{
    if (check_options(options, err) < 0)
        return err->code;
    if (!options->base_url)
        return err_set(err, HUTCH_ERR_INVALID, "base URL: there is none");
    if (endpoint_append(&client->url, options->base_url, err) < 0)
        return err->code;
    client->base_url = strdup(options->base_url);
    client->ca_file = options->ca_file ? strdup(options->ca_file) : NULL;
    if (!client->base_url || (options->ca_file && !client->ca_file))
        return err_no_memory(err);
    client->options.base_url = client->base_url;
    client->options.ca_file = client->ca_file;
    if (options->key && options->key->text &&
        (secret_from_text(options->key->text, &client->key, err) < 0 ||
         hide(client, client->key.text, strlen(client->key.text), err) < 0))
        return err->code;
    return copy_headers(client, options->headers, err);
}

int client_new(const struct client_options *options, struct client **ret_client,
               struct hutch_error *err)
{
    struct client *client = calloc(1, sizeof(*client));

    if (!client)
        return err_no_memory(err);
    client->options = *options;
    client->options.key = NULL;
    client->options.headers = NULL;
    client->url = BUF_MAX(LIMIT_URL_BYTES + 64);
    if (fill(client, options, err) < 0) {
        client_free(client);
        return err->code;
    }
    pthread_once(&curl_once, prepare_curl);
    client->multi = curl_ready == CURLE_OK ? curl_multi_init() : NULL;
    if (!client->multi) {
        client_free(client);
        return err_set(err, HUTCH_ERR_SYSTEM, "libcurl cannot be used: %s",
                       curl_easy_strerror(curl_ready));
    }
    *ret_client = client;
    return 0;
}

void client_free(struct client *client)
{
    struct pipe_guard guard;

    if (!client)
        return;
    pipe_guard_begin(&guard); /* connections are ended by a last word */
    curl_multi_cleanup(client->multi);
    pipe_guard_end(&guard);
    for (size_t i = 0; i < client->header_count; i++) {
        explicit_bzero(client->headers[i], strlen(client->headers[i])); /* may be a secret */
        free(client->headers[i]);
    }
    for (size_t i = 0; i < client->hidden_count; i++) {
        if (client->hidden[i])
            explicit_bzero(client->hidden[i], strlen(client->hidden[i]));
        free(client->hidden[i]);
    }
    free(client->hidden);
    secret_done(&client->key);
    buf_done(&client->url);
    free(client->base_url);
    free(client->ca_file);
    free(client);
}

/* ---- headers ---- */

/* The list zeroes nothing by itself, and it holds the key. */
static void headers_done(struct curl_slist **headers)
{
    for (struct curl_slist *at = *headers; at; at = at->next)
        explicit_bzero(at->data, strlen(at->data));
    curl_slist_free_all(*headers);
    *headers = NULL;
}
#define auto_headers __attribute__((cleanup(headers_done)))

static bool add_header(struct curl_slist **headers, const char *text)
{
    struct curl_slist *longer = curl_slist_append(*headers, text);

    if (longer)
        *headers = longer;
    return longer != NULL;
}

static bool add_key(struct curl_slist **headers, const struct client *client)
{
    if (!client->key.text || client->own_authorization)
        return true;
    auto_secret struct secret line = SECRET_NONE;
    if (asprintf(&line.text, "Authorization: Bearer %s", client->key.text) < 0) {
        line.text = NULL;
        return false;
    }
    return add_header(headers, line.text);
}

static bool make_headers(struct curl_slist **headers, const struct client *client, bool stream)
{
    bool good =
        add_header(headers, "Content-Type: application/json") &&
        add_header(headers, stream ? "Accept: text/event-stream" : "Accept: application/json") &&
        add_header(headers, "Expect:") && add_key(headers, client);

    for (size_t i = 0; i < client->header_count && good; i++)
        good = add_header(headers, client->headers[i]);
    return good;
}

/* ---- a try ---- */

static const char *const *hidden_of(const struct client *client)
{
    return (const char *const *)client->hidden;
}

/* A call of client_chat. */
struct chat {
    struct client *client;
    const struct chat_request *request;
    const struct client_call *call;
    const char *tools[LIMIT_TOOLS + 1];
    struct buf origin;
    unsigned attempts, tries, empty;
    struct retry_hints hints; /* of the last answer */
    json_t *usage;            /* of the tries that failed; NULL for none */
};

enum verdict { DONE, AGAIN, LATER, FAILED };

static int redirect_failed(struct model_error *error, const char *why, const char *to)
{
    auto_buf struct buf place = BUF_MAX(LIMIT_URL_BYTES);

    endpoint_append_place(&place, to);
    return model_error_set(error, MODEL_REDIRECT,
                           "%s (to %s); set the base URL to where the API is", why,
                           buf_text(&place));
}

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 307 || status == 308;
}

/* Sends the request, to where the server redirects it. */
static int follow(struct chat *chat, struct transfer *transfer, struct answer *answer,
                  struct model_error *error)
{
    char url[LIMIT_URL_BYTES + 64];

    memcpy(url, transfer->url, strlen(transfer->url) + 1);
    transfer->url = url;
    for (int i = 0; i <= LIMIT_REDIRECTS; i++) {
        answer_done(answer);
        *answer = ANSWER_NONE;
        chat->attempts++;
        if (transfer_run(transfer, answer, error) < 0)
            return -1;
        if (!is_redirect(answer->http_status) || answer->redirect[0] == '\0')
            return 0;
        if (!endpoint_may_follow(url, answer->redirect))
            return redirect_failed(error, "the server redirects to another host, which gets no key",
                                   answer->redirect);
        memcpy(url, answer->redirect, strlen(answer->redirect) + 1);
    }
    return redirect_failed(error, "the server redirects in circles", url);
}

static int send_once(struct chat *chat, struct reply_builder *builder, struct answer *answer,
                     struct model_error *error)
{
    struct client *client = chat->client;
    auto_headers struct curl_slist *headers = NULL;
    auto_buf struct buf body = BUF_MAX(2 * LIMIT_CONVERSATION_BYTES);
    bool stream = chat_request_streams(chat->request, &client->quirks);
    struct hutch_error err;

    if (chat_request_write(chat->request, &client->quirks, chat->origin.data, &body, &err) < 0)
        return model_error_from(error, MODEL_INVALID, &err);
    if (!make_headers(&headers, client, stream))
        return model_error_set(error, MODEL_NO_MEMORY, "out of memory");
    struct transfer transfer = {
        .multi = client->multi,
        .options = &client->options,
        .url = client->url.data,
        .headers = headers,
        .body = &body,
        .hidden = hidden_of(client),
        .cancel_fd = chat->call->cancel_fd,
        .deadline_ns = chat->call->deadline_ns,
        .builder = builder,
    };
    return follow(chat, &transfer, answer, error);
}

/* ---- statuses ---- */

/* The key of OpenRouter goes to no other host. */
static const char *no_key_advice(const char *url)
{
    return endpoint_is_openrouter(url)
               ? "; no API key was sent: set OPENROUTER_API_KEY, or give a file of it (key_file, "
                 "--key-file)"
               : "; no API key was sent: set OPENAI_API_KEY, or give a file of it (key_file, "
                 "--key-file)";
}

static const char *not_found_advice(const char *url)
{
    if (strstr(url, "/chat/completions/"))
        return "; the base URL must not have /chat/completions, which hutch puts behind it";
    if (!strstr(url, "/v1"))
        return "; is the /v1 missing that most base URLs end in? Else check the model's name";
    return "; check the model's name and the base URL";
}

/* What the caller can do about a status. */
static const char *advice(int status, bool has_key, const char *url)
{
    switch (status) {
    case 401:
        return has_key ? "; the server does not accept the API key" : no_key_advice(url);
    case 402:
        return "; the account has no credit";
    case 403:
        return "; the server does not allow this: check the key's rights, the model and the base "
               "URL";
    case 404:
        return not_found_advice(url);
    case 413:
        return "; the conversation is too long for the server";
    case 429:
        return "; too many requests: try again later";
    default:
        return status >= 500 ? "; the fault is the server's: try again later, or see its log" : "";
    }
}

static bool says(const struct answer *answer, const char *word)
{
    return strstr(buf_text(&answer->body), word) != NULL;
}

/* A fault of how the server is set up, which no retry mends. */
static const char *setup_fault(const struct answer *answer)
{
    if (answer->http_status < 500)
        return NULL;
    if (says(answer, "--jinja"))
        return "; the server has to be started with --jinja";
    if (says(answer, "no user query found in messages"))
        return "; the server cuts the conversation at its context length: raise that (num_ctx)";
    return NULL;
}

/* A page of HTML is its text, without the tags. */
static void take_tags_out(char *words, size_t size)
{
    char text[MODEL_ERROR_BYTES / 2];
    size_t length = 0;
    bool in_tag = false;

    for (const char *c = words; *c && length + 1 < sizeof(text); c++) {
        in_tag = in_tag || *c == '<';
        char next = in_tag ? ' ' : *c; /* a word ends at a tag */
        if (next != ' ' || (length > 0 && text[length - 1] != ' '))
            text[length++] = next;
        in_tag = in_tag && *c != '>';
    }
    length -= length > 0 && text[length - 1] == ' ';
    text[length] = '\0';
    snprintf(words, size, "a page of HTML: %.*s", (int)(size - sizeof("a page of HTML: ")), text);
}

static void status_error(const struct client *client, const struct answer *answer,
                         struct model_error *error)
{
    char words[MODEL_ERROR_BYTES / 2];
    const char *fault = setup_fault(answer);
    int status = answer->http_status;

    model_server_words(buf_text(&answer->body), answer->body.length, hidden_of(client), words,
                       sizeof(words));
    if (words[0] == '<')
        take_tags_out(words, sizeof(words));
    model_error_set(
        error, model_error_kind_of(status), "HTTP %d%s%s%s%s%s%s", status, words[0] ? ": " : "",
        words,
        fault ? fault
              : advice(status, client->key.text || client->own_authorization, client->url.data),
        answer->request_id[0] ? " (request id " : "", answer->request_id,
        answer->request_id[0] ? ")" : "");
    error->retry_safe =
        answer->hints.wanted >= 0 ? answer->hints.wanted : !fault && model_status_retried(status);
}

/* Whether the server refused a form that has another one, which is remembered. */
static bool adapt(struct chat *chat, const struct answer *answer)
{
    struct chat_quirks *quirks = &chat->client->quirks;
    const struct chat_request *request = chat->request;
    bool stream = chat_request_streams(request, quirks);
    bool *quirk = NULL;

    if (says(answer, "attribute 'content'")) /* of a template, under status 500 */
        quirk = &quirks->empty_content;
    else if (answer->http_status != 400 && answer->http_status != 422)
        return false;
    else if (stream && says(answer, "stream_options"))
        quirk = &quirks->no_stream_options;
    else if (request->max_tokens > 0 && !request->max_completion_tokens &&
             !json_object_get(request->extra, "max_completion_tokens") &&
             says(answer, "max_completion_tokens"))
        quirk = &quirks->max_completion_tokens;
    else if (!stream && says(answer, "enable_thinking"))
        quirk = &quirks->only_streams;
    if (!quirk || *quirk)
        return false;
    *quirk = true;
    return true;
}

/* ---- verdicts ---- */

static enum verdict judge_error(struct chat *chat, struct model_error *error)
{
    if (!error->retry_safe || chat->tries >= chat->client->options.retries)
        return FAILED;
    if (error->kind == MODEL_EMPTY && chat->empty++ > 0)
        return FAILED;
    return LATER;
}

static int finish_reply(struct chat *chat, struct reply_builder *builder, struct reply *reply,
                        struct model_error *error)
{
    struct hutch_error err;

    if (reply_finish(builder, reply, error) < 0)
        return -1;
    reply->message.origin = message_copy_name(chat->origin.data, chat->origin.length);
    if (reply->message.origin)
        return 0;
    err_set(&err, HUTCH_ERR_NO_MEMORY, "out of memory");
    return model_error_from(error, MODEL_NO_MEMORY, &err);
}

/* Sets what every error of a try says besides. */
static void complete_error(const struct chat *chat, const struct answer *answer,
                           const struct reply_builder *builder, struct model_error *error)
{
    error->http_status = answer->http_status;
    memcpy(error->request_id, answer->request_id, sizeof(error->request_id));
    error->attempts = chat->attempts;
    if (builder->shown) {
        error->text_shown = true;
        error->retry_safe = false;
    }
    secret_hide(hidden_of(chat->client), error->message);
}

/* Tokens of a try that failed were taken all the same. A server is not trusted to keep small what
 * it says of them. */
static enum verdict keep_usage(struct chat *chat, const json_t *usage, enum verdict verdict,
                               struct model_error *error)
{
    auto_buf struct buf text = BUF_MAX(LIMIT_USAGE_BYTES);
    struct hutch_error err;

    if (!usage)
        return verdict;
    json_append_value(&text, usage);
    if (text.failure != BUF_OK || usage_add(&chat->usage, usage, &err) == 0)
        return verdict;
    model_error_from(error, MODEL_NO_MEMORY, &err);
    return FAILED;
}

/* Gives the reply the sum. */
static int settle_usage(struct chat *chat, int code, struct reply *reply, struct model_error *error)
{
    struct hutch_error err;

    if (!chat->usage)
        return code;
    if (code == 0 && reply->usage && usage_add(&chat->usage, reply->usage, &err) < 0)
        code = model_error_from(error, MODEL_NO_MEMORY, &err);
    json_decref(reply->usage); /* of a reply that broke it is counted already */
    reply->usage = TAKE_POINTER(chat->usage);
    return code;
}

static enum verdict try_once(struct chat *chat, struct reply *reply, struct model_error *error)
{
    const struct reply_options options = {
        .tools = chat->tools,
        .conversation = chat->request->conversation,
        .on_text = chat->call->on_text,
        .on_reasoning = chat->call->on_reasoning,
        .user = chat->call->user,
        .hidden = hidden_of(chat->client),
    };
    auto_answer struct answer answer = ANSWER_NONE;
    struct reply_builder builder;
    enum verdict verdict = DONE;

    reply_builder_init(&builder, &options);
    int code = send_once(chat, &builder, &answer, error);
    if (code == 0 && answer.http_status >= 300) {
        status_error(chat->client, &answer, error);
        verdict = adapt(chat, &answer) ? AGAIN : FAILED;
    } else if (code < 0 || finish_reply(chat, &builder, reply, error) < 0) {
        verdict = FAILED;
    }
    chat->hints = answer.hints;
    if (verdict == FAILED) {
        complete_error(chat, &answer, &builder, error);
        verdict = keep_usage(chat, builder.usage, judge_error(chat, error), error);
    }
    if (verdict == FAILED && builder.shown) {
        reply_done(reply);
        reply_take_partial(&builder, reply);
    }
    reply_builder_done(&builder);
    return verdict;
}

/* ---- the call ---- */

/* Waits before the next try. -1: cancelled. *ret_late: there is no time for it. */
static int wait_for_retry(struct chat *chat, bool *ret_late, struct model_error *error)
{
    uint32_t random = 0;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
        random = (uint32_t)clock_now_ns();
    uint64_t until = clock_after_ns(
        retry_delay_ns(&chat->hints, chat->tries, chat->client->options.retry_ms, random));
    *ret_late = until >= chat->call->deadline_ns;
    if (*ret_late)
        return 0;
    chat->tries++;
    while (clock_now_ns() < until) {
        if (fd_wait(chat->call->cancel_fd, POLLIN, until) > 0) {
            unsigned attempts = error->attempts;
            model_error_set(error, MODEL_CANCELLED, "cancelled by the caller");
            error->attempts = attempts;
            return -1;
        }
    }
    return 0;
}

static int try_until_done(struct chat *chat, struct reply *reply, struct model_error *error)
{
    for (;;) {
        bool late = false;
        enum verdict verdict = try_once(chat, reply, error);
        if (verdict == LATER && wait_for_retry(chat, &late, error) < 0)
            return -1;
        if (verdict == FAILED || late)
            return -1;
        if (verdict == DONE)
            return 0;
    }
}

static int check_call(const struct chat *chat, struct model_error *error)
{
    const struct client *client = chat->client;
    struct hutch_error err;

    if (chat_request_check(chat->request, &err) < 0)
        return model_error_from(error, MODEL_INVALID, &err);
    if (!client->key.text && !client->own_authorization && endpoint_wants_key(client->url.data))
        return model_error_set(
            error, MODEL_NO_KEY,
            "no API key: set %s, or give a file of it (key_file, --key-file), or the "
            "base URL of a server that needs none",
            endpoint_is_openrouter(client->url.data)
                ? "OPENROUTER_API_KEY"
                : "OPENAI_API_KEY (for OpenRouter OPENROUTER_API_KEY)");
    if (fd_wait(chat->call->cancel_fd, POLLIN, 0) > 0)
        return model_error_set(error, MODEL_CANCELLED, "cancelled by the caller");
    return 0;
}

int client_chat(struct client *client, const struct chat_request *request,
                const struct client_call *call, struct reply *ret_reply, struct model_error *error)
{
    struct chat chat = {
        .client = client,
        .request = request,
        .call = call,
        .hints = RETRY_NO_HINTS,
        .origin = BUF_MAX(LIMIT_URL_BYTES + KIB(4)),
    };
    struct pipe_guard guard;
    struct hutch_error err;

    *ret_reply = (struct reply){.finish = REPLY_STOP};
    memset(error, 0, sizeof(*error));
    if (check_call(&chat, error) < 0)
        return -1;
    chat_request_tools(request, chat.tools);
    pipe_guard_begin(&guard);
    buf_appendf(&chat.origin, "%s %s", client->url.data, request->model);
    int code = buf_check(&chat.origin, &err);
    if (code < 0)
        model_error_from(error, MODEL_INVALID, &err);
    else
        code = try_until_done(&chat, ret_reply, error);
    pipe_guard_end(&guard);
    buf_done(&chat.origin);
    code = settle_usage(&chat, code, ret_reply, error);
    if (code == 0)
        memset(error, 0, sizeof(*error)); /* of earlier tries */
    return code < 0 ? -1 : 0;
}
