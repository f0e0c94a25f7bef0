"""Several policies on the same held-out problems, each pair compared problem by problem.

Writes a folder with

- `comparison.json`: `n`; `policies`, each with its name, digest, cost in tokens and every figure with its interval;
  `pairs`, each with `before`, `after` and every `delta_<figure>` (after − before, paired by problem) with its interval;
  `harder`, the same pairs on the harder held-out problems, or null; `primary`, the declared outcome; and `greedy`, the
  same of one greedy answer a problem, or null;
- `comparison.html`: the same as one self-contained page.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels_eval.frozen import FrozenModel
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.evaluate import Part, paired, read_evaluation
from tasks.evaluation.report.page import render
from tasks.evaluation.report.tables import direction, interval_text, shown
from tasks.pipeline.prefect_artifacts import with_interval
from tasks.pipeline.references import EvaluationRef
from tasks.pipeline.store import write_atomically

COMPARISON_FILE = "comparison.json"
PAGE_FILE = "comparison.html"
SHOWN_FIGURES = {
    "compiled": "Compiled",
    "correct": "Correct",
    "fast_1": "Correct and faster than eager",
    "fast_2": "Correct and twice as fast",
    "mean_return": "Mean return",
    "geomean_speedup": "Speedup of correct kernels",
}
TOKENS_TITLE = "Tokens read → written"
DIFFERENCE = "+.3f"
"""Format of differences."""


class Measured(FrozenModel):
    """A policy and its evaluation."""

    name: str
    uri: str
    """The policy's folder, or the name and address of a model behind a server."""
    evaluation: EvaluationRef
    """Of sampled answers."""
    greedy: EvaluationRef | None = None
    """Of greedy answers."""


def compare_policies(measured: Sequence[Measured], config: EvaluationConfig) -> dict[str, Any]:
    """Return the content of `comparison.json`. Raises InputError if two of the policies share no problem."""
    greedy = [entry.model_copy(update={"evaluation": entry.greedy}) for entry in measured if entry.greedy is not None]
    is_greedy = len(greedy) == len(measured)
    found = {"primary": config.primary, **_compared(measured, config)}
    return {**found, "greedy": _compared(greedy, config.greedily()) if is_greedy else None}


def _compared(measured: Sequence[Measured], config: EvaluationConfig) -> dict[str, Any]:
    evaluations = [read_evaluation(entry.evaluation) for entry in measured]
    pairs = _pairs(measured, config, "standard")
    has_harder = all(evaluation.get("harder") for evaluation in evaluations)
    sources = {str(evaluation["timing_source"]) for evaluation in evaluations if evaluation["timing_source"]}
    return {
        "n": min(pair["n"] for pair in pairs),
        "confidence": config.confidence,
        "timing_source": sources.pop() if len(sources) == 1 else ("mixed" if sources else None),
        "policies": [
            {
                "name": entry.name,
                "uri": entry.uri,
                "policy_digest": evaluation["policy_digest"],
                "tokens": evaluation.get("tokens"),
                **evaluation["overall"],
            }
            for entry, evaluation in zip(measured, evaluations, strict=True)
        ],
        "pairs": pairs,
        "harder": _pairs(measured, config, "harder") if has_harder else None,
    }


def _pairs(measured: Sequence[Measured], config: EvaluationConfig, part: Part) -> list[dict[str, Any]]:
    return [
        {"before": first.name, "after": second.name, **paired(first.evaluation, second.evaluation, config, part)}
        for first, second in itertools.combinations(measured, 2)
    ]


def write_comparison(folder: Path, measured: Sequence[Measured], config: EvaluationConfig) -> dict[str, Any]:
    """Write both files into `folder` and return the comparison."""
    comparison = compare_policies(measured, config)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / COMPARISON_FILE, json.dumps(comparison, indent=1) + "\n")
    write_atomically(folder / PAGE_FILE, _page(comparison))
    return comparison


def table_rows(comparison: dict[str, Any]) -> list[dict[str, str]]:
    """Return one row a figure for people: the value of each policy, and each paired difference."""
    rows: list[dict[str, str]] = []
    for name, title in SHOWN_FIGURES.items():
        row = {"figure": title}
        for policy in comparison["policies"]:
            interval = interval_text(name, policy.get(f"{name}_ci"))
            row[policy["name"]] = shown(name, policy.get(name)) + (f" ({interval})" if interval else "")
        for pair in comparison["pairs"]:
            row[f"{pair['after']} − {pair['before']}"] = with_interval(pair, f"delta_{name}", DIFFERENCE)
        rows.append(row)
    cost = {policy["name"]: tokens_text(policy) for policy in comparison["policies"]}
    return [*rows, {"figure": TOKENS_TITLE, **cost}]


def tokens_text(policy: Mapping[str, Any]) -> str:
    """Return the cost of a policy's sampled answers in tokens, e.g. `12,800 → 4,100`; a dash if it is not known."""
    tokens = policy.get("tokens") or {}
    read, written = tokens.get("prompts"), tokens.get("answers")
    return "–" if read is None or written is None else f"{read:,} → {written:,}"


def _page(comparison: dict[str, Any]) -> str:
    return render(
        "comparison.html.j2",
        comparison=comparison,
        figures=SHOWN_FIGURES,
        tokens_title=TOKENS_TITLE,
        tokens_text=tokens_text,
        shown=shown,
        interval_text=interval_text,
        difference=lambda pair, name: with_interval(pair, f"delta_{name}", DIFFERENCE),
        tone=lambda pair, name: direction(pair.get(f"delta_{name}_ci")),
    )
