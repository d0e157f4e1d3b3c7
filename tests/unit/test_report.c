/* SPDX-License-Identifier: Apache-2.0 */
/* What a cell writes to its channel: frames, claims, and what of them counts. */
#include "sandbox/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- frames ---- */

static void append_frame(struct buf *channel, uint16_t type, uint32_t length, const char *payload)
{
    struct wire_header header = {.length = length, .type = type, .flags = 9, .exec_id = 1};

    buf_append(channel, &header, sizeof(header));
    buf_append_text(channel, payload);
}

static void a_frame_is_whole_with_its_last_byte(void **state)
{
    (void)state;
    auto_buf struct buf channel = BUF_MAX(100);
    struct report report;

    append_frame(&channel, WIRE_VALUE, 2, "42");
    for (size_t length = 0; length < channel.length; length++)
        assert_int_equal(report_read(channel.data, length, &report), REPORT_MORE);
    append_frame(&channel, WIRE_ERROR, 0, "");
    assert_int_equal(report_read(channel.data, channel.length, &report), REPORT_WHOLE);
    assert_int_equal(report.type, WIRE_VALUE);
    assert_int_equal(report.flags, 9);
    assert_int_equal(report.length, 2);
    assert_memory_equal(report.data, "42", 2);
    size_t used = REPORT_BYTES(&report);
    assert_int_equal(report_read(channel.data + used, channel.length - used, &report),
                     REPORT_WHOLE);
    assert_int_equal(report.type, WIRE_ERROR);
    assert_int_equal(used + REPORT_BYTES(&report), channel.length);
}

static void a_frame_that_no_runner_sends_is_broken(void **state)
{
    (void)state;
    static const struct {
        uint16_t type;
        uint32_t length;
        uint32_t exec_id;
        enum report_state expected;
    } rows[] = {
        {WIRE_VALUE, WIRE_MAX_VALUE, 1, REPORT_MORE},
        {WIRE_VALUE, WIRE_MAX_VALUE + 1, 1, REPORT_BROKEN},
        {WIRE_ERROR, WIRE_MAX_ERROR, 1, REPORT_MORE},
        {WIRE_ERROR, WIRE_MAX_ERROR + 1, 1, REPORT_BROKEN},
        {WIRE_VERDICT, WIRE_MAX_ERROR + 1, 1, REPORT_BROKEN},
        {WIRE_RICH, WIRE_MAX_RICH, 1, REPORT_MORE},
        {WIRE_RICH, WIRE_MAX_RICH + 1, 1, REPORT_BROKEN},
        {WIRE_VALUE, UINT32_MAX, 1, REPORT_BROKEN},
        {WIRE_DONE, sizeof(struct wire_done), 1, REPORT_MORE},
        {WIRE_DONE, sizeof(struct wire_done) + 1, 1, REPORT_BROKEN},
        {WIRE_READY, 0, 1, REPORT_WHOLE},
        {WIRE_READY, 1, 1, REPORT_BROKEN},
        {WIRE_RUN, 1, 1, REPORT_BROKEN},
        {WIRE_GATE, 1, 1, REPORT_BROKEN},
        {0, 0, 1, REPORT_BROKEN},
        {UINT16_MAX, 0, 1, REPORT_BROKEN},
    };
    struct report report;

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct wire_header header = {
            .length = rows[i].length, .type = rows[i].type, .exec_id = rows[i].exec_id};
        assert_int_equal(report_read((const char *)&header, sizeof(header), &report),
                         rows[i].expected);
    }
}

/* ---- claims ---- */

static size_t make_frame(char *frame, const char *type, size_t type_length, const char *message)
{
    struct wire_error head = {.line = 7, .type_length = (uint32_t)type_length, .sys_errno = 28};

    memcpy(frame, &head, sizeof(head));
    memcpy(frame + sizeof(head), type, strlen(type));
    memcpy(frame + sizeof(head) + strlen(type), message, strlen(message));
    return sizeof(head) + strlen(type) + strlen(message);
}

static void a_claim_is_read_from_its_frame(void **state)
{
    (void)state;
    char frame[100];
    struct claim claim;
    size_t length = make_frame(frame, "OSError", 7, "full");

    claim_parse(&claim, frame, length, WIRE_ERROR_COMPILE);
    assert_true(claim.present);
    assert_true(claim.compile);
    assert_int_equal(claim.line, 7);
    assert_int_equal(claim.sys_errno, 28);
    assert_int_equal(claim.type_length, 7);
    assert_memory_equal(claim.type, "OSError", 7);
    assert_int_equal(claim.message_length, 4);
    assert_memory_equal(claim.message, "full", 4);
    assert_false(claim.import);
    claim_parse(&claim, frame, length, WIRE_ERROR_IMPORT);
    assert_true(claim.import);
    assert_false(claim.compile);
    claim_parse(&claim, frame, length, 0);
    assert_false(claim.compile);
    assert_false(claim.import);
    claim_parse(&claim, frame, sizeof(struct wire_error) + 7, 0); /* no message */
    assert_true(claim.present);
    assert_int_equal(claim.message_length, 0);
}

static void a_malformed_claim_is_none(void **state)
{
    (void)state;
    char frame[100];
    struct claim claim;
    size_t length = make_frame(frame, "OSError", 7, "full");

    for (size_t cut = 0; cut < sizeof(struct wire_error) + 7; cut++) {
        claim.present = true;
        claim_parse(&claim, frame, cut, 0);
        assert_false(claim.present);
    }
    static const size_t too_long[] = {12, 1000, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LENGTH(too_long); i++) {
        make_frame(frame, "OSError", too_long[i], "full");
        claim_parse(&claim, frame, length, 0);
        assert_false(claim.present);
    }
}

/* ---- what counts ---- */

static void add(struct reports *reports, enum wire_type type, const char *message)
{
    char data[100];
    struct hutch_error err;
    size_t length = make_frame(data, "", 0, message);
    const struct report report = {.type = type, .data = data, .length = length};

    assert_int_equal(reports_add(reports, &report, &err), 0);
}

static void assert_claim(const struct claim *claim, const char *message)
{
    assert_true(claim->present);
    assert_int_equal(claim->message_length, strlen(message));
    assert_memory_equal(claim->message, message, strlen(message));
}

static void the_last_claim_counts(void **state)
{
    (void)state;
    struct reports reports;
    struct hutch_error err;
    const struct report malformed = {.type = WIRE_ERROR, .data = "x", .length = 1};

    reports_init(&reports, false);
    assert_null(reports.value.data);
    add(&reports, WIRE_ERROR, "first");
    add(&reports, WIRE_ERROR, "second");
    assert_claim(&reports.claim, "second");
    assert_int_equal(reports_add(&reports, &malformed, &err), 0);
    assert_false(reports.claim.present);
    const struct report empty = {.type = WIRE_VALUE, .data = ""};
    assert_int_equal(reports_add(&reports, &empty, &err), 0);
    assert_non_null(reports.value.data);
    assert_int_equal(reports.value.length, 0);
    reports_done(&reports);
}

static void only_the_first_report_can_be_a_verdict(void **state)
{
    (void)state;
    struct reports reports;

    reports_init(&reports, true);
    add(&reports, WIRE_VERDICT, "refused");
    add(&reports, WIRE_VERDICT, "forged");
    assert_claim(&reports.refusal, "refused");
    reports_done(&reports);

    reports_init(&reports, true);
    add(&reports, WIRE_ERROR, "claim");
    add(&reports, WIRE_VERDICT, "forged");
    assert_false(reports.refusal.present);
    assert_claim(&reports.claim, "claim");
    reports_done(&reports);

    reports_init(&reports, false); /* nobody asked */
    add(&reports, WIRE_VERDICT, "forged");
    assert_false(reports.refusal.present);
    reports_done(&reports);
}

static void rich_outputs_all_count(void **state)
{
    (void)state;
    static const char first[] = "text/html\0first", second[] = "text/html\0second";
    const struct report rich[] = {
        {.type = WIRE_RICH, .data = first, .length = sizeof(first) - 1},
        {.type = WIRE_RICH, .data = second, .length = sizeof(second) - 1},
        {.type = WIRE_RICH, .data = ""},
    };
    struct reports reports;
    struct hutch_error err;

    reports_init(&reports, true);
    for (size_t i = 0; i < ARRAY_LENGTH(rich); i++)
        assert_int_equal(reports_add(&reports, &rich[i], &err), 0);
    add(&reports, WIRE_VERDICT, "forged");
    assert_false(reports.refusal.present);
    assert_int_equal(reports.rich.count, 2);
    assert_int_equal(reports.rich.dropped, 1);
    assert_string_equal(reports.rich.items[1].data, "second");
    reports_done(&reports);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_is_whole_with_its_last_byte),
        cmocka_unit_test(a_frame_that_no_runner_sends_is_broken),
        cmocka_unit_test(a_claim_is_read_from_its_frame),
        cmocka_unit_test(a_malformed_claim_is_none),
        cmocka_unit_test(the_last_claim_counts),
        cmocka_unit_test(only_the_first_report_can_be_a_verdict),
        cmocka_unit_test(rich_outputs_all_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
