/* SPDX-License-Identifier: Apache-2.0 */
/* See net.h. */
#include "net.h"

#include "base/fd.h"
#include "proc_text.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int net_open(int pid, struct net *ret_net)
{
    char path[48];

    *ret_net = NET_NONE;
    snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
    ret_net->ns_fd = open(path, O_RDONLY | O_CLOEXEC);
    /* The open file stays the namespace's, when the process is long gone. */
    snprintf(path, sizeof(path), "/proc/%d/net/sockstat", pid);
    ret_net->sockstat_fd = ret_net->ns_fd >= 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (ret_net->sockstat_fd >= 0)
        return 0;
    net_close(ret_net);
    return -1;
}

static bool is_empty(const struct net *net)
{
    char text[1024];
    ssize_t count = pread(net->sockstat_fd, text, sizeof(text) - 1, 0);

    if (count <= 0)
        return false;
    text[count] = '\0';
    return proc_text_has_no_socket(text);
}

bool net_take(struct net_store *store, const char owner[LIMIT_OWNER_BYTES], struct net *ret_net)
{
    for (size_t i = store->count; i-- > 0;) {
        if (memcmp(store->nets[i].owner, owner, LIMIT_OWNER_BYTES) != 0 ||
            !is_empty(&store->nets[i]))
            continue;
        *ret_net = store->nets[i];
        store->nets[i] = store->nets[--store->count];
        return true;
    }
    return false;
}

void net_put(struct net_store *store, struct net *net)
{
    if (net->ns_fd < 0)
        return;
    if (store->count == store->limit) { /* the oldest may be full of sockets, or nobody's */
        net_close(&store->nets[0]);
        memmove(&store->nets[0], &store->nets[1], (store->count - 1) * sizeof(store->nets[0]));
        store->count--;
    }
    store->nets[store->count++] = *net;
    *net = NET_NONE;
}

void net_close(struct net *net)
{
    fd_close(&net->ns_fd);
    fd_close(&net->sockstat_fd);
}

void net_store_close(struct net_store *store)
{
    for (size_t i = 0; i < store->count; i++)
        net_close(&store->nets[i]);
    store->count = 0;
}
