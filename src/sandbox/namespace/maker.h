/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maker of a zygote: a small process in the zygote's namespaces that clones PID 1
 * of each cell that lies in there. The supervisor cannot enter a user namespace and
 * come back; and what is cloned from the maker copies neither the supervisor's memory
 * nor its hundreds of descriptors.
 *
 *   supervisor -> maker   struct maker_order with the descriptors of the plan
 *   maker -> supervisor   struct maker_reply: when it is ready, with its own pidfd;
 *                         then one an order, with that of the process it made
 *
 * It has all capabilities in the zygote's user namespace and none outside, and
 * listens to nobody but the supervisor. By CLONE_PARENT what it makes is the
 * supervisor's child. It ends with its socket, or with the zygote's PID 1.
 */
#pragma once

#include "plan.h"
#include "process.h"

struct maker_order {
    struct cell_plan plan;
    uint32_t flags; /* CLONE_NEW* */
    uint32_t enter_net;
    struct id_maps maps;
};

struct maker_reply {
    int32_t error; /* errno */
    int32_t pid;   /* as the host has it */
};

struct maker {
    int socket; /* -1: none */
    int pidfd;
    pid_t pid; /* as the supervisor sees it */
};
#define MAKER_NONE ((struct maker){.socket = -1, .pidfd = -1})

/* Where a maker lives, and who it is there. */
struct maker_place {
    bool can_step; /* the caller can enter a pid namespace and come back */
    int pid_ns_fd, mount_ns_fd, user_ns_fd;
    int own_pid_ns_fd; /* to come back to */
    uid_t uid;         /* of the host; 0: stays who it is */
    gid_t gid;
};

/* Starts one. 0, or -1 with errno. */
MUST_CHECK int maker_start(const struct maker_place *place, struct maker *ret_maker);

/* Has it clone the process that becomes a cell's PID 1: net_fd is the network
 * namespace to be in, or -1. Returns its pid, and its pidfd; or -1 with errno, and a
 * process that nobody knows may be there. A maker that does not answer as it should is
 * killed. */
MUST_CHECK pid_t maker_clone(struct maker *maker, const struct maker_order *order, int net_fd,
                             int *ret_pidfd);

/* Kills it: its socket becomes -1, its pidfd is to be waited for. Nothing is done for
 * MAKER_NONE. */
void maker_kill(struct maker *maker);
