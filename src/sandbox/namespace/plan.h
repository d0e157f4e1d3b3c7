/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a cell: everything that the two children of the supervisor need
 * after clone, made ready before it. "Plan in the parent, act in the child":
 * the child walks the plan with system calls only, without allocation,
 * formatting or locks, and reports by fixed-size records on a pipe.
 *
 *   setup.c    the child that becomes hutch-init (PID 1): mounts, network,
 *              names; then exec of hutch-init
 *   launch.c   the child that becomes the interpreter: joins what setup made,
 *              confines itself; then exec of the interpreter
 *
 * In place of a child of its own the supervisor may ask a zygote for the
 * interpreter's process (zygote.h): a fork of a warm interpreter, which enters
 * the cell by the same steps, and then waits for its request instead of an exec.
 */
#pragma once

#include "base/attrs.h"
#include "proto.h"

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Who a program is inside a cell. */
#define CELL_UID 1000
#define CELL_GID 1000
#define CELL_HOME "/home/user"

#define PLAN_JOIN_FDS 4
#define PLAN_ENV_MAX 24
#define PLAN_ARG_MAX 10
#define PLAN_RLIMITS 13
#define PLAN_NAMESPACES 7

struct plan_rlimit {
    int resource;
    int unused; /* no gap, in which memory of the supervisor would go along */
    struct rlimit limit;
};

/* Namespaces that the interpreter's process enters, in this order: a used network
 * namespace may belong to another cell's user namespace, over which there is no
 * power any more from inside. The pid namespace is entered before it is cloned. */
enum plan_ns {
    PLAN_NS_NET,
    PLAN_NS_USER,
    PLAN_NS_IPC,
    PLAN_NS_UTS,
    PLAN_NS_MOUNT,
    PLAN_NS_PID,
    PLAN_NS_COUNT
};

struct cell_plan {
    /* The pipe for struct child_report; the pipe on which setup tells launch
     * that the cell stands; the pipe on which the parent tells setup that the
     * uid maps are written. All close-on-exec. */
    int report_fd;
    int ready_fds[2];
    int mapped_fds[2];
    int attendant_fd;          /* hutch-init's descriptor 0, see wire.h */
    int ns_fds[PLAN_NS_COUNT]; /* launch only; -1 for what the cell has not */
    int join_fds[PLAN_JOIN_FDS];
    size_t join_count;
    /* launch only; -1 is /dev/null. Of a parked cell the channel is the socket
     * on which it waits for struct park_go. */
    int stdin_fd, stdout_fd, stderr_fd, channel_fd;

    enum proto_start_kind kind;
    bool forked;      /* the interpreter's process comes from a zygote */
    bool has_request; /* it is there already: no time for getting ready */
    bool session;     /* more programs come after the first */
    enum proto_language language;
    uid_t uid; /* as seen after the user namespace was entered */
    gid_t gid;
    bool clear_groups;   /* setgroups is allowed */
    bool cgroup_ns;      /* make a cgroup namespace */
    bool net_used;       /* the network namespace is up already */
    uint32_t layers;     /* that the parent put in force */
    uint32_t namespaces; /* CLONE_NEW* flags of the cell */
    uint32_t require;
    int landlock_abi; /* 0: not there */

    /* The supervisor's own, for verify_layers to compare with. */
    uint64_t own_namespaces[PLAN_NAMESPACES];
    uint64_t own_root;

    cpu_set_t cpus;
    char cpu_dir[24];       /* "cpu/2": what /sys/devices/system/cpu shows; "" for one cpu */
    char tmpfs_options[96]; /* of the cell's one tmpfs */
    struct plan_rlimit rlimits[PLAN_RLIMITS];
    size_t rlimit_count;
    const char *argv[PLAN_ARG_MAX + 1];
    const char *envp[PLAN_ENV_MAX + 1];
    char cpu_env[3][32]; /* OMP_NUM_THREADS=2 and its kin */
    char node_options[2][32];
};

/* What setup sends to the supervisor over the attendant's socket, with a descriptor of the
 * cell's tmpfs, if the cell is for programs. */
struct setup_disk {
    uint64_t free_inodes; /* when the cell was built */
};

/* The descriptors of a plan that go along when it is sent to a zygote: pointers
 * to them in the plan, in an order that both sides find. Returns how many. */
#define PLAN_PASSED_MAX (3 + PLAN_NS_COUNT + PLAN_JOIN_FDS)
size_t plan_passed(struct cell_plan *plan, int *ret_places[PLAN_PASSED_MAX]);

/* A zygote's answers to its supervisor: the first when it is ready, then one a
 * plan, in their order, with the pidfd of the process that it made, or an errno. */
struct zygote_reply {
    int32_t error;
};

/* What the process of a parked cell sends when it is ready for a request. */
struct park_ready {
    char log[1024]; /* what went wrong before, such as modules that it could not load */
};

/* What the supervisor sends to a parked cell when it gets its request, with the
 * descriptors for 1, 2, the channel and, if there is stdin, 0. */
#define PARK_FDS_MAX 4
#define PARK_RLIMITS 3
struct park_go {
    cpu_set_t cpus; /* to stay on one of them: where it is, if it can */
    struct plan_rlimit rlimits[PARK_RLIMITS];
};

/* What can go wrong in a child, in the words of the error message. */
#define CHILD_STEPS(STEP)                                                                          \
    STEP(CHILD_READY, "ready")                                                                     \
    STEP(CHILD_WAIT_MAP, "wait for the uid map")                                                   \
    STEP(CHILD_JOIN_CGROUP, "join the cell's cgroup")                                              \
    STEP(CHILD_CGROUP_NS, "unshare the cgroup namespace")                                          \
    STEP(CHILD_SET_IDS, "become the cell's user")                                                  \
    STEP(CHILD_MOUNT_TMPFS, "mount the cell's tmpfs")                                              \
    STEP(CHILD_MAKE_DIR, "make a folder of the cell's tmpfs")                                      \
    STEP(CHILD_BIND, "bind a folder of the cell")                                                  \
    STEP(CHILD_MOUNT_PROC, "mount proc")                                                           \
    STEP(CHILD_MASK_PROC, "hide a file of proc")                                                   \
    STEP(CHILD_HOSTNAME, "set the cell's host name")                                               \
    STEP(CHILD_LOOPBACK, "bring the loopback interface up")                                        \
    STEP(CHILD_DROP_CAPS, "drop all capabilities")                                                 \
    STEP(CHILD_NO_NEW_PRIVS, "set no_new_privs")                                                   \
    STEP(CHILD_SECCOMP, "load the system call filter")                                             \
    STEP(CHILD_DEATH_SIGNAL, "tie the child to the supervisor")                                    \
    STEP(CHILD_EXEC_INIT, "exec hutch-init")                                                       \
    STEP(CHILD_WAIT_READY, "wait for hutch-init")                                                  \
    STEP(CHILD_ENTER, "enter the cell's namespaces")                                               \
    STEP(CHILD_CHROOT, "enter the cell's root")                                                    \
    STEP(CHILD_DESCRIPTORS, "place the descriptors")                                               \
    STEP(CHILD_AFFINITY, "set the allowed processors")                                             \
    STEP(CHILD_RLIMIT, "set a resource limit")                                                     \
    STEP(CHILD_SESSION, "start a process session")                                                 \
    STEP(CHILD_LANDLOCK, "apply the Landlock rules")                                               \
    STEP(CHILD_REQUIRE, "required layer")                                                          \
    STEP(CHILD_DUMPABLE, "let the interpreter look at itself")                                     \
    STEP(CHILD_SCRIPT, "receive the program")                                                      \
    STEP(CHILD_EXEC, "exec the interpreter")

enum child_step {
#define STEP(name, text) name,
    CHILD_STEPS(STEP)
#undef STEP
};

/* One atomic write on the report pipe: CHILD_READY with the layers in force,
 * or the step that failed. The end of the pipe means that both children have
 * exec'd. */
struct child_report {
    uint32_t step; /* enum child_step */
    int32_t error; /* errno */
    uint32_t layers;
};

/* Writes it; ends the child when it cannot. */
void child_report(const struct cell_plan *plan, const struct child_report *report);

/* Reports a failed step and ends the child. */
NORETURN void child_fail(const struct cell_plan *plan, enum child_step step, int error);

/* Waits for one byte on a pipe; its end is a failure. */
void child_wait(const struct cell_plan *plan, int fd, enum child_step step);

/* Becomes the cell's user; the capabilities in the user namespace stay. */
void child_set_ids(const struct cell_plan *plan);

/* Makes a cgroup namespace whose root is the cell's group, which the child has
 * joined. */
void child_enter_cgroup_ns(const struct cell_plan *plan);

/* No capability in any set, no way to get one, and the system call filter;
 * Landlock for the program's process. A zygote keeps the power to enter the
 * cells in its user namespace; who is forked from it has most of its filter
 * already. */
enum confinement { CONFINE_INIT, CONFINE_PROGRAM, CONFINE_ZYGOTE, CONFINE_FORKED };
void child_confine(const struct cell_plan *plan, enum confinement how);

/* The two children; they end in exec or child_fail. */
NORETURN void setup_child(struct cell_plan *plan);
NORETURN void launch_child(struct cell_plan *plan);

/* ---- enter.c ------------------------------------------------------------ */

/* Enters the cell, places the descriptors, gives all power up. Returns the
 * layers in force. */
uint32_t child_enter(struct cell_plan *plan);

/* Waits until PID 1 has given its powers up too. */
void child_wait_for_init(const struct cell_plan *plan);

/* ---- verify.c ----------------------------------------------------------- */

/* Notes what verify_layers compares with; in the parent. */
void plan_note_namespaces(struct cell_plan *plan);

/* Which layers, of those in mask, a look from inside confirms; run by
 * launch_child for a PROTO_PROBE cell after everything is in place. */
uint32_t verify_layers(const struct cell_plan *plan, uint32_t mask);
