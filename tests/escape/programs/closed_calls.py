# SPDX-License-Identifier: Apache-2.0
# System calls that no program of a cell needs. Arguments are harmless should
# one of them work: a wrong magic number, an empty path, a null pointer.
import fcntl
import mmap
import platform

N = None
CALLS = {
    "mount": (b"none", b"/tmp", b"tmpfs", 0, N),
    "umount2": (b"/tmp", 0),
    "move_mount": (-100, b"/tmp", -100, b"/home", 0),
    "open_tree": (-100, b"/", 1),
    "fsopen": (b"tmpfs", 0),
    "fsconfig": (-1, 0, N, N, 0),
    "fsmount": (-1, 0, 0),
    "fspick": (-100, b"/", 0),
    "mount_setattr": (-100, b"/", 0, bytes(32), 32),
    "pivot_root": (b".", b"."),
    "chroot": (b".",),
    "statmount": (bytes(24), bytes(512), 512, 0),
    "listmount": (bytes(24), bytes(64), 8, 0),
    "swapon": (b"/tmp/none", 0),
    "swapoff": (b"/tmp/none",),
    "reboot": (0, 0, 0, N),
    "init_module": (N, 0, b""),
    "finit_module": (-1, b"", 0),
    "delete_module": (b"none", 0),
    "kexec_load": (0, 0, N, 0xFFFF),
    "kexec_file_load": (-1, -1, 0, N, 0),
    "bpf": (0, bytes(128), 128),
    "perf_event_open": (struct.pack("IIQ", 1, 112, 0) + bytes(96), 0, -1, -1, 0),
    "userfaultfd": (1,),
    "io_uring_setup": (4, ctypes.create_string_buffer(120)),
    "io_uring_enter": (-1, 0, 0, 0, N, 0),
    "io_uring_register": (-1, 0, N, 0),
    "memfd_secret": (0,),
    "add_key": (b"user", b"name", b"x", 1, -3),
    "request_key": (b"user", b"name", N, -3),
    "keyctl": (0, -3, 1),
    "ptrace": (0x4206, -1, 0, 0),
    "process_vm_readv": (1, N, 0, N, 0, 0),
    "process_vm_writev": (1, N, 0, N, 0, 0),
    "process_madvise": (-1, N, 0, 0, 0),
    "process_mrelease": (-1, 0),
    "pidfd_getfd": (-1, 0, 0),
    "kcmp": (1, 1, 0, 0, 0),
    "open_by_handle_at": (-1, struct.pack("IiQ", 8, 1, 2), 0),
    "name_to_handle_at": (-100, b"/", struct.pack("Ii", 0, 0), bytes(4), 0),
    "setns": (-1, 0),
    "unshare": (0x10000000,),
    "acct": (b"/tmp/none",),
    "quotactl": (0x800002 << 8, b"none", 0, N),
    "quotactl_fd": (-1, 0, 0, N),
    "syslog": (3, bytes(64), 64),
    "vhangup": (),
    "settimeofday": (N, bytes(8)),
    "clock_settime": (0, bytes(16)),
    "sethostname": (b"x", 1),
    "setdomainname": (b"x", 1),
    "fanotify_init": (0, 0),
    "fanotify_mark": (-1, 1, 1, -100, b"/"),
    "lookup_dcookie": (0, bytes(8), 8),
    "nfsservctl": (0, N, N),
    "uselib": (b"/tmp/none",),
    "_sysctl": (N,),
    "sysfs": (3,),
    "ustat": (0, bytes(64)),
    "iopl": (0,),
    "ioperm": (0, 1, 0),
    "modify_ldt": (0, bytes(16), 16),
    "migrate_pages": (0, 0, N, N),
    "move_pages": (0, 0, N, N, N, 0),
    "lsm_set_self_attr": (100, bytes(32), 32, 0),
    "create_module": (b"x", 0),
    "query_module": (N, 0, N, 0, N),
    "get_kernel_syms": (N,),
    "afs_syscall": (),
    "kexec": (),
    "vserver": (),
    "tuxcall": (),
    "security": (),
    "getpmsg": (),
    "putpmsg": (),
}
for name, arguments in CALLS.items():
    attempt(name, sc, name, *arguments)
for number in (1000, 5000, 0x3FFFFFFF):
    attempt(f"unassigned-{number}", syscall, number, 0, 0, 0, 0, 0, 0)

held = open("leased", "w+")
for name, kind in (("read", fcntl.F_RDLCK), ("write", fcntl.F_WRLCK)):
    attempt(f"lease-{name}", fcntl.fcntl, os.open("leased", os.O_RDONLY), fcntl.F_SETLEASE, kind)
for name, number in (
    ("push-input", 0x5412),
    ("linux-console", 0x541C),
    ("console-takeover", 0x541D),
):
    for fd in (0, 1, 2):
        attempt(f"{name}-{fd}", fcntl.ioctl, fd, number, b"x")


def other_table():
    """getpid by the table for another way of calling: x32."""
    try:
        return 100 if syscall(0x40000000 + 39) > 0 else 101
    except OSError as error:
        return error.errno


def old_gate():
    """getpid by the old gate for 32-bit programs: mov eax, 20; int 0x80; ret."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    answer = call()
    return 100 if answer > 0 else -answer


intel = platform.machine() == "x86_64"
report("x32", in_child(other_table) if intel else "not-here")
report("int-0x80", in_child(old_gate) if intel else "not-here")
