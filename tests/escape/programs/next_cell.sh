# SPDX-License-Identifier: Apache-2.0
# What a later cell finds of earlier ones: nothing.
report found "$(find / -xdev -name '*'"$VERDICT_SEARCH"'*' 2>/dev/null | wc -l)"
report home "$(ls -A | wc -l)"
report tmp "$(ls -A /tmp | wc -l)"
report shm "$(ls -A /dev/shm | wc -l)"
report queues "$(ls -A /dev/mqueue 2>/dev/null | wc -l)"
report segments "$(tail -n +2 /proc/sysvipc/shm | wc -l)"
