"""The oracle table of agents: what was given, what is known to be faster, and what the optimizer made of it."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flows.run.state import RunState, write_state
from flows.settings.configuration import check_configuration, save_configuration
from kernels_eval.verdict import Status, Verdict
from tasks.pipeline.references import ProblemSetRef
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import build_problem_set, read_problems
from tasks.rollout.prompts import answer_text
from tasks.sft.pair_rows import pair_row, publish_pairs
from tasks.trajectories.schema import Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import agents_oracle

AGENTS = {"generator": {"turns": "first", "shown": "problem"}, "optimizer": {"turns": "later", "shown": "kernel"}}
WRONG = Verdict(status=Status.INCORRECT, compiled=True)
FAULT = Verdict(status=Status.INFRASTRUCTURE_ERROR, error_message="the machine failed")


def right(ms: float) -> Verdict:
    return Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=4 / ms, candidate_ms=ms, reference_ms=4)


def conversation(problem_id: str, sample: int, *turns: tuple[str, Verdict]) -> Trajectory:
    made = tuple(
        Turn(
            turn_index=place, role="optimizer" if place else "generator", prompt_token_ids=(1,), response_token_ids=(2,),
            response_logprobs=(0.0,), prompt_extends_previous=not place, finish_reason="stop",
            response_text=answer_text(kernel), kernel_source=kernel, verdict=verdict,
            reward=None if verdict.is_fault else 0.0, generation_s=0.0, evaluation_s=0.0,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for place, (kernel, verdict) in enumerate(turns)
    )  # fmt: skip
    return Trajectory(
        run_id="run", iteration=0, policy_digest="p", problem_id=problem_id, problem_digest="d", split="train", level=1,
        group_id=problem_id, trajectory_id=f"{problem_id}-{sample}", sample_index=sample, turns=made,
        termination=Termination.INFRASTRUCTURE_ERROR if turns[-1][1].is_fault else Termination.TURN_LIMIT,
    )  # fmt: skip


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    return build_problem_set(ProblemsConfig(train=4, heldout=2), tmp_path_factory.mktemp("oracle") / "problems")


@pytest.fixture
def run(problems: ProblemSetRef, tmp_path: Path) -> Path:
    """A run with one iteration on three problems: of the first the corpus knows a kernel of 1 ms."""
    config = check_configuration({"runs_dir": str(tmp_path), "rollout": {"episode": {"agents": AGENTS}}}, "test")
    first, second, third, _ = read_problems(problems, "train")
    history_free = pair_row(first.problem, [], "known", right(1.0), config.rollout.episode, "triton", keeps=False)
    pairs = publish_pairs([{**history_free, "pair_id": "0"}], {}, True, tmp_path / "pairs")
    names = [row.problem.problem_id for row in (first, second, third)]
    batch = write_trajectories(
        [
            # given "a" (2 ms) twice: answered wrongly, and 1.05 times as fast
            conversation(names[0], 0, ("a", right(2.0)), ("b", WRONG)),
            conversation(names[0], 1, ("a", right(2.0)), ("c", right(1.9))),
            # given "a" (2 ms) and then "d", which is twice as fast, and which nothing beats
            conversation(names[1], 0, ("a", right(2.0)), ("d", right(1.0)), ("e", right(3.0))),
            # nothing right was given; a fault of the machine counts for nothing
            conversation(names[2], 0, ("w", WRONG), ("x", right(1.0))),
            conversation(names[2], 1, ("y", right(5.0)), ("z", FAULT)),
        ],
        0.4,
        tmp_path / "batch",
    )
    folder = tmp_path / config.run_id
    folder.mkdir()
    write_state(folder, RunState(problems=problems, sft_data=pairs, batches={0: batch}))
    save_configuration(config, folder / "config.yaml")
    return folder


def test_shares_are_of_distinct_right_kernels_that_were_given(run: Path) -> None:
    (row,) = agents_oracle.table(run, "optimizer", 1.1, judge=False).values()
    assert (row.given, row.in_corpus) == (3, 1)
    assert row.corpus == pytest.approx(1 / 3), "the corpus knows 1 ms where 2 ms were given"
    assert row.run == pytest.approx(1 / 3), "1.9 ms are too little gain; d is the best itself"
    assert row.best_of_n == pytest.approx(1 / 3)
    assert row.one_answer == pytest.approx((0 + 1 + 0) / 3)
    assert row.n == pytest.approx((2 + 1 + 1) / 3)


def test_a_smaller_gain_is_reached_more_often(run: Path) -> None:
    (row,) = agents_oracle.table(run, "optimizer", 1.04, judge=False).values()
    assert row.best_of_n == row.run == pytest.approx(2 / 3)
    assert row.one_answer == pytest.approx((1 / 2 + 1 + 0) / 3)


def test_the_table_is_printed_and_written(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    out = run / "table.json"
    monkeypatch.setattr(sys, "argv", ["agents_oracle.py", str(run), "--out", str(out)])
    agents_oracle.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split()[:3] == ["training", "0", "3"]
    assert json.loads(out.read_text())["training 0"]["given"] == 3


def test_a_role_that_the_run_lacks_is_named(run: Path) -> None:
    with pytest.raises(SystemExit, match="generator, optimizer, found tester"):
        agents_oracle.table(run, "tester", 1.1, judge=False)
