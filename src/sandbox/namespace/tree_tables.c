/* SPDX-License-Identifier: Apache-2.0 */
/* See tree_tables.h. */
#include "tree_tables.h"

#include "tree_fonts.h"

#include "tree_libs.h"

const char *const tree_folders[] = {
    /* mount points */
    "/proc",
    "/dev/shm",
    "/tmp",
    "/home/user",
    "/run",
    "/sys/devices/system/cpu",
    /* for programs */
    "/etc",
    "/usr/bin",
    "/usr/lib/hutch",
    TREE_FONT_LISTS,
    "/var",
    NULL,
};

const char *const tree_command_folders[] = {"/usr/bin", "/bin", "/usr/sbin", "/sbin", NULL};

/* clang-format off */
const char *const tree_commands[] = {
    /* shells; sh is whatever the host's sh is */
    "bash", "dash", "sh",

    /* coreutils: all but chroot and what concerns SELinux or other users */
    "[", "arch", "b2sum", "base32", "base64", "basename", "basenc", "cat", "chgrp", "chmod",
    "chown", "cksum", "comm", "cp", "csplit", "cut", "date", "dd", "df", "dir", "dircolors",
    "dirname", "du", "echo", "env", "expand", "expr", "factor", "false", "fmt", "fold", "groups",
    "head", "hostid", "id", "install", "join", "link", "ln", "logname", "ls", "md5sum", "mkdir",
    "mkfifo", "mknod", "mktemp", "mv", "nice", "nl", "nohup", "nproc", "numfmt", "od", "paste",
    "pathchk", "pr", "printenv", "printf", "ptx", "pwd", "readlink", "realpath", "rm", "rmdir",
    "seq", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "shred", "shuf", "sleep",
    "sort", "split", "stat", "stdbuf", "stty", "sum", "sync", "tac", "tail", "tee", "test",
    "timeout", "touch", "tr", "true", "truncate", "tsort", "tty", "uname", "unexpand", "uniq",
    "unlink", "vdir", "wc", "whoami", "yes",

    /* text */
    "awk", "gawk", "mawk", "original-awk", "cmp", "column", "diff", "diff3", "ed", "egrep",
    "envsubst", "fgrep", "grep", "hd", "hexdump", "jq", "look", "patch", "perl", "rev", "rgrep",
    "sdiff", "sed", "xxd",

    /* files and processes */
    "fallocate", "find", "flock", "free", "getopt", "hostname", "ionice", "kill", "mcookie",
    "mountpoint", "namei", "pgrep", "pidof", "pkill", "pmap", "prlimit", "ps", "renice",
    "run-parts", "setsid", "taskset", "time", "uptime", "uuidgen", "which", "which.debianutils",
    "xargs",

    /* archives and compression */
    "bunzip2", "bzcat", "bzgrep", "bzip2", "gunzip", "gzip", "lz4", "tar", "unlz4", "unxz",
    "unzip", "unzstd", "xz", "xzcat", "xzgrep", "zcat", "zcmp", "zdiff", "zgrep", "zip", "zstd",
    "zstdcat",

    /* numbers, locale and system values */
    "bc", "dc", "getconf", "getent", "iconv", "locale",
    NULL,
};
/* clang-format on */

const struct tree_data tree_data[] = {
    {.path = "/usr/lib/locale/C.utf8"},
    {.path = "/usr/lib/" MULTIARCH "/perl-base"},
    {.path = "/usr/lib/os-release"}, /* names the distribution whose programs these are */
    {.path = "/usr/share/zoneinfo"},
    {.path = "/etc/debian_version"},
    {.path = "/etc/mime.types"},
    {.path = "/etc/protocols"},
    {.path = "/etc/services"},
    {.path = "/etc/ssl/certs"},
    {.path = "/etc/ssl/openssl.cnf"},
    {.path = "/usr/lib/" MULTIARCH "/ossl-modules"},

    /* data that Debian's packages keep outside the Python folders */
    {.path = "/etc/matplotlibrc", .python_only = true},
    {.path = "/usr/share/matplotlib", .python_only = true},
    {.path = TREE_FONTS_DEJAVU, .python_only = true},
    {.path = TREE_FONTS_LYX, .python_only = true},
    {.path = NULL},
};

const char *const tree_excluded[] = {
    "*.a",                                  /* only a linker reads them */
    "*/config-3.*-" MULTIARCH,              /* how Python itself was compiled */
    "/etc/ssl/certs/ssl-cert-snakeoil.pem", /* carries the host's name */
    "/etc/ssl/certs/java",                  /* a copy of the rest for Java */
    "/usr/share/zoneinfo/localtime",        /* the host's time zone */
    "/usr/share/zoneinfo/right",            /* times with leap seconds */
    "/usr/share/zoneinfo/posix",            /* the same files once more */
    NULL,
};

const char *const tree_libraries[] = {
    "libgcc_s.so.1",     /* pthread_exit and pthread_cancel */
    "libnss_files.so.2", /* name services, where they are not in libc itself */
    "libnss_dns.so.2",
    NULL,
};

const struct tree_text tree_texts[] = {
    {"/etc/passwd", "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
                    "user:x:1000:1000:user:/home/user:/bin/bash\n"
                    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"/etc/group", "root:x:0:\n"
                   "user:x:1000:\n"
                   "nogroup:x:65534:\n"},
    {"/etc/hostname", "cell\n"},
    {"/etc/hosts", "127.0.0.1\tlocalhost cell\n"
                   "::1\tlocalhost cell ip6-localhost ip6-loopback\n"},
    {"/etc/resolv.conf", "# A cell has no network, so there is no name server.\n"},
    {"/etc/nsswitch.conf", "passwd: files\n"
                           "group: files\n"
                           "shadow: files\n"
                           "hosts: files dns\n"
                           "networks: files\n"
                           "protocols: files\n"
                           "services: files\n"},
    /* Where the host has none. */
    {"/etc/mime.types", "application/gzip gz\n"
                        "application/json json\n"
                        "application/pdf pdf\n"
                        "application/zip zip\n"
                        "image/gif gif\n"
                        "image/jpeg jpeg jpg\n"
                        "image/png png\n"
                        "image/svg+xml svg\n"
                        "text/css css\n"
                        "text/csv csv\n"
                        "text/html html htm\n"
                        "text/javascript js mjs\n"
                        "text/markdown md\n"
                        "text/plain txt text\n"},
    {"/etc/machine-id", "00000000000000000000000000000000\n"},
    {"/etc/timezone", "Etc/UTC\n"},
    {"/sys/devices/system/cpu/online", "0\n"},
    {"/sys/devices/system/cpu/possible", "0\n"},
    {"/sys/devices/system/cpu/present", "0\n"},
    {0},
};

const struct tree_link tree_links[] = {
    {"/etc/localtime", "/usr/share/zoneinfo/Etc/UTC"},
    {"/etc/os-release", "/usr/lib/os-release"},
    {"/usr/lib/locale/C.UTF-8", "/usr/lib/locale/C.utf8"}, /* found at the first try */
    {"/usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt"},
    {"/usr/lib/ssl/certs", "/etc/ssl/certs"},
    {"/usr/lib/ssl/openssl.cnf", "/etc/ssl/openssl.cnf"},
    {"/var/tmp", "/tmp"},
    {0},
};

const char *const tree_key_files[] = {
    "/etc/ld.so.cache",                   /* libraries came or went */
    "/etc/alternatives",                  /* another awk or libblas was chosen */
    "/var/lib/dpkg/status",               /* packages came, went or changed */
    "/etc/ssl/certs/ca-certificates.crt", /* certificates were added */
    NULL,
};
