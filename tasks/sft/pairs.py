"""The SFT data set: drafts, judged, written as conversations. Every pair carries the verdict on its kernel.

`pairs.parquet`, one row a conversation: pair_id, problem_id, problem_source, kernel_source, composition, style, level, kind
(`direct` | `repair`), messages list<struct<role, content, trained>>, verdict struct, reward, used (True: SFT trains on it).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval import Judge, JudgeConfig, Problem, Status, Verdict
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.rewards import reward_of
from tasks.models.messages import Message, Role
from tasks.pipeline.progress import Progress
from tasks.pipeline.references import ProblemSetRef, SftDataRef
from tasks.pipeline.store import publish, published_digest
from tasks.problems.config import ProblemsConfig
from tasks.problems.contamination import drop_contaminated
from tasks.problems.problem_set import read_problems
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import HistoryTurn, answer_text, prompt_messages
from tasks.sft.config import SftDataConfig
from tasks.sft.corpus import Draft, generate_drafts, load_drafts
from tasks.trajectories.schema import VERDICT_TYPE, verdict_row

PAIRS_FILE = "pairs.parquet"
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
        ("messages", pa.list_(_MESSAGE_TYPE)),
        ("verdict", VERDICT_TYPE),
        ("reward", pa.float64()),
        ("used", pa.bool_()),
    ],
    metadata={b"kernelmill.pairs.version": b"1"},
)


def build_sft_data(
    problem_set: ProblemSetRef,
    config: SftDataConfig,
    problems: ProblemsConfig,
    episode: EpisodeConfig,
    judge: JudgeConfig,
    seed: int,
    destination: Path,
    progress: Progress,
) -> SftDataRef:
    """Make or load the pairs, judge every kernel in them, and publish them.

    Pairs whose problem is held out are dropped and counted. Raises InputError where nothing is left to train on, or the generated
    corpus is of another language than is judged, InfrastructureError where the judge failed on more than MAX_FAULT_SHARE of the kernels.
    """
    if config.path is None and judge.backend != "triton":
        raise InputError(
            f"sft.data.path: the generated corpus is of Triton kernels; name a file of pairs for judge.backend = {judge.backend}"
        )
    heldout = read_problems(problem_set, Split.HELDOUT)
    drafts = load_drafts(Path(config.path)) if config.path else generate_drafts(config, problems, seed)
    cleaned = drop_contaminated(drafts, (row.problem.source for row in heldout), lambda draft: draft.problem.source)
    if config.compile == "never":
        judge = judge.model_copy(update={"compile": "never"})
    verdicts = _judge(cleaned.clean, judge, progress)
    rows = [_row(number, draft, verdicts, config, episode, judge.backend) for number, draft in enumerate(cleaned.clean)]
    kept = [row for row in rows if row is not None]
    used = sum(row["used"] for row in kept)
    if used == 0:
        raise InputError(
            f"sft.data: found no pair to train on among {len(kept)}, expected correct kernels (or set `verified: false`)"
        )
    metadata = {
        "pairs": len(kept),
        "used": used,
        "verified": config.verified,
        "dropped_contaminated": cleaned.dropped,
        "dropped_faults": len(rows) - len(kept),
    }
    with publish(destination, metadata) as folder:
        pq.write_table(pa.Table.from_pylist(kept, schema=PAIRS_SCHEMA), folder / PAIRS_FILE, compression="zstd")
    digest = published_digest(destination)
    return SftDataRef(uri=str(destination.resolve()), digest=digest, pairs=used, verified=config.verified)


def _judge(drafts: Sequence[Draft], config: JudgeConfig, progress: Progress) -> dict[tuple[str, str], Verdict]:
    """Judge each distinct (problem, kernel) once, the earlier kernels of repairs too; keyed by the two sources."""
    items: dict[tuple[str, str], tuple[Problem, str]] = {}
    for draft in drafts:
        for kernel in (draft.kernel, *draft.earlier):
            items.setdefault((draft.problem.source, kernel), (draft.problem, kernel))
    with Judge(config) as judge:
        verdicts = judge.evaluate_many(list(items.values()), progress)
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
    """One row of the table; None where the judge failed, so that nothing is known of the pair."""
    verdict = verdicts[draft.problem.source, draft.kernel]
    if verdict.is_fault:
        return None
    reward = reward_of(episode.reward, verdict)
    history: list[HistoryTurn] = []
    for kernel in draft.earlier:
        earlier = verdicts[draft.problem.source, kernel]
        if earlier.is_fault:
            return None
        earlier_reward = reward_of(episode.reward, earlier)
        answer = answer_text(kernel)
        history.append(HistoryTurn(response_text=answer, kernel_source=kernel, verdict=earlier, reward=earlier_reward))
    # A repair that makes it worse teaches to ignore the feedback.
    improves = not history or reward >= history[-1].reward
    used = not config.verified or (verdict.status is Status.CORRECT and improves)
    messages = [
        *prompt_messages(draft.problem.source, history, episode, backend),
        Message(role=Role.ASSISTANT, content=answer_text(draft.kernel), trained=True),
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
        "messages": [message.model_dump(mode="json") for message in messages],
        "verdict": verdict_row(verdict),
        "reward": reward,
        "used": used,
    }
