"""The SFT data set: drafts of conversations, judged, written as pairs. Each carries the verdict on its kernel.

`pairs.parquet`, one row a conversation: pair_id, problem_id, problem_source, kernel_source, composition, style,
level, kind (`direct` | `repair`), role (of the agent that answers), messages list<struct<role, content, trained>>,
verdict struct, reward, used (True: SFT trains on it).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval import Judge, JudgeConfig, Problem, Status, Verdict
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.rewards import reward_of
from tasks.agents.config import author_of, with_solver
from tasks.models.chat_templates import Message, Role
from tasks.pipeline.references import ProblemSetRef, Progress, SftDataRef
from tasks.pipeline.store import publish, published_digest
from tasks.pipeline.tables import PAIRS_FILE
from tasks.problems.config import ProblemsConfig
from tasks.problems.contamination import drop_contaminated
from tasks.problems.problem_set import read_problems
from tasks.problems.row import Split
from tasks.rollout.agent_prompts import STOP, agent_messages, best_turn
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import HistoryTurn, answer_text, judge_for
from tasks.sft.config import SftDataConfig
from tasks.sft.drafts import Draft, generate_drafts, load_drafts
from tasks.trajectories.content import table_digest
from tasks.trajectories.schema import VERDICT_TYPE, verdict_row

MAX_FAULT_SHARE = 0.01
"""Share of pairs that the judge may fail on; they are left out. More is a fault of the machine."""

_MESSAGE_TYPE = pa.struct([("role", pa.string()), ("content", pa.string()), ("trained", pa.bool_())])
PAIRS_SCHEMA = pa.schema(
    [
        ("pair_id", pa.string()),
        ("problem_id", pa.string()),
        ("problem_source", pa.string()),
        ("kernel_source", pa.string()),
        ("composition", pa.string()),
        ("style", pa.string()),
        ("level", pa.int32()),
        ("kind", pa.string()),
        ("role", pa.string()),
        ("messages", pa.list_(_MESSAGE_TYPE)),
        ("verdict", VERDICT_TYPE),
        ("reward", pa.float64()),
        ("used", pa.bool_()),
    ],
    metadata={b"kernelmill.pairs.version": b"2"},
)


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
    """Make or load the pairs, judge every kernel in them, and publish them.

    `judge_all` judges, by default in this process. Pairs whose problem is held out are dropped and counted. Raises
    InputError if nothing is left to train on, or no corpus is generated in the language that is judged,
    InfrastructureError if the judge failed on more than MAX_FAULT_SHARE of the kernels.
    """
    heldout = read_problems(problem_set, Split.HELDOUT)
    drafts = load_drafts(Path(config.path)) if config.path else generate_drafts(config, problems, seed, judge.backend)
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
    with publish(destination, metadata, {PAIRS_FILE: table_digest}) as folder:
        pq.write_table(pa.Table.from_pylist(kept, schema=PAIRS_SCHEMA), folder / PAIRS_FILE, compression="zstd")
    digest = published_digest(destination)
    return SftDataRef(uri=str(destination.resolve()), digest=digest, pairs=used, verified=config.verified)


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
    role = author_of(episode.agents, len(history))
    agent = with_solver(episode.agents)[role]
    # A repair that makes it worse teaches to ignore the feedback.
    improves = not history or reward >= history[-1].reward
    used = not config.verified or (verdict.status is Status.CORRECT and improves)
    keeps = agent.may_stop and bool(history) and reward <= best_turn(history).reward
    messages = [
        *agent_messages(draft.problem.source, history, episode, backend, agent),
        Message(role=Role.ASSISTANT, content=STOP if keeps else answer_text(draft.kernel), trained=True),
    ]
    return {
        "pair_id": f"{number:06d}",
        "problem_id": draft.problem.problem_id,
        "problem_source": draft.problem.source,
        "kernel_source": draft.kernel,
        "composition": draft.composition,
        "style": draft.style,
        "level": draft.problem.level,
        "kind": "repair" if draft.earlier else "direct",
        "role": role,
        "messages": [message.model_dump(mode="json") for message in messages],
        "verdict": verdict_row(verdict),
        "reward": reward,
        "used": used,
    }
