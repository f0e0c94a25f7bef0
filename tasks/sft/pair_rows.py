"""Rows of the SFT data set's table, from problems, histories and judged kernels.

`pairs.parquet`, one row a conversation: pair_id, problem_id, problem_source, kernel_source, composition, style,
level, kind (`direct` | `repair`), role (of the agent that answers), messages list<struct<role, content, trained>>,
verdict struct and reward (null if `sft.data.judged` leaves the kernel out), used (True: SFT trains on it).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval import Problem, Verdict
from kernels_eval.rewards import reward_of
from tasks.agents.config import author_of, with_solver
from tasks.models.chat_templates import Message, Role, with_thought
from tasks.pipeline.references import SftDataRef
from tasks.pipeline.store import publish, published_digest
from tasks.pipeline.tables import PAIRS_FILE
from tasks.rollout.agent_prompts import STOP, agent_messages
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import HistoryTurn, answer_text
from tasks.trajectories.content import table_digest
from tasks.trajectories.schema import VERDICT_TYPE, verdict_row

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


def pair_row(
    problem: Problem,
    history: Sequence[HistoryTurn],
    kernel: str,
    verdict: Verdict | None,
    episode: EpisodeConfig,
    backend: str,
    *,
    keeps: bool,
    reasoning: str = "",
) -> dict[str, Any]:
    """Return the row in which the agent whose turn it is after `history` answers with a kernel, and SFT trains on it.

    `verdict`: on that kernel; None: it is not judged. `keeps`: the kernel is no better than the best of the history,
    and an agent that may stop does. `reasoning`: comes before the kernel. The row's id, and what is known of a
    generated kernel, are left to the caller.
    """
    role = author_of(episode.agents, len(history))
    agent = with_solver(episode.agents)[role]
    answer = STOP if keeps and agent.may_stop else with_thought(reasoning, answer_text(kernel))
    messages = [
        *agent_messages(problem.source, history, episode, backend, agent),
        Message(role=Role.ASSISTANT, content=answer, trained=True),
    ]
    return {
        "problem_id": problem.problem_id,
        "problem_source": problem.source,
        "kernel_source": kernel,
        "composition": "",
        "style": "",
        "level": problem.level,
        "kind": "repair" if history else "direct",
        "role": role,
        "messages": [message.model_dump(mode="json") for message in messages],
        "verdict": None if verdict is None else verdict_row(verdict),
        "reward": None if verdict is None else reward_of(episode.reward, verdict),
        "used": True,
    }


def publish_pairs(
    rows: Sequence[dict[str, Any]], metadata: dict[str, Any], verified: bool, destination: Path
) -> SftDataRef:
    """Publish a table of pairs; `verified`: it trains on correct kernels only."""
    with publish(destination, metadata, {PAIRS_FILE: table_digest}) as folder:
        pq.write_table(pa.Table.from_pylist(list(rows), schema=PAIRS_SCHEMA), folder / PAIRS_FILE, compression="zstd")
    used = sum(row["used"] for row in rows)
    digest = published_digest(destination)
    return SftDataRef(uri=str(destination.resolve()), digest=digest, pairs=used, verified=verified)
