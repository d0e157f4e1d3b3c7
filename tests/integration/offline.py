# SPDX-License-Identifier: Apache-2.0
"""
The offline model (src/agent/offline_model.py) as a server for tests. HUTCH_BUILD is the
build folder.
"""

import json
import os
import pathlib
import subprocess
import urllib.request

import pytest

PROGRAM = pathlib.Path(os.environ["HUTCH_BUILD"]) / "libexec/hutch/offline-model"
PATIENCE = 60

# Nothing of this machine's proxies between a test and its server.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Model:
    """The server; `with` starts and ends it."""

    def __enter__(self):
        self.process = subprocess.Popen([PROGRAM, "--until-eof"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        return self

    def __exit__(self, *_):
        """Ends it by the end of its input; it must have had nothing to complain of."""
        _, complaints = self.process.communicate(timeout=PATIENCE)
        assert (self.process.returncode, complaints) == (0, "")

    def open(self, path, body=None, **headers):
        """The response of the server; path is that below its root."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url.removesuffix("/v1") + path, data=data,
                                         headers={"Content-Type": "application/json", **headers})
        return OPENER.open(request, timeout=PATIENCE)

    def ask(self, path, body=None):
        with self.open(path, body) as response:
            return json.load(response)

    def requests(self, count=0):
        """What was asked of it, as soon as there are so many requests."""
        return self.ask(f"/requests?count={count}")["requests"]

    def go_on(self):
        """Opens the gate once."""
        self.ask("/continue", {})

    def reset(self):
        self.ask("/reset", {})


@pytest.fixture(scope="module")
def server():
    with Model() as model:
        yield model


@pytest.fixture
def model(server):
    server.reset()
    return server
