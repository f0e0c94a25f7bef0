"""Projections: the flat scalar columns of a data set that suites refer to and Great Expectations reads.

Each function returns one row for each row of its table. Counts of violations (`nonfinite_logprobs`, `missing_names`, …)
are 0 on a valid row; `*_error` columns are distances from recomputed values. No projection holds a NaN: it becomes a
null, and a null in a column that must not have one is counted in `missing_*`.
"""

import polars as pl

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem, check_problem_source
from kernels_eval.rewards import Answer, reward_of
from kernels_eval.verdict import Status
from tasks.problems.row import Split
from tasks.trajectories.returns import turn_returns
from tasks.trajectories.schema import Termination, verdict_from_row

_NAMELESS = "(no id)"
_ROLE = r"^[a-z][a-z0-9_]*$"
NOT_JUDGED = "not_judged"
"""Status of a pair whose kernel was left out by `sft.data.judged`."""
_FAULT = Status.INFRASTRUCTURE_ERROR.value


def problems_projection(problems: pl.DataFrame) -> pl.DataFrame:
    """Return the projection of `problems.parquet`."""
    sources = [source or "" for source in problems.get_column("source").to_list()]
    in_training = problems.filter(pl.col("split") == Split.TRAIN.value)
    heldout = pl.col("split") == Split.HELDOUT.value
    return problems.select(
        pl.col("problem_id").fill_null(_NAMELESS).alias("row_id"),
        "problem_id",
        "split",
        "level",
        pl.Series("missing_names", [_lacks_names(source) for source in sources], pl.Int64),
        pl.Series("source_digest", [Problem(problem_id="", source=source).digest for source in sources], pl.String)
        .ne_missing(pl.col("problem_digest"))
        .cast(pl.Int64)
        .alias("wrong_digest"),
        (heldout & pl.col("problem_digest").is_in(in_training.get_column("problem_digest").implode()))
        .cast(pl.Int64)
        .alias("heldout_source_in_training"),
        (
            heldout
            & (pl.col("composition") != "")
            & pl.col("composition").is_in(in_training.get_column("composition").implode())
        )
        .cast(pl.Int64)
        .alias("heldout_composition_in_training"),
    )


def pairs_projection(pairs: pl.DataFrame, verified: bool, all_judged: bool = True) -> pl.DataFrame:
    """Return the projection of `pairs.parquet`; without `all_judged` kernels may lack a verdict."""
    message = pl.element().struct
    messages = pl.col("messages")
    verdict = pl.col("verdict").struct
    reward = pl.col("reward").fill_nan(None)
    status = verdict.field("status")
    judged = pl.lit(True) if all_judged else pl.col("verdict").is_not_null()
    return pairs.select(
        pl.col("pair_id").fill_null(_NAMELESS).alias("row_id"),
        "pair_id",
        "problem_id",
        "kind",
        pl.when(judged).then(status).otherwise(pl.lit(NOT_JUDGED)).alias("status"),
        messages.list.len().fill_null(0).cast(pl.Int64).alias("messages"),
        _count(messages, message.field("trained")).alias("trained_messages"),
        _count(messages, message.field("trained") & (message.field("role") != "assistant")).alias(
            "untrainable_messages"
        ),
        _count(messages, ~message.field("role").is_in(["system", "user", "assistant"])).alias("unknown_roles"),
        _count(messages, message.field("content").str.strip_chars().str.len_chars().fill_null(0) == 0).alias(
            "empty_messages"
        ),
        messages.list.last().struct.field("role").alias("last_role"),
        pl.col("kernel_source").str.len_chars().fill_null(0).cast(pl.Int64).alias("kernel_characters"),
        reward.alias("reward"),
        _flag(judged & reward.is_null() & status.ne_missing(_FAULT)).alias("missing_reward"),
        pl.col("used").fill_null(False).cast(pl.Int64).alias("used"),
        (_flag(pl.col("used") & ~verdict.field("correct")) if verified else pl.lit(0)).alias("used_unverified"),
    )


def turns_projection(turns: pl.DataFrame, trajectories: pl.DataFrame, gamma: float, reward: str) -> pl.DataFrame:
    """Return the projection of `turns.parquet`, with rewards and returns recomputed from stored columns."""
    ordered = turns.sort("trajectory_id", "turn_index")
    verdict = pl.col("verdict").struct
    status, correct = verdict.field("status"), verdict.field("correct")
    speedup = verdict.field("speedup").fill_nan(None)
    value = {name: pl.col(name).fill_nan(None) for name in ("reward", "return")}
    logprobs = pl.col("response_logprobs")
    finite_logprobs = logprobs.list.eval(pl.element().filter(pl.element().is_finite()))
    fault = status.eq_missing(_FAULT)
    return ordered.select(
        pl.concat_str(pl.col("trajectory_id").fill_null(_NAMELESS), pl.lit("#"), "turn_index").alias("row_id"),
        "trajectory_id",
        "turn_index",
        (pl.col("turn_index") - pl.int_range(pl.len()).over("trajectory_id")).alias("turn_gap"),
        _flag(~pl.col("trajectory_id").is_in(trajectories.get_column("trajectory_id").implode())).alias(
            "without_trajectory"
        ),
        "role",
        _flag(~pl.col("role").str.contains(_ROLE)).alias("misnamed_role"),
        status.alias("status"),
        _flag(
            (correct != (status == Status.CORRECT.value)) | (correct & ~verdict.field("compiled")) | correct.is_null()
        ).alias("contradictory_verdict"),
        speedup.alias("speedup"),
        _flag(speedup.is_not_null() & ~correct).alias("speedup_without_correct"),
        _flag(
            speedup.is_not_null() & ~verdict.field("timing_source").is_in(["gpu", "roofline"]).fill_null(False)
        ).alias("unmarked_speedup"),
        pl.col("prompt_token_ids").list.len().fill_null(0).cast(pl.Int64).alias("prompt_tokens"),
        pl.col("response_token_ids").list.len().cast(pl.Int64).alias("response_tokens"),
        (_negatives("prompt_token_ids") + _negatives("response_token_ids")).alias("negative_token_ids"),
        (
            pl.col("response_token_ids").list.len().cast(pl.Int64) - logprobs.list.len().fill_null(0).cast(pl.Int64)
        ).alias("missing_logprobs"),
        (logprobs.list.len() - finite_logprobs.list.len()).fill_null(0).cast(pl.Int64).alias("nonfinite_logprobs"),
        finite_logprobs.list.max().cast(pl.Float64).alias("highest_logprob"),
        value["reward"].alias("reward"),
        _flag(value["reward"].is_null() & ~fault).alias("missing_reward"),
        _flag((value["reward"].is_not_null() | value["return"].is_not_null()) & fault).alias("reward_of_fault"),
        (value["reward"] - _recomputed_rewards(ordered, reward)).abs().alias("reward_error"),
        _flag(value["return"].is_null() & ~fault).alias("missing_return"),
        (value["return"] - _recomputed_returns(ordered, gamma)).abs().fill_nan(None).alias("return_error"),
        _flag((pl.col("generation_s") < 0) | (pl.col("evaluation_s") < 0)).alias("negative_seconds"),
    )


def trajectories_projection(trajectories: pl.DataFrame, turns: pl.DataFrame, gamma: float) -> pl.DataFrame:
    """Return the projection of `trajectories.parquet`, compared with the table of turns."""
    ordered = turns.sort("trajectory_id", "turn_index")
    from_turns = (
        ordered.with_columns(_recomputed_returns(ordered, gamma).alias("recomputed"))
        .group_by("trajectory_id")
        .agg(
            pl.len().cast(pl.Int64).alias("found_turns"),
            pl.col("recomputed").first(),
            pl.col("verdict").last().struct.field("status").alias("last_status"),
            pl.col("reward").last().alias("last_reward"),
        )
    )
    value = pl.col("return").fill_nan(None)
    final_status = pl.col("final_verdict").struct.field("status")
    return trajectories.join(from_turns, on="trajectory_id", how="left").select(
        pl.col("trajectory_id").fill_null(_NAMELESS).alias("row_id"),
        "trajectory_id",
        "policy_digest",
        "problem_id",
        "group_id",
        "sample_index",
        pl.col("problem_digest").n_unique().over("group_id").cast(pl.Int64).alias("problems_in_group"),
        pl.col("turns").cast(pl.Int64),
        (pl.col("turns").cast(pl.Int64) - pl.col("found_turns").fill_null(0)).fill_null(1).alias("missing_turns"),
        "termination",
        final_status.alias("final_status"),
        _flag(
            final_status.ne_missing(pl.col("last_status")) | pl.col("final_reward").ne_missing(pl.col("last_reward"))
        ).alias("final_verdict_differs"),
        (value - pl.col("recomputed")).abs().alias("return_error"),
        _flag(value.is_null() & pl.col("termination").ne_missing(Termination.INFRASTRUCTURE_ERROR.value)).alias(
            "missing_return"
        ),
    )


def groups_projection(turns: pl.DataFrame) -> pl.DataFrame:
    """Return one row a group: its samples, and the largest difference of two returns of one turn (0 if unknown)."""
    value = pl.col("return").fill_nan(None)
    spread = turns.group_by("group_id", "turn_index").agg((value.max() - value.min()).alias("spread"))
    largest = spread.group_by("group_id").agg(pl.col("spread").max().fill_null(0.0).alias("largest_spread"))
    samples = turns.group_by("group_id").agg(pl.col("trajectory_id").n_unique().cast(pl.Int64).alias("samples"))
    return (
        samples.join(largest, on="group_id", nulls_equal=True)
        .sort("group_id")
        .select(pl.col("group_id").alias("row_id"), "samples", "largest_spread")
    )


def metrics_projection(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the projection of a checkpoint's `metrics.parquet`: its numbers, and the count of non-finite ones."""
    floats = [name for name, kind in metrics.schema.items() if kind.is_float()]
    nonfinite = [_flag(pl.col(name).is_nan() | pl.col(name).is_infinite()) for name in floats]
    numeric = [name for name, kind in metrics.schema.items() if kind.is_numeric()]
    return metrics.select(
        pl.int_range(pl.len()).cast(pl.String).alias("row_id"),
        (pl.sum_horizontal(nonfinite) if nonfinite else pl.lit(0)).cast(pl.Int64).alias("nonfinite_figures"),
        *[(pl.col(name).fill_nan(None) if name in floats else pl.col(name)) for name in numeric],
    )


def _lacks_names(source: str) -> int:
    try:
        check_problem_source(source, "")
    except InputError:
        return 1
    return 0


def _flag(condition: pl.Expr) -> pl.Expr:
    """Return 1 if the condition holds, 0 if it does not or is unknown."""
    return condition.fill_null(False).cast(pl.Int64)


def _count(column: pl.Expr, condition: pl.Expr) -> pl.Expr:
    """Return how many elements of a list meet a condition."""
    return column.list.eval(condition.fill_null(False).cast(pl.Int64)).list.sum().fill_null(0)


def _negatives(column: str) -> pl.Expr:
    return (pl.col(column).list.min() < 0).fill_null(False).cast(pl.Int64)


def _recomputed_rewards(turns: pl.DataFrame, reward: str) -> pl.Series:
    """Return each turn's reward from its stored columns; null for faults and for verdicts that cannot be read."""
    known = {status.value for status in Status} - {_FAULT}
    answers = zip(
        turns["response_text"].fill_null(""), turns["response_token_ids"].list.len().fill_null(0), strict=True
    )
    rewards = [
        reward_of(reward, verdict_from_row(row), Answer(text, tokens))
        if row is not None and row["status"] in known
        else None
        for row, (text, tokens) in zip(turns.get_column("verdict").to_list(), answers, strict=True)
    ]
    return pl.Series("recomputed_reward", rewards, pl.Float64)


def _recomputed_returns(ordered: pl.DataFrame, gamma: float) -> pl.Series:
    """Return each turn's return from the rewards of its trajectory; `ordered` is sorted by trajectory and turn."""
    episodes = ordered.group_by("trajectory_id", maintain_order=True).agg(pl.col("reward").fill_nan(None))
    returns = [value for rewards in episodes.get_column("reward").to_list() for value in turn_returns(rewards, gamma)]
    return pl.Series("recomputed_return", returns, pl.Float64)
