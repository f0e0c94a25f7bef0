"""The SFT data set: drafts of conversations, judged, written as pairs. Each carries the verdict on its kernel.

A draft is a problem, the kernel to imitate, and for a repair the earlier kernels. The generated corpus has several
styles of different speed for each composition, and with `bug_probability` above 0 also plausible mistakes.
"""

import random
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from kernels_eval import Judge, JudgeConfig, Problem, Status, Verdict
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.rewards import reward_of
from tasks.pipeline.references import ProblemSetRef, Progress, SftDataRef
from tasks.problems.config import ProblemsConfig
from tasks.problems.contamination import drop_contaminated
from tasks.problems.generated.composition import Composition
from tasks.problems.generated.sizes import SizesName
from tasks.problems.generated.sources import Style, kernel_source
from tasks.problems.generated.suite import draw_shape, draw_training_compositions, problem_of
from tasks.problems.generated.tuning import draw_tuning
from tasks.problems.pairs import load_pairs
from tasks.problems.problem_set import read_problems
from tasks.problems.row import Split
from tasks.rollout.agent_prompts import best_turn
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import HistoryTurn, answer_text, judge_for
from tasks.sft.config import SftDataConfig
from tasks.sft.pair_rows import pair_row, publish_pairs

_CORPUS_SEED = 1_000_003
REPAIR_MISTAKES = 0.5
"""Share of operators with a mistake in the earlier kernel of a repair (at least one)."""
SECOND_REPAIRS = 0.4
"""Share of repairs with two earlier kernels."""
SLOW_STYLES = (Style.SMALL_BLOCKS, Style.EXTRA_PASSES, Style.STEPWISE)
MAX_FAULT_SHARE = 0.01
"""Share of pairs that the judge may fail on; they are left out. More is a fault of the machine."""

JudgeAll = Callable[[Sequence[tuple[Problem, str]], JudgeConfig, Progress], list[Verdict]]
"""Judges (problem, kernel) pairs; verdicts in their order."""


class Draft(FrozenModel):
    """One conversation to be: `earlier` are the kernels that a repair starts from, oldest first."""

    problem: Problem
    kernel: str
    earlier: tuple[str, ...] = ()
    composition: str = ""
    style: str = ""


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
    """Make or load the pairs, judge every kernel in them, and publish them.

    `judge_all` judges, by default in this process. Pairs whose problem is held out are dropped and counted. Raises
    InputError if nothing is left to train on, or the generated corpus is of another language than is judged,
    InfrastructureError if the judge failed on more than MAX_FAULT_SHARE of the kernels.
    """
    if config.path is None and judge.backend != "triton":
        raise InputError(
            "sft.data.path: the generated corpus is of Triton kernels; name a file of pairs for "
            f"judge.backend = {judge.backend}"
        )
    heldout = read_problems(problem_set, Split.HELDOUT)
    drafts = load_drafts(Path(config.path)) if config.path else generate_drafts(config, problems, seed)
    cleaned = drop_contaminated(drafts, (row.problem.source for row in heldout), lambda draft: draft.problem.source)
    settings = judge_for(episode, judge_of_pairs(config, judge))
    verdicts = _judge(cleaned.clean, settings, progress, judge_all or judge_here)
    rows = [_row(number, draft, verdicts, config, episode, judge.backend) for number, draft in enumerate(cleaned.clean)]
    kept = [row for row in rows if row is not None]
    used = sum(row["used"] for row in kept)
    if used == 0:
        raise InputError(
            f"sft.data: found no pair to train on among {len(kept)}, expected correct kernels "
            "(or set `verified: false`)"
        )
    metadata = {
        "pairs": len(kept),
        "used": used,
        "verified": config.verified,
        "dropped_contaminated": cleaned.dropped,
        "dropped_faults": len(rows) - len(kept),
    }
    return publish_pairs(kept, metadata, config.verified, destination)


def judge_of_pairs(config: SftDataConfig, judge: JudgeConfig) -> JudgeConfig:
    """Return the settings of the judge of pairs: the rollouts' (`judge`) with what `sft.data` changes."""
    changes: dict[str, Any] = {"compile": "never"} if config.compile == "never" else {}
    if config.judge.device == "cpu":
        changes["device"] = "cpu"
    if config.judge.workers is not None:
        changes["workers"] = config.judge.workers
    return judge.model_copy(update=changes)


def judge_here(items: Sequence[tuple[Problem, str]], config: JudgeConfig, progress: Progress) -> list[Verdict]:
    """Judge in this process."""
    with Judge(config) as judge:
        return judge.evaluate_many(items, progress)


def _judge(
    drafts: Sequence[Draft], config: JudgeConfig, progress: Progress, judge_all: JudgeAll
) -> dict[tuple[str, str], Verdict]:
    """Judge each distinct (problem, kernel) once, the earlier kernels of repairs too; keyed by the two sources."""
    items: dict[tuple[str, str], tuple[Problem, str]] = {}
    for draft in drafts:
        for kernel in (draft.kernel, *draft.earlier):
            items.setdefault((draft.problem.source, kernel), (draft.problem, kernel))
    verdicts = judge_all(list(items.values()), config, progress)
    faults = [verdict for verdict in verdicts if verdict.is_fault]
    if len(faults) > MAX_FAULT_SHARE * len(verdicts):
        raise InfrastructureError(
            f"the judge failed on {len(faults)} of {len(verdicts)} SFT kernels: {faults[0].error_message}"
        )
    return dict(zip(items, verdicts, strict=True))


def _row(
    number: int,
    draft: Draft,
    verdicts: dict[tuple[str, str], Verdict],
    config: SftDataConfig,
    episode: EpisodeConfig,
    backend: str,
) -> dict[str, Any] | None:
    """Return one row of the table; None if the judge failed on a kernel of the pair."""
    verdict = verdicts[draft.problem.source, draft.kernel]
    if verdict.is_fault:
        return None
    reward = reward_of(episode.reward, verdict)
    history: list[HistoryTurn] = []
    for kernel in draft.earlier:
        earlier = verdicts[draft.problem.source, kernel]
        if earlier.is_fault:
            return None
        score, answer = reward_of(episode.reward, earlier), answer_text(kernel)
        history.append(HistoryTurn(response_text=answer, kernel_source=kernel, verdict=earlier, reward=score))
    # A repair that makes it worse teaches to ignore the feedback.
    improves = not history or reward >= history[-1].reward
    used = not config.verified or (verdict.status is Status.CORRECT and improves)
    keeps = bool(history) and reward <= best_turn(history).reward
    row = pair_row(draft.problem, history, draft.kernel, verdict, episode, backend, keeps=keeps)
    return {**row, "pair_id": f"{number:06d}", "composition": draft.composition, "style": draft.style, "used": used}


def generate_drafts(config: SftDataConfig, problems: ProblemsConfig, seed: int) -> list[Draft]:
    """Return the drafts of the generated corpus; none of their compositions is held out."""
    generator = random.Random(f"corpus-{seed}")
    drafts: list[Draft] = []
    # Other compositions than the training problems': RL learns most on problems whose answer SFT has not shown.
    for composition in draw_training_compositions(problems, config.compositions, seed=problems.seed + _CORPUS_SEED):
        styles = generator.sample(list(Style), min(config.styles_per_composition, len(Style)))
        for style in styles:
            mistakes = _mistakes(composition, config.bug_probability, generator)
            drafts.append(_draft(composition, [(style, mistakes)], generator, config, problems.sizes))
    if config.repair_fraction > 0:
        repairs = round(len(drafts) * config.repair_fraction / max(1.0 - config.repair_fraction, 0.01))
        compositions = [draft.composition for draft in drafts]
        drafts += [
            _repair(compositions[index % len(compositions)], config, generator, problems.sizes)
            for index in range(repairs)
        ]
    return drafts


def load_drafts(path: Path) -> list[Draft]:
    """Return the drafts of a file or folder of pairs; an earlier kernel makes one a repair."""
    drafts: list[Draft] = []
    for pair in load_pairs(path):
        problem = Problem(problem_id=pair.pair_id, source=pair.problem_source)
        earlier = () if pair.earlier_source is None else (pair.earlier_source,)
        drafts.append(Draft(problem=problem, kernel=pair.kernel_source, earlier=earlier, style="external"))
    return drafts


def _repair(key: str, config: SftDataConfig, generator: random.Random, sizes: SizesName) -> Draft:
    """Draft one or two wrong or slow kernels, then a correct one: fused, or in any style after a wrong kernel.

    Or, for `stop_fraction` of them, a fused one that is its own answer.
    """
    composition = Composition(names=tuple(key.split(">")))
    if config.stop_fraction and generator.random() < config.stop_fraction:
        draft = _draft(composition, [(Style.FUSED, ())], generator, config, sizes)
        return draft.model_copy(update={"earlier": (draft.kernel,)})
    answer_mistakes = _mistakes(composition, config.bug_probability, generator)
    drawn: list[tuple[Style, Collection[str]]] = []
    was_wrong = False
    for _ in range(2 if generator.random() < SECOND_REPAIRS else 1):
        was_wrong = generator.random() < 0.5
        if was_wrong:
            mistakes = _mistakes(composition, REPAIR_MISTAKES, generator) or {generator.choice(composition.names)}
            drawn.append((generator.choice(list(Style)), mistakes))
        else:
            drawn.append((generator.choice(SLOW_STYLES), ()))
    style = generator.choice(list(Style)) if was_wrong else Style.FUSED
    return _draft(composition, [*drawn, (style, answer_mistakes)], generator, config, sizes)


def _mistakes(composition: Composition, probability: float, generator: random.Random) -> set[str]:
    return {name for name in composition.names if generator.random() < probability}


def _draft(
    composition: Composition,
    drawn: Sequence[tuple[Style, Collection[str]]],
    generator: random.Random,
    config: SftDataConfig,
    sizes: SizesName,
) -> Draft:
    """Return a conversation about one problem; the last of the kernels (style, mistakes) is the answer."""
    shape = draw_shape(composition, generator, sizes=sizes)
    kernels = [
        kernel_source(
            composition,
            style,
            mistakes,
            draw_tuning(composition, shape.columns, generator) if config.tuning == "varied" else None,
        )
        for style, mistakes in drawn
    ]
    return Draft(
        problem=problem_of(composition, shape),
        kernel=kernels[-1],
        earlier=tuple(kernels[:-1]),
        composition=composition.key,
        style=drawn[-1][0],
    )
