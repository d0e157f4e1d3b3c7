# SPDX-License-Identifier: Apache-2.0
# Set-user-id bits, file capabilities, and asking for more rights.
import shutil
import stat
import subprocess

shutil.copy("/usr/bin/id", "own-id")
attempt("set-user-id-bit", os.chmod, "own-id", 0o6755)
outcome, run = outcome_of(subprocess.run, ["./own-id", "-u"], capture_output=True, text=True)
report("own-set-user-id-program", run.stdout.strip() if run else outcome)
capability = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
attempt("file-capability", os.setxattr, "own-id", "security.capability", capability)

seen = special = capable = 0
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders.remove("proc")
    for name in files:
        path = os.path.join(folder, name)
        state = os.lstat(path)
        seen += 1
        if stat.S_ISREG(state.st_mode) and path != os.path.abspath("own-id"):
            special += bool(state.st_mode & (stat.S_ISUID | stat.S_ISGID))
            capable += outcome_of(os.getxattr, path, "security.capability")[0] == "done"
report("files-searched", seen)
report("set-id-files", special)
report("files-with-capabilities", capable)
for name in ("su", "sudo", "mount", "umount", "passwd", "ping", "newgrp", "pkexec", "fusermount"):
    report(f"command-{name}", shutil.which(name) or "absent")

attempt("setuid", os.setuid, 0)
attempt("setresuid", os.setresuid, 0, 0, 0)
attempt("setreuid", os.setreuid, 0, 0)
attempt("setgid", os.setgid, 0)
attempt("setresgid", os.setresgid, 0, 0, 0)
attempt("setgroups", os.setgroups, [0])
attempt("setuid-next", os.setuid, 1001)
outcome_of(sc, "setfsuid", 0)
header = struct.pack("Ii", 0x20080522, 0)
attempt("capset", sc, "capset", header, struct.pack("6I", *[0xFFFFFFFF] * 6))
PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 28, 38, 47
attempt("securebits", sc, "prctl", PR_SET_SECUREBITS, 1, 0, 0, 0)
attempt("new-privileges-again", sc, "prctl", PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)
attempt("ambient-capability", sc, "prctl", PR_CAP_AMBIENT, 2, 21, 0, 0)
for line in read_file("/proc/self/status").decode().splitlines():
    name, _, value = line.partition(":")
    if name in (
        "Uid",
        "Gid",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
    ):
        report(f"status-{name}", "-".join(value.split()))
