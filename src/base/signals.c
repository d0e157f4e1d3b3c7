/* SPDX-License-Identifier: Apache-2.0 */
/* See signals.h. */
#include "signals.h"

#include "attrs.h"

#include <signal.h>

static const char *const names[] = {
    [SIGHUP] = "SIGHUP",   [SIGINT] = "SIGINT",
    [SIGQUIT] = "SIGQUIT", [SIGILL] = "SIGILL",
    [SIGTRAP] = "SIGTRAP", [SIGABRT] = "SIGABRT",
    [SIGBUS] = "SIGBUS",   [SIGFPE] = "SIGFPE",
    [SIGKILL] = "SIGKILL", [SIGUSR1] = "SIGUSR1",
    [SIGSEGV] = "SIGSEGV", [SIGUSR2] = "SIGUSR2",
    [SIGPIPE] = "SIGPIPE", [SIGALRM] = "SIGALRM",
    [SIGTERM] = "SIGTERM", [SIGSTKFLT] = "SIGSTKFLT",
    [SIGCHLD] = "SIGCHLD", [SIGCONT] = "SIGCONT",
    [SIGSTOP] = "SIGSTOP", [SIGTSTP] = "SIGTSTP",
    [SIGTTIN] = "SIGTTIN", [SIGTTOU] = "SIGTTOU",
    [SIGURG] = "SIGURG",   [SIGXCPU] = "SIGXCPU",
    [SIGXFSZ] = "SIGXFSZ", [SIGVTALRM] = "SIGVTALRM",
    [SIGPROF] = "SIGPROF", [SIGWINCH] = "SIGWINCH",
    [SIGIO] = "SIGIO",     [SIGPWR] = "SIGPWR",
    [SIGSYS] = "SIGSYS",   [32] = "SIG32",
    [33] = "SIG33",        [34] = "SIGRTMIN",
    [35] = "SIGRTMIN+1",   [36] = "SIGRTMIN+2",
    [37] = "SIGRTMIN+3",   [38] = "SIGRTMIN+4",
    [39] = "SIGRTMIN+5",   [40] = "SIGRTMIN+6",
    [41] = "SIGRTMIN+7",   [42] = "SIGRTMIN+8",
    [43] = "SIGRTMIN+9",   [44] = "SIGRTMIN+10",
    [45] = "SIGRTMIN+11",  [46] = "SIGRTMIN+12",
    [47] = "SIGRTMIN+13",  [48] = "SIGRTMIN+14",
    [49] = "SIGRTMIN+15",  [50] = "SIGRTMIN+16",
    [51] = "SIGRTMIN+17",  [52] = "SIGRTMIN+18",
    [53] = "SIGRTMIN+19",  [54] = "SIGRTMIN+20",
    [55] = "SIGRTMIN+21",  [56] = "SIGRTMIN+22",
    [57] = "SIGRTMIN+23",  [58] = "SIGRTMIN+24",
    [59] = "SIGRTMIN+25",  [60] = "SIGRTMIN+26",
    [61] = "SIGRTMIN+27",  [62] = "SIGRTMIN+28",
    [63] = "SIGRTMIN+29",  [64] = "SIGRTMIN+30",
};

const char *signal_name(int number)
{
    if (number < 1 || (size_t)number >= ARRAY_LENGTH(names))
        return "SIG?";
    return names[number];
}
