"""Loopback: what it is, and that no library asks it through a proxy."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kernels_eval.loopback import NAMES, is_loopback, is_on_loopback, keep_off_proxies


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"true")  # as a healthy Prefect server answers

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("host", [*NAMES, "127.9.9.9", "a.localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)
    assert is_on_loopback(f"http://[{host}]:80/x" if ":" in host else f"http://{host}:80/x")


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example", "0.0.0.0", "10.0.0.1", "localhost.evil"]
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)
    assert not is_on_loopback(f"http://{host}/x")


@pytest.mark.parametrize("text", ["", "garbage", "http://[", "http://127.0.0.1@evil.example/"])
def test_what_is_no_url_is_not_on_loopback(text: str) -> None:
    assert not is_on_loopback(text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "corp.example"}, "corp.example,localhost,127.0.0.1,::1"),
        ({"no_proxy": "127.0.0.1, a", "NO_PROXY": "b"}, "127.0.0.1,a,localhost,::1"),
        ({"no_proxy": "*"}, "*"),
    ],
)
def test_the_variable_keeps_what_it_had(before: dict[str, str], after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    keep_off_proxies()
    keep_off_proxies()
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == after


ASK = """
import sys
from kernels_eval.loopback import keep_off_proxies
keep_off_proxies()
import urllib.request, httpx, requests
print(urllib.request.urlopen(sys.argv[1]).status, httpx.get(sys.argv[1]).status_code, requests.get(sys.argv[1]).status_code)
"""
READY = "from flows.services.prefect_server import answers; import sys; print(answers(sys.argv[1] + '/api', 20))"


@pytest.mark.parametrize(("program", "said"), [(ASK, "200 200 200"), (READY, "True")])
def test_a_server_here_is_found_while_a_proxy_is_set(server: str, program: str, said: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    environment |= dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy"), "http://127.0.0.1:9")
    done = subprocess.run([sys.executable, "-c", program, server], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == said, done.stderr
