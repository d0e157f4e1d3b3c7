/* SPDX-License-Identifier: Apache-2.0 */
/* Names of signals. */
#pragma once

/* "SIGKILL" for 9; "SIGRTMIN+n" for real-time ones, "SIG32" and "SIG33" for the
 * two that libc keeps for itself; "SIG?" for what is no signal. Static. */
const char *signal_name(int number);
