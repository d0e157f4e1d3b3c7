# SPDX-License-Identifier: Apache-2.0
# Games with links in the folders that the program may write.
import threading
import time

for folder in ("/tmp", os.getcwd(), "/dev/shm"):
    name = folder.rsplit("/", 1)[1]
    os.symlink("/etc/shadow", f"{folder}/shadow")
    attempt(f"shadow-{name}", read_file, f"{folder}/shadow")
    os.symlink("/proc/1/root/etc/shadow", f"{folder}/first-shadow")
    attempt(f"first-shadow-{name}", read_file, f"{folder}/first-shadow")
    os.symlink(f"{folder}/loop", f"{folder}/loop")
    attempt(f"loop-{name}", read_file, f"{folder}/loop")
os.mkdir("deep")
os.symlink("deep/" + "../" * 60 + "etc/shadow", "dots")
attempt("dots", read_file, "dots")

# A link that changes under a writer: half of the time it is the program's own file.
open("mine", "w").close()
stop = threading.Event()


def swap():
    turn = 0
    while not stop.is_set():
        turn += 1
        os.symlink(("mine", "/etc/hosts")[turn % 2], "next")
        os.rename("next", "swap")


os.symlink("mine", "swap")
before = read_file("/etc/hosts")
thread = threading.Thread(target=swap)
thread.start()
outcomes, end_at = set(), time.monotonic() + 0.5
while time.monotonic() < end_at:
    outcome, fd = outcome_of(os.open, "swap", os.O_WRONLY | os.O_APPEND)
    outcomes.add(outcome)
    if fd is not None:
        os.write(fd, b"swapped\n")
        os.close(fd)
stop.set()
thread.join()
report("swap-own-file-written", "done" in outcomes and os.path.getsize("mine") > 0)
report("swap-hosts-unchanged", read_file("/etc/hosts") == before)
