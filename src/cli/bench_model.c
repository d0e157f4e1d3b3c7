/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See bench_model.h. One thread, one poll loop; a connection has one request at a time, as those
 * of HTTP/1.1 do that wait for each answer. Replies are small: a write that does not take them
 * whole ends the connection.
 */
#include "bench_model.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define CONNECTIONS 256
#define REQUEST_BYTES MIB(8)
#define REPLY_BYTES KIB(4)
#define GAPS 4096 /* that wait to be taken */

struct connection {
    int fd; /* -1: free */
    struct buf request;
    uint64_t sent_ns; /* when the end of the last reply was written; 0: none was */
};

struct bench_model {
    pthread_t thread;
    int listen_fd, end_fd;
    char url[64];
    struct connection connections[CONNECTIONS];
    pthread_mutex_t lock; /* guards what follows */
    uint64_t gaps[GAPS];
    size_t first_gap, gap_count;
    uint64_t token_ns;
};

/* ---- requests ----------------------------------------------------------- */

/* A whole request. */
struct question {
    bool stream;
    uint64_t steps;    /* replies with a call that its path asks for */
    uint64_t answered; /* and those that have been made and answered */
};

static uint64_t count_of(const char *text, size_t length, const char *word)
{
    uint64_t count = 0;
    const char *end = text + length;

    while ((text = memmem(text, (size_t)(end - text), word, strlen(word)))) {
        text += strlen(word);
        count++;
    }
    return count;
}

/* The number behind a word of the head, up to what ends it; false: there is none. */
static bool number_behind(const char *head, const char *word, const char *ends,
                          uint64_t *ret_number)
{
    struct hutch_error err;
    char digits[24];
    const char *at = strcasestr(head, word);

    if (!at)
        return false;
    at += strlen(word);
    at += strspn(at, " ");
    snprintf(digits, sizeof(digits), "%.*s", (int)strcspn(at, ends), at);
    return parse_u64(digits, 0, REQUEST_BYTES, ret_number, &err) == 0;
}

/* Looks whether the request is whole. 1: it is; 0: not yet; -1: it is none that is served. */
static int read_question(const struct buf *request, struct question *ret_question)
{
    const char *text = buf_text(request);
    const char *end = strstr(text, "\r\n\r\n");
    uint64_t length;

    if (!end)
        return request->length < KIB(64) ? 0 : -1;
    auto_free char *head = strndup(text, (size_t)(end - text));
    if (!head || !number_behind(head, "content-length:", "\r\n", &length))
        return -1;
    const char *body = end + 4;
    if (request->length - (size_t)(body - text) < length)
        return 0;
    *ret_question = (struct question){.stream = strstr(head, "/stream/") != NULL};
    if (!number_behind(head, ret_question->stream ? "/stream/" : "/steps/", "/", &length))
        return -1;
    ret_question->steps = length;
    ret_question->answered =
        count_of(body, request->length - (size_t)(body - text), "\"role\":\"tool\"");
    return 1;
}

/* ---- replies ------------------------------------------------------------ */

#define USAGE "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15}"
#define CALL                                                                                       \
    "\"tool_calls\":[{\"index\":0,\"id\":\"call_%llu\",\"type\":\"function\",\"function\":"        \
    "{\"name\":\"" BENCH_MODEL_TOOL "\",\"arguments\":\"{}\"}}]"
#define CHUNK "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,"

static void append_head(struct buf *out, const char *type, size_t length)
{
    buf_appendf(out, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\n", type);
    if (length > 0)
        buf_appendf(out, "Content-Length: %zu\r\n\r\n", length);
    else
        buf_append_text(out, "Transfer-Encoding: chunked\r\n\r\n");
}

static void append_whole(struct buf *out, const struct question *question)
{
    auto_buf struct buf body = BUF_MAX(REPLY_BYTES);

    buf_append_text(&body, "{\"id\":\"x\",\"object\":\"chat.completion\",\"model\":\"bench\","
                           "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",");
    if (question->answered < question->steps)
        buf_appendf(&body, "\"content\":null," CALL "},\"finish_reason\":\"tool_calls\"}],",
                    (unsigned long long)question->answered);
    else
        buf_append_text(&body, "\"content\":\"done\"},\"finish_reason\":\"stop\"}],");
    buf_append_text(&body, USAGE "}");
    append_head(out, "application/json", body.length);
    buf_append(out, buf_text(&body), body.length);
}

/* A piece of a chunked body. */
static void append_piece(struct buf *out, const struct buf *event)
{
    buf_appendf(out, "%zx\r\n", event->length);
    buf_append(out, buf_text(event), event->length);
    buf_append_text(out, "\r\n");
}

static bool write_all(int fd, struct buf *out)
{
    bool done = out->failure == BUF_OK &&
                send(fd, buf_text(out), out->length, MSG_NOSIGNAL) == (ssize_t)out->length;

    buf_clear(out);
    return done;
}

/* The head and a first event without text, then the token or the call, then the rest: three
 * writes, as a server makes them that sends a token when it has it. */
static bool stream_reply(struct bench_model *model, struct connection *connection,
                         const struct question *question)
{
    int fd = connection->fd;
    auto_buf struct buf out = BUF_MAX(REPLY_BYTES);
    auto_buf struct buf event = BUF_MAX(REPLY_BYTES);
    bool calls = question->answered < question->steps;

    append_head(&out, "text/event-stream", 0);
    buf_append_text(&event, CHUNK "\"delta\":{\"role\":\"assistant\"}}]}\n\n");
    append_piece(&out, &event);
    if (!write_all(fd, &out))
        return false;
    buf_clear(&event);
    if (calls)
        buf_appendf(&event, CHUNK "\"delta\":{" CALL "}}]}\n\n",
                    (unsigned long long)question->answered);
    else
        buf_append_text(&event, CHUNK "\"delta\":{\"content\":\"done\"}}]}\n\n");
    append_piece(&out, &event);
    pthread_mutex_lock(&model->lock);
    model->token_ns = clock_now_ns();
    pthread_mutex_unlock(&model->lock);
    if (!write_all(fd, &out))
        return false;
    buf_clear(&event);
    buf_appendf(&event, CHUNK "\"delta\":{},\"finish_reason\":\"%s\"}]," USAGE "}\n\n",
                calls ? "tool_calls" : "stop");
    buf_append_text(&event, "data: [DONE]\n\n");
    append_piece(&out, &event);
    buf_append_text(&out, "0\r\n\r\n");
    connection->sent_ns = clock_now_ns();
    return write_all(fd, &out);
}

static bool answer(struct bench_model *model, struct connection *connection,
                   const struct question *question)
{
    if (question->stream)
        return stream_reply(model, connection, question);
    auto_buf struct buf out = BUF_MAX(REPLY_BYTES);
    append_whole(&out, question);
    connection->sent_ns = clock_now_ns();
    return write_all(connection->fd, &out);
}

/* ---- connections -------------------------------------------------------- */

static void drop(struct connection *connection)
{
    fd_close(&connection->fd);
    buf_done(&connection->request);
}

/* The time that the client took to come back. */
static void note_gap(struct bench_model *model, const struct connection *connection,
                     uint64_t received_ns)
{
    pthread_mutex_lock(&model->lock);
    if (model->gap_count < GAPS)
        model->gaps[(model->first_gap + model->gap_count++) % GAPS] =
            received_ns - connection->sent_ns;
    pthread_mutex_unlock(&model->lock);
}

static void receive(struct bench_model *model, struct connection *connection)
{
    char piece[4096];
    struct question question;

    ssize_t count = recv(connection->fd, piece, sizeof(piece), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        drop(connection);
        return;
    }
    buf_append(&connection->request, piece, (size_t)count);
    int whole = read_question(&connection->request, &question);
    if (connection->request.failure != BUF_OK || whole < 0) {
        drop(connection);
        return;
    }
    if (whole == 0)
        return;
    if (question.answered > 0 && connection->sent_ns > 0)
        note_gap(model, connection, clock_now_ns());
    buf_clear(&connection->request);
    if (!answer(model, connection, &question))
        drop(connection);
}

static void accept_one(struct bench_model *model)
{
    const int on = 1;
    int fd = accept4(model->listen_fd, NULL, NULL, SOCK_CLOEXEC);

    for (size_t i = 0; fd >= 0 && i < CONNECTIONS; i++) {
        if (model->connections[i].fd >= 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        model->connections[i] =
            (struct connection){.fd = TAKE_FD(fd), .request = BUF_MAX(REQUEST_BYTES)};
    }
    fd_close(&fd);
}

static void *serve(void *user)
{
    struct bench_model *model = user;
    struct pollfd wait[CONNECTIONS + 2];

    for (;;) {
        wait[0] = (struct pollfd){.fd = model->end_fd, .events = POLLIN};
        wait[1] = (struct pollfd){.fd = model->listen_fd, .events = POLLIN};
        for (size_t i = 0; i < CONNECTIONS; i++)
            wait[i + 2] = (struct pollfd){.fd = model->connections[i].fd, .events = POLLIN};
        if (poll(wait, ARRAY_LENGTH(wait), -1) < 0)
            continue; /* a signal */
        if (wait[0].revents)
            return NULL;
        for (size_t i = 0; i < CONNECTIONS; i++) {
            if (wait[i + 2].revents)
                receive(model, &model->connections[i]);
        }
        if (wait[1].revents)
            accept_one(model);
    }
}

/* ---- the model ---------------------------------------------------------- */

static int listen_anywhere(struct bench_model *model, struct hutch_error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);

    model->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (model->listen_fd < 0 ||
        bind(model->listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(model->listen_fd, CONNECTIONS) < 0 ||
        getsockname(model->listen_fd, (struct sockaddr *)&address, &length) < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "listen on 127.0.0.1");
    snprintf(model->url, sizeof(model->url), "http://127.0.0.1:%u", ntohs(address.sin_port));
    return 0;
}

static int start(struct bench_model *model, struct hutch_error *err)
{
    model->end_fd = eventfd(0, EFD_CLOEXEC);
    if (model->end_fd < 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, errno, "make an event descriptor");
    if (listen_anywhere(model, err) < 0)
        return err->code;
    int number = pthread_create(&model->thread, NULL, serve, model);
    if (number != 0)
        return err_errno(err, HUTCH_ERR_SYSTEM, number, "start a thread");
    return 0;
}

int bench_model_new(struct bench_model **ret_model, struct hutch_error *err)
{
    struct bench_model *model = calloc(1, sizeof(*model));

    if (!model)
        return err_no_memory(err);
    model->listen_fd = model->end_fd = -1;
    pthread_mutex_init(&model->lock, NULL);
    for (size_t i = 0; i < CONNECTIONS; i++)
        model->connections[i].fd = -1;
    if (start(model, err) < 0) {
        fd_close(&model->listen_fd);
        fd_close(&model->end_fd);
        free(model);
        return err->code;
    }
    *ret_model = model;
    return 0;
}

void bench_model_free(struct bench_model *model)
{
    const uint64_t one = 1;

    if (!model)
        return;
    IGNORE_RESULT(write(model->end_fd, &one, sizeof(one)) < 0);
    pthread_join(model->thread, NULL);
    for (size_t i = 0; i < CONNECTIONS; i++)
        drop(&model->connections[i]);
    fd_close(&model->listen_fd);
    fd_close(&model->end_fd);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

const char *bench_model_url(const struct bench_model *model)
{
    return model->url;
}

bool bench_model_take_gap(struct bench_model *model, uint64_t *ret_ns)
{
    pthread_mutex_lock(&model->lock);
    bool there = model->gap_count > 0;
    if (there) {
        *ret_ns = model->gaps[model->first_gap];
        model->first_gap = (model->first_gap + 1) % GAPS;
        model->gap_count--;
    }
    pthread_mutex_unlock(&model->lock);
    return there;
}

uint64_t bench_model_token_ns(struct bench_model *model)
{
    pthread_mutex_lock(&model->lock);
    uint64_t token_ns = model->token_ns;
    pthread_mutex_unlock(&model->lock);
    return token_ns;
}
