/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the supervisors of one host share: host uids for their cells, and the
 * records by which a later one cleans up after one that was killed. Both live
 * in a run directory, private to the user that runs them:
 *
 *   uids                    one byte-range lock a uid in use, at the offset
 *                           that the uid itself gives, so that supervisors
 *                           with different ranges agree too
 *   supervisor-PID-RANDOM   the groups of one supervisor, a path a line; locked
 *                           by flock as long as it lives
 *
 * The kernel drops the locks of a dead process, so nothing here can go stale.
 * Locks belong to open descriptions, which a forked child shares until its
 * exec; all of them are close-on-exec. A normal end leaves the directory and
 * the empty file "uids" behind, no record.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The range that systemd documents as free for such use (0x70000000). */
#define SLOTS_DEFAULT_BASE 1879048192u
#define SLOTS_DEFAULT_COUNT 4096u
#define SLOTS_COUNT_MAX 65536u
/* Where the default range is not mapped, as in a container with 65536 ids:
 * below what distributions give to services, above what people get. */
#define SLOTS_FALLBACK_BASE 40000u

/* ---- the run directory ------------------------------------------------- */

/* Opens the run directory, made with mode 0700 where it is missing: path, or
 * when that is NULL /run/hutch for root, /run/user/UID/hutch for others, and
 * /tmp/hutch-UID where the folder for these is missing. Refused is one that is
 * a symlink, belongs to another user or is open to others. Returns the
 * descriptor. */
MUST_CHECK int slots_run_dir_open(const char *path, struct hutch_error *err);

/* ---- uids -------------------------------------------------------------- */

/* Host uids (and gids of the same numbers) for cells. Opaque. */
struct slots;

/* What the range is checked against. */
struct slots_host {
    uid_t uid; /* effective, of this process */
    const char *proc_self;
    const char *etc;
};

/* Prepares a range. base 0 is the default range, or the fallback where only
 * that is mapped and passwd, group, subuid and subgid give none of it to
 * anybody; count 0 is the default count. host NULL is this one. A host that offers no range is no
 * error: *ret_slots then has none, and slots_reason() says why. Errors:
 * INVALID for a range that no host can have, SYSTEM, NO_MEMORY. */
MUST_CHECK int slots_open(int run_dir, uint32_t base, uint32_t count, const struct slots_host *host,
                          struct slots **ret_slots, struct hutch_error *err);

/* How many uids the range has; 0 when distinct uids are not available. */
uint32_t slots_count(const struct slots *slots);

/* The first uid of the range. */
uid_t slots_base(const struct slots *slots);

/* Why there are none, or why they are not those of the default range; "" when
 * all is well. What to do about it; "" when nothing is to be done. */
const char *slots_reason(const struct slots *slots);
const char *slots_mend(const struct slots *slots);

/* Takes a uid that no supervisor of this run directory uses. They are given
 * out in turn, so that one is not used again soon. Errors: BUSY, LAYER when the range has none. */
MUST_CHECK int slots_acquire(struct slots *slots, uid_t *ret_uid, struct hutch_error *err);

/* Gives a uid back; no process of it may be left. */
void slots_release(struct slots *slots, uid_t uid);

/* Gives all back and frees. NULL is ignored. */
void slots_close(struct slots *slots);

/* ---- records ----------------------------------------------------------- */

#define SLOTS_TOKEN_BYTES 32

/* The record of this supervisor. */
struct slots_record {
    int run_dir;
    int fd;
    char token[SLOTS_TOKEN_BYTES];     /* PID-RANDOM */
    char group[SLOTS_TOKEN_BYTES + 8]; /* hutch-PID-RANDOM: the name of its groups */
};
#define SLOTS_RECORD_NONE ((struct slots_record){.run_dir = -1, .fd = -1})

/* Makes and locks the record. */
MUST_CHECK int slots_record_create(int run_dir, struct slots_record *ret_record,
                                   struct hutch_error *err);

/* Notes the absolute path of a group, before it is made. */
MUST_CHECK int slots_record_add(struct slots_record *record, const char *path,
                                struct hutch_error *err);

/* Ends the record. It is removed when all is gone, that is when nothing is
 * left of its groups; else the next sweep takes care of it. Does nothing for
 * SLOTS_RECORD_NONE and a second time. */
void slots_record_close(struct slots_record *record, bool all_gone);

/* Kills and removes what supervisors that are gone have left in cgroups, and
 * their records. Paths that do not end in the group of their own record are
 * passed over. Does not wait: returns how many records had to stay because
 * processes are still dying; the caller sweeps again a little later. */
MUST_CHECK int slots_sweep(int run_dir, struct hutch_error *err);

/* ---- pure functions ---------------------------------------------------- */

/* Whether all of base … base+count-1 is mapped, by the text of a uid_map. */
bool slots_map_covers(const char *map, uint32_t base, uint32_t count);

/* Whether a line of passwd, group, subuid or subgid touches the range. The
 * fields are counted from 0; length_field 0 means that a line gives one id. */
bool slots_text_overlaps(const char *text, unsigned start_field, unsigned length_field,
                         uint32_t base, uint32_t count);
