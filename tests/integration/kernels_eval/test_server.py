"""The server as a process: verdicts, streams, a full queue, clients that leave, health under load, and a clean end."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from kernel_sources import ROW_KERNEL, ROW_PROBLEM, with_forward

ROOT = Path(__file__).parents[3]
ASLEEP = with_forward("        import time\n        time.sleep(600)\n")
SPINNING = ROW_KERNEL.replace("    tl.store(", "    while N > 0:\n        x += 1.0\n    tl.store(")
"""On the device, until its time is over: in host code it would be ended earlier."""
TIMEOUT_S = 10.0
QUEUE = 12


@dataclass
class Server:
    address: str
    process: subprocess.Popen[str]

    def post(self, path: str, body: Any, **arguments: Any) -> httpx.Response:
        return httpx.post(self.address + path, json=body, timeout=250, **arguments)

    def get(self, path: str) -> Any:
        return httpx.get(self.address + path, timeout=30).json()

    def wait_until(self, condition: Callable[[dict[str, Any]], bool], limit_s: float = 150.0) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        while not condition(health := self.get("/health")):
            assert time.monotonic() < deadline, health
            time.sleep(0.02)
        return health


@contextlib.contextmanager
def running(*options: str, **environment: str) -> Generator[Server]:
    command = [
        sys.executable,
        "-m",
        "flows.cli.main",
        "serve",
        "judge",
        "--port",
        "0",
        "--workers",
        "2",
        "--queue",
        str(QUEUE),
    ]
    command += ["-s", "judge.compile=never", "-s", f"judge.timeout_s={TIMEOUT_S}", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=os.environ | environment
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("judge: http://127.0.0.1:"), line + process.stdout.read()
        yield Server(line.split()[1], process)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with running() as server:
        server.wait_until(lambda health: health["status"] == "ok", limit_s=150)
        yield server


def item(kernel: str, problem: str = ROW_PROBLEM, **settings: Any) -> dict[str, Any]:
    return {"problem_source": problem, "kernel_source": kernel, "settings": settings}


def test_a_verdict(server: Server) -> None:
    reply = server.post("/eval", item(ROW_KERNEL) | {"backend": "triton", "settings": {"trials": 3}})
    assert reply.status_code == 200
    verdict = reply.json()
    assert (verdict["status"], verdict["correct"], verdict["timing_source"]) == ("correct", True, "roofline")
    assert "correctness" not in verdict
    from kernels_eval import Verdict

    assert Verdict.model_validate_json(reply.content).speedup == verdict["speedup"]


@pytest.mark.parametrize(
    ("kernel", "compiled", "correct", "key"),
    [
        (ROW_KERNEL, True, True, None),
        (ROW_KERNEL.replace("x * 2.0", "x * 2.1"), True, False, "correctness_issue"),
        ("def f(:", False, False, "compilation_error"),
        (with_forward("        raise ValueError('boo')\n"), True, False, "runtime_error"),
    ],
)
def test_in_kernelbenchs_names(server: Server, kernel: str, compiled: bool, correct: bool, key: str | None) -> None:
    body = {
        "original_model_src": ROW_PROBLEM, "custom_model_src": kernel, "num_correct_trials": 5, "num_perf_trials": 100,
        "backend": "triton", "verbose": True, "measure_performance": True, "preferred_device": 0,
    }  # fmt: skip
    verdict = server.post("/eval", body).json()
    assert (verdict["compiled"], verdict["correctness"], verdict["correct"]) == (compiled, correct, correct)
    assert (verdict["runtime"] > 0, verdict["ref_runtime"] > 0) == (correct, correct)
    assert verdict["runtime"] == (verdict["candidate_ms"] if correct else -1.0)
    assert key is None or verdict["metadata"][key] == verdict["error_message"]


def test_a_problem_that_raises_is_no_verdict_on_the_kernel(server: Server) -> None:
    raising = ROW_PROBLEM.replace("x = torch.relu(x)", "raise RuntimeError('mine')")
    assert server.post("/eval", item(ROW_KERNEL, raising)).json()["status"] == "infrastructure_error"
    reply = server.post("/eval", {"original_model_src": raising, "custom_model_src": ROW_KERNEL})
    assert reply.status_code == 503
    assert "mine" in reply.json()["detail"]


def lines_of(server: Server, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with httpx.stream("POST", server.address + "/eval/batch", json={"items": items}, timeout=250) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"] == "application/x-ndjson"
        return [json.loads(line) for line in reply.iter_lines()]


@pytest.mark.long
def test_a_batch_streams_each_verdict_once_the_quick_before_the_slow(server: Server) -> None:
    kernels = [SPINNING, *(ROW_KERNEL + f"# {index}" for index in range(QUEUE - 3)), "def f(:"]
    items = [item(kernel) for kernel in kernels]
    items.append({"original_model_src": ROW_PROBLEM, "custom_model_src": ROW_KERNEL + "# theirs"})
    lines = lines_of(server, items)
    assert sorted(line["index"] for line in lines) == list(range(len(items)))
    assert lines[-1]["index"] == 0, "the one that hangs comes last"
    statuses = {line["index"]: line["verdict"]["status"] for line in lines}
    expected = {0: "timeout"} | dict.fromkeys(range(1, len(items)), "correct") | {len(kernels) - 1: "compile_error"}
    assert statuses == expected
    assert [line["index"] for line in lines if "correctness" in line["verdict"]] == [len(kernels)]


@pytest.mark.long
def test_health_answers_at_once_while_every_worker_is_busy_and_the_queue_is_full(server: Server) -> None:
    items = [item(SPINNING + f"# {index}", timeout_s=5.0) for index in range(4)] + [
        item(ROW_KERNEL + f"# h{i}") for i in range(QUEUE - 4)
    ]
    batch = threading.Thread(target=lines_of, args=[server, items])
    batch.start()
    server.wait_until(lambda health: health["running"] == 4 and health["waiting"] == QUEUE - 4)
    latencies: list[float] = []
    with httpx.Client() as client:
        for _ in range(15):
            began = time.perf_counter()
            health = client.get(server.address + "/health").json()
            latencies.append(time.perf_counter() - began)
            assert health["running"] == 4, latencies
        refused = client.post(server.address + "/eval", json=item(ROW_KERNEL + "# one too many"))
    assert statistics.median(latencies) < 1, latencies  # what spins is ended after five
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert f"holds {QUEUE} kernels" in refused.json()["detail"]
    workers = server.get("/workers")["workers"]
    assert {worker["state"] for worker in workers} == {"busy"}, "those in reserve too: what spins is no longer young"
    batch.join(timeout=250)
    assert server.post("/eval", item(ROW_KERNEL + "# room again")).status_code == 200


@pytest.mark.long
def test_what_a_client_has_left_is_not_judged(server: Server) -> None:
    blockers = [threading.Thread(target=server.post, args=["/eval", item(f"{ASLEEP}# {index}")]) for index in range(4)]
    for blocker in blockers:
        blocker.start()
    server.wait_until(lambda health: health["running"] == 4)
    for path in ("/eval", "/eval/batch"):
        body = item(ROW_KERNEL + f"# left {path}")
        with contextlib.suppress(httpx.TimeoutException), httpx.Client(timeout=0.3) as client:
            client.post(server.address + path, json=body if path == "/eval" else {"items": [body] * 5})
        server.wait_until(lambda health: health["waiting"] == 0 and health["running"] == 4)
    for blocker in blockers:
        blocker.join(timeout=150)
    metrics = httpx.get(server.address + "/metrics").text
    assert "kernelmill_judge_queue_places_taken 0.0" in metrics


def test_a_killed_worker_is_quarantined_probed_and_returned(server: Server) -> None:
    before = server.get("/fault_statistics")
    sleeping = threading.Thread(target=server.post, args=["/eval", item(ASLEEP + "# kill", timeout_s=1.5)])
    sleeping.start()
    server.wait_until(lambda health: health["running"] == 1)
    (zygote,) = [
        int(pid) for pid in _children(server.process.pid) if b"interpret" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    for worker in _children(zygote):
        os.kill(worker, signal.SIGKILL)
    sleeping.join(timeout=150)
    server.wait_until(lambda health: health["status"] == "ok")
    after = server.get("/fault_statistics")
    assert after["total"] > before["total"]
    assert after["returned"] > before["returned"]
    assert after["quarantined"] == []
    messages = {fault["message"] for fault in after["recent"]}
    assert "a judge worker died or hung" in messages
    assert messages <= {"a judge worker died or hung", "a judge worker died while idle"}
    assert server.post("/eval", item(ROW_KERNEL + "# after")).json()["correct"]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
@pytest.mark.long
def test_told_to_stop_it_refuses_what_waits_ends_what_runs_and_leaves_nothing(number: int) -> None:
    with running(KERNELMILL_JUDGE_TOKEN="a-token-of-ours") as server:
        header = {"Authorization": "Bearer a-token-of-ours"}
        replies: dict[str, httpx.Response] = {}

        def ask(name: str, kernel: str) -> None:
            replies[name] = server.post("/eval", item(kernel), headers=header)

        ask("first", ROW_KERNEL)
        assert server.post("/eval", item(ROW_KERNEL)).status_code == 401
        kernels = {f"running {index}": f"{ASLEEP}# {index}" for index in range(4)} | {"waiting": ROW_KERNEL + "#"}
        clients = [threading.Thread(target=ask, args=pair) for pair in kernels.items()]
        for client in clients:
            client.start()
            time.sleep(0.2)
        server.wait_until(lambda health: health["running"] == 4 and health["waiting"] == 1)
        family = _family(server.process.pid)
        assert len(family) >= 5
        server.process.send_signal(number)
        output, _ = server.process.communicate(timeout=30)
        for client in clients:
            client.join(timeout=5)
        assert server.process.returncode == 0, output
        assert "a-token-of-ours" not in output
        assert "Traceback" not in output, output
        verdicts = {name: reply.json()["status"] for name, reply in replies.items()}
        assert verdicts == {"first": "correct", "waiting": "infrastructure_error"} | dict.fromkeys(
            (f"running {index}" for index in range(4)), "timeout"
        )
        assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]


def _children(process: int) -> list[int]:
    from kernels_eval.sandbox.limits import children_of

    return children_of(process)


def _family(process: int) -> list[int]:
    return [process, *(member for child in _children(process) for member in _family(child))]
