"""The SFT data set: drafts of conversations, judged, written as pairs. Each carries the verdict on its kernel.

A draft is a problem, the kernel to imitate, and for a repair the earlier kernels. With `judged: shown` only these are
judged. The generated corpus has several styles of different speed for each composition, and with `bug_probability`
above 0 also plausible mistakes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernels_eval import Judge, JudgeConfig, Problem, Status, Verdict
from kernels_eval.backends import is_interpreted
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.rewards import reward_of
from tasks.pipeline.references import ProblemSetRef, Progress, SftDataRef
from tasks.problems.config import ProblemsConfig
from tasks.problems.contamination import drop_contaminated
from tasks.problems.problem_set import read_problems
from tasks.problems.row import Split
from tasks.rollout.agent_prompts import best_turn
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import HistoryTurn, answer_text, judge_for
from tasks.sft.config import SftDataConfig
from tasks.sft.drafts import Draft, generate_drafts, load_drafts
from tasks.sft.pair_rows import pair_row, publish_pairs

MAX_FAULT_SHARE = 0.01
"""Share of pairs that the judge may fail on; they are left out. More is a fault of the machine."""

JudgeAll = Callable[[Sequence[tuple[Problem, str]], JudgeConfig, Progress], list[Verdict]]
"""Judges (problem, kernel) pairs; verdicts in their order."""


def build_sft_data(
    problem_set: ProblemSetRef,
    config: SftDataConfig,
    problems: ProblemsConfig,
    episode: EpisodeConfig,
    judge: JudgeConfig,
    seed: int,
    destination: Path,
    progress: Progress,
    judge_all: JudgeAll | None = None,
) -> SftDataRef:
    """Make or load the pairs, judge their kernels, and publish them.

    `judge_all` judges, by default in this process. Pairs whose problem is held out are dropped and counted. Raises
    InputError if nothing is left to train on, or no corpus is generated in the language that is judged,
    InfrastructureError if the judge failed on more than MAX_FAULT_SHARE of the kernels.
    """
    heldout = read_problems(problem_set, Split.HELDOUT)
    if config.path:
        drafts = load_drafts(Path(config.path), config.columns, config.bad_rows, config.reader)
    else:
        drafts = generate_drafts(config, problems, seed, judge.backend)
    if config.reasoning == "keep" and not any(draft.reasoning for draft in drafts):
        raise InputError(
            f"sft.data.reasoning: keep, but none of {len(drafts)} pairs has any; expected answers with <think> … "
            "</think>, a column or field `reasoning`, or drop"
        )
    cleaned = drop_contaminated(drafts, (row.problem.source for row in heldout), lambda draft: draft.problem.source)
    verdicts = _judge(
        [kernel for draft in cleaned.clean for kernel in _to_judge(draft, config)],
        lambda kernel: judge_for(episode, judge_of_pairs(config, judge, kernel)),
        progress,
        judge_all or judge_here,
    )
    rows = [_row(number, draft, verdicts, config, episode, judge.backend) for number, draft in enumerate(cleaned.clean)]
    kept = [row for row in rows if row is not None]
    used = sum(row["used"] for row in kept)
    if used == 0:
        raise InputError(
            f"sft.data: found no pair to train on among {len(kept)}, expected correct kernels "
            "(or set `verified: false`)"
        )
    metadata: dict[str, Any] = {
        "pairs": len(kept),
        "used": used,
        "verified": config.verified,
        **({} if config.judged == "all" else {"judged": config.judged}),
        "dropped_contaminated": cleaned.dropped,
        "dropped_faults": len(rows) - len(kept),
    }
    if any(draft.least_gain for draft in cleaned.clean):
        metadata["optimizations"] = _count_optimizations(cleaned.clean, rows)
    return publish_pairs(kept, metadata, config.verified, destination)


def _count_optimizations(drafts: Sequence[Draft], rows: Sequence[dict[str, Any] | None]) -> dict[str, int]:
    """Return how many optimizations were drawn, and how many of them are trained on."""
    found = [row for draft, row in zip(drafts, rows, strict=True) if draft.least_gain]
    return {"drawn": len(found), "used": sum(row is not None and row["used"] for row in found)}


def judge_of_pairs(config: SftDataConfig, judge: JudgeConfig, kernel_source: str) -> JudgeConfig:
    """Return the settings of the judge of a kernel of a pair: the rollouts' (`judge`) with what `sft.data` changes."""
    changes: dict[str, Any] = {"compile": "never"} if config.compile == "never" else {}
    # Every pair of others is kept; of the generated corpus tests run each operator in each style at the full size.
    changes["full_size_share"] = 0.0 if config.path is None else 1.0
    if config.judge.device == "cpu":
        if not is_interpreted(kernel_source, judge.backend):
            return judge.model_copy(update=changes)
        changes["device"] = "cpu"
    if config.judge.workers is not None:
        changes["workers"] = config.judge.workers
    return judge.model_copy(update=changes)


def judge_here(items: Sequence[tuple[Problem, str]], config: JudgeConfig, progress: Progress) -> list[Verdict]:
    """Judge in this process."""
    with Judge(config) as judge:
        return judge.evaluate_many(items, progress)


def _to_judge(draft: Draft, config: SftDataConfig) -> list[tuple[Problem, str]]:
    """Return the kernels of a draft that are judged, each with the problem."""
    answer = (draft.kernel,) if config.judged == "all" else ()
    return [(draft.problem, kernel) for kernel in (*answer, *draft.earlier)]


def _judge(
    kernels: Sequence[tuple[Problem, str]],
    settings_of: Callable[[str], JudgeConfig],
    progress: Progress,
    judge_all: JudgeAll,
) -> dict[tuple[str, str], Verdict]:
    """Judge each distinct (problem, kernel) once; keyed by the two sources.

    `settings_of`: the judge's, for a kernel. Kernels of equal settings are judged together.
    """
    groups: dict[JudgeConfig, dict[tuple[str, str], tuple[Problem, str]]] = {}
    for problem, kernel in kernels:
        groups.setdefault(settings_of(kernel), {}).setdefault((problem.source, kernel), (problem, kernel))
    total, found = sum(map(len, groups.values())), {}
    for config, items in groups.items():
        verdicts = judge_all(list(items.values()), config, _later_part(progress, len(found), total))
        found.update(zip(items, verdicts, strict=True))
    faults = [verdict for verdict in found.values() if verdict.is_fault]
    if len(faults) > MAX_FAULT_SHARE * len(found):
        raise InfrastructureError(
            f"the judge failed on {len(faults)} of {len(found)} SFT kernels: {faults[0].error_message}"
        )
    return found


def _later_part(progress: Progress, before: int, of_all: int) -> Progress:
    """Return the progress of a part of the kernels, so many of which were judged before it."""

    def report(done: int, total: int, **figures: float) -> None:
        progress(before + done, of_all, **figures)

    return report


def _row(
    number: int,
    draft: Draft,
    verdicts: dict[tuple[str, str], Verdict],
    config: SftDataConfig,
    episode: EpisodeConfig,
    backend: str,
) -> dict[str, Any] | None:
    """Return one row of the table; None if the judge failed on a kernel of the pair."""
    verdict = verdicts[draft.problem.source, draft.kernel] if config.judged == "all" else None
    if verdict is not None and verdict.is_fault:
        return None
    history: list[HistoryTurn] = []
    for kernel in draft.earlier:
        earlier = verdicts[draft.problem.source, kernel]
        if earlier.is_fault:
            return None
        score, answer = reward_of(episode.reward, earlier), answer_text(kernel)
        history.append(HistoryTurn(response_text=answer, kernel_source=kernel, verdict=earlier, reward=score))
    thought = draft.reasoning if config.reasoning == "keep" else ""

    def row(keeps: bool, used: bool) -> dict[str, Any]:
        made = pair_row(draft.problem, history, draft.kernel, verdict, episode, backend, keeps=keeps, reasoning=thought)
        generated = {"composition": draft.composition, "style": draft.style}
        return {**made, "pair_id": f"{number:06d}", **generated, "used": used}

    if verdict is None:
        return row(keeps=False, used=True)
    reward = reward_of(episode.reward, verdict)
    # A repair that makes it worse teaches to ignore the feedback.
    improves = not history or reward >= history[-1].reward
    used = not config.verified or (verdict.status is Status.CORRECT and improves)
    gains = draft.least_gain > 0 and _gain(history[-1].verdict, verdict) >= draft.least_gain
    used = used and (gains or not draft.least_gain)
    # Of two kernels below or beyond the rewarded speeds the faster one is the answer too.
    keeps = bool(history) and not gains and reward <= best_turn(history).reward
    return row(keeps, used)


def _gain(earlier: Verdict, verdict: Verdict) -> float:
    """Return the time of an earlier kernel over the time of the answer; 0 if one is not right, or was not timed."""
    if not (earlier.correct and verdict.correct and earlier.candidate_ms and verdict.candidate_ms):
        return 0.0
    return earlier.candidate_ms / verdict.candidate_ms
