/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the runner of a cell reports (wire.h): frames out of the bytes of its
 * channel, and what of them counts. Pure functions. Whoever runs in the cell can
 * write to the channel, so the bytes are hostile: a frame is a claim, with bounds.
 */
#pragma once

#include "base/attrs.h"
#include "base/buf.h"
#include "rich.h"
#include "wire.h"

#include <hutch.h>
#include <stdbool.h>

/* One frame; data points into the bytes that it was read from. */
struct report {
    enum wire_type type; /* WIRE_VALUE and those after it */
    uint16_t flags;
    uint32_t exec_id;
    const char *data;
    size_t length; /* at most the maximum of the type */
};

enum report_state {
    REPORT_MORE,   /* the frame goes on beyond the bytes that are there */
    REPORT_WHOLE,  /* *ret_report is set; REPORT_BYTES of it are taken */
    REPORT_BROKEN, /* no frame begins so: nothing that follows can be read */
};

/* Reads the frame at the beginning of data; whose exec it is of is the caller's affair. */
enum report_state report_read(const char *data, size_t length, struct report *ret_report);

/* The bytes that a frame takes. */
#define REPORT_BYTES(report) (sizeof(struct wire_header) + (report)->length)

/* All reports of a run together: no honest runner sends more. */
#define REPORTS_MAX_BYTES                                                                          \
    (WIRE_MAX_VALUE + 2 * WIRE_MAX_ERROR + WIRE_MAX_RICH_BYTES +                                   \
     (3 + WIRE_MAX_RICH_COUNT + WIRE_MAX_RICH_EMPTY) * sizeof(struct wire_header))

/* The runner's claim about an exception: hostile text, not NUL-terminated. */
struct claim {
    bool present;
    bool compile; /* the code did not parse */
    bool import;  /* something to import is not there */
    const char *type, *message;
    size_t type_length, message_length;
    uint32_t line;     /* 0 unknown */
    int32_t sys_errno; /* of an OSError, else 0 */
};

/* Reads the payload of a WIRE_ERROR frame; the claim points into data. A
 * malformed one is not present. */
void claim_parse(struct claim *ret_claim, const char *data, size_t length, uint16_t flags);

/* What counts of the reports of one run: the last claim of each kind, a malformed
 * one as none, and of rich outputs all (see rich.h). Of verdicts the first report of all alone can
 * be one: see wire.h. */
struct reports {
    bool gate; /* a verdict is expected */
    bool any;  /* a report has come */
    struct claim claim;
    struct claim refusal;                /* by the gate */
    struct buf claim_text, refusal_text; /* what they point into */
    struct buf value;                    /* data is NULL where there is none */
    struct rich_list rich;
};

void reports_init(struct reports *reports, bool gate);

/* Takes the next report, and copies it. Errors: NO_MEMORY. */
MUST_CHECK int reports_add(struct reports *reports, const struct report *report,
                           struct hutch_error *err);

void reports_done(struct reports *reports);
