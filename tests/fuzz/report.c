/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hostile cell writes to its channel, on its whole way through the engine:
 * frames, claims, the judged result, JSON. However the bytes are cut into reads,
 * they give the same frames.
 *
 * Input: a byte of flags, the size of a read, the exit status, the bytes.
 */
#include "fuzz.h"

#include "sandbox/outcome.h"
#include "sandbox/report.h"
#include "sandbox/result.h"

#include <stdlib.h>
#include <string.h>

#define TRACE_BYTES (1u << 20)
#define PIECES_MAX 64 /* then all the rest comes at once */

enum { WITH_GATE = 1, LANGUAGE = 6 };

/* A frame where it was found. */
struct found {
    size_t at, length;
    uint32_t type, flags;
};

static uint32_t maximum_of(uint32_t type)
{
    switch (type) {
    case WIRE_VALUE:
        return WIRE_MAX_VALUE;
    case WIRE_RICH:
        return WIRE_MAX_RICH;
    case WIRE_DONE: /* of a session, as the next */
        return sizeof(struct wire_done);
    case WIRE_READY:
        return 0;
    default:
        assert(type == WIRE_ERROR || type == WIRE_VERDICT);
        return WIRE_MAX_ERROR;
    }
}

/* A frame that more bytes are waited for: it may become one that fits. */
static void check_waiting(const char *data, size_t length)
{
    struct wire_header header;

    if (length < sizeof(header))
        return;
    memcpy(&header, data, sizeof(header));
    assert(header.length > length - sizeof(header));
    assert(header.length <= maximum_of(header.type));
}

/* Reads the frames of a prefix of the bytes that begin at *at, and notes them. */
static enum report_state read_frames(const char *data, size_t length, size_t *at, struct buf *trace)
{
    struct report report;
    enum report_state state;

    while ((state = report_read(data + *at, length - *at, &report)) == REPORT_WHOLE) {
        assert(report.length <= maximum_of(report.type));
        assert(REPORT_BYTES(&report) <= length - *at);
        assert(report.data == data + *at + sizeof(struct wire_header));
        struct found found = {*at, report.length, report.type, report.flags};
        buf_append(trace, &found, sizeof(found));
        *at += REPORT_BYTES(&report);
    }
    if (state == REPORT_MORE)
        check_waiting(data + *at, length - *at);
    return state;
}

/* The same bytes as they come in reads of the given size, each time in memory of
 * just what is there. */
static void check_pieces(const struct hutch_text *channel, size_t size, const struct buf *whole,
                         enum report_state expected)
{
    auto_buf struct buf trace = BUF_MAX(TRACE_BYTES);
    size_t at = 0, have = 0;
    enum report_state state = REPORT_MORE;

    for (size_t piece = 1; have < channel->length && state != REPORT_BROKEN; piece++) {
        size_t left = channel->length - have;
        have += size < left && piece < PIECES_MAX ? size : left;
        auto_free char *copy = malloc(have);
        assert(copy);
        memcpy(copy, channel->data, have);
        state = read_frames(copy, have, &at, &trace);
    }
    assert(state == expected);
    check_bytes(&trace, whole->data, whole->length);
}

static void check_claim(const struct claim *claim, const struct buf *text)
{
    if (!claim->present)
        return;
    assert(claim->type == text->data + sizeof(struct wire_error));
    assert(claim->message == claim->type + claim->type_length);
    assert(claim->message + claim->message_length == text->data + text->length);
}

/* Each is kept, or counted. */
static void check_rich(const struct rich_list *list, size_t frames)
{
    assert(list->count <= WIRE_MAX_RICH_COUNT && list->bytes <= WIRE_MAX_RICH_BYTES);
    assert(list->count + list->dropped == frames);
}

/* Adds the frames, each from memory that is gone afterwards. */
static void add_all(struct reports *reports, const struct hutch_text *channel)
{
    struct hutch_error err;
    struct report report;
    bool verdict_first = false;
    size_t rich = 0;

    for (size_t at = 0;
         report_read(channel->data + at, channel->length - at, &report) == REPORT_WHOLE;
         at += REPORT_BYTES(&report)) {
        auto_free char *copy = malloc(report.length ? report.length : 1);
        assert(copy);
        memcpy(copy, report.data, report.length);
        struct report moved = report;
        moved.data = copy;
        int code = reports_add(reports, &moved, &err);
        assert(code == 0);
        rich += report.type == WIRE_RICH;
        verdict_first = verdict_first || (at == 0 && report.type == WIRE_VERDICT);
    }
    assert(!reports->refusal.present || (reports->gate && verdict_first));
    check_claim(&reports->claim, &reports->claim_text);
    check_claim(&reports->refusal, &reports->refusal_text);
    check_rich(&reports->rich, rich);
}

static struct hutch_text nothing(void)
{
    struct hutch_text text = {.data = calloc(1, 1)};

    assert(text.data);
    return text;
}

/* The fields as run.c fills them, for a program that printed nothing. */
static void check_judgement(struct reports *reports, enum hutch_language language, int status)
{
    struct hutch_error err;
    struct hutch_request request;
    struct hutch_result *result = NULL;
    const struct cell_exit exit = {.wait_status = status};

    hutch_request_init(&request);
    request.language = language;
    int code = result_new(&request, "namespace", &result, &err);
    assert(code == 0);
    result->stdout_text = nothing();
    result->stderr_text = nothing();
    const struct outcome_facts facts = {
        .exit = &exit,
        .request = &request,
        .claim = reports->claim.present ? &reports->claim : NULL,
        .refusal = reports->refusal.present ? &reports->refusal : NULL,
        .stderr_text = &result->stderr_text,
    };
    code = outcome_judge(&facts, result, &err);
    assert(code == 0);
    code = result_set_value(result, reports->value.data, reports->value.length, &err);
    assert(code == 0);
    assert((result->value.data != NULL) == (reports->value.data != NULL));
    result_take_rich(result, &reports->rich);
    assert(result->exit_code != -2 || reports->refusal.present);
    check_result(result);
    hutch_result_free(result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    unsigned flags = (unsigned)input_number(&input, 1);
    size_t read_size = 1 + (size_t)input_number(&input, 1);
    int status = (int)input_number(&input, 1) << 8;
    struct hutch_text channel = input_bytes(&input, SIZE_MAX);
    auto_buf struct buf trace = BUF_MAX(TRACE_BYTES);
    struct reports reports;
    size_t at = 0;

    enum report_state state = read_frames(channel.data, channel.length, &at, &trace);
    check_pieces(&channel, read_size, &trace, state);
    reports_init(&reports, (flags & WITH_GATE) != 0);
    add_all(&reports, &channel);
    check_judgement(&reports, (enum hutch_language)((flags & LANGUAGE) / 2 % 3), status);
    reports_done(&reports);
    free(channel.data);
    return 0;
}
