"""The trajectory data set's two tables: their columns, their version, and the rows that become them.

`turns.parquet` has one row a turn, `trajectories.parquet` one row a trajectory. Both are flat (scanning nested turns is
thirty times slower); a trajectory's history is its turns in `turn_index` order. Any reward or return can be recomputed
from the stored columns. A turn whose verdict is `infrastructure_error` has null `reward` and `return`: nothing is known
of the kernel, and 0 would be wrong.

The schema's version is in the file metadata under `kernelmill.schema_version`. A reader fills what an older file lacks
with null, ignores what it has besides, and refuses a file of a newer version. Version 1 had a column `advantage`; since
version 3 each turn names its agent and the policy that wrote it.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa

from kernels_eval.verdict import Verdict

SCHEMA_VERSION = 3
VERSION_KEY = b"kernelmill.schema_version"
TURNS_FILE = "turns.parquet"
TRAJECTORIES_FILE = "trajectories.parquet"
POLICY_VERSION = "policy_version"
"""Metadata of a batch: weight version of the policy that wrote it."""
KEPT_TOKENS = "kept_tokens"
"""Metadata of a batch: generated tokens that an earlier attempt had drawn, before `seconds` began."""


class Termination(StrEnum):
    """Reason an episode ended."""

    SUCCESS = "success"
    """The last turn is correct and its reward reached the episode's goal."""
    REPEATED_FAILURE = "repeated_failure"
    """Too many turns in a row had reward 0."""
    TURN_LIMIT = "turn_limit"
    """All turns were used."""
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    """The engine or the judge failed twice on the last turn. Nothing is known of the policy."""
    AGENT_STOPPED = "agent_stopped"
    """An agent answered that the best kernel so far is good enough: that kernel is the last turn's."""
    CONTEXT_LIMIT = "context_limit"
    """The next turn's prompt leaves no room for a full response."""


RESOURCES_TYPE = pa.struct(
    [
        ("kernel", pa.string()),
        ("architecture", pa.string()),
        ("registers", pa.int64()),
        ("shared_bytes", pa.int64()),
        ("spills", pa.int64()),
    ]
)
ISSUE_TYPE = pa.struct(
    [
        ("kind", pa.string()),
        ("kernel", pa.string()),
        ("line", pa.int32()),
        ("value", pa.float64()),
        ("limit", pa.float64()),
        ("message", pa.string()),
        ("remedy", pa.string()),
    ]
)
PROFILE_TYPE = pa.struct(
    [
        (
            "kernels",
            pa.list_(
                pa.struct(
                    [
                        ("name", pa.string()),
                        ("launches", pa.float64()),
                        ("microseconds", pa.float64()),
                        ("is_own", pa.bool_()),
                    ]
                )
            ),
        ),
        ("launches", pa.float64()),
        ("own_share", pa.float64()),
        ("gigabytes_per_s", pa.float64()),
        ("teraflops_per_s", pa.float64()),
        ("roofline_share", pa.float64()),
    ]
)
"""Of a correct kernel on a GPU, else null; tables that earlier versions wrote lack it."""
EFFICIENCY_TYPE = pa.struct([("memory", pa.float64()), ("registers", pa.float64())])
"""Of a correct kernel, else null; tables that earlier versions wrote lack it."""
VERDICT_TYPE = pa.struct(
    [
        ("status", pa.string()),
        ("compiled", pa.bool_()),
        ("correct", pa.bool_()),
        ("speedup", pa.float64()),
        ("candidate_ms", pa.float64()),
        ("reference_ms", pa.float64()),
        ("timing_source", pa.string()),
        ("rejection_reason", pa.string()),
        ("error_category", pa.string()),
        ("error_message", pa.string()),
        ("max_abs_error", pa.float64()),
        ("max_rel_error", pa.float64()),
        ("resources", pa.list_(RESOURCES_TYPE)),
        ("profile", PROFILE_TYPE),
        ("efficiency", EFFICIENCY_TYPE),
        ("issues", pa.list_(ISSUE_TYPE)),
        ("judge_version", pa.string()),
        ("hardware", pa.string()),
        ("sandbox", pa.string()),
        ("seed_commitment", pa.string()),
    ]
)
_EPISODE_FIELDS = [
    ("run_id", pa.string()),
    ("iteration", pa.int32()),
    ("policy_digest", pa.string()),
    ("problem_id", pa.string()),
    ("problem_digest", pa.string()),
    ("split", pa.string()),
    ("group_id", pa.string()),
    ("trajectory_id", pa.string()),
    ("sample_index", pa.int32()),
]
EPISODE_COLUMNS = tuple(name for name, _ in _EPISODE_FIELDS)
"""Columns that both tables have; fields of `Trajectory`."""
_TIME = pa.timestamp("us", tz="UTC")
_METADATA = {VERSION_KEY: str(SCHEMA_VERSION).encode()}
TURNS_SCHEMA = pa.schema(
    [
        *_EPISODE_FIELDS,
        ("turn_index", pa.int32()),
        ("role", pa.string()),
        ("agent", pa.string()),
        ("weight_version", pa.int32()),
        ("prompt_token_ids", pa.list_(pa.int32())),
        ("response_token_ids", pa.list_(pa.int32())),
        ("response_logprobs", pa.list_(pa.float32())),
        ("prompt_extends_previous", pa.bool_()),
        ("finish_reason", pa.string()),
        ("response_text", pa.string()),
        ("kernel_source", pa.string()),
        ("verdict", VERDICT_TYPE),
        ("reward", pa.float64()),
        ("return", pa.float64()),
        ("termination", pa.string()),
        ("generation_s", pa.float64()),
        ("evaluation_s", pa.float64()),
        ("created_at", _TIME),
    ],
    metadata=_METADATA,
)
TRAJECTORIES_SCHEMA = pa.schema(
    [
        *_EPISODE_FIELDS,
        ("level", pa.int32()),
        ("turns", pa.int32()),
        ("termination", pa.string()),
        ("final_verdict", VERDICT_TYPE),
        ("final_reward", pa.float64()),
        ("return", pa.float64()),
        ("created_at", _TIME),
    ],
    metadata=_METADATA,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as it happened; what can be computed from others (returns) is not in it."""

    turn_index: int
    role: str
    """Role of the writer in the conversation (tasks.agents.config); `solver` if one policy writes all turns."""
    prompt_token_ids: tuple[int, ...]
    response_token_ids: tuple[int, ...]
    response_logprobs: tuple[float, ...]
    """Of the sampling policy at T = 1; as many as response tokens."""
    prompt_extends_previous: bool
    """True if the prompt begins with the previous turn's prompt and response, token for token (and on turn 0).
    False if the chat template rewrites earlier messages: then turns are separate samples."""
    finish_reason: str
    response_text: str
    kernel_source: str | None
    verdict: Verdict
    reward: float | None
    """None if the verdict is an infrastructure error."""
    generation_s: float
    evaluation_s: float
    created_at: datetime
    agent: str | None = None
    """Agent whose weights wrote it. This and the following two are None where a table of an earlier version is read."""
    policy_digest: str | None = None
    """Digest of those weights; None: of the trajectory's policy."""
    weight_version: int | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One finished episode: at least one turn, in order."""

    run_id: str
    iteration: int
    policy_digest: str
    problem_id: str
    problem_digest: str
    split: str
    level: int
    group_id: str
    """The samples that share a first prompt; unique within a run and iteration."""
    trajectory_id: str
    """Unique within a run; the same for the same place in a repeated rollout."""
    sample_index: int
    turns: tuple[Turn, ...]
    termination: Termination

    @property
    def rewards(self) -> list[float | None]:
        """Rewards of the turns."""
        return [turn.reward for turn in self.turns]


def verdict_row(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as a value of `VERDICT_TYPE`."""
    return verdict.model_dump(mode="json", exclude={"provided"})


def verdict_from_row(row: dict[str, Any]) -> Verdict:
    """Return the verdict of a stored value; columns that an older file lacks take the verdict's own defaults."""
    known = {name: value for name, value in row.items() if value is not None and name in Verdict.model_fields}
    return Verdict.model_validate(known)
