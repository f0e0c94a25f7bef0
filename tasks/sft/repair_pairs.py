"""Pairs of repairs: the policy's own wrong or slow kernel, what the judge says of it, and the best kernel known.

A generated corpus invents the mistakes that its repairs start from. Here the policy that SFT made answers training
problems once, and every answer that is clearly worse than the best kernel known becomes the earlier turn of a repair.
Known are the right kernels among these answers, the corpus's for the same problem, and the problem set's own
(`reference_kernel`), which is judged first. Pairs of the corpus are mixed in, so that first answers are not forgotten.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kernels_eval import Problem, Verdict
from kernels_eval.rewards import reward_of
from tasks.agents.config import SLACK
from tasks.pipeline.references import ProblemSetRef, SftDataRef, TrajectoryBatchRef
from tasks.pipeline.tables import PAIRS_FILE, read_table
from tasks.problems.problem_set import read_problems
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import HistoryTurn, answer_text
from tasks.sft.pair_rows import PAIRS_SCHEMA, pair_row, publish_pairs
from tasks.trajectories.reader import load_trajectories
from tasks.trajectories.schema import verdict_from_row

JudgeReferences = Callable[[Sequence[tuple[Problem, str]]], list[Verdict]]
"""Judges (problem, kernel) pairs; verdicts in their order."""


def build_repair_pairs(
    batch: TrajectoryBatchRef,
    problems: ProblemSetRef,
    corpus: SftDataRef,
    episode: EpisodeConfig,
    backend: str,
    replayed: float,
    seed: int,
    destination: Path,
    judge_references: JudgeReferences,
) -> SftDataRef:
    """Publish a repair for each distinct failure among the first answers of a batch, and `replayed` corpus pairs each.

    Metadata: `answers`, how many of them were `right`, `wrong` or `slow` (distinct failures), `unanswered` (failures
    on problems of which no right kernel is known), `repairs`, `replayed`.
    """
    rows = {row.problem.problem_id: row for row in read_problems(problems, Split.TRAIN)}
    answers = _first_answers(batch, episode)
    known = _best_known([rows[name] for name in answers], answers, corpus, episode, judge_references)
    counts: Counter[str] = Counter(answers=0, right=0, wrong=0, slow=0, unanswered=0)
    repairs: list[dict[str, Any]] = []
    for name, turns in answers.items():
        counts.update(answers=len(turns), right=sum(turn.verdict.correct for turn in turns))
        best = known.get(name)
        for turn in _distinct(turns):
            if turn.verdict.correct and (best is None or best.reward - turn.reward <= SLACK):
                continue
            counts["slow" if turn.verdict.correct else "wrong"] += 1
            if best is None or best.kernel_source is None:
                counts["unanswered"] += 1
                continue
            problem, kernel = rows[name].problem, best.kernel_source
            repairs.append(pair_row(problem, [turn], kernel, best.verdict, episode, backend, keeps=False))
    mixed_in = _corpus_pairs(corpus, round(replayed * len(repairs)), seed) if repairs else []
    numbered = [{**row, "pair_id": f"{number:06d}"} for number, row in enumerate([*repairs, *mixed_in])]
    metadata = {
        **counts,
        "pairs": len(numbered),
        "used": len(numbered),
        "repairs": len(repairs),
        "replayed": len(mixed_in),
        "roles": Counter(row["role"] for row in numbered),
    }
    return publish_pairs(numbered, metadata, corpus.verified, destination)


def _first_answers(batch: TrajectoryBatchRef, episode: EpisodeConfig) -> dict[str, list[HistoryTurn]]:
    """Return the first turns by problem, in a fixed order, without those that the machine failed on."""
    answers: dict[str, list[HistoryTurn]] = {}
    for trajectory in load_trajectories(batch.path):
        turn = trajectory.turns[0]
        if not turn.verdict.is_fault:
            reward = reward_of(episode.reward, turn.verdict)
            answered = HistoryTurn(
                response_text=turn.response_text, kernel_source=turn.kernel_source, verdict=turn.verdict, reward=reward
            )
            answers.setdefault(trajectory.problem_id, []).append(answered)
    return answers


def _best_known(
    rows: Sequence[ProblemRow],
    answers: dict[str, list[HistoryTurn]],
    corpus: SftDataRef,
    episode: EpisodeConfig,
    judge_references: JudgeReferences,
) -> dict[str, HistoryTurn]:
    """Return by problem the right kernel of highest reward; none of problems of which no right kernel is known."""
    with_reference = [row for row in rows if row.reference_kernel is not None]
    verdicts = judge_references([(row.problem, row.reference_kernel or "") for row in with_reference])
    references = [
        (row.problem.problem_id, _turn(row.reference_kernel or "", verdict, episode))
        for row, verdict in zip(with_reference, verdicts, strict=True)
        if verdict.correct
    ]
    own = [(name, turn) for name, turns in answers.items() for turn in turns if turn.verdict.correct]
    best: dict[str, HistoryTurn] = {}
    for name, turn in [*own, *references, *_of_corpus(rows, corpus, episode)]:
        if name not in best or turn.reward > best[name].reward:
            best[name] = turn
    return best


def _of_corpus(
    rows: Iterable[ProblemRow], corpus: SftDataRef, episode: EpisodeConfig
) -> Iterable[tuple[str, HistoryTurn]]:
    """Yield the right kernels that the corpus has for these problems, by problem id."""
    names = {row.problem.source: row.problem.problem_id for row in rows}
    pairs = read_table(corpus.path / PAIRS_FILE, ["problem_source", "kernel_source", "verdict", "used"])
    chosen = pl.col("used") & pl.col("problem_source").is_in(list(names))
    for pair in pairs.filter(chosen).iter_rows(named=True):
        verdict = verdict_from_row(pair["verdict"])
        if verdict.correct:
            yield names[pair["problem_source"]], _turn(pair["kernel_source"], verdict, episode)


def _turn(kernel: str, verdict: Verdict, episode: EpisodeConfig) -> HistoryTurn:
    reward = reward_of(episode.reward, verdict)
    return HistoryTurn(response_text=answer_text(kernel), kernel_source=kernel, verdict=verdict, reward=reward)


def _distinct(turns: Sequence[HistoryTurn]) -> list[HistoryTurn]:
    return list({turn.response_text: turn for turn in turns}.values())


def _corpus_pairs(corpus: SftDataRef, count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows of the corpus that SFT uses, drawn without replacement."""
    pairs = read_table(corpus.path / PAIRS_FILE, PAIRS_SCHEMA.names).filter(pl.col("used"))
    drawn = np.random.default_rng([seed, 3]).permutation(pairs.height)[:count]
    return pairs[sorted(drawn.tolist())].to_dicts()
