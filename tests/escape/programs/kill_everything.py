# SPDX-License-Identifier: Apache-2.0
# Kills everything that it may kill: only the cell's own processes are there.
import signal

child = os.fork()
if child == 0:
    signal.pause()
attempt("kill-all", os.kill, -1, signal.SIGKILL)
status = os.waitpid(child, 0)[1]
report("own-child", f"killed-{os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "lives")
report("first-process", read_file("/proc/1/comm").decode().strip())
