# SPDX-License-Identifier: Apache-2.0
# Sockets that reach around the network namespace or into the kernel.
import socket

RAW, DGRAM, STREAM, SEQPACKET = (
    socket.SOCK_RAW,
    socket.SOCK_DGRAM,
    socket.SOCK_STREAM,
    socket.SOCK_SEQPACKET,
)
OPEN = {
    "packet-raw": (17, RAW, 0x0300),
    "packet-datagram": (17, DGRAM, 0x0300),
    "ip-raw": (2, RAW, 1),
    "ip-raw-any": (2, RAW, 255),
    "ip6-raw": (10, RAW, 58),
    "vsock": (40, STREAM, 0),
    "alg": (38, SEQPACKET, 0),
    "bluetooth": (31, RAW, 1),
    "key": (15, RAW, 2),
    "xdp": (44, RAW, 0),
    "tipc": (30, DGRAM, 0),
    "rds": (21, SEQPACKET, 0),
    "can": (29, RAW, 1),
    "nfc": (39, SEQPACKET, 0),
    "qipcrtr": (42, DGRAM, 0),
    "smc": (43, STREAM, 0),
    "kcm": (41, DGRAM, 0),
    "pppox": (24, STREAM, 0),
    "x25": (9, SEQPACKET, 0),
    "ax25": (3, DGRAM, 0),
    "ipx": (4, DGRAM, 0),
    "appletalk": (5, DGRAM, 0),
    "llc": (26, DGRAM, 0),
    "phonet": (35, DGRAM, 0),
    "ieee802154": (36, RAW, 0),
    "mctp": (45, DGRAM, 0),
}
OPEN.update(
    {
        f"netlink-{name}": (16, RAW, number)
        for name, number in {
            "usersock": 2,
            "diag": 4,
            "xfrm": 6,
            "selinux": 7,
            "iscsi": 8,
            "audit": 9,
            "fib": 10,
            "connector": 11,
            "netfilter": 12,
            "uevent": 15,
            "generic": 16,
            "scsi": 18,
            "crypto": 21,
        }.items()
    }
)
for name, arguments in OPEN.items():
    attempt(name, socket.socket, *arguments)


def ask_kernel(kind, body):
    """One request over route netlink; what the kernel answers, as an exception."""
    with socket.socket(16, RAW, 0) as link:
        link.settimeout(5)
        link.send(struct.pack("IHHII", 16 + len(body), kind, 5, 1, 0) + body)
        answer = link.recv(65536)
    code = struct.unpack_from("i", answer, 16)[0]
    if code:
        raise OSError(-code, os.strerror(-code))


attempt("route-netlink-link-down", ask_kernel, 16, struct.pack("BxHiII", 0, 0, 1, 0, 1))
attempt(
    "route-netlink-address",
    ask_kernel,
    20,
    struct.pack("BBBBI", 2, 8, 0, 0, 1)
    + struct.pack("HH4s", 8, 2, bytes([10, 1, 2, 3]))
    + struct.pack("HH4s", 8, 1, bytes([10, 1, 2, 3])),
)
attempt(
    "route-netlink-route",
    ask_kernel,
    24,
    struct.pack("BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + struct.pack("HHi", 8, 4, 1),
)
plain = socket.socket(socket.AF_INET, DGRAM)
import fcntl

request = struct.pack("16sh14x", b"lo", 0)
attempt("interface-down", fcntl.ioctl, plain, 0x8914, request)
attempt(
    "interface-address",
    fcntl.ioctl,
    plain,
    0x8916,
    struct.pack("16sHH4s8x", b"lo", 2, 0, bytes([10, 0, 0, 1])),
)
attempt("mark", plain.setsockopt, socket.SOL_SOCKET, 36, 1)
attempt("transparent", plain.setsockopt, socket.IPPROTO_IP, 19, 1)
attempt("force-buffer", plain.setsockopt, socket.SOL_SOCKET, 32, 1 << 30)
attempt("firewall", plain.getsockopt, socket.IPPROTO_IP, 64, 84)
with socket.socket() as server, socket.socket() as client:
    server.bind(("127.0.0.1", 0))
    server.listen()
    attempt("own-loopback", client.connect, server.getsockname())
