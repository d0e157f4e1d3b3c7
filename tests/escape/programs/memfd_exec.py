# SPDX-License-Identifier: Apache-2.0
# A program that was never a file still runs inside all the walls.
import subprocess

code = """
import re
status = open("/proc/self/status").read()
print(*re.findall(r"^(?:Seccomp|NoNewPrivs|CapEff|Uid):\\s+(\\S+)", status, re.M))
"""
outcome, fd = outcome_of(os.memfd_create, "program", 0)
report("create", outcome)
walls = "not-started"
if outcome == "done":
    os.write(fd, open(os.path.realpath(sys.executable), "rb").read())
    outcome, run = outcome_of(
        subprocess.run,
        [f"/proc/self/fd/{fd}", "-I", "-c", code],
        pass_fds=[fd],
        capture_output=True,
        text=True,
        env={"PYTHONHOME": "/usr"},
    )
    walls = "-".join(run.stdout.split()) or "silent" if run else outcome
report("walls-around-memfd", walls)
own = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
report("walls-around-child", "-".join(own.stdout.split()))
