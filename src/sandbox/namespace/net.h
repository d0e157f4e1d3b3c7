/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Used network namespaces. Making one is the dearest part of a cell, and taking
 * one down is dear too; so that of a cell that is gone serves the next cell of
 * the same owner, when nothing is left in it: no process, which the cell's end
 * has seen to, and no socket, not even one that a closed connection leaves
 * behind for a minute.
 */
#pragma once

#include "base/attrs.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>

/* A network namespace and its count of sockets; -1: none. */
struct net {
    int ns_fd;
    int sockstat_fd;
    char owner[LIMIT_OWNER_BYTES]; /* whose program ran in it last */
};
#define NET_NONE ((struct net){.ns_fd = -1, .sockstat_fd = -1})

#define NET_STORE_MAX 32
#define NET_STORE_OWN 4 /* of a zygote that serves one owner */

struct net_store {
    struct net nets[NET_STORE_MAX];
    size_t count, limit; /* at most NET_STORE_MAX */
};

/* Opens the namespace of a process, as the proc of this process has it. 0 or -1
 * with errno. */
MUST_CHECK int net_open(int pid, struct net *ret_net);

/* Takes one that this owner's program used last and that is empty. False: none. */
bool net_take(struct net_store *store, const char owner[LIMIT_OWNER_BYTES], struct net *ret_net);

/* Keeps one for later, or closes it where there are many; *net becomes NET_NONE. */
void net_put(struct net_store *store, struct net *net);

void net_close(struct net *net);
void net_store_close(struct net_store *store);
