"""Soak test of the judge's server: memory and responsiveness under concurrent hostile load for some minutes.

    python benchmarks/judge_soak.py [--minutes 30] [--clients 8] [--workers 2] [--pause 0.5]

Clients send honest, wrong, broken, hanging and hostile kernels, single and in batches, and malformed, endless and
oversized bodies, and hang up half-way. Each line: memory (PSS) of the server with all its processes, of the server
alone, of the largest worker and of the largest fork server; processes, open descriptors, files in the scratch folder,
replies, and the slowest `/health`. At the end: verdicts by kind of kernel (honest ones must be correct), and what the
server left behind.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import httpx
from judge_mix import Kind, mixed_kernels

from kernels_eval.sandbox.limits import children_of

SHARES = {Kind.HONEST: 0.35, Kind.WRONG: 0.15, Kind.NOT_COMPILING: 0.15, Kind.HANGING: 0.03, Kind.HOSTILE: 0.32}
ROOT = Path(__file__).parents[1]


class Load:
    """Clients of the server, and their counts."""

    def __init__(self, address: str, pause_s: float) -> None:
        self.address = address
        self.pause_s = pause_s
        self.replies: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.health_s: list[float] = []
        self.stop = threading.Event()
        self._lock = threading.Lock()

    def client(self, number: int) -> None:
        generator = random.Random(number)
        for batch in range(10**6):
            samples = mixed_kernels(40, seed=1000 * number + batch, shares=SHARES, problems=8)
            bodies = [({"problem_source": one.problem, "kernel_source": one.kernel}, one.kind) for one in samples]
            while bodies and not self.stop.is_set():
                with contextlib.suppress(httpx.HTTPError, OSError):
                    self._one_request(generator, bodies)
                self.stop.wait(generator.uniform(0, 2 * self.pause_s))
            if self.stop.is_set():
                return

    def _one_request(self, generator: random.Random, bodies: list[tuple[dict[str, str], Kind]]) -> None:
        what = generator.random()
        with httpx.Client(base_url=self.address, timeout=120) as client:
            if what < 0.55:
                body, kind = bodies.pop()
                self._count(client.post("/eval", json=body), [kind])
            elif what < 0.75:
                taken = [bodies.pop() for _ in range(min(8, len(bodies)))]
                with client.stream("POST", "/eval/batch", json={"items": [body for body, _ in taken]}) as reply:
                    if reply.status_code == 200 and generator.random() < 0.3:  # hangs up after the first verdict
                        next(reply.iter_lines(), None)
                        return
                    lines = list(reply.iter_lines())
                self._count(reply, [kind for _, kind in taken], lines)
            elif what < 0.85:
                with contextlib.suppress(httpx.TimeoutException):
                    client.post("/eval", json=bodies.pop()[0], timeout=generator.uniform(0.01, 0.3))
            elif what < 0.93:
                content = generator.choice([b"{", b"\xff" * 1000, b'{"a":' + b"[" * 100_000, b"1" * 10_000, b"null"])
                self._count(client.post("/eval", content=content, headers={"Content-Type": "application/json"}))
            elif what < 0.96:
                self._count(client.post("/eval/batch", content=b"x" * (17 << 20)))
            else:
                self._half_a_request(generator)

    def _half_a_request(self, generator: random.Random) -> None:
        host, port = self.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(b"POST /eval HTTP/1.1\r\nHost: judge\r\nContent-Length: 1000\r\n\r\n{")
            self.stop.wait(generator.uniform(0, 2))

    def _count(self, reply: httpx.Response, kinds: Sequence[Kind] = (), lines: Sequence[str] = ()) -> None:
        with self._lock:
            self.replies[str(reply.status_code)] += 1
            if reply.status_code != 200:
                return
            for index, line in enumerate(lines or [reply.text]):
                said = json.loads(line)
                verdict = said.get("verdict", said)
                self.verdicts[f"{kinds[said.get('index', index)]}: {verdict['status']}"] += 1

    def watch_health(self) -> None:
        with httpx.Client(base_url=self.address, timeout=30) as client:
            while not self.stop.wait(0.1):
                began = time.perf_counter()
                client.get("/health")
                self.health_s.append(time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=float, default=15.0, help="seconds between lines")
    parser.add_argument("--pause", type=float, default=0.0, help="mean seconds of a client between requests")
    options = parser.parse_args()
    command = [
        sys.executable,
        "-m",
        "flows.cli.main",
        "serve",
        "judge",
        "--port",
        "0",
        "--workers",
        str(options.workers),
    ]
    command += ["-s", "judge.timeout_s=2", "-s", "judge.cache_mb=4", "--queue", "64"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert server.stdout is not None
    load = Load(server.stdout.readline().split()[1], options.pause)
    threads = [threading.Thread(target=load.client, args=[number]) for number in range(options.clients)]
    threads.append(threading.Thread(target=load.watch_health))
    for thread in threads:
        thread.start()
    lines: list[dict[str, float]] = []
    end = time.monotonic() + 60 * options.minutes
    try:
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(options.every, max(left, 0.1)))
            lines.append(observe(server.pid, load))
            print("  ".join(f"{name} {value:g}" for name, value in lines[-1].items()), dict(load.replies), flush=True)
    finally:
        load.stop.set()
        for thread in threads:
            thread.join(timeout=130)
        family = members(server.pid)
        scratch = scratch_of(family)
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=60)
        time.sleep(5)
    report(lines, load)
    left = [process for process in family if role(process) != "gone"]
    folders = [folder for folder in scratch if Path(folder).exists()]
    print(f"the server ended with {code}; processes left: {left}; folders left: {folders}")


def observe(server: int, load: Load) -> dict[str, float]:
    family = members(server)
    roles = {process: role(process) for process in family}
    health, load.health_s = load.health_s, []
    largest = {
        name: max((memory(pid, "Rss") for pid, found in roles.items() if found == name), default=0.0)
        for name in ("worker", "fork server")
    }
    return {
        "verdicts": sum(load.verdicts.values()),
        "total_mb": round(sum(memory(pid, "Pss") for pid in family)),
        "server_mb": round(memory(server, "Rss"), 1),
        "worker_mb": round(largest["worker"]),
        "fork_server_mb": round(largest["fork server"]),
        "processes": len(family),
        "descriptors": len(list(Path(f"/proc/{server}/fd").iterdir())),
        "scratch_files": sum(len(files) for folder in scratch_of(family) for _, _, files in os.walk(folder)),
        "health_p99_ms": round(1e3 * statistics.quantiles(health, n=100)[-1], 1) if len(health) > 1 else 0,
        "health_max_ms": round(1e3 * max(health, default=0), 1),
    }


def members(process: int) -> list[int]:
    return [process, *(member for child in children_of(process) for member in members(child))]


def scratch_of(family: list[int]) -> set[str]:
    """Return the scratch folders of the server's zygotes."""
    found: set[str] = set()
    for process in family:
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            found |= {entry[7:].decode() for entry in environment if entry.startswith(b"TMPDIR=")}
    return {folder for folder in found if "kernels-eval-" in folder}


def role(process: int) -> str:
    """Return the role of a process, from its depth: server, zygote, worker, fork server, candidate."""
    with contextlib.suppress(OSError, IndexError):
        depth = 0
        while b"serve\0judge" not in Path(f"/proc/{process}/cmdline").read_bytes():
            process = int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
            depth += 1
        return ("server", "zygote", "worker", "fork server", "candidate")[min(depth, 4)]
    return "gone"


def memory(process: int, field: str) -> float:
    """Return the MB of a process: Rss, or Pss (its share of shared memory)."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    return 0.0


def report(lines: list[dict[str, float]], load: Load) -> None:
    settled = lines[len(lines) // 4 :]
    third = max(1, len(settled) // 3)
    for name in ("total_mb", "server_mb", "worker_mb", "fork_server_mb", "descriptors"):
        early = statistics.median(line[name] for line in settled[:third])
        late = statistics.median(line[name] for line in settled[-third:])
        print(f"{name}: {early:g} after the first quarter, {late:g} at the end ({late - early:+g})")
    print(f"/health: slowest {max(line['health_max_ms'] for line in lines):g} ms; replies {dict(load.replies)}")
    for name, count in sorted(load.verdicts.items()):
        print(f"  {name}: {count}")


if __name__ == "__main__":
    main()
