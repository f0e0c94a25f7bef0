"""Measures a policy from its trajectories on the held-out problems, and compares two measured policies.

Publishes a folder with

- `evaluation.json`: the figures, each share with its bootstrap interval beside it as `<name>_ci`. `overall`, `levels`,
  `turns` and `statuses` are of the standard held-out problems, `tiers` of each harder tier, `harder` of all of these;
- `per_problem.parquet`: one row a problem (tasks.evaluation.per_problem), from which policies are compared;
- `trajectories.parquet`, `turns.parquet`: the trajectories themselves, as in tasks.trajectories.

Trajectories in which the judge or the machine failed are left out of every figure, and counted.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import polars as pl

from kernels_eval.errors import InputError
from tasks.evaluation.agent_figures import agent_figures
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.per_problem import (
    SPEEDUP,
    fast_name,
    last_turns,
    per_problem_table,
    ratios_of,
    status_shares,
    thresholds_of,
    with_outcomes,
    without_faults,
)
from tasks.evaluation.statistics import Estimate, Ratio, estimates, paired_differences
from tasks.pipeline.references import EvaluationRef, ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.store import digest_of, publish, published_digest, read_metadata, write_atomically
from tasks.pipeline.tables import PROBLEMS_FILE, read_table, write_table
from tasks.problems.row import Tier
from tasks.trajectories.content import TABLES
from tasks.trajectories.reader import read_trajectories, read_turns
from tasks.trajectories.repair_gain import repair_counts

EVALUATION_FILE = "evaluation.json"
PER_PROBLEM_FILE = "per_problem.parquet"
Measure = Callable[[dict[str, Ratio]], dict[str, Any]]
Part = Literal["standard", "harder"]
"""Held-out problems of the standard tier, or of all harder ones."""


def evaluate_policy(
    batch: TrajectoryBatchRef, problems: ProblemSetRef, config: EvaluationConfig, destination: Path
) -> EvaluationRef:
    """Publish the figures of a batch. Raises InputError if it mixes policies, or has no problem of the set."""
    turns = read_turns(batch)
    trajectories = read_trajectories(batch)
    digests = trajectories.get_column("policy_digest").unique().to_list()
    if len(digests) != 1:
        raise InputError(f"{batch.uri}: expected the trajectories of one policy, found {len(digests)}")
    policy_digest = str(digests[0])
    table = per_problem_table(trajectories, turns, _with_tier(read_table(problems.path / PROBLEMS_FILE)), config)
    if table.is_empty():
        raise InputError(
            f"{batch.uri}: expected trajectories of problems in {problems.uri}; none of its problem_ids is there"
        )
    metadata = {"run_id": batch.run_id, "iteration": batch.iteration, "policy_digest": policy_digest}
    with publish(destination, metadata, {**TABLES, EVALUATION_FILE: _figures_digest}) as folder:
        write_table(table, folder / PER_PROBLEM_FILE)
        # A rollout leaves out problems whose prompts leave no room for an answer: they are in no figure.
        left_out = {"problems_left_out": max(problems.heldout - table.height, 0)}
        evaluation = metadata | left_out | {"tokens": _tokens(batch)} | _figures(table, turns, config)
        write_atomically(folder / EVALUATION_FILE, json.dumps(evaluation, indent=1))
        for name in ("trajectories.parquet", "turns.parquet"):
            shutil.copyfile(batch.path / name, folder / name)
    return EvaluationRef(
        uri=str(destination.resolve()), digest=published_digest(destination), policy_digest=policy_digest
    )


def _tokens(batch: TrajectoryBatchRef) -> dict[str, int | None]:
    """Return the number of tokens of all prompts and all answers; None where the batch does not say it."""
    stored = read_metadata(batch.path)
    return {name: stored.get(key) for name, key in (("prompts", "prompt_tokens"), ("answers", "generated_tokens"))}


def _figures_digest(file: Path) -> str:
    """Return the digest of `evaluation.json` without the id of the run."""
    figures = json.loads(file.read_text(encoding="utf-8"))
    return digest_of({name: value for name, value in figures.items() if name != "run_id"})


def read_evaluation(reference: EvaluationRef) -> dict[str, Any]:
    """Return the content of `evaluation.json`."""
    return json.loads((reference.path / EVALUATION_FILE).read_text(encoding="utf-8"))


def read_per_problem(reference: EvaluationRef) -> pl.DataFrame:
    """Return the per-problem table, sorted by problem_id."""
    return _with_tier(pl.read_parquet(reference.path / PER_PROBLEM_FILE))


def _with_tier(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table of problems in which those of earlier versions are of the standard tier."""
    return table if "tier" in table.columns else table.with_columns(pl.lit(Tier.STANDARD.value).alias("tier"))


def part_of(table: pl.DataFrame, part: Part) -> pl.DataFrame:
    """Return the rows of a per-problem table that belong to the part."""
    is_standard = pl.col("tier") == Tier.STANDARD.value
    return table.filter(is_standard if part == "standard" else ~is_standard)


def with_intervals(figures: dict[str, Estimate]) -> dict[str, Any]:
    """Return `{"correct": 0.7, "correct_ci": [0.6, 0.8], …}`: figures and intervals as they stand in JSON."""
    flat: dict[str, Any] = {}
    for name, (value, interval) in figures.items():
        flat[name] = value
        flat[f"{name}_ci"] = None if interval is None else list(interval)
    return flat


def _figures(table: pl.DataFrame, turns: pl.DataFrame, config: EvaluationConfig) -> dict[str, Any]:
    """Return the content of `evaluation.json` but for its identity."""

    def measured(ratios: dict[str, Ratio]) -> dict[str, Any]:
        return with_intervals(estimates(ratios, config.bootstrap_resamples, config.confidence, config.seed))

    def figures_of(part: pl.DataFrame) -> dict[str, Any]:
        counts = {name: int(part.get_column(name).sum()) for name in ("trajectories", "infrastructure_errors")}
        return {"n": part.height, **counts, **measured(ratios_of(part))}

    def groups(part: pl.DataFrame, column: str) -> dict[str, Any]:
        found = sorted(part.partition_by(column, as_dict=True).items(), key=lambda item: str(item[0]))
        return {str(name): figures_of(rows) for (name,), rows in found}

    standard, harder = part_of(table, "standard"), part_of(table, "harder")
    counted = without_faults(turns).join(standard.select("problem_id"), on="problem_id", how="semi")
    outcomes = with_outcomes(counted, [])
    return {
        "problems": table.height,
        "trajectories": int(table.get_column("trajectories").sum()),
        "infrastructure_errors": int(table.get_column("infrastructure_errors").sum()),
        "temperature": config.temperature,
        "confidence": config.confidence,
        "bootstrap_resamples": config.bootstrap_resamples,
        "timing_source": _timing_source(without_faults(turns)),
        "overall": figures_of(standard),
        "harder": None if harder.is_empty() else figures_of(harder),
        "levels": groups(standard, "level"),
        "tiers": groups(harder, "tier"),
        "turns": _turns(counted, config, measured),
        "statuses": status_shares(outcomes),
        "agents": agent_figures(outcomes),
    }


def _turns(counted: pl.DataFrame, config: EvaluationConfig, measured: Measure) -> list[dict[str, Any]]:
    """Return the figures of each turn.

    `taken`: over the trajectories that reached this turn (those that succeeded earlier did not: a harder selection).
    `after`: over all trajectories, by their last turn up to this one, as if episodes ended after it.
    `added`: what this turn changed in `after`, paired by problem.
    `repair`: of turns after nothing but wrong ones, the share that is right (`repaired`), that of first answers to the
    same problems (`fresh`), and the difference (`gain`); of one answer a problem nothing is known.
    """
    outcomes = with_outcomes(counted, thresholds_of(config))
    turns = sorted(set(outcomes["turn_index"]))
    after = {turn: _turn_ratios(last_turns(outcomes, until=turn), config) for turn in turns}
    repairs = repair_counts(outcomes, ["problem_id"], ["trajectory_id"])
    figures: list[dict[str, Any]] = []
    for turn in turns:
        taken = outcomes.filter(pl.col("turn_index") == turn)
        added = _differences(after[turn - 1], after[turn], config) if turn - 1 in after else {}
        figures.append(
            {
                "turn_index": turn,
                "n": taken.height,
                "taken": measured({**_turn_ratios(taken, config), **_likelihoods(taken)}),
                "after": measured(after[turn]),
                "added": with_intervals(added),
                "repair": measured(_repair_ratios(repairs.filter(pl.col("turn_index") == turn))),
            }
        )
    return figures


def _turn_ratios(rows: pl.DataFrame, config: EvaluationConfig) -> dict[str, Ratio]:
    names = ["compiled", "correct", *[fast_name(p) for p in thresholds_of(config) if p >= 1]]
    table = (
        rows.group_by("problem_id", maintain_order=True)
        .agg(
            *[pl.col(name).cast(pl.Float64).mean() for name in names],
            pl.col("reward").mean().alias("mean_reward"),
            pl.col("speedup").log().sum().alias("log_speedup_sum"),
            pl.col("speedup").count().cast(pl.Float64).alias("speedups"),
        )
        .sort("problem_id")
    )
    ratios = ratios_of(table)
    return {name: ratios[name] for name in [*names, "mean_reward", SPEEDUP]}


def _repair_ratios(counts: pl.DataFrame) -> dict[str, Ratio]:
    """Return the shares of one turn's repairs, whose counts have a row a problem; nothing if there are none."""
    repairs, repaired, fresh = (counts[name].to_numpy() for name in ("repairs", "repaired", "fresh"))
    found = {"repaired": repaired, "fresh": fresh, "gain": repaired - fresh}
    return {name: Ratio(values, repairs) for name, values in found.items()} if counts.height else {}


def _likelihoods(taken: pl.DataFrame) -> dict[str, Ratio]:
    """Return the mean negative log-probability of answers: of all, of correct ones, of wrong ones.

    A policy is calibrated if the answers that it finds likely are right more often. Unknown for a model behind a
    server.
    """
    correct = pl.col("correct")
    chosen = {"answer_nats": pl.lit(True), "answer_nats_correct": correct, "answer_nats_wrong": ~correct}
    ratios: dict[str, Ratio] = {}
    for name, condition in chosen.items():
        nats = pl.col("answer_nats").filter(condition)
        sums = taken.group_by("problem_id").agg(nats.sum(), nats.count().alias("answers")).sort("problem_id")
        numerators, denominators = (sums[column].cast(pl.Float64).to_numpy() for column in ("answer_nats", "answers"))
        ratios[name] = Ratio(numerators, denominators)
    return ratios


def _timing_source(counted: pl.DataFrame) -> str | None:
    """Return the source of the times: `gpu`, `roofline`, `mixed`; None if nothing was timed."""
    sources = counted.get_column("verdict").struct.field("timing_source").drop_nulls().unique().to_list()
    if not sources:
        return None
    return str(sources[0]) if len(sources) == 1 else "mixed"


def paired(
    before: EvaluationRef, after: EvaluationRef, config: EvaluationConfig, part: Part = "standard"
) -> dict[str, Any]:
    """Return `{"n": problems, "delta_correct": …, "delta_correct_ci": [low, high], …}` for every figure that both have.

    A delta is `after − before` over the problems of the part that both measured; its interval resamples those problems,
    each with both of its results. Raises InputError if no problem is shared.
    """
    first, second = (part_of(read_per_problem(reference), part) for reference in (before, after))
    keys = ["problem_id", "problem_digest"]
    shared = first.select(keys).join(second.select(keys), on=keys, how="inner")
    if shared.is_empty():
        raise InputError(
            f"{before.uri} and {after.uri}: expected evaluations on the same problems; "
            "they share none (same id and source)"
        )
    differences = _differences(
        ratios_of(_restricted(first, shared)), ratios_of(_restricted(second, shared)), config, prefix="delta_"
    )
    return {"n": shared.height, **with_intervals(differences)}


def _differences(
    before: dict[str, Ratio], after: dict[str, Ratio], config: EvaluationConfig, prefix: str = ""
) -> dict[str, Estimate]:
    """Return `after − before` of each shared figure with its interval, under its name after `prefix`."""
    found = paired_differences(before, after, config.bootstrap_resamples, config.confidence, config.seed)
    return {f"{prefix}{name}": estimate for name, estimate in found.items()}


def _restricted(table: pl.DataFrame, shared: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the shared problems, in one order for both tables."""
    return table.join(shared, on=["problem_id", "problem_digest"], how="semi").sort("problem_id", "problem_digest")
