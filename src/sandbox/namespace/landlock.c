/* SPDX-License-Identifier: Apache-2.0 */
/* See landlock.h. */
#include "landlock.h"

#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
/* Opening for writing, and O_TRUNC, which a plain ">" of the shell uses. */
#define WRITE (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE)
#define MAKE                                                                                       \
    (LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |    \
     LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER)
#define REMOVE (LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE)
/* All but devices: they are neither made nor spoken to. */
#define OWN (READ | WRITE | MAKE | REMOVE | LANDLOCK_ACCESS_FS_EXECUTE)
#define DEVICES                                                                                    \
    (LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_IOCTL_DEV)
#define ALL (OWN | DEVICES)

static const struct landlock_rule cell_rules[] = {
    {"/", READ | LANDLOCK_ACCESS_FS_EXECUTE},
    {"/home/user", OWN},
    {"/tmp", OWN},
    {"/dev/shm", OWN},
    {"/run", OWN},
    /* A process may write some files about itself, like comm. */
    {"/proc", READ | WRITE},
    /* null, zero, full, random and urandom; isatty() asks them too. */
    {"/dev", READ | WRITE | LANDLOCK_ACCESS_FS_IOCTL_DEV},
};

/* The file rights that an ABI knows: each new one took the next bit. */
static uint64_t known_access(int abi)
{
    uint64_t known = ALL;
    if (abi < 2)
        known &= ~(uint64_t)LANDLOCK_ACCESS_FS_REFER;
    if (abi < 3)
        known &= ~(uint64_t)LANDLOCK_ACCESS_FS_TRUNCATE;
    if (abi < 5)
        known &= ~(uint64_t)LANDLOCK_ACCESS_FS_IOCTL_DEV;
    return known;
}

static int add_rule(int ruleset_fd, const struct landlock_rule *rule, uint64_t known)
{
    auto_close int fd = open(rule->path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct landlock_path_beneath_attr attr = {
        .allowed_access = rule->access & known,
        .parent_fd = fd,
    };
    if (syscall(SYS_landlock_add_rule, ruleset_fd, LANDLOCK_RULE_PATH_BENEATH, &attr, 0) < 0)
        return -errno;
    return 0;
}

int landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return abi < 0 ? 0 : (int)abi;
}

int landlock_restrict(const struct landlock_rule *rules, size_t count, int abi)
{
    uint64_t known = known_access(abi);
    struct kernel_landlock_ruleset_attr attr = {
        .handled_access_fs = known,
        .scoped = abi < 6 ? 0 : LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL,
    };
    auto_close int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (fd < 0)
        return -errno;
    for (size_t i = 0; i < count; i++) {
        int error = add_rule(fd, &rules[i], known);
        if (error < 0)
            return error;
    }
    /* A cell shall not be able to fill the host's audit log with denials. */
    unsigned flags = abi < 7 ? 0 : LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF;
    if (syscall(SYS_landlock_restrict_self, fd, flags) < 0)
        return -errno;
    return 0;
}

int landlock_confine_cell(int abi)
{
    return landlock_restrict(cell_rules, ARRAY_LENGTH(cell_rules), abi);
}
