# SPDX-License-Identifier: Apache-2.0
# Fills what can be written, in every way that counts differently.
FOLDERS = (os.getcwd(), "/tmp", "/dev/shm", "/run")


def attempt_there(name, fd, call, *arguments):
    """An attempt on a file that may not be there to be tried on."""
    report(name, "not-there" if fd is None else outcome_of(call, fd, *arguments)[0])


for folder in FOLDERS:
    name = folder.rsplit("/", 1)[1]
    fd = outcome_of(os.open, f"{folder}/sparse", os.O_CREAT | os.O_RDWR)[1]
    attempt_there(f"truncate-{name}", fd, os.ftruncate, 1 << 40)
    attempt_there(f"allocate-{name}", fd, os.posix_fallocate, 0, 1 << 40)
    attempt_there(f"write-far-{name}", fd, os.pwrite, b"x", (1 << 39) + 1)
    few = fd is None or os.fstat(fd).st_blocks * 512 < 64 << 20
    report(f"blocks-{name}", "few" if few else "many")
written = 0
for folder in FOLDERS:
    fd = outcome_of(os.open, f"{folder}/big", os.O_CREAT | os.O_WRONLY)[1]
    block, outcome = b"x" * (1 << 20), "not-there" if fd is None else "done"
    while outcome == "done" and written < 1 << 30:
        outcome, wrote = outcome_of(os.write, fd, block)
        written += wrote or 0
    report(f"fill-{folder.rsplit('/', 1)[1]}", outcome)
report("megabytes", written >> 20)
outcome = "done"
for number in range(300_000):
    outcome, fd = outcome_of(os.open, f"/tmp/n{number}", os.O_CREAT | os.O_WRONLY)
    if outcome != "done":
        break
    os.close(fd)
report("many-files", outcome)
