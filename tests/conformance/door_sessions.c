/* SPDX-License-Identifier: Apache-2.0 */
/* See door_sessions.h. */
#include "door_sessions.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SESSIONS 1024
#define PREFIX "session "

/* One that is there, and the token of its execs. Lock: guards the table. */
static struct entry {
    hutch_session *session;
    hutch_cancel *cancel;
} entries[MAX_SESSIONS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int fail(struct hutch_error *err, const char *message)
{
    *err = (struct hutch_error){.code = HUTCH_ERR_INVALID};
    snprintf(err->message, sizeof(err->message), "%s", message);
    return err->code;
}

/* The next word, which gets its end; "" behind the last one. */
static char *next_word(char **rest)
{
    char *word = *rest;
    char *end = word + strcspn(word, " ");

    *rest = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

/* At most six digits; anything else is MAX_SESSIONS or more. */
static uint32_t number_of(const char *word)
{
    uint32_t number = 0;

    if (strspn(word, "0123456789") != strlen(word) || strlen(word) < 1 || strlen(word) > 6)
        return UINT32_MAX;
    for (; *word; word++)
        number = number * 10 + (uint32_t)(*word - '0');
    return number;
}

static int print_json(char **ret_json, hutch_session *session)
{
    struct hutch_session_info info;
    size_t size = 512;
    char *json = malloc(size);

    if (!json)
        return HUTCH_ERR_NO_MEMORY;
    snprintf(json, size, "{}");
    if (session) {
        hutch_session_get_info(session, &info);
        snprintf(json, size,
                 "{\"session_id\": \"%s\", \"language\": \"%s\", \"idle_timeout_seconds\": %.3f, "
                 "\"lifetime_seconds\": %.3f, \"expires_in_seconds\": %.3f}",
                 info.session_id, info.language, info.idle_timeout_seconds, info.lifetime_seconds,
                 info.expires_in_seconds);
    }
    *ret_json = json;
    return 0;
}

static int open_session(hutch_engine *engine, uint32_t number, char *rest, struct hutch_error *err)
{
    struct hutch_session_options options;
    hutch_json_request *request;
    struct entry entry = {.session = NULL};

    hutch_session_options_init(&options);
    options.idle_timeout_seconds = number_of(next_word(&rest));
    options.lifetime_seconds = number_of(next_word(&rest));
    options.checkpoints = number_of(next_word(&rest)) == 1;
    int code = hutch_json_request_parse(rest, strlen(rest), &request, err);
    if (code < 0)
        return code;
    code = hutch_cancel_new(&entry.cancel, err);
    if (code == 0)
        code = hutch_session_open(engine, hutch_json_request_get(request), &options, &entry.session,
                                  err);
    hutch_json_request_free(request);
    if (code < 0) {
        hutch_cancel_free(entry.cancel);
        return code;
    }
    pthread_mutex_lock(&lock);
    entries[number] = entry;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* A token cancels every exec from then on, so a new one takes its place. */
static int renew_cancel(uint32_t number, struct hutch_error *err)
{
    hutch_cancel *fresh;
    int code = hutch_cancel_new(&fresh, err);

    if (code < 0)
        return code;
    pthread_mutex_lock(&lock);
    hutch_cancel *old = entries[number].cancel;
    entries[number].cancel = fresh;
    pthread_mutex_unlock(&lock);
    hutch_cancel_free(old);
    return 0;
}

static int exec(struct entry *entry, uint32_t number, const char *json, char **ret_json,
                struct hutch_error *err)
{
    const struct hutch_run_options options = {.size = sizeof(options), .cancel = entry->cancel};
    hutch_json_request *request;
    hutch_result *result = NULL;
    struct hutch_error ignored;

    int code = hutch_json_request_parse(json, strlen(json), &request, err);
    if (code < 0)
        return code;
    code =
        hutch_session_exec(entry->session, hutch_json_request_get(request), &options, &result, err);
    hutch_json_request_free(request);
    if (code == 0)
        code = hutch_result_to_json(result, ret_json, err);
    hutch_result_free(result);
    if (code == HUTCH_ERR_CANCELLED && renew_cancel(number, &ignored) < 0)
        return fail(err, "no new token");
    return code;
}

static void close_session(uint32_t number)
{
    pthread_mutex_lock(&lock);
    struct entry entry = entries[number];
    entries[number] = (struct entry){.session = NULL};
    pthread_mutex_unlock(&lock);
    hutch_session_close(entry.session);
    hutch_cancel_free(entry.cancel);
}

bool door_is_session_line(const char *line, size_t length)
{
    return length > strlen(PREFIX) && strncmp(line, PREFIX, strlen(PREFIX)) == 0;
}

int door_answer_session(hutch_engine *engine, char *line, size_t length, char **ret_json,
                        struct hutch_error *err)
{
    char *rest = line + strlen(PREFIX);

    line[length] = '\0';
    uint32_t number = number_of(next_word(&rest));
    const char *verb = next_word(&rest);
    if (number >= MAX_SESSIONS)
        return fail(err, "no number of a session");
    if (strcmp(verb, "open") == 0 && open_session(engine, number, rest, err) < 0)
        return err->code;
    pthread_mutex_lock(&lock);
    struct entry entry = entries[number];
    pthread_mutex_unlock(&lock);
    if (!entry.session)
        return fail(err, "no session of that number");
    if (strcmp(verb, "exec") == 0)
        return exec(&entry, number, rest, ret_json, err);
    if (strcmp(verb, "interrupt") == 0)
        hutch_session_interrupt(entry.session);
    else if (strcmp(verb, "cancel") == 0)
        hutch_cancel_trigger(entry.cancel);
    else if (strcmp(verb, "close") == 0)
        close_session(number);
    else if (strcmp(verb, "open") != 0 && strcmp(verb, "info") != 0)
        return fail(err, "no word for sessions");
    bool has_info = strcmp(verb, "open") == 0 || strcmp(verb, "info") == 0;
    return print_json(ret_json, has_info ? entry.session : NULL);
}

void door_close_sessions(void)
{
    for (uint32_t i = 0; i < MAX_SESSIONS; i++)
        close_session(i);
}
