"""The update's data set: a sample for each trainable turn of a trajectory batch. Runs in the process that starts ranks.

Checked here, before any worker starts: columns, lengths, NaN, log-probabilities. Left out and counted: turns whose
verdict is an infrastructure error, groups of one (no baseline), groups without variance (no gradient).
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from kernels_eval.errors import InputError
from kernels_eval.verdict import Status
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.pipeline.store import read_metadata
from tasks.pipeline.tables import read_table
from tasks.trajectories.groups import SHARED_KEY, GroupKey, group_turns, question
from tasks.trajectories.returns import credited, knows_stops
from tasks.trajectories.schema import TURNS_FILE, Termination
from tasks.update.advantages import soft_overlong_penalty
from tasks.update.config import UpdateConfig
from tasks.update.credit_assignment import Sample, SampleSet, Score
from tasks.update.imitation import best_answers, trained_answer

COLUMNS = (
    "trajectory_id",
    "group_id",
    "turn_index",
    "role",
    "prompt_token_ids",
    "response_token_ids",
    "response_logprobs",
    "finish_reason",
    "verdict",
    "reward",
    "return",
)


class NothingToLearnError(InputError):
    """No turn of the batch has a gradient."""


def read_samples(
    batch: TrajectoryBatchRef, config: UpdateConfig, vocabulary: int, roles: Sequence[str] = ()
) -> SampleSet:
    """Read the samples of a published batch, as `make_samples`."""
    shares_answers = read_metadata(batch.path).get(SHARED_KEY, 1) > 1
    columns = (
        *COLUMNS,
        *(("created_at",) if shares_answers else ()),
        *(("termination",) if config.imitation or knows_stops(config.credit) else ()),
    )
    return make_samples(read_table(batch.path / TURNS_FILE, columns), config, vocabulary, roles, shares_answers)


def make_samples(
    turns: pl.DataFrame, config: UpdateConfig, vocabulary: int, roles: Sequence[str] = (), shares_answers: bool = False
) -> SampleSet:
    """Return the samples of rows of the turns table; `vocabulary` is the number of token ids that the policy knows.

    `roles`: turns of these agents only; of all if empty. `shares_answers`: first turns of a problem that were made at
    the same time are one answer, which several conversations have: one sample, whose return is the mean of theirs.
    Raises InputError for anything that cannot be trained on, NothingToLearnError if there is no turn with a gradient.
    """
    turns = everybody = _credited(turns, config)
    if shares_answers:
        turns = _each_answer_once(turns)
    if roles:
        turns = turns.filter(pl.col("role").is_in(list(roles)))
        if turns.is_empty():
            raise NothingToLearnError(f"trajectories: no turn of {' or '.join(roles)}")
    statuses = turns["verdict"].struct.field("status")
    _refuse(turns, statuses.is_null(), "verdict", "a verdict with a status")
    is_fault = pl.col("verdict").struct.field("status") == Status.INFRASTRUCTURE_ERROR.value
    usable = turns.filter(~is_fault)
    check_turns(usable, vocabulary)
    places = zip(usable["group_id"], usable["turn_index"], usable["role"], usable["prompt_token_ids"], strict=True)
    keys: list[GroupKey] = [question(*place, config.credit) for place in places]
    trajectories = usable["trajectory_id"].to_list()
    overlong = (usable["finish_reason"] == "length").fill_null(False).to_numpy()
    returns = usable["return"].to_numpy().astype(np.float64) - _length_penalty(usable, config)
    groups = group_turns(returns.tolist(), keys, trajectories, config.estimator.compares)
    left_out = groups.single | groups.constant
    samples: list[Sample] = []
    masked: list[Score] = []
    tokens = usable.select("prompt_token_ids", "response_token_ids", "response_logprobs")
    for row, turn in enumerate(tokens.iter_rows(named=True)):
        if groups.peers[row] in left_out:
            continue
        score = groups.scores[row]
        if overlong[row] and config.overlong == "mask":
            masked.append(Score(score, keys[row], trajectories[row]))
            continue
        samples.append(
            Sample(
                score=score,
                group=keys[row],
                trajectory=trajectories[row],
                sequence=trained_answer(turn["prompt_token_ids"], turn["response_token_ids"]),
                sampler_log_probs=np.asarray(turn["response_logprobs"], dtype=np.float32),
                return_=float(returns[row]),
            )
        )
    # For estimators that compare no groups the rollout draws no further problems.
    wanted = 0 if config.estimator.compares == "nothing" else config.wanted_groups or 0
    if not samples:
        raise NothingToLearnError(
            f"trajectories: nothing to learn from: of {groups.number} groups {len(groups.single)} have one sample and "
            f"{len(groups.constant)} have equal returns; {int(overlong.sum())} of {len(usable)} turns were cut off"
        )
    return SampleSet(
        samples=tuple(samples),
        groups_used=groups.useful,
        groups_single=len(groups.single),
        groups_constant=len(groups.constant),
        turns_excluded=turns.height - usable.height,
        turns_overlong=int(overlong.sum()),
        groups_missing=max(wanted - groups.useful, 0),
        masked=tuple(masked),
        imitated=best_answers(everybody.filter(~is_fault), roles) if config.imitation else (),
    )


def _credited(turns: pl.DataFrame, config: UpdateConfig) -> pl.DataFrame:
    """Return the turns with the returns that `update.credit` asks for: as stored, or computed anew from the rewards."""
    if config.credit == "return":
        return turns
    ordered = turns.sort("trajectory_id", "turn_index")
    is_stop = pl.col("termination") == Termination.AGENT_STOPPED.value if knows_stops(config.credit) else pl.lit(False)
    episodes = ordered.group_by("trajectory_id", maintain_order=True).agg("reward", is_stop.any().alias("stopped"))
    returns = [
        value
        for rewards, stop in episodes.select("reward", "stopped").iter_rows()
        for value in credited(rewards, config.credit, config.credit_discount, stop)
    ]
    return ordered.with_columns(pl.Series("return", returns, dtype=pl.Float64))


def _each_answer_once(turns: pl.DataFrame) -> pl.DataFrame:
    first = pl.col("turn_index") == 0
    copies = turns.filter(first).sort("trajectory_id")
    means = copies.group_by("group_id", "role", "created_at").agg(pl.col("return").mean())
    once = copies.unique(["group_id", "role", "created_at"], keep="first", maintain_order=True).drop("return")
    merged = once.join(means, on=["group_id", "role", "created_at"], how="left", maintain_order="left")
    return pl.concat([merged.select(turns.columns), turns.filter(~first)]).sort("trajectory_id", "turn_index")


def check_turns(turns: pl.DataFrame, vocabulary: int) -> None:
    """Raise InputError, naming the column and the row, where turns cannot be trained on."""
    if turns.is_empty():
        raise InputError("turns: expected at least one turn that the judge could evaluate, found none")
    for name in ("reward", "response_logprobs", "prompt_token_ids", "response_token_ids"):
        _refuse(turns, turns[name].is_null(), name, "a value")
    for name in ("reward", "return"):  # a return that is made from rewards has their faults
        _refuse(turns, ~turns[name].is_finite(), name, "a finite number")
    for name in ("prompt_token_ids", "response_token_ids"):
        _refuse(turns, turns[name].list.len() == 0, name, "at least one token")
        outside = (turns[name].list.min() < 0) | (turns[name].list.max() >= vocabulary)
        _refuse(turns, outside, name, f"token ids from 0 to {vocabulary - 1}")
    lengths_differ = turns["response_token_ids"].list.len() != turns["response_logprobs"].list.len()
    _refuse(turns, lengths_differ, "response_logprobs", "as many entries as response_token_ids")
    finite = turns["response_logprobs"].list.eval(pl.element().is_finite()).list.all()
    _refuse(turns, ~finite, "response_logprobs", "finite numbers")
    _refuse(turns, turns["response_logprobs"].list.max() > 1e-6, "response_logprobs", "log-probabilities of at most 0")


def _length_penalty(turns: pl.DataFrame, config: UpdateConfig) -> NDArray[np.float64]:
    if config.overlong != "penalise":
        return np.zeros(len(turns))
    assert config.overlong_limit is not None, "the settings' own validation has seen to it"
    lengths = torch.from_numpy(turns["response_token_ids"].list.len().to_numpy().astype(np.float64))
    return soft_overlong_penalty(lengths, config.overlong_limit, config.overlong_buffer).numpy()


def _refuse(turns: pl.DataFrame, wrong: pl.Series, column: str, expected: str) -> None:
    """Raise InputError naming the first wrong row; a null comparison counts as wrong."""
    wrong = wrong.fill_null(True)
    if not wrong.any():
        return
    row = turns.filter(wrong).row(0, named=True)
    found = str(row[column])
    raise InputError(
        f"turns.{column}: {int(wrong.sum())} of {len(turns)} turns are wrong: expected {expected}, "
        f"found {found if len(found) < 80 else found[:77] + '...'} "
        f"(trajectory {row['trajectory_id']} turn {row['turn_index']})"
    )
