/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zygotes: warm interpreters that fork those of cells, so that a cell need not
 * wait for an interpreter to start.
 *
 * A zygote is a process in a cell of its own. It never sees a request. It has
 * one power, CAP_SYS_ADMIN in the user namespace of its cell, by which it enters
 * the cells that the supervisor makes in there: for each the supervisor sends
 * the plan (plan.h), and the zygote clones a child into the cell's pid namespace.
 * By CLONE_PARENT that is the supervisor's child, and by the time it returns
 * to any code of the language it has entered the cell and has no power left.
 *
 *   STARTING   its interpreter starts and loads what it is to have
 *   READY      it forks
 *   RETIRED    it forks no more, or is dead; its cell stays until the last cell
 *              that lies in its namespaces is gone
 */
#pragma once

#include "maker.h"
#include "net.h"
#include "plan.h"
#include "supervisor.h"

#define ZYGOTE_ORDERS_MAX 64                 /* that are not answered yet */
#define ZYGOTE_ANSWER_NS (5 * NS_PER_SECOND) /* for the next of them; then it is given up */

enum zygote_state { ZYGOTE_STARTING, ZYGOTE_READY, ZYGOTE_RETIRED };

struct zygote {
    enum zygote_state state;
    struct runtime *runtime;
    struct zygote_place *place;                     /* NULL once retired */
    struct sandbox_cell *cell;                      /* its own */
    int socket;                                     /* to its process; -1 once retired */
    int log_fd;                                     /* what it prints; -1 once it has closed it */
    int user_ns_fd, pid_ns_fd;                      /* where its cells are made */
    struct maker maker;                             /* of these, once it is ready */
    uid_t maker_uid;                                /* of the host; 0: none of its own */
    struct sandbox_cell *orders[ZYGOTE_ORDERS_MAX]; /* a ring */
    size_t first_order, order_count;
    uint64_t stirred_ns;   /* when it last answered, or got an order with none before it */
    size_t guests;         /* cells in its namespaces */
    struct net_store nets; /* of cells that are gone */
    uint64_t forks;
};

/* Starts a zygote at a place that has none and whose runtime's tree is ready. What
 * fails is tried again later, ever more rarely; runs do without it meanwhile. */
void zygote_start(struct supervisor *supervisor, struct zygote_place *place);

/* Whether it has forked so often that another one shall take its place: cells of one
 * share their address layout. */
bool zygote_is_used_up(const struct zygote *zygote);

/* The namespaces of the zygote's cell, which the plan holds open. */
void zygote_take_namespaces(struct zygote *zygote, struct cell_plan *plan);

/* Asks for the interpreter's process of a cell. */
MUST_CHECK int zygote_order(struct zygote *zygote, struct sandbox_cell *cell,
                            struct cell_plan *plan, struct hutch_error *err);

/* An answer is there. */
void zygote_handle(struct supervisor *supervisor, struct zygote *zygote);

/* It printed something. */
void zygote_take_log(struct supervisor *supervisor, struct zygote *zygote);

/* Adds what was printed to the log of a place, of which the end is kept. */
void zygote_log(struct zygote_place *place, const char *text, size_t length);

/* It is given up, idle or used up: it forks no more. Unanswered cells fail. */
void zygote_retire(struct supervisor *supervisor, struct zygote *zygote);

/* Its process is dead, or not what it should be. */
void zygote_lose(struct supervisor *supervisor, struct zygote *zygote);

/* Takes the status of children that a zygote, a maker or a messenger made and died before it
 * said so: a cell cannot go before all of its processes have, nor a zygote's before
 * those of its cells. Called in every round of the loop; returns when it wants to
 * be called next. */
uint64_t zygote_reap_strays(struct supervisor *supervisor);

/* A cell in its namespaces is gone. */
void zygote_leave(struct supervisor *supervisor, struct zygote *zygote);

/* The zygote's own cell is gone. */
void zygote_free(struct supervisor *supervisor, struct zygote *zygote);
