"""Faults by seeds: a seed gives one schedule, and each fault does to processes, disk and store what it is called."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "faults"))
from injection import Disk, Injector, Switches, damage
from schedule import POLICY, TEAM, Fault, Kind, Stages, draw, killed_in

pytestmark = pytest.mark.long

SEEDS = range(1, 201)


def fault(kind: Kind, pick: float = 0.0, hold_s: float = 1000.0) -> Fault:
    return Fault(kind, "SFT", 0.5, pick, hold_s)


@pytest.mark.parametrize(("team", "stages"), [(False, POLICY), (True, TEAM)])
def test_a_seed_gives_one_schedule_and_two_hundred_give_every_fault_everywhere(team: bool, stages: Stages) -> None:
    schedules = [draw(seed, team=team) for seed in SEEDS]
    assert schedules == [draw(seed, team=team) for seed in SEEDS]
    assert len(set(schedules)) == len(schedules)
    faults = [each for schedule in schedules for each in schedule.faults]
    assert {each.kind for each in faults} == set(Kind)
    assert {each.stage for each in faults} == set(stages.every)
    assert all(each.stage in stages.of(each.kind) for each in faults)
    assert {(schedule.engine, schedule.staleness) for schedule in schedules} == {
        (engine, staleness) for engine in ("local", "sglang") for staleness in (0, 1)
    }
    assert {schedule.stages for schedule in schedules} == {stages}


def test_what_was_drawn_for_one_policy_stays_as_it_was() -> None:
    """Records name seeds."""
    first = [draw(seed).faults[0] for seed in (1, 2, 3)]
    assert [(each.kind, each.stage, each.share, each.pick, each.hold_s) for each in first] == [
        (Kind.PREFECT_KILLED, "check of the SFT data", 0.035, 0.08766, 2.3),
        (Kind.DRIVER_TERMINATED, "check of the problem set", 0.388, 0.199908, 3.8),
        (Kind.CONTROL_KILLED, "rollout 0", 0.806, 0.896923, 4.9),
    ]


@pytest.mark.parametrize("team", [False, True])
def test_what_a_machine_does_not_allow_is_left_out_and_all_else_stays(team: bool) -> None:
    without = frozenset({Kind.CLOCK_JUMPED, Kind.DISK_FULL})
    for seed in SEEDS:
        kept = tuple(each for each in draw(seed, team=team).faults if each.kind not in without)
        assert draw(seed, without, team).faults == kept


def test_stages_by_name_are_killed_in_their_middle_and_other_names_refused() -> None:
    schedule = killed_in(["update 0 of the optimizer@0", "joint epoch of the optimizer"], 3, team=True)
    assert (schedule.seed, schedule.team, schedule.engine, schedule.staleness) == (-3, True, "local", 0)
    assert [(each.kind, each.stage, each.share) for each in schedule.faults] == [
        (Kind.DRIVER_KILLED, "joint epoch of the optimizer", 0.5),
        (Kind.DRIVER_KILLED, "update 0 of the optimizer", 0.0),
    ]
    with pytest.raises(ValueError, match=r"expected stages of the run .*found 'joint epoch of the optimizer'"):
        killed_in(["SFT", "joint epoch of the optimizer"], 1)


@pytest.mark.parametrize("place", ["SFT@1", "SFT@-0.1", "SFT@nan", "SFT@soon"])
def test_a_kill_that_would_hit_nothing_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match=r"expected a share of the stage|could not convert"):
        killed_in([place], 1)


@pytest.fixture
def others() -> list[int]:
    """Processes that other tests have started here, before this one."""
    return [process.pid for process in psutil.Process().children()]


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(["bash", "-c", "exec -a ray::Rank sleep 600"])
    yield started
    started.kill()
    started.wait()


def status_of(process: subprocess.Popen[bytes], wanted: str) -> bool:
    """Wait until a process has this status; return False if it does not get it."""
    for _ in range(200):
        if psutil.Process(process.pid).status() == wanted:
            return True
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
    return False


def test_a_stopped_rank_goes_on_when_its_time_is_over(
    tmp_path: Path, others: list[int], driver: subprocess.Popen[bytes]
) -> None:
    disk = Disk(tmp_path / "runs")
    try:
        injector = Injector(disk, driver, others, Switches(tmp_path / "nan", tmp_path / "clock"))
        assert injector.inject(fault(Kind.RAYLET_KILLED)) is None  # there is none
        while injector.inject(fault(Kind.RANK_STOPPED)) is None:  # bash has not become the rank yet
            pass
        assert status_of(driver, psutil.STATUS_STOPPED)
        injector.settle()
        assert psutil.Process(driver.pid).status() == psutil.STATUS_STOPPED
        injector.settle(now=True)
        assert status_of(driver, psutil.STATUS_SLEEPING)
        injector.inject(fault(Kind.DRIVER_TERMINATED))
        assert driver.wait(30) < 0
    finally:
        disk.remove()


def test_a_full_disk_takes_nothing_until_it_is_free(tmp_path: Path, driver: subprocess.Popen[bytes]) -> None:
    disk = Disk(tmp_path / "runs")
    try:
        if not disk.mounted:
            pytest.skip("no file system may be mounted")
        (disk.folder / "old").write_bytes(bytes(10_000))
        injector = Injector(disk, driver, (), Switches(tmp_path / "nan", tmp_path / "clock"))
        injector.inject(fault(Kind.DISK_FULL))
        with pytest.raises(OSError, match="No space left"):
            (disk.folder / "new").write_bytes(bytes(10_000))
        injector.settle(now=True)
        (disk.folder / "new").write_bytes(bytes(10_000))
        assert (disk.folder / "old").read_bytes() == bytes(10_000)
    finally:
        disk.remove()


def test_damage_hits_the_file_that_the_fault_picks(tmp_path: Path) -> None:
    for name in ("store/sft/a/model", "store/sft/a/manifest", "store/update/b/model", "prefect/results/key"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"0123456789")
    assert damage(tmp_path, fault(Kind.STORE_GARBLED, 0.5, 0.1)) == "a byte of store/sft/a/model"
    assert (tmp_path / "store/sft/a/model").read_bytes() == b"01234t6789"
    assert damage(tmp_path, fault(Kind.STORE_GARBLED, 0.9, 0.3)) == "half of store/update/b/model"
    assert (tmp_path / "store/update/b/model").read_bytes() == b"01234"
    assert damage(tmp_path, fault(Kind.STORE_LOST, 0.0, 0.3)) == "store/sft/a/manifest removed"
    assert damage(tmp_path, fault(Kind.STORE_LOST, 0.0, 0.2)) == "prefect/results/key removed"
    assert damage(tmp_path, fault(Kind.STORE_LOST, 0.0, 0.1)) == "store/sft/a removed"
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"store/update/b/model"}


def test_one_gradient_is_poisoned_and_no_other(tmp_path: Path) -> None:
    engine = tmp_path / "tasks/training/engine.py"
    engine.parent.mkdir(parents=True)
    engine.write_text("class TrainingEngine:\n    def backward(self, loss, *, last):\n        return loss\n")
    program = (
        "from tasks.training.engine import TrainingEngine\nimport pathlib\nengine = TrainingEngine()\n"
        "print(engine.backward(1.0, last=True))\npathlib.Path('nan').touch()\n"
        "print(engine.backward(1.0, last=True), engine.backward(1.0, last=True))\n"
    )
    site = Path(__file__).parents[3] / "tools/faults/injected"
    environment = {"PYTHONPATH": f"{site}:{tmp_path}", "KERNELMILL_NAN_GRADIENT": str(tmp_path / "nan")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1.0", "nan", "1.0"]


def run_of(folder: Path, kinds: list[Kind]) -> dict[str, Any]:
    """Run the first seed that draws these kinds of faults, in stages of their own, on a stand-in; return its line."""

    def fits(seed: int) -> bool:
        faults = draw(seed).faults
        return [each.kind for each in faults] == kinds and len({each.stage for each in faults}) == len(kinds)

    seed = next(filter(fits, range(1, 10**6)))
    program = Path(__file__).with_name("disturbed_stand_in.py")
    command = [sys.executable, str(program), str(folder), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_run_goes_on_after_each_fault_until_it_ends(tmp_path: Path) -> None:
    line = run_of(tmp_path, [Kind.DRIVER_KILLED, Kind.STORE_LOST])
    assert (line["passed"], line["wrong"], line["difference"], line["missed"]) == (True, [], {}, [])
    assert [[each["kind"] for each in attempt["hit"]] for attempt in line["attempts"]] == [
        ["driver killed"], ["store lost"], [],
    ]  # fmt: skip
    assert [attempt["exit"] for attempt in line["attempts"]] == [-9, -9, 0]
    assert all(attempt["hit"][0]["after_s"] < 60 for attempt in line["attempts"][:2])
    assert "removed" in line["attempts"][1]["hit"][0]["hit"]


def test_another_result_fails_the_seed_and_is_kept(tmp_path: Path) -> None:
    line = run_of(tmp_path / "forgetful", [Kind.DRIVER_KILLED])
    stage = line["schedule"]["faults"][0]["stage"]
    assert not line["passed"]
    assert list(line["difference"]) == [stage]
    assert (tmp_path / "forgetful" / f"seed-{line['seed']}" / "run" / "summary.json").is_file()


def test_a_library_that_fakes_no_time_is_refused_before_anything_starts(tmp_path: Path) -> None:
    tool = Path(__file__).parents[3] / "tools/faults/fault_seeds.py"
    command = [sys.executable, str(tool), str(tmp_path / "runs"), "--seeds", "1", "--faketime", "missing.so.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "--faketime: missing.so.1 is missing, or Python cannot sleep under it" in done.stderr
    assert not (tmp_path / "runs").exists()
