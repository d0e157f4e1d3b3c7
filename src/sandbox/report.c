/* SPDX-License-Identifier: Apache-2.0 */
/* See report.h. */
#include "report.h"

#include <string.h>

/* ---- frames ---- */

/* The largest payload of a type. False for what no runner sends. */
static bool largest_payload(uint16_t type, uint32_t *ret_length)
{
    switch (type) {
    case WIRE_VALUE:
        *ret_length = WIRE_MAX_VALUE;
        return true;
    case WIRE_ERROR:
    case WIRE_VERDICT:
        *ret_length = WIRE_MAX_ERROR;
        return true;
    case WIRE_RICH:
        *ret_length = WIRE_MAX_RICH;
        return true;
    case WIRE_DONE:
        *ret_length = sizeof(struct wire_done);
        return true;
    case WIRE_READY:
        *ret_length = 0;
        return true;
    default:
        return false;
    }
}

enum report_state report_read(const char *data, size_t length, struct report *ret_report)
{
    struct wire_header header;
    uint32_t largest;

    if (length < sizeof(header))
        return REPORT_MORE;
    memcpy(&header, data, sizeof(header));
    if (!largest_payload(header.type, &largest) || header.length > largest)
        return REPORT_BROKEN;
    if (length - sizeof(header) < header.length)
        return REPORT_MORE;
    *ret_report = (struct report){
        .type = header.type,
        .flags = header.flags,
        .exec_id = header.exec_id,
        .data = data + sizeof(header),
        .length = header.length,
    };
    return REPORT_WHOLE;
}

void claim_parse(struct claim *ret_claim, const char *data, size_t length, uint16_t flags)
{
    struct wire_error head;

    *ret_claim = (struct claim){.present = false};
    if (length < sizeof(head))
        return;
    memcpy(&head, data, sizeof(head));
    if (head.type_length > length - sizeof(head))
        return;
    *ret_claim = (struct claim){
        .present = true,
        .compile = (flags & WIRE_ERROR_COMPILE) != 0,
        .import = (flags & WIRE_ERROR_IMPORT) != 0,
        .type = data + sizeof(head),
        .type_length = head.type_length,
        .message = data + sizeof(head) + head.type_length,
        .message_length = length - sizeof(head) - head.type_length,
        .line = head.line,
        .sys_errno = head.sys_errno,
    };
}

/* ---- what counts ---- */

void reports_init(struct reports *reports, bool gate)
{
    *reports = (struct reports){
        .gate = gate,
        .claim_text = BUF_MAX(WIRE_MAX_ERROR),
        .refusal_text = BUF_MAX(WIRE_MAX_ERROR),
        .value = BUF_MAX(WIRE_MAX_VALUE),
    };
}

void reports_done(struct reports *reports)
{
    buf_done(&reports->claim_text);
    buf_done(&reports->refusal_text);
    buf_done(&reports->value);
    rich_list_done(&reports->rich);
}

static int keep(struct buf *text, const struct report *report, struct hutch_error *err)
{
    buf_clear(text);
    buf_append(text, report->data, report->length);
    return buf_check(text, err);
}

static int keep_claim(struct claim *claim, struct buf *text, const struct report *report,
                      struct hutch_error *err)
{
    if (keep(text, report, err) < 0)
        return err->code;
    claim_parse(claim, text->data, text->length, report->flags);
    return 0;
}

int reports_add(struct reports *reports, const struct report *report, struct hutch_error *err)
{
    bool first = !reports->any;

    reports->any = true;
    if (report->type == WIRE_VALUE)
        return keep(&reports->value, report, err);
    if (report->type == WIRE_ERROR)
        return keep_claim(&reports->claim, &reports->claim_text, report, err);
    if (report->type == WIRE_RICH)
        return rich_add(&reports->rich, report->data, report->length, err);
    if (first && reports->gate && report->type == WIRE_VERDICT)
        return keep_claim(&reports->refusal, &reports->refusal_text, report, err);
    return 0;
}
