"""Table of policies on KernelBench: by level, by seen and unseen operators, by similarity to training; seeds pooled.

    python tools/kernelbench_table.py OUT.json SFT=RUN@0 RL=RUN rejection=RUN@rejection [SFT=RUN2@0 RL=RUN2 …]

A label that comes several times is one policy of several seeds. Per problem the seeds' means are averaged, and
intervals are over problems (bootstrap). Trajectories that the machine failed on are counted apart. Behind a run's
folder stands a policy's number, `rejection` or `control`; none: its last policy. `changes` are between the last label
and each before it, problem by problem.

`shown`: SFT's pairs have every function, method and layer that a problem calls. `left out`: the training problems have
them, the pairs have not. `unseen`: neither has. `dissimilar`: the half of the problems whose nearest training problem
(Jaccard similarity of token 5-grams) is farthest.
"""

import ast
import io
import json
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flows.run.state import read_state
from tasks.evaluation.statistics import Ratio, estimates

FIGURES = ("first_correct", "correct", "best_correct", "fast_0", "fast_1", "fast_2")
RESAMPLES = 2000
SEED = 0
_NGRAM = 5


def called(source: str) -> set[str]:
    """Return the names of the functions, methods and layers that a problem's module calls, without its own."""
    tree = ast.parse(source)
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    names: set[str] = set()
    for node in ast.walk(model):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if not (isinstance(owner, ast.Name) and owner.id == "self"):
                names.add(node.func.attr)
        elif isinstance(node, ast.BinOp):
            names.add(type(node.op).__name__)
    return names - {"__init__", "super"}


def ngrams(source: str) -> set[tuple[str, ...]]:
    """Return the 5-grams of a program's tokens, comments and white space left out."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [t.string for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in skipped]
    return {tuple(tokens[place : place + _NGRAM]) for place in range(len(tokens) - _NGRAM + 1)}


def nearest(problem: set[tuple[str, ...]], training: Iterable[set[tuple[str, ...]]]) -> float:
    """Return the largest Jaccard similarity to a training problem."""
    return max((len(problem & other) / max(len(problem | other), 1) for other in training), default=0.0)


def parts_of(run: Path) -> pl.DataFrame:
    """Return problem_id, level, calls and similarity of a run's held-out problems."""
    state = read_state(run)
    if state.problems is None:
        raise SystemExit(f"{run}: expected a run with a problem set, found none")
    problems = pl.read_parquet(state.problems.path / "problems.parquet")
    training = problems.filter(pl.col("split") == "train").get_column("source").to_list()
    shown = set[str]()
    if state.sft_data is not None:
        pairs = pl.read_parquet(state.sft_data.path / "pairs.parquet", columns=["problem_source"])
        of_pairs = pairs.get_column("problem_source").unique().to_list()
        shown = shown.union(*map(called, of_pairs))
        training += of_pairs
    names = set[str]().union(*map(called, training))
    grams = [ngrams(source) for source in training]
    rows = [
        {
            "problem_id": row["problem_id"],
            "level": row["level"],
            "calls": _kind(called(row["source"]), shown, names),
            "unseen": sorted(called(row["source"]) - names),
            "similarity": nearest(ngrams(row["source"]), grams),
        }
        for row in problems.filter(pl.col("split") == "heldout").iter_rows(named=True)
    ]
    return pl.DataFrame(rows)


def _kind(calls: set[str], shown: set[str], trained: set[str]) -> str:
    if calls <= shown:
        return "shown"
    return "left out" if calls <= trained else "unseen"


def evaluations_of(run: Path, policy: str) -> dict[str, Path]:
    """Return the folders of a policy's sampled and greedy evaluation, by `sampled` and `greedy`."""
    state = read_state(run)
    if policy in ("rejection", "control"):
        made = state.rejection if policy == "rejection" else state.control
        found = {} if made is None else {"sampled": made.evaluation, "greedy": made.greedy_evaluation}
        return {kind: reference.path for kind, reference in found.items() if reference is not None}
    if policy and not policy.isdecimal():
        raise SystemExit(f"{run}@{policy}: expected a policy's number, `rejection` or `control` behind the @")
    chosen = int(policy) if policy else max(state.evaluations, default=0)
    kinds = {"sampled": state.evaluations, "greedy": state.greedy_evaluations}
    return {kind: found[chosen].path for kind, found in kinds.items() if chosen in found}


def figures(tables: list[pl.DataFrame], ids: set[str]) -> dict[str, Any]:
    """Return each figure's mean over problems and its 95 % interval; tables: one a seed."""
    result: dict[str, Any] = {"problems": len(ids), "seeds": len(tables)}
    names = [name for name in tables[0].columns if name in FIGURES or name.startswith("pass_")]
    joined = pl.concat([table.filter(pl.col("problem_id").is_in(list(ids))) for table in tables])
    result["infrastructure_errors"] = int(joined.get_column("infrastructure_errors").sum())
    for name in names:
        means = joined.group_by("problem_id").agg(pl.col(name).mean()).get_column(name).drop_nulls().to_numpy()
        if not len(means):
            continue
        found = estimates({name: Ratio(means, np.ones_like(means))}, RESAMPLES, 0.95, SEED)[name]
        result[name] = [round(float(value), 4) for value in (found.value or 0.0, *(found.interval or (0.0, 0.0)))]
    return result


def changes(before: list[pl.DataFrame], after: list[pl.DataFrame], ids: set[str]) -> dict[str, Any]:
    """Return each figure's mean change over problems and its 95 % interval; tables: one a seed, in the same order."""
    names = [name for name in before[0].columns if name in FIGURES or name.startswith("pass_")]
    result: dict[str, Any] = {}
    for name in names:
        columns = [pl.col("problem_id"), pl.col(name).cast(pl.Float64)]
        paired = [
            old.select(columns).join(new.select(columns), on="problem_id", suffix="_after").drop_nulls()
            for old, new in zip(before, after, strict=True)
        ]
        joined = pl.concat(paired).filter(pl.col("problem_id").is_in(list(ids)))
        change = joined.group_by("problem_id").agg((pl.col(f"{name}_after") - pl.col(name)).mean().alias("change"))
        means = change.sort("problem_id").get_column("change").to_numpy()
        if len(means):
            found = estimates({name: Ratio(means, np.ones_like(means))}, RESAMPLES, 0.95, SEED)[name]
            result[name] = [round(float(value), 4) for value in (found.value or 0.0, *(found.interval or (0.0, 0.0)))]
    return result


def main(arguments: list[str]) -> None:
    """Write the table as JSON and print its lines."""
    out, policies = Path(arguments[0]), defaultdict[str, list[tuple[Path, str]]](list)
    for argument in arguments[1:]:
        label, _, place = argument.partition("=")
        run, _, version = place.partition("@")
        policies[label].append((Path(run), version))
    parts = parts_of(next(iter(policies.values()))[0][0])
    median = parts.get_column("similarity").median()
    groups: dict[str, pl.Expr] = {"all": pl.lit(True)}
    for level in sorted(parts.get_column("level").unique()):
        at = pl.col("level") == level
        groups |= {f"level {level}": at}
        groups |= {f"level {level} {kind}": at & (pl.col("calls") == kind) for kind in ("shown", "left out", "unseen")}
    groups["dissimilar half"] = pl.col("similarity") <= median
    ids_of = {group: set(parts.filter(where).get_column("problem_id")) for group, where in groups.items()}
    table: dict[str, Any] = {"unseen": {row["problem_id"]: row["unseen"] for row in parts.iter_rows(named=True)}}
    tables = {
        (label, kind): [
            pl.read_parquet(found[kind] / "per_problem.parquet")
            for run, policy in runs
            if kind in (found := evaluations_of(run, policy))
        ]
        for label, runs in policies.items()
        for kind in ("sampled", "greedy")
    }
    last = list(policies)[-1]
    for (label, kind), of_seeds in tables.items():
        for group, ids in ids_of.items():
            if not of_seeds or not ids:
                continue
            name = f"{label}, {kind}, {group}"
            table[name] = figures(of_seeds, ids)
            print(f"{name}: {json.dumps(table[name])}")
            if label != last and len(of_seeds) == len(tables[last, kind]):
                name = f"{last} - {label}, {kind}, {group}"
                table[name] = changes(of_seeds, tables[last, kind], ids)
                print(f"{name}: {json.dumps(table[name])}")
    out.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
