"""From a batch of trajectories to what an update trains on: each turn a sample with its own return and advantage.

Checked here, before any worker starts: columns, lengths, NaN, log-probabilities. Left out and counted: turns whose verdict is an
infrastructure error, groups of one (no baseline), groups without variance (no gradient).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from kernels_eval.errors import InputError
from kernels_eval.verdict import Status
from tasks.references import TrajectoryBatchRef
from tasks.update.advantages import group_advantages, leave_one_out_advantages, reinforce_plus_plus
from tasks.update.batches import TrainedSequence
from tasks.update.config import UpdateConfig

TURNS_FILE = "turns.parquet"
COLUMNS = (
    "group_id",
    "turn_index",
    "role",
    "prompt_token_ids",
    "response_token_ids",
    "response_logprobs",
    "return",
)

GroupKey = tuple[str, int, str]


@dataclass(frozen=True)
class Sample:
    """One turn: prompt, response, and what the sampler and the judge said of it."""

    sequence: TrainedSequence
    """Prompt and response; the response's tokens are trained."""
    old_log_probs: NDArray[np.float32]
    """Of the response's tokens under the policy that sampled them."""
    return_: float
    advantage: float
    group: GroupKey
    """(group, turn, role): samples that answered the same question."""


@dataclass(frozen=True)
class SampleSet:
    """The samples that have a gradient, and how many were left out and why."""

    samples: tuple[Sample, ...]
    groups_used: int
    groups_single: int
    groups_constant: int
    turns_excluded: int
    """Turns that the machine, not the policy, failed."""


def read_samples(batch: TrajectoryBatchRef, config: UpdateConfig, vocabulary: int) -> SampleSet:
    """Read a published batch and compute advantages; InputError for anything that cannot be trained on."""
    return make_samples(_read_turns(batch.path / TURNS_FILE), config, vocabulary)


def make_samples(turns: pl.DataFrame, config: UpdateConfig, vocabulary: int) -> SampleSet:
    """Turn rows of the turns table into samples; `vocabulary` is the number of token ids that the policy knows."""
    faults = turns["verdict"].struct.field("status") == Status.INFRASTRUCTURE_ERROR.value
    usable = turns.filter(~faults)
    check_turns(usable, vocabulary)
    groups: list[GroupKey] = list(zip(usable["group_id"], usable["turn_index"], usable["role"], strict=True))
    returns = usable["return"].to_numpy().astype(np.float64)
    lengths = usable["response_token_ids"].list.len().to_list()
    advantages = _advantages(returns, groups, lengths, config)
    rows_of: dict[GroupKey, list[int]] = {}
    for row, group in enumerate(groups):
        rows_of.setdefault(group, []).append(row)
    baseline_needed = config.advantage != "reinforce_pp"
    single = {group for group, rows in rows_of.items() if baseline_needed and len(rows) == 1}
    constant = {
        group
        for group, rows in rows_of.items()
        if baseline_needed and group not in single and np.ptp(returns[rows]) < 1e-9
    }
    prompts, responses, log_probs = (
        usable[name].to_list() for name in ("prompt_token_ids", "response_token_ids", "response_logprobs")
    )
    samples = tuple(
        Sample(
            sequence=_sequence(prompts[row], responses[row]),
            old_log_probs=np.asarray(log_probs[row], dtype=np.float32),
            return_=float(returns[row]),
            advantage=float(advantages[row]),
            group=group,
        )
        for row, group in enumerate(groups)
        if group not in single and group not in constant
    )
    if not samples:
        raise InputError(
            f"trajectories: nothing to learn from: of {len(rows_of)} groups {len(single)} have one sample and {len(constant)} have equal returns"
        )
    return SampleSet(
        samples=samples,
        groups_used=len(rows_of) - len(single) - len(constant),
        groups_single=len(single),
        groups_constant=len(constant),
        turns_excluded=int(faults.sum()),
    )


def check_turns(turns: pl.DataFrame, vocabulary: int) -> None:
    """Raise InputError, naming the column and the row, where turns cannot be trained on."""
    if turns.is_empty():
        raise InputError("turns: expected at least one turn that the judge could evaluate, found none")
    column = turns["return"]
    _refuse(turns, column.is_null() | column.is_nan() | column.is_infinite(), "return", "a finite number")
    for name in ("reward", "response_logprobs", "prompt_token_ids", "response_token_ids"):
        if name in turns.columns:
            _refuse(turns, turns[name].is_null(), name, "a value")
    if "reward" in turns.columns:
        _refuse(turns, ~turns["reward"].is_finite(), "reward", "a finite number")
    for name in ("prompt_token_ids", "response_token_ids"):
        _refuse(turns, turns[name].list.len() == 0, name, "at least one token")
        outside = (turns[name].list.min() < 0) | (turns[name].list.max() >= vocabulary)
        _refuse(turns, outside, name, f"token ids from 0 to {vocabulary - 1}")
    lengths_differ = turns["response_token_ids"].list.len() != turns["response_logprobs"].list.len()
    _refuse(turns, lengths_differ, "response_logprobs", "as many entries as response_token_ids")
    finite = turns["response_logprobs"].list.eval(pl.element().is_finite()).list.all()
    _refuse(turns, ~finite, "response_logprobs", "finite numbers")
    _refuse(turns, turns["response_logprobs"].list.max() > 1e-6, "response_logprobs", "log-probabilities of at most 0")


def deal_groups(samples: Sequence[Sample], steps: int, seed: Sequence[int]) -> list[list[int]]:
    """Deal whole groups out to at most `steps` optimizer steps, with numbers of samples as even as can be.

    Deterministic in `seed`, whatever order the samples come in. Fewer groups than steps give fewer steps.
    """
    rows_of: dict[GroupKey, list[int]] = {}
    for row, sample in enumerate(samples):
        rows_of.setdefault(sample.group, []).append(row)
    keys = sorted(rows_of)
    shuffled = [keys[place] for place in np.random.default_rng(list(seed)).permutation(len(keys))]
    hands: list[list[int]] = [[] for _ in range(min(steps, len(keys)))]
    for key in sorted(shuffled, key=lambda key: -len(rows_of[key])):  # stable: equal sizes stay shuffled
        min(hands, key=len).extend(rows_of[key])
    return hands


def _read_turns(path: Path) -> pl.DataFrame:
    try:
        turns = pl.read_parquet(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: expected the turns of a trajectory batch, found no file") from error
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from error
    missing = [name for name in (*COLUMNS, "verdict") if name not in turns.columns]
    if missing:
        raise InputError(f"{path}: expected the columns {', '.join(missing)}, which are not there")
    return turns


def _advantages(
    returns: NDArray[np.float64], groups: Sequence[GroupKey], lengths: Sequence[int], config: UpdateConfig
) -> NDArray[np.float64]:
    scores = torch.from_numpy(returns)
    match config.advantage:
        case "grpo":
            result = group_advantages(scores, groups)
        case "dr_grpo":
            result = group_advantages(scores, groups, scale_by_std=False)
        case "rloo" | "turn_rloo":
            result = leave_one_out_advantages(scores, groups)
        case "reinforce_pp":
            # Without a discount every token of a response has the response's return, and so the same advantage.
            mask = torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]
            result = reinforce_plus_plus(scores, mask.to(scores.dtype))[0][:, 0]
        case "gae":
            raise InputError("update.advantage: gae needs a critic, which this version does not train; choose another")
    return result.numpy()


def _sequence(prompt: Sequence[int], response: Sequence[int]) -> TrainedSequence:
    token_ids = np.asarray([*prompt, *response], dtype=np.int32)
    return TrainedSequence(token_ids, np.arange(len(token_ids)) >= len(prompt))


def _refuse(turns: pl.DataFrame, wrong: pl.Series, column: str, expected: str) -> None:
    """Raise InputError naming the first wrong row; a null comparison counts as wrong."""
    wrong = wrong.fill_null(True)
    if not wrong.any():
        return
    row = turns.filter(wrong).row(0, named=True)
    found = str(row[column])
    where = f"trajectory {row['trajectory_id']} turn {row['turn_index']}" if "trajectory_id" in row else "a turn"
    raise InputError(
        f"turns.{column}: {int(wrong.sum())} of {len(turns)} turns are wrong: expected {expected}, "
        f"found {found if len(found) < 80 else found[:77] + '...'} ({where})"
    )
