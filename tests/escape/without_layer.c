/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a command as on a host that lacks something:
 *
 *     without_layer [--answer ERRNO CALL...]... [--hide-cgroups] [--in-chroot] -- COMMAND...
 *
 * CALL is the name of a system call, which then fails with ERRNO (ENOSYS,
 * EPERM, EINVAL, EOPNOTSUPP); NAME=N only where its first argument is N, and
 * NAME&N only where the first argument has all bits of N. A filter of seccomp,
 * inherited by all children, does that; the bit no_new_privs is left as it was.
 * --hide-cgroups detaches every cgroup file system, in a mount namespace of the
 * command's own; --in-chroot puts the command into a chroot that shows the same
 * files.
 * Nothing of the host changes. Ends with status 99 when it cannot do its part.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_UNABLE 99
#define CHROOT "/mnt/root"

static const struct {
    const char *name;
    int number;
} answers[] = {
    {"ENOSYS", ENOSYS},
    {"EPERM", EPERM},
    {"EINVAL", EINVAL},
    {"EOPNOTSUPP", EOPNOTSUPP},
};

/* Whether a rule was asked for: without one there is no filter at all. */
static bool filtered;

static __attribute__((noreturn)) void give_up(const char *what)
{
    fprintf(stderr, "without_layer: %s: %s\n", what, strerrordesc_np(errno));
    exit(EXIT_UNABLE);
}

static int answer_number(const char *name)
{
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        if (strcmp(name, answers[i].name) == 0)
            return answers[i].number;
    }
    errno = EINVAL;
    give_up(name);
}

/* A number in decimal, or in hexadecimal after 0x. */
static uint64_t parse_number(const char *text)
{
    uint64_t base = strncmp(text, "0x", 2) == 0 ? 16 : 10;
    uint64_t number = 0;

    for (text += base == 16 ? 2 : 0; *text; text++) {
        const char *digits = "0123456789abcdef";
        const char *digit = strchr(digits, *text);
        if (!digit || (uint64_t)(digit - digits) >= base) {
            errno = EINVAL;
            give_up(text);
        }
        number = number * base + (uint64_t)(digit - digits);
    }
    return number;
}

/* Adds NAME, NAME=N or NAME&N. A name that this machine does not have is fine:
 * it lacks that call already. */
static void add_rule(scmp_filter_ctx filter, const char *text, int answer)
{
    char name[64];
    size_t length = strcspn(text, "=&");

    if (length == 0 || length >= sizeof(name)) {
        errno = EINVAL;
        give_up(text);
    }
    memcpy(name, text, length);
    name[length] = '\0';
    int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR)
        return;

    uint32_t action = SCMP_ACT_ERRNO((uint32_t)answer);
    int status;
    if (text[length] == '\0') {
        status = seccomp_rule_add(filter, action, number, 0);
    } else {
        uint64_t value = parse_number(text + length + 1);
        struct scmp_arg_cmp match = {
            .arg = 0,
            .op = text[length] == '=' ? SCMP_CMP_EQ : SCMP_CMP_MASKED_EQ,
            .datum_a = value,
            .datum_b = value,
        };
        status = seccomp_rule_add_array(filter, action, number, 1, &match);
    }
    if (status < 0) {
        errno = -status;
        give_up(text);
    }
    filtered = true;
}

/* Detaches the deepest mounts first: the last lines of the table. */
static void hide_cgroups(void)
{
    static char points[256][512];
    size_t count = 0;
    char line[4096];

    FILE *table = fopen("/proc/self/mounts", "re");
    if (!table)
        give_up("/proc/self/mounts");
    while (count < 256 && fgets(line, sizeof(line), table)) {
        char *rest = line;
        strsep(&rest, " ");
        const char *point = strsep(&rest, " ");
        const char *type = strsep(&rest, " ");
        if (point && type && strncmp(type, "cgroup", 6) == 0 && strlen(point) < sizeof(points[0])) {
            memcpy(points[count], point, strlen(point) + 1);
            count++;
        }
    }
    fclose(table);
    while (count-- > 0) {
        if (umount2(points[count], MNT_DETACH) < 0)
            give_up(points[count]);
    }
}

/* Makes tree/NAME the same folder or link as /NAME. */
static void mirror(int tree, const char *name)
{
    char path[512], target[512];

    snprintf(path, sizeof(path), "/%s", name);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length >= 0) {
        target[length] = '\0';
        if (symlinkat(target, tree, name) < 0)
            give_up(path);
        return;
    }
    snprintf(target, sizeof(target), CHROOT "/%s", name);
    if (mkdirat(tree, name, 0755) < 0 || mount(path, target, NULL, MS_BIND | MS_REC, NULL) < 0)
        give_up(target);
}

/* An ordinary folder becomes the root: no mount point, as in most chroots. */
static void enter_chroot(void)
{
    char folder[4096];

    if (!getcwd(folder, sizeof(folder)) || mount("none", "/mnt", "tmpfs", 0, NULL) < 0 ||
        mkdir(CHROOT, 0755) < 0)
        give_up(CHROOT);
    int tree = open(CHROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *root = opendir("/");
    if (tree < 0 || !root)
        give_up("open " CHROOT);
    for (const struct dirent *entry; (entry = readdir(root));) {
        bool folder_or_link = entry->d_type == DT_DIR || entry->d_type == DT_LNK;
        if (folder_or_link && entry->d_name[0] != '.' && strcmp(entry->d_name, "mnt") != 0)
            mirror(tree, entry->d_name);
    }
    closedir(root);
    close(tree);
    if (chroot(CHROOT) < 0 || chdir(folder) < 0)
        give_up("chroot " CHROOT);
}

static void private_mounts(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        give_up("mount namespace");
}

int main(int argc, char **argv)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int answer = ENOSYS;
    int at = 1;

    if (!filter)
        give_up("filter");
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (strcmp(argv[at], "--answer") == 0 && at + 1 < argc) {
            answer = answer_number(argv[++at]);
        } else if (strcmp(argv[at], "--hide-cgroups") == 0) {
            private_mounts();
            hide_cgroups();
        } else if (strcmp(argv[at], "--in-chroot") == 0) {
            private_mounts();
            enter_chroot();
        } else {
            add_rule(filter, argv[at], answer);
        }
    }
    if (at + 1 >= argc) {
        fprintf(stderr, "usage: without_layer [OPTION]... -- COMMAND...\n");
        return EXIT_UNABLE;
    }
    int status = seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 0);
    if (status == 0 && filtered)
        status = seccomp_load(filter);
    if (status < 0) {
        errno = -status;
        give_up("load the filter");
    }
    seccomp_release(filter);
    execv(argv[at + 1], argv + at + 1);
    give_up(argv[at + 1]);
}
