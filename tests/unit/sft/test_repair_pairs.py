"""Pairs of repairs: failures of a policy's own, answered with the best kernel known."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from kernels_eval import Problem, Status, Verdict
from tasks.pipeline.references import ProblemSetRef, SftDataRef
from tasks.pipeline.store import read_metadata
from tasks.pipeline.tables import PAIRS_FILE
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import build_problem_set, read_problems
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import answer_text
from tasks.sft.pair_rows import pair_row, publish_pairs
from tasks.sft.repair_pairs import build_repair_pairs
from tasks.trajectories.schema import Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

EPISODE = EpisodeConfig(prompt="source", feedback="brief")
WRONG = Verdict(status=Status.INCORRECT, compiled=True, correct=False, error_category="wrong_values")
FAULT = Verdict(status=Status.INFRASTRUCTURE_ERROR, compiled=False, correct=False)


def right(speedup: float) -> Verdict:
    return Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=speedup, candidate_ms=1.0)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    return build_problem_set(ProblemsConfig(train=4, heldout=2), tmp_path_factory.mktemp("repairs") / "problems")


def answered(row: ProblemRow, sample: int, kernel: str, verdict: Verdict) -> Trajectory:
    problem = row.problem
    turn = Turn(
        turn_index=0, role="solver", prompt_token_ids=(1, 2), response_token_ids=(3,), response_logprobs=(-0.1,),
        prompt_extends_previous=True, finish_reason="stop", response_text=answer_text(kernel), kernel_source=kernel,
        verdict=verdict, reward=None if verdict.is_fault else 0.0, generation_s=0.0, evaluation_s=0.0,
        created_at=datetime.now(UTC),
    )  # fmt: skip
    return Trajectory(
        run_id="run", iteration=0, policy_digest="digest", problem_id=problem.problem_id, problem_digest=problem.digest,
        split="train", level=problem.level, group_id=problem.problem_id,
        trajectory_id=f"{problem.problem_id}-{sample}", sample_index=sample, turns=(turn,),
        termination=Termination.INFRASTRUCTURE_ERROR if verdict.is_fault else Termination.TURN_LIMIT,
    )  # fmt: skip


def built(
    problems: ProblemSetRef,
    folder: Path,
    answers: Sequence[Trajectory],
    reference: Verdict = WRONG,
    corpus: Sequence[tuple[Problem, str, Verdict]] = (),
    replayed: float = 0.0,
) -> SftDataRef:
    """Pairs of these answers; every problem's own reference kernel has the verdict `reference`."""
    pairs = [pair_row(*pair[:1], [], *pair[1:], EPISODE, "triton", keeps=False) for pair in corpus]
    of_corpus = publish_pairs(
        [{**row, "pair_id": str(number)} for number, row in enumerate(pairs)], {}, True, folder / "corpus"
    )
    batch = write_trajectories(list(answers), 1.0, folder / "batch")

    def judge(items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        return [reference for _ in items]

    return build_repair_pairs(batch, problems, of_corpus, EPISODE, "triton", replayed, 0, folder / "pairs", judge)


def repairs_of(data: SftDataRef) -> list[tuple[str, str]]:
    """The kernel that is shown and the one that is learnt, of each pair that is a repair."""
    table = pl.read_parquet(data.path / PAIRS_FILE).filter(pl.col("kind") == "repair")
    return [(row["messages"][1]["content"], row["messages"][-1]["content"]) for row in table.iter_rows(named=True)]


def test_wrong_and_slow_answers_are_answered_with_the_best_kernel_known(
    problems: ProblemSetRef, tmp_path: Path
) -> None:
    row = read_problems(problems, Split.TRAIN)[0]
    answers = [
        answered(row, 0, "wrong", WRONG),
        answered(row, 1, "wrong", WRONG),
        answered(row, 2, "slow", right(1.0)),
        answered(row, 3, "fast", right(1.8)),
        answered(row, 4, "unknown", FAULT),
    ]
    data = built(problems, tmp_path, answers)
    wrong, slow, fast = map(answer_text, ("wrong", "slow", "fast"))
    assert repairs_of(data) == [(wrong, fast), (slow, fast)]
    counts = read_metadata(data.path)
    assert {name: counts[name] for name in ("answers", "right", "wrong", "slow", "unanswered", "repairs")} == {
        "answers": 4, "right": 2, "wrong": 1, "slow": 1, "unanswered": 0, "repairs": 2
    }  # fmt: skip
    # The judge's message stands between the two kernels, and the answer alone is trained on.
    messages = pl.read_parquet(data.path / PAIRS_FILE)["messages"].to_list()[0]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert [message["trained"] for message in messages] == [False, False, False, True]


def test_the_kernel_comes_from_the_problem_set_or_the_corpus_where_it_is_the_fastest(
    problems: ProblemSetRef, tmp_path: Path
) -> None:
    row = read_problems(problems, Split.TRAIN)[0]
    answers = [answered(row, 0, "wrong", WRONG), answered(row, 1, "slow", right(1.0))]
    own = built(problems, tmp_path / "own", answers, reference=right(2.0))
    assert {answer for _, answer in repairs_of(own)} == {answer_text(row.reference_kernel or "")}
    corpus = [(row.problem, "from the corpus", right(3.0)), (row.problem, "a wrong one", WRONG)]
    better = built(problems, tmp_path / "corpus", answers, reference=right(2.0), corpus=corpus)
    assert {answer for _, answer in repairs_of(better)} == {answer_text("from the corpus")}


def test_failures_on_problems_that_nobody_solved_are_counted_and_left_out(
    problems: ProblemSetRef, tmp_path: Path
) -> None:
    row = read_problems(problems, Split.TRAIN)[0]
    data = built(problems, tmp_path, [answered(row, 0, "wrong", WRONG)])
    assert data.pairs == 0
    assert read_metadata(data.path)["unanswered"] == 1


def test_pairs_of_the_corpus_are_mixed_in(problems: ProblemSetRef, tmp_path: Path) -> None:
    row, other = read_problems(problems, Split.TRAIN)[:2]
    answers = [answered(row, number, f"wrong {number}", WRONG) for number in range(3)]
    corpus = [(other.problem, f"kernel {number}", right(1.0)) for number in range(9)]
    data = built(problems, tmp_path, answers, reference=right(2.0), corpus=corpus, replayed=2.0)
    table = pl.read_parquet(data.path / PAIRS_FILE)
    assert table["kind"].to_list() == ["repair"] * 3 + ["direct"] * 6
    assert table["pair_id"].n_unique() == 9
