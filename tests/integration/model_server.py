# SPDX-License-Identifier: Apache-2.0
"""A model's server for tests, which does what a test wants of each request."""

import contextlib
import json
import socket
import socketserver
import ssl
import subprocess
import threading
import time


class Request:
    """A request as it came."""

    def __init__(self, stream):
        self.line = stream.readline().decode().strip()
        self.headers = {}
        while (line := stream.readline().strip()):
            name, _, value = line.decode().partition(":")
            self.headers[name.lower()] = value.strip()
        self.text = stream.read(int(self.headers.get("content-length", 0))).decode()

    @property
    def body(self):
        return json.loads(self.text)

    @property
    def path(self):
        return self.line.split()[1]


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        """Answers as the next of the server's answers does, which may end the connection."""
        with contextlib.suppress(ConnectionError):
            while self.rfile.peek(1):
                request = Request(self.rfile)
                self.server.requests.append(request)
                self.server.times.append(time.monotonic())
                self.server.asked.set()
                if self.server.answer(request)(self, request) is False:
                    return


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, *answers, context=None, rule=None):
        """Gives the answers one after the other; or what a rule says of each request."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.rule = rule
        self.answers, self.requests, self.times = list(answers), [], []
        self.context = context
        self.over = threading.Event()  # the test is over: who hangs may go
        self.asked = threading.Event()  # a request has come
        self.gone = threading.Event()  # the client went away from who hangs
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    def answer(self, request):
        return self.rule(request) if self.rule else self.answers.pop(0)

    def get_request(self):
        connection, address = super().get_request()
        if self.context:
            connection = self.context.wrap_socket(connection, server_side=True)
        return connection, address

    def handle_error(self, request, client_address):
        """What a client does to its connection is no error here."""

    @property
    def url(self):
        return f"http{'s' if self.context else ''}://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.shutdown()
        self.server_close()


def certificate(folder, name):
    """A key and a certificate that signs itself."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", folder / "key.pem",
                    "-out", folder / "cert.pem", "-days", "2", "-subj", "/CN=test",
                    "-addext", f"subjectAltName=IP:{name}"],
                   check=True, stdin=subprocess.DEVNULL, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def send(handler, text):
    handler.wfile.write(text if isinstance(text, bytes) else text.encode())
    handler.wfile.flush()


def head(status=200, kind="application/json", length=None, **headers):
    lines = [f"HTTP/1.1 {status} Something", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines.append("Connection: close" if length is None else f"Content-Length: {length}")
    return "\r\n".join(lines) + "\r\n\r\n"


def plain(body, status=200, kind="application/json", **headers):
    """A whole answer; the connection stays."""
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    data = text if isinstance(text, bytes) else text.encode()

    def answer(handler, request):
        send(handler, head(status, kind, len(data), **headers).encode() + data)
    return answer


def completion(text="Hi", finish="stop", **message):
    return {"model": "m-1", "usage": {"total_tokens": 3},
            "choices": [{"index": 0, "finish_reason": finish,
                         "message": {"role": "assistant", "content": text, **message}}]}


def event(**delta):
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}) + "\n\n"


def finish(reason="stop"):
    chunk = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    return "data: " + json.dumps(chunk) + "\n\n"


DONE = "data: [DONE]\n\n"
GOOD = (event(content="He"), event(content="llo"), finish(), DONE)


def stream(*pieces, kind="text/event-stream"):
    """Pieces of a stream, sent one by one, then the end of the connection; a callable
    among the pieces is called."""
    def answer(handler, request):
        send(handler, head(kind=kind))
        for piece in pieces:
            piece(handler) if callable(piece) else send(handler, piece)
        return False
    return answer


def hang(handler, request=None):
    """Says nothing until the client goes away, or the test is over."""
    handler.connection.settimeout(0.02)
    while not handler.server.over.is_set():
        try:
            if handler.connection.recv(1):
                continue
        except TimeoutError:
            continue
        except ConnectionError:
            pass
        handler.server.gone.set()
        break
    return False


def reset(handler, request=None):
    """Ends the connection without an answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    handler.connection.close()
    return False
