/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every end of a run, with any claim and any output: the judged result agrees with
 * itself, and its JSON with it.
 *
 * Input: ten bytes of facts, two with the length of the claim's frame, then that
 * frame, and what the program printed, half of it on stderr.
 */
#include "fuzz.h"

#include "sandbox/capture.h"
#include "sandbox/outcome.h"
#include "sandbox/report.h"
#include "sandbox/result.h"

#include <stdlib.h>
#include <sys/wait.h>

/* A wait status of an ended process: an exit code, or a signal's number. */
static int status_of(uint64_t choice)
{
    int number = (int)(choice & 0xff);

    if (choice & 0x100)
        return number % 64 + 1;
    return number << 8;
}

/* Prints bytes in pieces of a size and gives what is kept of them. */
static void print_output(struct input *input, size_t length, size_t piece, uint64_t max,
                         enum hutch_encoding encoding, struct hutch_text *ret_text,
                         uint64_t *ret_bytes, bool *ret_truncated)
{
    struct hutch_error err;
    struct capture capture;
    bool truncated;

    capture_init(&capture, max);
    while (length > 0) {
        struct hutch_text bytes = input_bytes(input, piece < length ? piece : length);
        int code = capture_add(&capture, bytes.data, bytes.length, &err);
        assert(code == 0);
        length -= bytes.length;
        free(bytes.data);
    }
    *ret_bytes = capture.total;
    int code = capture_finish(&capture, encoding, ret_text, &truncated, &err);
    assert(code == 0);
    *ret_truncated = *ret_truncated || truncated;
    capture_done(&capture);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct hutch_error err;
    struct hutch_request request;
    struct hutch_result *result = NULL;
    struct claim claim;

    hutch_request_init(&request);
    request.language = (enum hutch_language)(input_number(&input, 1) % 3);
    request.output_encoding = (enum hutch_encoding)(input_number(&input, 1) % 2);
    struct cell_exit exit = {
        .end = (enum cell_end)(input_number(&input, 1) % 4),
        .wait_status = status_of(input_number(&input, 2)),
        .oom_kills = input_number(&input, 1) / 0x80,
        .process_limit_hits = input_number(&input, 1) / 0x80,
        .duration_ns = input_number(&input, 1) * 1234567891,
    };
    assert(WIFEXITED(exit.wait_status) || WIFSIGNALED(exit.wait_status));
    size_t piece = 1 + (size_t)input_number(&input, 1);
    uint16_t flags = (uint16_t)input_number(&input, 1);
    struct hutch_text frame = input_bytes(&input, (size_t)input_number(&input, 2));
    claim_parse(&claim, frame.data, frame.length, flags);
    bool refused = (flags & 0x80) != 0;

    int code = result_new(&request, "namespace", &result, &err);
    assert(code == 0);
    size_t half = input.length / 2;
    print_output(&input, half, piece, 64, request.output_encoding, &result->stderr_text,
                 &result->stderr_bytes, &result->truncated);
    print_output(&input, input.length, piece, 64, request.output_encoding, &result->stdout_text,
                 &result->stdout_bytes, &result->truncated);
    const struct outcome_facts facts = {
        .exit = &exit,
        .request = &request,
        .claim = claim.present && !refused ? &claim : NULL,
        .refusal = claim.present && refused ? &claim : NULL,
        .stderr_text = &result->stderr_text,
    };
    code = outcome_judge(&facts, result, &err);
    assert(code == 0);
    code = result_set_value(result, frame.data, frame.length, &err);
    assert(code == 0);
    result->duration_ms = (double)exit.duration_ns / 1e6;
    check_result(result);
    assert(!result->timed_out || exit.end == CELL_END_TIMEOUT);
    /* a claim of before the end says nothing of it */
    assert(WIFEXITED(exit.wait_status) || !result->error_class);
    assert(exit.end == CELL_END_EXIT || !result->error_class);
    hutch_result_free(result);
    free(frame.data);
    return 0;
}
