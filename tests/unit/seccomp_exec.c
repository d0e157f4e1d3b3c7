/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp_exec PROGRAM [ARGUMENT ...]: becomes the program under the system
 * call filter of cells, and nothing else of a cell.
 */
#include "sandbox/namespace/seccomp.h"

#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: seccomp_exec PROGRAM [ARGUMENT ...]\n");
        return 2;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_install(SECCOMP_CELL) < 0) {
        perror("seccomp_exec: install the filter");
        return 125;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
