"""Every command that a page shows, executed in a copy of the checkout, against a run that is there.

The copy's `local.yaml` is of a small size, so that `kernelmill train` takes a minute; names that a page makes up are those of the run.
What does not run here (it wants a cluster, a container engine, or is what CI itself calls) is skipped, and says so; what must be
refused here, for want of GPUs or data, is refused with the reason that a reader would look for.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from documented import SMALL, commands, copy_checkout

from flows.services.prefect_server import answers
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

WAIT_S = 1500.0
"""Only a hang takes longer."""
RUNS = ("runs/a-1a2b3c4d", "runs/b-5e6f7a8b", "runs/RUN")
"""Names of runs that pages make up."""
MADE_UP = {"policy-003": "policy-001", "NAME": "triton"}


@dataclass(frozen=True)
class Outcome:
    """Expected outcome of a command here."""

    code: int = 0
    """Its exit code."""
    or_code: int | None = None
    """Another one that is as good."""
    says: str = ""
    """A pattern in what it prints."""
    stays: bool = False
    """It serves until it is stopped; `says` is when it is ready."""
    elsewhere: str = ""
    """Why it is not executed."""
    also: tuple[str, ...] = ()
    """Further arguments, with which it takes less time."""


WANTS_DATA = Outcome(2, says=r"problems\.path|data/KernelBench")
EXPECTED = (
    (r"^make |^bash \.ci/run", Outcome(elsewhere="is what CI itself calls, or calls CI")),
    (r"^(ray up|kubectl|docker|sbatch)", Outcome(elsewhere="wants a cluster or a container engine")),
    (
        r"^(pip|mkdocs|kernelmill airgap build)",
        Outcome(elsewhere="wants a package registry, and packages that are not ours to install here"),
    ),
    (r"^bash tools/gpu|^python tools/gpu", Outcome(elsewhere="wants a GPU")),
    (
        r"^python benchmarks/(?!orchestration\.py runs)|^python tools/",
        Outcome(elsewhere="wants its peers, a machine to itself, and up to an hour"),
    ),
    (
        r"^kernelmill (tester |generate .*--tester)",
        Outcome(elsewhere="wants more verdicts than a small run has; test_tester.py does the same on an invented run"),
    ),
    (r"\bmy_\w+:", Outcome(elsewhere="wants the page's file; test_wheel.py runs it from an empty folder")),
    (r"^python docs/examples/", Outcome(elsewhere="wants a peer that is not installed here")),
    (
        r"^kernelmill (train .*agents-local|team|compare .*agents-local)",
        Outcome(elsewhere="takes eleven minutes; test_agents.py does the same at a small size"),
    ),
    (
        r"^kernelmill sft .*sft\.steps=450",
        Outcome(also=("--set", "sft.steps=20", "--set", "sft.data.compositions=20")),
    ),
    (r"^kernelmill sft .*smollm2", Outcome(2, says=r"problems\.heldout_path")),
    (r"^kernelmill serve mcp", Outcome(2, says=r"kernelmill\[mcp\]")),
    # Some networks answer at any address; then the data are what is missed.
    (
        r"^kernelmill train .*ray\.address=",
        Outcome(2, says=r"ray\.address: found 'ray://10\.0\.0\.5:10001'|problems\.path"),
    ),
    (r"^kernelmill evaluate --problems", Outcome(2, says=r"/data/\S+: no such file or folder")),
    (r"^kernelmill (compare|evaluate) .*127\.0\.0\.1:8000", Outcome(2, says="no server answers at")),
    (r"^kernelmill compare .*qwen3", Outcome(2, says=r"policies: single: no such folder")),
    (r"^kernelmill train .*qwen3", WANTS_DATA),
    (r"^kernelmill verify .*qwen3", Outcome(1, says=r"checks failed")),
    (r"^kernelmill policy convert", Outcome(2, says=r"no such folder|Missing argument")),
    (r"^kernelmill plan .*/models/", Outcome(2, says=r"/models/(mine|fine-tuned)")),
    (r"^kernelmill (train|evaluate|rollout|iterate) .*/models/", WANTS_DATA),
    (r"^kernelmill verify .*(one|cuda)-gpu", Outcome(1, says=r"✗ GPU: .* found 0[\s\S]*checks failed")),
    (r"^kernelmill judge redteam --device cuda", Outcome(2, says="expected an NVIDIA GPU")),
    (r"^kernelmill judge redteam --(compile|json|cases)", Outcome(also=("--only", "cache"))),
    # Where no kernel is right there is nothing to learn from, and the run says so.
    (r"reward=kevin$", Outcome(0, 2, r"largest_spread|report: ")),
    (r"^kernelmill data generate tester\.jsonl", Outcome(also=("--pairs", "4"))),  # they are judged next
    (r"^kernelmill judge score --backend \S+$", Outcome(2, says=r"expected PROBLEM\.py and KERNEL\.py")),
    (r"^kernelmill train --refresh rollout$", Outcome(says=r"● SFT: cached[\s\S]*✓ rollout 0: [\s\S]*✓ update 0: ")),
    (r"^kernelmill serve flows( |$)", Outcome(says=r"compare/local", stays=True)),
    (r"^kernelmill serve prefect$", Outcome(says=r"Prefect: http", stays=True)),
    (r"^kernelmill watch$", Outcome(says=r"iterations", stays=True)),
    (r"^kernelmill generate .*--openai-base-url", Outcome(1, says=r"ConnectError")),  # no server is there
    (r"^kernelmill generate ", Outcome(0, 3, r"verified")),
    (r"^kernelmill serve kernels\b", Outcome(says=r"kernels: http", stays=True)),
    (r"^kernelmill serve judge\b", Outcome(says=r"judge: http", stays=True)),
    (r"^prefect server start", Outcome(says=r"Check out the dashboard", stays=True)),
    (r"^prefect worker start", Outcome(says=r"Worker .* started", stays=True)),
    (r"^prefect flow-run cancel", Outcome(1, says=r"not found")),
    # A page that names a command: it does its work, or says which argument it misses.
    (r"^kernelmill [a-z-]+( [a-z]+)?$", Outcome(0, 2)),
)
"""The first pattern that fits decides; what fits none ends with exit code 0."""


def outcome_of(line: str) -> Outcome:
    """Return what has to come of a command."""
    return next((outcome for pattern, outcome in EXPECTED if re.search(pattern, line)), Outcome())


def unique() -> list[tuple[str, str]]:
    """Return (page, command) of everything that is shown, each command where it comes first."""
    found: dict[str, str] = {}
    for page, words in commands():
        found.setdefault(shlex.join(words), page)
    return [(page, line) for line, page in found.items()]


class Checkout:
    """A copy of the checkout with a run in it, and a Prefect server beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_checkout(folder, SMALL)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(folder),
            "HOME": str(folder / "home"),
            "COLUMNS": "250",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_API_PORT": port,
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        }
        self.api = self.environment["PREFECT_API_URL"]
        (folder / "home").mkdir()
        (folder / "PROBLEM.py").write_text(EXAMPLE_PROBLEM)
        (folder / "MODULE.py").write_text(EXAMPLE_PROBLEM)
        (folder / "KERNEL.py").write_text(EXAMPLE_KERNEL)
        line = json.dumps({"problem_source": EXAMPLE_PROBLEM, "kernel_source": EXAMPLE_KERNEL})
        (folder / "in.jsonl").write_text(line + "\n")
        shutil.copytree(folder / "tasks/validation/suites", folder / "my-suites")
        self.trajectory, self.trained = "", ""

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=WAIT_S, check=False
        )

    def prepare(self) -> None:
        """Train, so that there is a run to be looked at; and write its problems as a file of one's own."""
        import polars as pl

        done = self.run("kernelmill", "train", "--set", "rollout.problems_per_iteration=8")
        assert done.returncode == 0, done.stdout + done.stderr
        done = self.run("kernelmill", "train")
        assert done.returncode == 0, done.stdout + done.stderr
        self.trained = f"runs/{(self.folder / 'runs/latest').readlink()}"
        turns = pl.read_parquet(self.folder / "runs/latest/trajectories/iteration=0/turns.parquet")
        self.trajectory = str(turns["trajectory_id"][0])
        (problems,) = (self.folder / "runs/store/problems").glob("*/problems.parquet")
        columns = pl.read_parquet(problems).select("source", "split", "composition")
        columns.write_ndjson(self.folder / "my_problems.jsonl")

    def words(self, line: str) -> list[str]:
        """Return a command with the names that a page made up replaced."""
        runs = dict.fromkeys(RUNS, self.trained)
        for name, real in {**MADE_UP, **runs, "TRAJECTORY_ID": self.trajectory}.items():
            line = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", real, line)
        return [sys.executable if word == "python" else word for word in shlex.split(line)]

    def serve(self, words: list[str], ready: str) -> None:
        """Start what serves, wait until it says that it does, and end it."""
        log = self.folder / "serving.txt"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*words, *(["--port", "0"] if words[1:3] in (["serve", "prefect"], ["serve", "judge"]) else [])],
                cwd=self.folder, env={**self.environment, "PYTHONUNBUFFERED": "1"}, stdout=out, stderr=out,
                # A shell has programs in the background ignore it; Prefect's worker stops on SIGTERM by sending itself SIGINT.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip
        try:
            deadline = time.monotonic() + WAIT_S
            while not re.search(ready, log.read_text()):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=120)
            finally:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The checkout, the server that pages start before they deploy, and the pool."""
    made = Checkout(tmp_path_factory.mktemp("docs") / "kernelmill")
    with (made.folder / "server.txt").open("wb") as out:
        server = subprocess.Popen(
            ["prefect", "server", "start"], cwd=made.folder, env=made.environment, stdout=out, stderr=out
        )
    try:
        deadline = time.monotonic() + WAIT_S
        while not answers(made.api):
            assert server.poll() is None, (made.folder / "server.txt").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.5)
        made.prepare()
        yield made
    finally:
        server.terminate()
        server.wait()


def test_the_number_of_tasks_does_not_depend_on_that_of_trajectories(checkout: Checkout):
    tasks: dict[int, int] = {}
    for state in (checkout.folder / "runs").glob("local-*/state.json"):
        trajectories = json.loads(state.read_text())["batches"]["0"]["trajectories"]
        tasks[trajectories] = state.with_name("log.txt").read_text().count("prefect.task_runs: Finished in state")
    assert len(tasks) == 2
    assert max(tasks) == 2 * min(tasks)
    assert len(set(tasks.values())) == 1, tasks


@pytest.mark.parametrize(("page", "line"), unique())
def test_a_command_does_what_the_page_says(checkout: Checkout, page: str, line: str):
    wanted = outcome_of(line)
    words = [*checkout.words(line), *wanted.also]
    if wanted.elsewhere:
        pytest.skip(f"{line}: {wanted.elsewhere}")
    if line.startswith("prefect server start"):
        assert answers(checkout.api)  # the fixture's own
        return
    if wanted.stays:
        checkout.serve(words, wanted.says)
        return
    if words[:2] == ["prefect", "deployment"]:
        assert checkout.run("kernelmill", "deploy", "deployments/configs/local.yaml").returncode == 0
    done = checkout.run(*words)
    assert done.returncode in (wanted.code, wanted.or_code), (
        f"{page}: {line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    )
    assert re.search(wanted.says, done.stdout + done.stderr), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if words[:2] == ["prefect", "deployment"]:
        found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", done.stdout)
        assert found is not None
        state = httpx.get(f"{checkout.api}/flow_runs/{found[0]}", timeout=60).json()["state"]
        assert state["type"] == "SCHEDULED"  # that a worker runs it is tests/e2e/test_drill.py's
