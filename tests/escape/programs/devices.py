# SPDX-License-Identifier: Apache-2.0
# Makes device nodes, and opens those that a host would have.
import stat

for folder in (os.getcwd(), "/tmp", "/dev/shm", "/dev"):
    name = folder.rsplit("/", 1)[1]
    for kind, mode, device in (
        ("char", stat.S_IFCHR, os.makedev(1, 1)),
        ("block", stat.S_IFBLK, os.makedev(254, 0)),
    ):
        attempt(f"mknod-{kind}-{name}", os.mknod, f"{folder}/node-{kind}", mode | 0o666, device)
        attempt(
            f"raw-mknod-{kind}-{name}",
            sc,
            "mknodat",
            -100,
            f"{folder}/raw-{kind}".encode(),
            mode | 0o666,
            device,
        )
for name in (
    "sda",
    "vda",
    "nvme0n1",
    "loop0",
    "loop-control",
    "kvm",
    "net/tun",
    "mem",
    "port",
    "kmsg",
    "fuse",
    "console",
    "tty0",
    "rtc0",
    "vhost-net",
    "vhost-vsock",
    "vsock",
    "uinput",
    "cuse",
    "mapper/control",
    "btrfs-control",
    "userfaultfd",
    "dri/card0",
    "input/event0",
    "log",
):
    attempt(f"open-{name}", os.open, f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK)
known = {
    "null",
    "zero",
    "full",
    "random",
    "urandom",
    "tty",
    "ptmx",
    "pts",
    "shm",
    "mqueue",
    "fd",
    "stdin",
    "stdout",
    "stderr",
}
report("unknown-devices", ",".join(sorted(set(os.listdir("/dev")) - known)) or "none")
disks = [name for name in os.listdir("/dev") if stat.S_ISBLK(os.lstat(f"/dev/{name}").st_mode)]
report("block-devices", ",".join(disks) or "none")
report("null", len(read_file("/dev/null")))
report("zero", read_file("/dev/zero", 4).hex())
