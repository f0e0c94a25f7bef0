"""`kernelmill serve kernels` and a scripted model as processes, which tests kill."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil

ROOT = Path(__file__).parents[4]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Process:
    """A program that can be killed and started again."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Model(Process):
    """The double of OpenAI's server, on a port that stays."""

    def __init__(self, script: Sequence[dict[str, Any]], folder: Path) -> None:
        file, port = folder / "script.json", free_port()
        file.write_text(json.dumps(list(script)))
        self.address = f"http://127.0.0.1:{port}/v1"
        super().__init__(
            [sys.executable, str(ROOT / "tests/doubles/openai_server.py"), "--port", str(port), "--script", str(file)]
        )


class Service(Process):
    """The service, on a port that stays."""

    def __init__(self, folder: Path, *options: str) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "flows.cli.main", "serve", "kernels", "--port", str(port)]
        super().__init__([*command, "--folder", str(folder), "--set", "judge.compile=never", *options])

    def wait(self, limit_s: float = 60.0) -> None:
        deadline = time.monotonic() + limit_s
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.address}/health").status_code == 200:
                    return
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(0.1)

    def descendants(self, word: str) -> list[psutil.Process]:
        """Processes below it with this word in their title or command line."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        titled: list[psutil.Process] = []
        for process in found:
            with contextlib.suppress(psutil.Error):
                if word in f"{process.name()} {' '.join(process.cmdline())}":
                    titled.append(process)
        return titled

    def post(self, body: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        """As a client should: the same key until there is an answer."""
        headers = {} if key is None else {"Idempotency-Key": key}
        while True:
            try:
                reply = httpx.post(f"{self.address}/v1/kernels", json=body, headers=headers, timeout=30)
            except httpx.TransportError:
                assert key is not None
                time.sleep(0.2)
                continue
            assert reply.status_code in (200, 202), reply.text
            return reply.json()

    def get(self, path: str) -> Any:
        return httpx.get(f"{self.address}{path}", timeout=30).json()

    def events(self, name: str) -> list[dict[str, Any]]:
        """All events of a job, read again from the last one seen if the service goes away."""
        found: list[dict[str, Any]] = []
        while not found or found[-1]["kind"] not in ("finished", "failed", "cancelled"):
            path = f"{self.address}/v1/kernels/{name}/events?after={len(found)}"
            try:
                with httpx.stream("GET", path, timeout=httpx.Timeout(10, read=240)) as lines:
                    found += [json.loads(line) for line in lines.iter_lines()]
            except (httpx.TransportError, ValueError):
                time.sleep(0.2)
        return found


@contextlib.contextmanager
def running(process: Process) -> Generator[Any]:
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.process.wait(timeout=20)
        process.process.kill()
        process.process.wait()
        assert process.process.stdout is not None
        process.process.stdout.close()


def killed(processes: Sequence[psutil.Process]) -> int:
    """Kill these; return how many there were."""
    count = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            os.kill(process.pid, signal.SIGKILL)
            count += 1
    return count
