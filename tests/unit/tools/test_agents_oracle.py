"""The oracle table of agents: what was given, what is known to be faster, and what the optimizer made of it."""

import json
import math
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flows.run.state import RunState, read_state, write_state
from flows.settings.configuration import check_configuration, load_configuration, save_configuration
from kernels_eval.verdict import Status, TimingSource, Verdict
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


def right(ms: float, source: TimingSource | None = TimingSource.GPU, hardware: str = "one") -> Verdict:
    return Verdict(
        status=Status.CORRECT, compiled=True, correct=True, speedup=4 / ms, candidate_ms=ms, reference_ms=4,
        timing_source=source, hardware=hardware,
    )  # fmt: skip


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


def a_run(
    problems: ProblemSetRef, tmp_path: Path, known: Verdict, conversations: list[Trajectory], **settings: Any
) -> Path:
    """A run with one iteration, whose SFT's pairs have a kernel for the first problem, with this verdict."""
    given = {"runs_dir": str(tmp_path), "rollout": {"episode": {"agents": AGENTS}}, **settings}
    config = check_configuration(given, "test")
    first = read_problems(problems, "train")[0].problem
    pair = pair_row(first, [], "known", known, config.rollout.episode, "triton", keeps=False)
    pairs = publish_pairs([{**pair, "pair_id": "0"}], {}, True, tmp_path / "pairs")
    batch = write_trajectories(conversations, 0.4, tmp_path / "batch")
    folder = tmp_path / config.run_id
    folder.mkdir()
    write_state(folder, RunState(problems=problems, sft_data=pairs, batches={0: batch}))
    save_configuration(config, folder / "config.yaml")
    return folder


@pytest.fixture
def run(problems: ProblemSetRef, tmp_path: Path) -> Path:
    """A run with one iteration on three problems: of the first the corpus knows a kernel of 1 ms."""
    names = [row.problem.problem_id for row in read_problems(problems, "train")]
    return a_run(
        problems,
        tmp_path,
        right(1.0),
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
    )


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


def test_kernels_that_something_else_beats_fastest_ones_and_wrong_ones_are_told_apart(run: Path) -> None:
    (row,) = agents_oracle.table(run, "optimizer", 1.1, judge=False).values()
    # of the first problem the corpus knows 1 ms; that "d" beats "a" is known from its own answer alone
    assert row.beaten == agents_oracle.Part(given=1, best_of_n=0, one_answer=0, n=2)
    assert row.fastest == agents_oracle.Part(given=2, best_of_n=0.5, one_answer=0.5, n=1)
    assert row.wrong == agents_oracle.Part(given=1, best_of_n=1, one_answer=1, n=1), "mended, not sped up"
    assert row.left_out == 0


def test_a_stop_is_no_kernel_that_something_else_found(problems: ProblemSetRef, tmp_path: Path) -> None:
    """It repeats the verdict of the kernel that it keeps: "d", an answer to "a"."""
    name = read_problems(problems, "train")[1].problem.problem_id
    talk = conversation(name, 0, ("a", right(2.0)), ("d", right(1.0)), ("d", right(1.0)))
    stopped = replace(talk, termination=Termination.AGENT_STOPPED)
    (row,) = agents_oracle.table(a_run(problems, tmp_path, WRONG, [stopped]), "optimizer", 1.1, judge=False).values()
    assert row.beaten is None
    assert row.fastest is not None
    assert row.fastest.given == 2


def test_what_another_conversation_found_beats_a_kernel(problems: ProblemSetRef, tmp_path: Path) -> None:
    name = read_problems(problems, "train")[1].problem.problem_id
    talks = [conversation(name, 0, ("a", right(2.0)), ("b", WRONG)), conversation(name, 1, ("f", right(1.0)))]
    (row,) = agents_oracle.table(a_run(problems, tmp_path, WRONG, talks), "optimizer", 1.1, judge=False).values()
    assert row.beaten == agents_oracle.Part(given=1, best_of_n=0, one_answer=0, n=1)
    assert row.fastest is row.wrong is None


@pytest.mark.parametrize("known", [right(1.0, TimingSource.ROOFLINE), right(1.0, hardware="another")])
def test_times_of_another_source_or_hardware_are_left_out_and_counted(
    known: Verdict,
    problems: ProblemSetRef,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = read_problems(problems, "train")[0].problem.problem_id
    talks = [
        conversation(name, 0, ("a", right(2.0)), ("b", right(1.0, known.timing_source, known.hardware))),
        conversation(name, 1, ("a", right(2.0)), ("c", right(1.9))),
    ]
    folder = a_run(problems, tmp_path, known, talks)
    (row,) = agents_oracle.table(folder, "optimizer", 1.1, judge=False).values()
    assert (row.given, row.in_corpus, row.corpus, row.run, row.best_of_n, row.n) == (1, 0, 0, 0, 0, 1)
    assert row.left_out == 2
    monkeypatch.setattr(sys, "argv", ["agents_oracle.py", str(folder)])
    agents_oracle.main()
    printed = capsys.readouterr().out
    assert "left out: up to 2 kernels" in printed
    assert "corpus: SFT's pairs of the same text alone" in printed


STYLES = {"sft": {"data": {"styles": ["fused", "stepwise"]}}}


def test_judged_are_all_styles_of_the_corpus_for_a_problem(problems: ProblemSetRef, tmp_path: Path) -> None:
    """A conversation stands with the slow style of a problem of which SFT's pairs have none."""
    folder = a_run(problems, tmp_path, WRONG, [conversation("p", 0, ("a", WRONG))], **STYLES)
    state, config = read_state(folder), load_configuration(folder / "config.yaml")
    row = next(row for row in read_problems(problems, "train")[1:] if row.composition.count(">"))
    assert agents_oracle.corpus_kernels(state, [row], config, judge=False) == []
    corpus = agents_oracle.corpus_kernels(state, [row], config, judge=True)
    assert len(corpus) == 2, "the problem set's own kernel is the fused one"
    fast, slow = sorted(corpus, key=lambda kernel: kernel.ms)
    given = agents_oracle.Given(row.problem.problem_id, "slow", slow.clock, slow.ms, (math.inf,))
    line = agents_oracle.oracle([given], corpus, [], 1.1)
    assert slow.ms >= 1.1 * fast.ms
    assert line is not None
    assert (line.in_corpus, line.corpus, line.left_out) == (1, 1, 0)
    assert line.beaten is not None


def test_drawn_held_out_problems_are_drawn_again_with_their_kernels(tmp_path: Path) -> None:
    settings = {"problems": {"source": "modules", "train": 3, "heldout": 3}}
    config = check_configuration(settings, "test")
    rows = read_problems(build_problem_set(config.problems, tmp_path / "modules"))
    assert [row.reference_kernel is None for row in rows] == [False] * 3 + [True] * 3
    found = list(agents_oracle.kernels_to_judge(rows, config))
    assert sorted(problem.problem_id for problem, _ in found) == sorted(row.problem.problem_id for row in rows)
    assert all("class ModelNew" in kernel for _, kernel in found)


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
