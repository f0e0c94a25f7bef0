"""A worker's replies become verdicts; a worker that is silent, dead or worn out is a fault or is replaced."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.compile.one_shot import Builder, CompileCache, Compiled
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.pool import worker_client
from kernels_eval.pool.job_queue import Job
from kernels_eval.pool.worker_client import ProblemEndedWorkerError, WorkerBugError, WorkerClient, build_verdict
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM, Problem
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.messages import ChannelClosedError, receive_frame, send_frame
from kernels_eval.verdict import Resources, Status, Verdict, fault

CONFIG = JudgeConfig(device="cpu", compile="never", timeout_s=2)
GRADED = Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values", seed_commitment="ab")
Reply = Callable[[dict[str, Any]], dict[str, Any] | None]


class Workers:
    """Zygotes whose workers are threads that answer with a given function; None: the worker dies."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.hello: dict[str, Any] | None = {"kind": "hello", "sandbox": ["process", "seccomp"]}
        self.steps: list[str] = []
        """Sent before each reply."""
        self.started = 0
        self.killed: list[int] = []
        self.theirs: list[socket.socket] = []
        self.threads: list[threading.Thread] = []

    def fork_worker(self, device: str) -> tuple[int, socket.socket]:
        assert device == "cpu"
        ours, theirs = socket.socketpair()
        self.started += 1
        self.theirs.append(theirs)
        self.threads.append(threading.Thread(target=self._serve, args=(theirs,)))
        self.threads[-1].start()
        return self.started, ours

    def fork(self, role: str) -> tuple[int, socket.socket]:
        raise AssertionError(f"nothing is compiled here: {role}")

    def kill(self, process: int) -> None:
        self.killed.append(process)

    def _serve(self, channel: socket.socket) -> None:
        with channel:
            try:
                if self.hello is None:
                    return
                send_frame(channel, self.hello)
                while True:
                    request = receive_frame(channel)[0]
                    for kind in self.steps:
                        send_frame(channel, {"kind": kind})
                    reply = self.reply(request)
                    if reply is None:
                        return
                    send_frame(channel, reply)
            except ChannelClosedError:
                return


def graded(_: dict[str, Any]) -> dict[str, Any]:
    nothing: dict[str, Any] = {name: [] for name in ("launches", "kernels", "alternatives", "alternative_kernels")}
    return {"kind": "graded", "verdict": GRADED.model_dump(mode="json"), **nothing, "work": {}}


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(graded)
    yield made
    for thread in made.threads:
        thread.join(10)
        assert not thread.is_alive()


def client_of(workers: Workers, folder: Path, ahead: Any = None) -> WorkerClient:
    cache = CompileCache()

    def new_builder() -> Builder:
        return Builder(lambda: ForkServer(workers.fork("build")[1]), cache, folder)

    return WorkerClient(workers, cache, new_builder, CONFIG, ahead)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def client(workers: Workers, tmp_path: Path) -> Iterator[WorkerClient]:
    made = client_of(workers, tmp_path)
    yield made
    made.close()


def job() -> Job:
    return Job("key", Problem(problem_id="p", source=EXAMPLE_PROBLEM), EXAMPLE_KERNEL, CONFIG)


def test_a_worker_is_asked_for_this_kernel_and_its_verdict_is_the_verdict(
    workers: Workers, client: WorkerClient
) -> None:
    asked: list[dict[str, Any]] = []
    workers.reply = lambda request: asked.append(request) or graded(request)
    assert client.judge(job()).verdict == GRADED
    assert client.judge(job()).verdict == GRADED
    assert workers.started == 1
    assert (asked[0]["problem"], asked[0]["kernel"]) == (EXAMPLE_PROBLEM, EXAMPLE_KERNEL)
    assert JudgeConfig(**asked[0]["config"]) == CONFIG
    assert asked[0]["build"] == {"resources": [], "libraries": {}, "cache": None}


def test_what_was_built_while_it_waited_is_not_built_again(workers: Workers, tmp_path: Path) -> None:
    class Ahead:
        def outcome(self, _: Job) -> Compiled:
            return Compiled(category="nvcc_compile", message="expected a semicolon")

    made = client_of(workers, tmp_path, Ahead())
    waited = Job("key", job().problem, EXAMPLE_KERNEL, CONFIG.model_copy(update={"backend": "cuda"}))
    verdict = made.judge(waited).verdict
    made.close()
    assert (verdict.status, verdict.error_message) == (Status.COMPILE_ERROR, "expected a semicolon")
    assert not workers.started


def test_a_reference_that_fails_is_a_fault_and_no_verdict_on_the_kernel(workers: Workers, client: WorkerClient) -> None:
    workers.reply = lambda _: {"kind": "reference_failed", "message": "no memory"}
    assert client.judge(job()).verdict == fault("reference_failed", "no memory")
    assert fault("reference_failed", "no memory").is_fault


def test_a_bug_in_a_worker_is_told_from_a_fault_of_the_machine(workers: Workers, client: WorkerClient) -> None:
    workers.reply = lambda _: {"kind": "bug", "message": "ValueError: a size below zero"}
    with pytest.raises(WorkerBugError, match="ValueError: a size below zero"):
        client.judge(job())


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"kind": "fault", "message": "out of descriptors"}, "out of descriptors"),
        ({"kind": "something"}, "the worker gave no verdict"),
        (None, "a judge worker died or hung"),
    ],
)
def test_no_verdict_is_an_infrastructure_error(
    workers: Workers, client: WorkerClient, reply: dict[str, Any] | None, words: str
) -> None:
    workers.reply = lambda _: reply
    with pytest.raises(InfrastructureError, match=words):
        client.judge(job())


def test_a_worker_that_ends_while_it_loads_a_problem_was_ended_by_it(workers: Workers, client: WorkerClient) -> None:
    workers.steps = ["loading", "loaded"]
    assert client.judge(job()).verdict == GRADED
    workers.reply = lambda _: None
    with pytest.raises(InfrastructureError, match="a judge worker died or hung"):
        client.judge(job())
    client.reset()
    workers.steps = ["loading"]
    with pytest.raises(ProblemEndedWorkerError, match="the problem ends its process: its module, get_init_inputs"):
        client.judge(job())


def test_a_worker_that_does_not_greet_did_not_start(workers: Workers, client: WorkerClient) -> None:
    assert client.start_worker() == ["process", "seccomp"]
    client.reset()
    workers.hello = None
    with pytest.raises(InfrastructureError, match="did not start"):
        client.start_worker()


def test_a_worker_that_died_while_idle_is_given_up(workers: Workers, client: WorkerClient) -> None:
    assert not client.drop_dead_worker(), "there is none yet"
    client.judge(job())
    assert not client.drop_dead_worker(), "it lives"
    workers.theirs[0].shutdown(socket.SHUT_RDWR)
    assert client.drop_dead_worker()
    assert workers.killed == [1]
    assert client.judge(job()).verdict == GRADED
    assert workers.started == 2


def test_a_worker_is_replaced_after_its_number_of_verdicts(
    workers: Workers, client: WorkerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_client, "WORKER_VERDICTS", 3)
    started: list[int] = []
    for _ in range(7):
        client.judge(job())
        started.append(workers.started)
    assert started == [1, 1, 1, 2, 2, 2, 3]
    assert workers.killed == [1, 2]


USED = (Resources(kernel="k", architecture="cuda:90"), Resources(kernel="k", architecture="cuda:80"))


def test_a_build_that_fails_decides_wherever_it_would_run() -> None:
    for runs in (True, False):
        found = build_verdict(Compiled(category="nvcc_compile", message="expected a ;"), runs)
        assert found is not None
        assert (found.status, found.compiled, found.correct) == (Status.COMPILE_ERROR, False, False)
        assert (found.error_category, found.error_message) == ("nvcc_compile", "expected a ;")


def test_a_build_that_succeeds_is_run_where_there_is_a_gpu() -> None:
    assert build_verdict(Compiled(resources=USED), runs=True) is None


@pytest.mark.parametrize(
    ("resources", "targets"), [(USED, "cuda:80, cuda:90"), (USED[:1] * 2, "cuda:90"), ((), "no target")]
)
def test_without_a_gpu_it_is_compiled_and_not_known_to_be_correct(
    resources: tuple[Resources, ...], targets: str
) -> None:
    found = build_verdict(Compiled(resources=resources), runs=False)
    assert found is not None
    assert (found.status, found.error_category) == (Status.RUNTIME_ERROR, "not_run_without_gpu")
    assert (found.compiled, found.correct, found.is_fault) == (True, False, False)
    assert found.error_message is not None
    assert found.error_message.startswith(f"compiled for {targets}; not run")
    assert found.resources == resources
