/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel writes about processes in /proc, as text: pure functions, as
 * in cgroup_text.h. A text that does not say what is asked for gives the answer
 * that is named last. Numbers are at most 2^40, whatever stands there.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* smaps_rollup: the proportional share of the memory, in bytes; or 0. */
uint64_t proc_text_pss(const char *text);

/* The same: the pages that were written and are shared with nobody, in bytes; or 0. */
uint64_t proc_text_private_dirty(const char *text);

/* statm: the pages that are resident; or 0. */
uint64_t proc_text_resident_pages(const char *text);

/* stat: whether the process is dying; or true, since it is gone already. The
 * program's name in it may hold anything. */
bool proc_text_is_exiting(const char *text);

/* stat: whether its end sends no signal to its parent, as that of a session's copy; or
 * false. */
bool proc_text_ends_silently(const char *text);

/* uid_map: whether uid 0 is that of the host: the first line begins with it and
 * gives it to itself; or false. */
bool proc_text_uid_0_is_root(const char *text);

/* fdinfo of a pidfd: the pid in the namespace of the proc; or 0. */
uint32_t proc_text_pid(const char *text);

/* The last number of NSpid in /proc/PID/status: the process's number in its own pid
 * namespace; 0 where there is none. */
uint32_t proc_text_innermost_pid(const char *text);

/* /proc/PID/status: whether the process neither catches nor ignores the signal; or true. */
bool proc_text_has_default(const char *text, int signal_number);

/* sockstat: whether the network namespace has no socket, nor what a closed
 * connection leaves behind; or false. */
bool proc_text_has_no_socket(const char *text);
