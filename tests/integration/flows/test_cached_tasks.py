"""Stages as cached, retried Prefect tasks, against a real server."""

import itertools
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prefect import flow
from signed import signed

from flows.services.prefect_server import PrefectServer
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError, InputError
from tasks.agents.task import form_team
from tasks.evaluation.task import show_report
from tasks.pipeline import prefect_artifacts, retries
from tasks.pipeline import stage as orchestration
from tasks.pipeline.artifact_queue import wait_until_sent
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.retries import StagesConfig, StageTimeoutError, can_heal
from tasks.pipeline.shared_store import SharedStore
from tasks.pipeline.stage import Stage, Workspace, check_refresh, stage_task
from tasks.pipeline.store import is_available, measured, publish, published_digest
from tasks.problems.config import ProblemsConfig
from tasks.validation.checks import Failure, ValidationFailed

pytestmark = [pytest.mark.usefixtures("server"), pytest.mark.long]


@dataclass
class Heard:
    """Remembers what it is told."""

    events: list[tuple[str, str]] = field(default_factory=list)

    def started(self, label: str) -> None:
        self.events.append(("started", label))

    def progressed(self, label: str, done: int, total: int, figures: dict[str, float]) -> None:
        self.events.append((f"progressed {done}/{total} {figures}", label))

    def finished(self, label: str, seconds: float, cached: bool) -> None:
        self.events.append(("cached" if cached else "finished", label))

    def failed(self, label: str, error: BaseException) -> None:
        self.events.append((f"failed {type(error).__name__}", label))

    def noted(self, text: str) -> None:
        self.events.append(("noted", text))

    def warned(self, text: str) -> None:
        self.events.append(("warned", text))

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


JUDGE, PROBLEMS = JudgeConfig(), ProblemsConfig()
QUICK = StagesConfig(backoff_s=0.05)

calls: list[tuple[str, int]] = []


@stage_task("first", code="tasks.pipeline.references", label="first {number}", detail="the number")
def first(stage: Stage, number: int, judge: JudgeConfig = JUDGE) -> CheckpointRef:
    calls.append(("first", number))
    stage.progress(1, 2, loss=0.5)
    with publish(stage.destination) as folder:
        (folder / "number.txt").write_text(str(number))
    return CheckpointRef(uri=str(stage.destination), digest=published_digest(stage.destination), weight_version=number)


@stage_task("second", code="tasks.pipeline.references", label="second")
def second(stage: Stage, given: CheckpointRef, problems: ProblemsConfig) -> CheckpointRef:
    calls.append(("second", given.weight_version))
    with publish(stage.destination) as folder:
        (folder / "text").write_text("second of " + given.digest)
    return CheckpointRef(uri=str(stage.destination), digest=published_digest(stage.destination))


failures: list[Exception] = []


@stage_task("unlucky", code="tasks.pipeline.references", label="unlucky {number}")
def unlucky(stage: Stage, number: int) -> CheckpointRef:
    calls.append(("unlucky", number))
    if failures:
        raise failures.pop(0)
    with publish(stage.destination) as folder:
        (folder / "x").write_text("x")
    return CheckpointRef(uri=str(stage.destination), digest=published_digest(stage.destination))


@stage_task("sleepy", code="tasks.pipeline.references", label="sleepy")
def sleepy(stage: Stage, naps: tuple[float, ...]) -> CheckpointRef:
    calls.append(("sleepy", len(calls)))
    time.sleep(naps[len(calls) - 1])
    with publish(stage.destination) as folder:
        (folder / "x").write_text("x")
    return CheckpointRef(uri=str(stage.destination), digest=published_digest(stage.destination))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    calls.clear()
    failures.clear()
    return Workspace(tmp_path, "run", [Heard()])


def try_luck(workspace: Workspace, number: int) -> CheckpointRef:
    @flow
    def luck() -> CheckpointRef:
        return unlucky(workspace, number)

    return luck()


def run_chain(
    workspace: Workspace,
    number: int = 3,
    problems: ProblemsConfig = PROBLEMS,
    judge: JudgeConfig = JUDGE,
) -> CheckpointRef:
    @flow
    def chain() -> CheckpointRef:
        return second(workspace, first(workspace, number, judge), problems)

    calls.clear()
    return chain()


@pytest.fixture(scope="module")
def computed(server: PrefectServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs in which the chain has run."""
    folder = tmp_path_factory.mktemp("computed")
    run_chain(Workspace(folder, "run", [Heard()]))
    return folder


@pytest.fixture
def done(workspace: Workspace, computed: Path) -> Workspace:
    """A workspace of its own in which the chain has run: a copy, in which everything is cached (see below)."""
    shutil.copytree(computed, workspace.runs_dir, dirs_exist_ok=True)
    return workspace


def test_the_second_time_everything_is_cached_and_says_so(workspace: Workspace):
    reference = run_chain(workspace)
    assert calls == [("first", 3), ("second", 3)]
    assert workspace.listeners[0].kinds() == [
        "started",
        "progressed 1/2 {'loss': 0.5}",
        "finished",
        "started",
        "finished",
    ]
    workspace.listeners[0].events.clear()
    assert run_chain(workspace) == reference
    assert calls == []
    assert workspace.listeners[0].events == [("cached", "first 3"), ("cached", "second")]


def test_a_setting_recomputes_exactly_what_reads_it(done: Workspace, tmp_path: Path):
    run_chain(done, problems=ProblemsConfig(train=7))
    assert calls == [("second", 3)]
    run_chain(done, judge=JudgeConfig(workers=9, cache_dir=str(tmp_path)))
    assert calls == []  # neither decides a verdict
    run_chain(done, judge=JudgeConfig(trials=5))
    assert calls == [("first", 3)]  # and its content came out the same, so that the second is a hit


def test_a_file_that_a_setting_names_counts_by_content(workspace: Workspace, tmp_path: Path):
    data = tmp_path / "problems.jsonl"
    data.write_text("one")
    config = ProblemsConfig(source="jsonl", path=str(data))
    run_chain(workspace, problems=config)
    moved = data.with_name("moved")
    moved.mkdir()
    data.rename(moved / "problems.jsonl")
    run_chain(workspace, problems=config.model_copy(update={"path": str(moved / "problems.jsonl")}))
    assert calls == []
    (moved / "problems.jsonl").write_text("two")
    run_chain(workspace, problems=config.model_copy(update={"path": str(moved / "problems.jsonl")}))
    assert calls == [("second", 3)]


def test_an_artifact_that_is_gone_is_made_again(done: Workspace):
    shutil.rmtree(first_folder(done))
    run_chain(done)
    assert calls == [("first", 3)]


def test_an_artifact_of_another_content_is_made_again(done: Workspace):
    folder = first_folder(done)
    with publish(folder) as partial:
        (partial / "number.txt").write_text("something else")
    run_chain(done)
    assert calls == [("first", 3)]


@pytest.mark.parametrize("change", [shutil.move, shutil.copytree], ids=["moved", "copied"])
def test_runs_in_another_place_stay_cached(workspace: Workspace, tmp_path: Path, change: Callable[..., object]):
    """Moved, or copied beside the old ones; there, too, only what is lost is computed."""
    here, there = tmp_path / "runs", tmp_path / "elsewhere" / "runs"
    run_chain(Workspace(here, "run", [Heard()]))
    there.parent.mkdir()
    change(here, there)
    moved = Workspace(there, "run", [Heard()])
    reference = run_chain(moved)
    assert calls == []
    assert reference.path.is_relative_to(there)
    assert [record.cached for record in moved.records] == [True, True]
    shutil.rmtree(there / "store" / "second")
    assert run_chain(moved) == reference
    assert calls == [("second", 3)]


def test_machines_that_share_a_store_compute_a_stage_once(tmp_path: Path):
    references: list[CheckpointRef] = []
    for machine in ("one", "two"):
        runs_dir = tmp_path / machine
        shared = SharedStore(f"file://{tmp_path}/shared", runs_dir)
        references.append(run_chain(Workspace(runs_dir, "run", [Heard()], shared=shared)))
        shared.finish()
        assert calls == ([("first", 3), ("second", 3)] if machine == "one" else [])
    one, two = references
    assert one.digest == two.digest
    assert (two.path / "text").read_text() == (one.path / "text").read_text()
    shutil.rmtree(tmp_path / "one" / "store" / "first")
    again = Workspace(
        tmp_path / "one", "run", [Heard()], shared=SharedStore(f"file://{tmp_path}/shared", tmp_path / "one")
    )
    assert run_chain(again) == one
    assert calls == [], "what is lost here is fetched"


drawn = itertools.count()


@stage_task("measuring", code="tasks.pipeline.references", label="measuring")
def measuring(stage: Stage, number: int) -> CheckpointRef:
    """Publish a result beside what was measured while it was made, which is never the same."""
    calls.append(("measuring", number))
    with publish(stage.destination, {"seconds": next(drawn)}, {"seconds.txt": measured}) as folder:
        (folder / "number.txt").write_text(str(number))
        (folder / "seconds.txt").write_text(str(next(drawn)))
    return CheckpointRef(uri=str(stage.destination), digest=published_digest(stage.destination))


def run_measured(workspace: Workspace) -> CheckpointRef:
    @flow
    def chain() -> CheckpointRef:
        return second(workspace, measuring(workspace, 4), PROBLEMS)

    calls.clear()
    return chain()


def test_a_lost_artifact_repeats_its_own_stage_alone(workspace: Workspace):
    """Measured figures differ the second time; the result does not, and nothing that follows is repeated."""
    reference = run_measured(workspace)
    (folder,) = (workspace.runs_dir / "store" / "measuring").iterdir()
    before = (folder / "seconds.txt").read_text()
    shutil.rmtree(folder)
    assert run_measured(workspace) == reference
    assert calls == [("measuring", 4)]
    assert (folder / "seconds.txt").read_text() != before


def test_a_flipped_byte_is_found_before_it_is_read_and_its_stage_repeated(done: Workspace):
    file = first_folder(done) / "number.txt"
    file.write_bytes(b"4")  # as long as what was published
    run_chain(done, problems=ProblemsConfig(train=11))
    assert sorted(calls) == [("first", 3), ("second", 3)]
    assert file.read_bytes() == b"3"
    (line,) = [text for kind, text in done.listeners[0].events if kind == "warned"]
    assert str(file) in line
    assert "damaged" in line
    run_chain(done)
    assert calls == []


def test_a_result_that_nobody_reads_again_is_made_again_if_it_was_damaged(done: Workspace):
    (folder,) = (done.runs_dir / "store" / "second").iterdir()
    (file,) = (path for path in folder.iterdir() if path.name != "manifest.json")
    content = file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    calls.clear()
    run_chain(done)
    assert calls == [("second", 3)]
    assert file.read_bytes() == content


def test_a_damaged_member_of_a_team_is_made_again_by_its_own_stage(workspace: Workspace):
    @flow
    def teamwork(problems: ProblemsConfig) -> CheckpointRef:
        members = {"generator": first(workspace, 3), "optimizer": first(workspace, 4)}
        return second(workspace, form_team(workspace, members, weight_version=4), problems)

    teamwork(PROBLEMS)
    (file,) = (path for path in (workspace.runs_dir / "store/first").glob("*/number.txt") if path.read_text() == "4")
    file.write_bytes(b"5")
    calls.clear()
    teamwork(ProblemsConfig(train=11))
    assert calls == [("first", 4), ("second", 4)]
    assert file.read_bytes() == b"4"


def test_a_damaged_artifact_from_elsewhere_is_refused_by_name(workspace: Workspace, tmp_path: Path):
    folder = tmp_path / "given"
    with publish(folder) as partial:
        (partial / "weights").write_bytes(bytes(64))
    given = CheckpointRef(uri=str(folder), digest=published_digest(folder))
    (folder / "weights").write_bytes(bytes(63) + b"\x01")

    @flow
    def use() -> CheckpointRef:
        return second(workspace, given, PROBLEMS)

    with pytest.raises(InputError, match=r"given/weights: damaged"):
        use()


def test_a_half_written_cache_record_is_a_miss(done: Workspace):
    for record in done.results_dir.iterdir():
        record.write_bytes(record.read_bytes()[: record.stat().st_size // 2])
    run_chain(done)
    assert calls == [("first", 3), ("second", 3)]
    run_chain(done)
    assert calls == []


def test_refresh_computes_a_stage_again(done: Workspace):
    done.refresh = frozenset({"second"})
    run_chain(done)
    assert calls == [("second", 3)]


def test_refresh_computes_what_follows_from_it_again(done: Workspace):
    done.refresh = frozenset({"first 3"})
    run_chain(done)
    assert calls == [("first", 3), ("second", 3)]  # though the first came out the same
    done.refresh, done.refreshed = frozenset({"first 4"}), set()
    run_chain(done)
    assert calls == []


@pytest.mark.parametrize("entry", ["first", "second", "first 12", "report"])
def test_stages_and_labels_can_be_refreshed(entry: str):
    check_refresh([entry])


def test_an_unknown_stage_to_refresh_is_refused():
    with pytest.raises(InputError, match="--refresh rolout: no such stage; did you mean rollout"):
        check_refresh(["rolout"])


def test_other_code_is_another_key(done: Workspace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(orchestration, "code_version", lambda module: "changed")
    run_chain(done)
    assert calls == [("first", 3), ("second", 3)]


@pytest.mark.parametrize("error", [InfrastructureError("a worker died"), ConnectionError("lost")])
def test_a_failure_of_the_machine_is_retried(workspace: Workspace, error: Exception):
    workspace.stages = QUICK
    failures.append(error)
    try_luck(workspace, 1)
    assert calls == [("unlucky", 1)] * 2


@pytest.mark.parametrize("error", [InputError("a bad file"), ValueError("a bug")])
def test_bad_input_and_bugs_are_not_retried_and_come_out_as_they_are(workspace: Workspace, error: Exception):
    failures.append(error)
    with pytest.raises(type(error), match=str(error)):
        try_luck(workspace, 1)
    assert calls == [("unlucky", 1)]
    assert workspace.listeners[0].kinds()[-1] == f"failed {type(error).__name__}"


# By default pytest-timeout takes the signal that interrupts a stage.
@pytest.mark.timeout(method="thread")
def test_a_stage_that_takes_too_long_is_interrupted_and_tried_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(retries, "GRACE_S", 0.2)
    workspace.stages = StagesConfig(retries=1, backoff_s=0.05, timeouts_s={"sleepy": 3})

    @flow
    def dream(naps: tuple[float, ...]) -> CheckpointRef:
        return sleepy(workspace, naps)

    began = time.monotonic()
    dream((60, 0))
    assert calls == [("sleepy", 0), ("sleepy", 1)]
    calls.clear()
    workspace.stages = StagesConfig(retries=1, backoff_s=0.05, timeouts_s={"sleepy": 0.5})
    with pytest.raises(StageTimeoutError, match=r"sleepy: not done within 0\.5 s"):
        dream((60, 60))
    assert calls == [("sleepy", 0), ("sleepy", 1)]
    assert time.monotonic() - began < 60, "the naps were not slept out"


@stage_task("waiting", code="tasks.pipeline.references", label="waiting")
def waiting(stage: Stage, number: int) -> CheckpointRef:
    """Wait for a warm worker, as the stages on Ray do."""
    import ray

    from tasks.cluster.workers import warm_worker

    @ray.remote(num_cpus=0)
    class Sleeper:
        def ping(self) -> None: ...

        def sleep(self, seconds: float) -> None:
            time.sleep(seconds)

    calls.append(("waiting", len(calls)))
    worker = warm_worker("sleeper", Sleeper)
    ray.get(worker.sleep.remote(120 if len(calls) == 1 else 0))
    with publish(stage.destination) as folder:
        (folder / "x").write_text("x")
    return CheckpointRef(uri=str(stage.destination), digest=published_digest(stage.destination))


@pytest.mark.slow
@pytest.mark.timeout(method="thread")
def test_waiting_for_a_worker_is_interrupted_too_and_the_worker_replaced(workspace: Workspace, ray_local: None):
    from tasks.cluster import workers

    workspace.stages = StagesConfig(retries=1, backoff_s=0.05, timeouts_s={"waiting": 15})

    @flow
    def wait() -> CheckpointRef:
        return waiting(workspace, 1)

    began = time.monotonic()
    wait()
    assert calls == [("waiting", 0), ("waiting", 1)]
    assert time.monotonic() - began < 100
    workers.stop_workers()


def test_what_still_lacks_memory_is_not_tried_a_third_time():
    from tasks.training.faults import OutOfMemoryError

    assert not can_heal(None, None, SimpleNamespace(data=OutOfMemoryError("no")))
    assert can_heal(None, None, SimpleNamespace(data=InfrastructureError("no")))
    assert not can_heal(None, None, SimpleNamespace(data=InputError("no")))


def test_a_failure_that_stays_ends_after_the_retries(workspace: Workspace):
    workspace.stages = QUICK
    failures.extend(InfrastructureError(f"try {number}") for number in range(9))
    with pytest.raises(InfrastructureError):
        try_luck(workspace, 1)
    assert len(calls) == 1 + QUICK.retries


def test_the_terminal_is_told_why_a_stage_is_tried_again_and_not_of_the_last_try(workspace: Workspace):
    heard = Heard()
    workspace.stages = StagesConfig(retries=2, backoff_s=0.05)
    workspace.listeners = (heard,)
    failures.extend(InfrastructureError(f"rank {number} died.") for number in range(9))
    with pytest.raises(InfrastructureError, match="rank 2 died"):
        try_luck(workspace, 1)
    told = [text.partition(": ")[2] for kind, text in heard.events if kind == "warned"]
    assert told == ["rank 0 died; it is tried again", "rank 1 died; it is tried again"]


def artifacts_of(server: PrefectServer, run_id: str) -> dict[tuple[str, str], Any]:
    """Return what the server shows of a run: the data of each artifact by key and type."""
    assert wait_until_sent(120) == 0
    asked = {"artifacts": {"key": {"like_": f"{run_id}-"}}, "limit": 200}
    found = httpx.post(signed(f"{server.api_url}/artifacts/filter"), json=asked).json()
    shown = {(artifact["key"], artifact["type"]): artifact["data"] for artifact in found}
    assert all(key.startswith(f"{run_id}-") for key, _ in shown)
    return shown


def test_the_server_shows_what_a_stage_made_and_what_it_read(workspace: Workspace, server: PrefectServer):
    workspace.run_id = "shown"
    run_chain(workspace, number=77)
    shown = artifacts_of(server, "shown")
    assert "## first 77" in shown[("shown-first", "markdown")]
    assert "computed in" in shown[("shown-first", "markdown")]
    newest = {"sort": "EXPECTED_START_TIME_DESC", "limit": 2}
    tasks = httpx.post(signed(f"{server.api_url}/task_runs/filter"), json=newest).json()
    by_name = {task["name"]: task for task in tasks}
    assert set(by_name) == {"first 77: the number", "second"}
    (read,) = by_name["second"]["task_inputs"]["inputs"]
    assert read["id"] == by_name["first 77: the number"]["id"]


def test_a_refusal_is_shown_with_its_reason(workspace: Workspace, server: PrefectServer):
    workspace.run_id = "refusal"
    failure = Failure(
        data="/data", suite="turns", expectation="expect_something", column="reward", found="3 | 4", expected="none",
        example="row-7", data_docs="/docs/index.html",
    )  # fmt: skip
    failures.append(ValidationFailed(failure))
    with pytest.raises(ValidationFailed):
        try_luck(workspace, 3)
    text = artifacts_of(server, "refusal")[("refusal-unlucky-refused", "markdown")]
    for words in ("expect_something", "suite `turns`", "`reward`", r"3 \| 4", "row `row-7`", "`/docs/index.html`"):
        assert words in text


def test_only_a_long_stage_shows_progress(workspace: Workspace, server: PrefectServer, monkeypatch: pytest.MonkeyPatch):
    workspace.run_id = "brief"
    run_chain(workspace, number=78)
    assert ("brief-first-progress", "progress") not in artifacts_of(server, "brief")
    monkeypatch.setattr(prefect_artifacts, "PROGRESS_INTERVAL_S", 0.0)
    workspace.run_id = "long"
    run_chain(workspace, number=79)
    assert artifacts_of(server, "long")[("long-first-progress", "progress")] == 100.0


def test_the_report_is_linked_with_what_else_there_is_to_read(tmp_path: Path, server: PrefectServer):
    side = dict.fromkeys(("compiled", "correct", "fast_1", "fast_2", "mean_return"), 0.5)
    summary = {"timing_source": "roofline", "heldout": {"n": 4, "before": side, "after": side}}
    links = {"W&B: sft": "https://wandb.example.com/x", "Data Docs: check of rollout 0": str(tmp_path / "index.html")}

    @flow
    def publishing() -> None:
        show_report("linked", tmp_path / "report.html", summary, links)

    publishing()
    shown = artifacts_of(server, "linked")
    text = shown[("linked-report", "markdown")]
    assert "[https://wandb.example.com/x](https://wandb.example.com/x)" in text
    for name in ("report.html", "summary.json", "index.html"):
        assert f"[`{tmp_path / name}`]({(tmp_path / name).as_uri()})" in text
    assert (tmp_path / "report.html").as_uri() in shown[("linked-report-link", "markdown")]


@stage_task("halfway", code="tasks.pipeline.references", label="halfway")
def halfway(stage: Stage, number: int) -> CheckpointRef:
    """Fail in the middle of writing, until `failures` is empty."""
    with publish(stage.destination) as folder:
        (folder / "part").write_text("part")
        if failures:
            raise failures.pop(0)
    return CheckpointRef(uri=str(stage.destination), digest=published_digest(stage.destination))


def test_a_failed_stage_leaves_nothing_published_and_nothing_cached(workspace: Workspace):
    @flow
    def half() -> CheckpointRef:
        return halfway(workspace, 1)

    failures.append(InputError("in the middle"))
    with pytest.raises(InputError):
        half()
    assert not list((workspace.runs_dir / "store").glob("*/*"))
    assert is_available(half())


def test_a_server_that_takes_no_artifact_costs_no_stage(
    workspace: Workspace, server: PrefectServer, monkeypatch: pytest.MonkeyPatch
):
    from prefect.client.orchestration import SyncPrefectClient

    tried = threading.Event()

    def refuse(*_: Any, **__: Any) -> None:
        tried.set()
        raise httpx.ConnectError("gone")

    workspace.run_id = "away"
    with monkeypatch.context() as away:
        away.setattr(SyncPrefectClient, "create_artifact", refuse)
        run_chain(workspace, number=80)
        assert calls == [("first", 80), ("second", 80)]
        assert tried.wait(60)
        assert wait_until_sent(0.0) > 0
    assert "## first 80" in artifacts_of(server, "away")[("away-first", "markdown")]


def first_folder(workspace: Workspace) -> Path:
    """Return where the first stage published."""
    (folder,) = (workspace.runs_dir / "store" / "first").iterdir()
    return folder
