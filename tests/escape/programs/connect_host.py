# SPDX-License-Identifier: Apache-2.0
# Connects to what listens on the host; the driver also runs this outside.
import socket

PORT, ABSTRACT, PATH = os.environ["HOST_PORT"], os.environ["HOST_ABSTRACT"], os.environ["HOST_PATH"]


def connect(family, kind, address):
    with socket.socket(family, kind) as client:
        client.settimeout(5)
        client.connect(address)
        client.send(b"hello")
        return client.recv(10)


attempt("tcp", connect, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(PORT)))
attempt("tcp-any", connect, socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", int(PORT)))
attempt("abstract", connect, socket.AF_UNIX, socket.SOCK_STREAM, "\0" + ABSTRACT)
attempt("path", connect, socket.AF_UNIX, socket.SOCK_STREAM, PATH)
report(
    "abstract-names",
    sum(ABSTRACT.encode() in line for line in read_file("/proc/net/unix").splitlines()),
)
