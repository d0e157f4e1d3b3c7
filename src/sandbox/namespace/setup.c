/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child that becomes hutch-init, from clone to exec. It is root of its new
 * user namespace in all but name: it holds every capability there and none
 * outside. It builds what the cell stands on, gives all power up, tells
 * launch_child that the cell is ready and becomes hutch-init.
 *
 * It starts with the tree (see tree.h) as its root, in a copy of the mount
 * namespace of its runtime (runtime.c); the cell's visible root is the tree's
 * folder root/, and both children are chroot'ed there. So the mount of the
 * tree, whose source is a path of the host, appears in nobody's mountinfo, and
 * the cell's tmpfs can hang at scratch/, where no program can reach it but
 * through its bind mounts.
 *
 * Only async-signal-safe calls here: see plan.h.
 */
#include "cgroup.h"
#include "kernel.h"
#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Folders of the cell's tmpfs, and where the cell sees them. */
static const struct {
    const char *folder;
    mode_t mode;
    const char *target;
} folders[] = {
    {"scratch/home", 0700, "root" CELL_HOME},
    {"scratch/tmp", 01777, "root/tmp"},
    {"scratch/shm", 01777, "root/dev/shm"},
    {"scratch/run", 0700, "root/run"},
};

/* What proc tells about the host beyond its processes and that file modes do
 * not already close: hidden behind an empty file or folder. These lie in the
 * cell's tmpfs, because mountinfo names the source of a bind mount, which in
 * the tree would be a path of the host. */
#define MASK_FILE "scratch/none"
#define MASK_FOLDER "scratch/void"

static const struct {
    const char *target;
    const char *source;
} masks[] = {
    {"root/proc/cmdline", MASK_FILE},
    {"root/proc/kallsyms", MASK_FILE},
    {"root/proc/keys", MASK_FILE},
    {"root/proc/key-users", MASK_FILE},
    {"root/proc/modules", MASK_FILE},
    {"root/proc/partitions", MASK_FILE},
    {"root/proc/diskstats", MASK_FILE},
    {"root/proc/swaps", MASK_FILE},
    {"root/proc/interrupts", MASK_FILE},
    {"root/proc/fs", MASK_FOLDER},
    {"root/proc/locks", MASK_FILE},
    {"root/proc/config.gz", MASK_FILE},
    {"root/proc/pressure", MASK_FOLDER},
    {"root/proc/acpi", MASK_FOLDER},
    {"root/proc/sys/kernel/random/boot_id", MASK_FILE},
};

static void join_cgroup(const struct cell_plan *plan)
{
    int error = cgroup_join(plan->join_fds, plan->join_count);
    if (error < 0)
        child_fail(plan, CHILD_JOIN_CGROUP, -error);
    child_enter_cgroup_ns(plan);
}

static void bind_folder(const struct cell_plan *plan, const char *source, const char *target)
{
    if (mount(source, target, NULL, MS_BIND, NULL) < 0)
        child_fail(plan, CHILD_BIND, errno);
}

/* One tmpfs for all that the cell may write, so that one limit holds. */
static void mount_scratch(const struct cell_plan *plan)
{
    if (mount("tmpfs", "scratch", "tmpfs", MS_NOSUID | MS_NODEV, plan->tmpfs_options) < 0)
        child_fail(plan, CHILD_MOUNT_TMPFS, errno);
    umask(0);
    for (size_t i = 0; i < ARRAY_LENGTH(folders); i++) {
        if (mkdir(folders[i].folder, folders[i].mode) < 0)
            child_fail(plan, CHILD_MAKE_DIR, errno);
        bind_folder(plan, folders[i].folder, folders[i].target);
    }
    umask(022);
    if (plan->cpu_dir[0])
        bind_folder(plan, plan->cpu_dir, "root/sys/devices/system/cpu");
}

static void mount_proc(const struct cell_plan *plan)
{
    if (mount("proc", "root/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        child_fail(plan, CHILD_MOUNT_PROC, errno);
    if (mkdir(MASK_FOLDER, 0555) < 0 || mknod(MASK_FILE, S_IFREG | 0444, 0) < 0)
        child_fail(plan, CHILD_MASK_PROC, errno);
    for (size_t i = 0; i < ARRAY_LENGTH(masks); i++) {
        if (mount(masks[i].source, masks[i].target, NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
            child_fail(plan, CHILD_MASK_PROC, errno);
    }
}

/* So that the supervisor sees, when the program has ended, whether it made any file. Where
 * that cannot be told, it will have to ask. */
static void pass_disk(const struct cell_plan *plan)
{
    struct setup_disk disk = {.free_inodes = 0};
    struct statfs status;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = &disk, .iov_len = sizeof(disk)};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };

    if (plan->kind != PROTO_RUN)
        return;
    int fd = open("scratch", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstatfs(fd, &status) < 0)
        child_fail(plan, CHILD_MOUNT_TMPFS, errno);
    disk.free_inodes = status.f_ffree;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    IGNORE_RESULT(sendmsg(plan->attendant_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0);
    close(fd);
}

static void set_names(const struct cell_plan *plan)
{
    if ((plan->namespaces & CLONE_NEWUTS) &&
        (sethostname("cell", 4) < 0 || setdomainname("", 0) < 0))
        child_fail(plan, CHILD_HOSTNAME, errno);
}

static void bring_loopback_up(const struct cell_plan *plan)
{
    if (plan->net_used)
        return;
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        child_fail(plan, CHILD_LOOPBACK, errno);
    close(fd);
}

/* Once, when the cell is built; the exec of hutch-init then closes the pipe. */
static void tell_launch(const struct cell_plan *plan)
{
    char word = 1;
    if (write(plan->ready_fds[1], &word, 1) != 1)
        child_fail(plan, CHILD_WAIT_READY, errno);
}

/* What a zygote has mapped is named, in the cells of its children, by the path from the
 * root of the zygote's mount namespace: so that has to be the cell's root. */
static int pivot_root_into_cell(void)
{
    if (mount("/root", "/root", NULL, MS_BIND | MS_REC, NULL) < 0 || chdir("/root") < 0 ||
        syscall(SYS_pivot_root, ".", ".") < 0)
        return -1;
    return umount2(".", MNT_DETACH);
}

/* PID 1's table of mounts is open to everyone in the cell, so it gets the same
 * root as they have, where the tree's own mount does not show. Returns a
 * descriptor of hutch-init, which lies outside. */
static int enter_root(const struct cell_plan *plan)
{
    int init_fd = open("/init", O_PATH | O_CLOEXEC);
    if (init_fd < 0)
        child_fail(plan, CHILD_EXEC_INIT, errno);
    int entered = plan->kind == PROTO_ZYGOTE ? pivot_root_into_cell() : chroot("/root");
    if (entered < 0 || chdir("/") < 0)
        child_fail(plan, CHILD_CHROOT, errno);
    return init_fd;
}

/* hutch-init's descriptor 0 is its attendant; it has no other. */
static void exec_init(const struct cell_plan *plan, int init_fd)
{
    static char name[] = "hutch-init";
    char *argv[] = {name, NULL};
    char *envp[] = {NULL};

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        child_fail(plan, CHILD_DEATH_SIGNAL, errno);
    if (dup2(plan->attendant_fd, 0) < 0)
        child_fail(plan, CHILD_EXEC_INIT, errno);
    syscall(SYS_execveat, init_fd, "", argv, envp, AT_EMPTY_PATH);
    child_fail(plan, CHILD_EXEC_INIT, errno);
}

void setup_child(struct cell_plan *plan)
{
    close(plan->mapped_fds[1]); /* so that a dead supervisor is an end of file */
    child_wait(plan, plan->mapped_fds[0], CHILD_WAIT_MAP);
    join_cgroup(plan);
    child_set_ids(plan);
    mount_scratch(plan);
    mount_proc(plan);
    pass_disk(plan);
    set_names(plan);
    bring_loopback_up(plan);
    int init_fd = enter_root(plan);
    tell_launch(plan); /* the cell is built */
    close(1);
    close(2);
    child_confine(plan, CONFINE_INIT);
    exec_init(plan, init_fd);
    _exit(127);
}
