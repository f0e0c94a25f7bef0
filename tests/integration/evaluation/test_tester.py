"""`kernelmill tester` on an invented run with real tables."""

import json
from pathlib import Path
from typing import Any

import pytest

from extras.tester.examples import read_examples
from flows.cli.main import run
from flows.run.state import RunState, write_state
from tasks.evaluation.summary import ReportInputs
from tasks.trajectories.reader import load_trajectories


@pytest.fixture
def run_dir(fake_run: ReportInputs, tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "local-1a2b3c4d"
    folder.mkdir(parents=True)
    batches = {entry.iteration: entry.trajectories for entry in fake_run.iterations}
    evaluations = {0: fake_run.sampled.before, 8: fake_run.sampled.after}
    write_state(folder, RunState(problems=fake_run.problems, batches=batches, evaluations=evaluations))
    return folder


def test_every_judged_kernel_is_an_example_once(fake_run: ReportInputs) -> None:
    batch = fake_run.iterations[0].trajectories.path
    turns = [turn for trajectory in load_trajectories(batch) for turn in trajectory.turns]
    wanted = {turn.kernel_source for turn in turns if turn.kernel_source and not turn.verdict.is_fault}
    found = read_examples(fake_run.problems, [batch, batch])
    assert {example.kernel_source for example in found} == wanted
    assert len({(example.problem_id, example.kernel_source) for example in found}) == len(found)
    assert all("class Model" in example.problem_source for example in found)
    assert {True, False} == {example.correct for example in found}


@pytest.mark.long
def test_the_command_measures_on_held_out_problems(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tester", str(run_dir), "--out", str(tmp_path / "tester")]) == 0
    said = capsys.readouterr().out
    assert "kernels of training problems" in said
    assert "of the most promising of 4 different kernels" in said
    facts: dict[str, Any] = json.loads((tmp_path / "tester" / "tester.json").read_text())
    assert facts["figures"]["labels"]["correct"]["kernels"] > 100
    assert run(["tester", str(run_dir), "--out", str(tmp_path / "tester")]) == 2
    assert "tester: exists; name another folder" in capsys.readouterr().err


def test_a_run_without_trajectories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tester", str(tmp_path), "--out", str(tmp_path / "tester")]) == 2
    assert "expected the folder of a run that has trained" in capsys.readouterr().err
    assert not (tmp_path / "tester").exists()
