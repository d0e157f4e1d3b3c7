/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel structures, numbers and flags that the C library or the kernel headers
 * of the build host may lack, each with the kernel that brought it. What is
 * here may be absent at run time too: probe by trying, not by version.
 */
#pragma once

#include <linux/landlock.h>
#include <linux/types.h>

/* ---- Landlock: ABI 1 in Linux 5.13 */

#ifndef LANDLOCK_ACCESS_FS_REFER /* ABI 2, Linux 5.19 */
#define LANDLOCK_ACCESS_FS_REFER (1ull << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE /* ABI 3, Linux 6.2 */
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ull << 14)
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV /* ABI 5, Linux 6.10 */
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ull << 15)
#endif
#ifndef LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET /* ABI 6, Linux 6.12 */
#define LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET (1ull << 0)
#define LANDLOCK_SCOPE_SIGNAL (1ull << 1)
#endif
#ifndef LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF /* ABI 7, Linux 6.15 */
#define LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF (1u << 0)
#endif

/* struct landlock_ruleset_attr of ABI 6. Older kernels take the longer struct
 * as long as the fields that they do not know are zero. */
struct kernel_landlock_ruleset_attr {
    __u64 handled_access_fs;
    __u64 handled_access_net; /* ABI 4, Linux 6.7 */
    __u64 scoped;             /* ABI 6, Linux 6.12 */
};
