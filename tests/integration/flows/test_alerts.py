"""The webhook: called by a real Prefect server, once for a failed run, with what failed."""

import http.server
import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect import flow, tags

from flows.alerts import TEMPLATE, load_template, tell_webhook
from flows.cli.main import run
from flows.server import PrefectServer
from kernels_eval.errors import InputError

Calls = queue.Queue[tuple[dict[str, Any], str | None]]


@pytest.fixture
def receiver() -> Iterator[tuple[str, Calls]]:
    calls: Calls = queue.Queue()

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            calls.put((json.loads(body), self.headers.get("Authorization")))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}/hook", calls
        listening.shutdown()


@pytest.mark.slow
def test_a_failed_run_is_told_and_a_good_one_is_not(server: PrefectServer, receiver: tuple[str, Calls]):
    url, calls = receiver
    first = tell_webhook(url, "secret-token")
    assert tell_webhook(url, "secret-token") != first  # made anew, not twice

    @flow(name="training", flow_run_name="demo · {kind}")
    def training(kind: str) -> None:
        if kind == "bad":
            raise InputError('a "quoted" reason')

    with tags("kernelmill"):
        training("good")
        with pytest.raises(InputError):
            training("bad")
    body, authorization = calls.get(timeout=60)
    assert (body["flow"], body["run"], body["state"]) == ("training", "demo · bad", "Failed")
    assert 'a "quoted" reason' in body["message"]
    assert "/runs/flow-run/" in body["url"]
    assert authorization == "Bearer secret-token"
    with pytest.raises(queue.Empty):
        calls.get(timeout=3)


def test_a_template_has_a_place_for_the_block(tmp_path: Path):
    assert load_template(TEMPLATE, "1234")["actions"][0]["block_document_id"] == "1234"
    other = tmp_path / "other.yaml"
    other.write_text("name: x\n")
    for path, words in ((other, "block_document_id"), (tmp_path / "none.yaml", "cannot be read")):
        with pytest.raises(InputError, match=words):
            load_template(path, "1234")


def test_the_command_wants_a_server_and_an_address(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert run(["alert", "https://example.com"]) == 2
    assert "PREFECT_API_URL" in capsys.readouterr().err
    with pytest.raises(InputError, match="expected http"):
        tell_webhook("ftp://example.com")
