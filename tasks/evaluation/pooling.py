"""Pools the same comparison of several runs, e.g. of several seeds, by a random-effects model.

A run's change has an interval over its problems; runs differ by more than that. The variance between them is that of
DerSimonian and Laird, the interval of the pooled change that of Hartung and Knapp with t quantiles, at least as wide as
without their correction (Röver et al. 2015, "Hartung-Knapp-Sidik-Jonkman approach and its modification"). With two or
three runs it is wide, as it has to be.

One outcome is primary: `evaluation.primary`, declared before the run. All others are exploratory: of 20 intervals one
excludes zero by chance.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

from kernels_eval.errors import InputError, first_line

_FILES = ("summary.json", "comparison.json")
POOLED_FIGURES = ("mean_reward", "first_reward", "best_reward", "mean_return", "correct", "fast_1", "geomean_speedup")
"""Figures whose changes are pooled."""


class Contrast(NamedTuple):
    """The two policies, the problems, the answers and the figure that a change is about."""

    policies: str
    """`after RL − before RL`."""
    problems: str
    """`standard` or `harder`."""
    decoding: str
    """`greedy` or `sampled`."""
    figure: str


class Change(NamedTuple):
    """A change with its interval."""

    value: float
    low: float
    high: float


class Pooled(NamedTuple):
    """The changes of several runs, and what they come to together."""

    contrast: Contrast
    is_primary: bool
    changes: tuple[Change, ...]
    change: Change
    between: float
    """Standard deviation of the true change between runs (tau)."""
    heterogeneity: float
    """Share of the variance that is between runs (I²)."""


def pool_folders(folders: Sequence[Path]) -> list[Pooled]:
    """Return the pooled changes that all of these runs or comparisons have, the primary outcome first.

    Raises InputError if there are fewer than two, one is neither, or they declare different primary outcomes.
    """
    if len(folders) < 2:
        raise InputError(f"--pool: expected two folders or more of runs or comparisons, found {len(folders)}")
    contents = [_content(folder) for folder in folders]
    outcomes = {_outcome(content) for content in contents}
    if len(outcomes) > 1:
        raise InputError(f"--pool: evaluation.primary differs: found {', '.join(sorted(outcomes))}; expected one")
    (primary,) = outcomes
    found = [_changes(content) for content in contents]
    confidence = float(contents[0].get("confidence") or 0.95)
    shared = [contrast for contrast in found[0] if all(contrast in other for other in found)]
    if not shared:
        raise InputError(f"--pool: {folders[0]} and the others have no comparison in common")
    pooled = [_pooled(contrast, [each[contrast] for each in found], primary, confidence) for contrast in shared]
    return sorted(pooled, key=lambda each: not each.is_primary)


def pool(changes: Sequence[Change], confidence: float) -> tuple[Change, float, float]:
    """Return the pooled change with its interval, tau and I². Raises ValueError for no changes."""
    from scipy.stats import t as student

    if not changes:
        raise ValueError("expected at least one change")
    width = 2 * NormalDist().inv_cdf(0.5 + confidence / 2)
    errors = [(change.high - change.low) / width for change in changes]
    # Problems that all answered alike give an interval of no width, which is no certainty.
    usual = fmean([error for error in errors if error > 0] or [0.0])
    variances = [max((error or usual) ** 2, 1e-12) for error in errors]
    values = [change.value for change in changes]
    if len(changes) == 1:
        return changes[0], 0.0, 0.0
    weights = [1 / variance for variance in variances]
    total, freedom = math.fsum(weights), len(changes) - 1
    mean = math.fsum(w * y for w, y in zip(weights, values, strict=True)) / total
    spread = math.fsum(w * (y - mean) ** 2 for w, y in zip(weights, values, strict=True))
    between = max((spread - freedom) / (total - math.fsum(w * w for w in weights) / total), 0.0)
    weights = [1 / (variance + between) for variance in variances]
    total = math.fsum(weights)
    mean = math.fsum(w * y for w, y in zip(weights, values, strict=True)) / total
    inflation = math.fsum(w * (y - mean) ** 2 for w, y in zip(weights, values, strict=True)) / freedom
    half = float(student.ppf(0.5 + confidence / 2, freedom)) * math.sqrt(max(inflation, 1.0) / total)
    heterogeneity = max((spread - freedom) / spread, 0.0) if spread > 0 else 0.0
    return Change(mean, mean - half, mean + half), math.sqrt(between), heterogeneity


def _pooled(contrast: Contrast, changes: Sequence[Change], primary: str, confidence: float) -> Pooled:
    change, between, heterogeneity = pool(changes, confidence)
    is_primary = contrast.problems == "standard" and f"{contrast.decoding} {contrast.figure}" == primary
    return Pooled(contrast, is_primary, tuple(changes), change, between, heterogeneity)


def _content(folder: Path) -> dict[str, Any]:
    for name in _FILES:
        if (folder / name).is_file():
            try:
                return json.loads((folder / name).read_text(encoding="utf-8"))
            except (ValueError, OSError) as error:
                raise InputError(f"{folder / name}: not the figures of a run: {first_line(error)}") from error
    raise InputError(f"{folder}: expected {' or '.join(_FILES)}, of a finished run or a comparison; found neither")


def _outcome(content: Mapping[str, Any]) -> str:
    from tasks.evaluation.config import PRIMARY

    stored = content.get("primary") or PRIMARY
    return str(stored["outcome"] if isinstance(stored, dict) else stored)


def _changes(content: Mapping[str, Any]) -> dict[Contrast, Change]:
    """Return every change of a summary or a comparison that is pooled."""
    if "heldout" in content:
        parts = {"sampled": content["heldout"], "greedy": content.get("heldout_greedy")}
        return dict(entry for decoding, heldout in parts.items() if heldout for entry in _of_run(heldout, decoding))
    parts = {"sampled": content, "greedy": content.get("greedy")}
    return dict(entry for decoding, found in parts.items() if found for entry in _of_comparison(found, decoding))


def _of_run(heldout: Mapping[str, Any], decoding: str) -> list[tuple[Contrast, Change]]:
    found: list[tuple[Contrast, Change]] = []
    for problems, part in (("standard", heldout), ("harder", heldout.get("harder"))):
        for policies, deltas in (
            ("after RL − before RL", part),
            ("after RL − more SFT", (part or {}).get("over_control")),
            ("after RL − rejection sampling", (part or {}).get("over_rejection")),
        ):
            found += _of_deltas(deltas or {}, policies, problems, decoding)
    return found


def _of_comparison(found: Mapping[str, Any], decoding: str) -> list[tuple[Contrast, Change]]:
    return [
        entry
        for problems, pairs in (("standard", found["pairs"]), ("harder", found.get("harder") or []))
        for pair in pairs
        for entry in _of_deltas(pair, f"{pair['after']} − {pair['before']}", problems, decoding)
    ]


def _of_deltas(deltas: Mapping[str, Any], policies: str, problems: str, decoding: str) -> list[tuple[Contrast, Change]]:
    return [
        (
            Contrast(policies, problems, decoding, figure),
            Change(float(deltas[f"delta_{figure}"]), *map(float, deltas[f"delta_{figure}_ci"])),
        )
        for figure in POOLED_FIGURES
        if deltas.get(f"delta_{figure}") is not None and deltas.get(f"delta_{figure}_ci") is not None
    ]
