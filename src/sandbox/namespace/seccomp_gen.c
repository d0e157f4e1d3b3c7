/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs while hutch is built: turns seccomp_rules.def and seccomp_zygote.def into
 * a BPF program by libseccomp and prints it as C, for seccomp.c to include. So
 * cells load bytes that are ready, and nothing that is installed links
 * libseccomp. The argument says which program: cell, zygote or forked.
 */
#include "seccomp_table.h"

#include <linux/filter.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void must(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "seccomp_gen: %s: %s\n", what, strerrordesc_np(-result));
        exit(EXIT_FAILURE);
    }
}

static void add_rule(scmp_filter_ctx filter, const struct seccomp_rule *rule, uint32_t action)
{
    struct scmp_arg_cmp arguments[SECCOMP_MAX_CONDITIONS];

    for (unsigned i = 0; i < rule->condition_count; i++) {
        const struct seccomp_condition *condition = &rule->conditions[i];
        arguments[i] =
            SCMP_CMP64(condition->argument, SCMP_CMP_MASKED_EQ, condition->mask, condition->value);
    }
    must(seccomp_rule_add_array(filter, action, rule->call, rule->condition_count, arguments),
         rule->name);
}

static scmp_filter_ctx start(uint32_t otherwise)
{
    scmp_filter_ctx filter = seccomp_init(otherwise);
    if (!filter)
        must(-ENOMEM, "init");
    must(seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SECCOMP_DEFAULT), "other ABIs");
    /* A binary tree of numbers instead of a list. */
    must(seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2), "optimize");
    return filter;
}

static scmp_filter_ctx build(const char *which)
{
    bool forked = strcmp(which, "forked") == 0;
    scmp_filter_ctx filter = start(forked ? SCMP_ACT_ALLOW : SECCOMP_DEFAULT);

    for (size_t i = 0; !forked && i < SECCOMP_RULES; i++)
        add_rule(filter, &seccomp_rules[i], seccomp_rules[i].action);
    for (size_t i = 0; strcmp(which, "cell") != 0 && i < SECCOMP_ZYGOTE_RULES; i++)
        add_rule(filter, &seccomp_zygote_rules[i], forked ? SECCOMP_DEFAULT : SCMP_ACT_ALLOW);
    return filter;
}

/* Returns the number of instructions. */
static size_t export_program(scmp_filter_ctx filter, struct sock_filter program[BPF_MAXINSNS])
{
    int fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd < 0)
        must(-errno, "memfd");
    must(seccomp_export_bpf(filter, fd), "export");
    ssize_t bytes = pread(fd, program, BPF_MAXINSNS * sizeof(*program), 0);
    if (bytes < 0)
        must(-errno, "read");
    close(fd);
    return (size_t)bytes / sizeof(*program);
}

int main(int argc, char **argv)
{
    static struct sock_filter program[BPF_MAXINSNS];
    scmp_filter_ctx filter = build(argc == 2 ? argv[1] : "cell");
    size_t count = export_program(filter, program);
    seccomp_release(filter);

    for (size_t i = 0; i < count; i++)
        printf("{%#x, %u, %u, %#x},\n", (unsigned)program[i].code, (unsigned)program[i].jt,
               (unsigned)program[i].jf, program[i].k);
    return 0;
}
