"""The statistics of held-out evaluation: unbiased pass@k, and bootstrap intervals that resample *problems*.

Samples of one problem resemble one another: the unit drawn with replacement is a problem, not a sample (cluster
bootstrap). Every figure is a ratio of two sums over problems. A resample is then a vector of integer weights, and all
figures of all resamples are two matrix products. Two policies that are resampled together share the weights, which
pairs them by problem.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_CELLS_AT_ONCE = 4_000_000
"""Weights in memory at the same time (32 MB): resamples are drawn in chunks of this many cells."""


class Ratio(NamedTuple):
    """A figure: sum of numerators over sum of denominators, both one value a problem."""

    numerators: Floats
    """Shape (problems,)."""
    denominators: Floats
    """Shape (problems,); 0 if the problem does not count."""
    logarithmic: bool = False
    """The ratio is a mean logarithm; the figure is its exponential (a geometric mean)."""


class Estimate(NamedTuple):
    """A figure with its percentile interval; None if there was nothing to measure."""

    value: float | None
    interval: tuple[float, float] | None


def pass_at_k(samples: npt.NDArray[np.int64], correct: npt.NDArray[np.int64], k: int) -> Floats:
    """Return the unbiased estimate of pass@k for each problem, shape (problems,); NaN if it has fewer than k samples.

    1 − C(n−c, k) / C(n, k), as the product that does not overflow (Chen et al. 2021, "Evaluating Large Language Models
    Trained on Code", section 2.1).
    """
    n = samples.astype(np.float64)
    wrong = n - correct
    all_wrong = np.ones_like(n)
    for taken in range(k):
        remaining = np.maximum(n - taken, 1.0)
        all_wrong *= np.clip(wrong - taken, 0.0, None) / remaining
    return np.where(n >= k, 1.0 - all_wrong, np.nan)


def figure_of(ratio: Ratio) -> float | None:
    """Return the figure itself, or None if no problem counts."""
    total = float(ratio.denominators.sum())
    if total == 0:
        return None
    value = float(ratio.numerators.sum()) / total
    return float(np.exp(value)) if ratio.logarithmic else value


def resample(ratios: Mapping[str, Ratio], resamples: int, seed: int) -> dict[str, Floats]:
    """Return each figure over `resamples` draws of the problems, shape (resamples,); NaN if a draw has no data.

    All figures see the same draws: differences between them are paired by problem.
    """
    if not ratios:
        return {}
    numerators = np.stack([ratio.numerators for ratio in ratios.values()], axis=1)  # (problems, figures)
    denominators = np.stack([ratio.denominators for ratio in ratios.values()], axis=1)
    problems = numerators.shape[0]
    if problems == 0:
        return {name: np.full(resamples, np.nan) for name in ratios}
    generator = np.random.default_rng(seed)
    probabilities = np.full(problems, 1.0 / problems)
    chunk = max(1, _CELLS_AT_ONCE // problems)
    drawn: list[Floats] = []
    for start in range(0, resamples, chunk):
        count = min(chunk, resamples - start)
        weights = generator.multinomial(problems, probabilities, size=count).astype(np.float64)  # (count, problems)
        above, below = weights @ numerators, weights @ denominators
        drawn.append(np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0))
    figures = np.concatenate(drawn)  # (resamples, figures)
    return {
        name: np.exp(figures[:, column]) if ratio.logarithmic else figures[:, column]
        for column, (name, ratio) in enumerate(ratios.items())
    }


def interval_of(draws: Floats, confidence: float) -> tuple[float, float] | None:
    """Return the percentile interval of resampled figures, or None if no draw has data."""
    measured = draws[~np.isnan(draws)]
    if measured.size == 0:
        return None
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(measured, [tail, 1.0 - tail])
    return float(low), float(high)


def estimates(ratios: Mapping[str, Ratio], resamples: int, confidence: float, seed: int) -> dict[str, Estimate]:
    """Return every figure with its interval."""
    draws = resample(ratios, resamples, seed)
    return {
        name: Estimate(value, interval_of(draws[name], confidence) if value is not None else None)
        for name, value in ((name, figure_of(ratio)) for name, ratio in ratios.items())
    }


def paired_differences(
    before: Mapping[str, Ratio], after: Mapping[str, Ratio], resamples: int, confidence: float, seed: int
) -> dict[str, Estimate]:
    """Return `after − before` of each shared figure, paired by problem: both have the same ones in one order."""
    shared = [name for name in before if name in after]
    draws = resample(
        {f"before {name}": before[name] for name in shared} | {f"after {name}": after[name] for name in shared},
        resamples,
        seed,
    )
    differences: dict[str, Estimate] = {}
    for name in shared:
        first, second = figure_of(before[name]), figure_of(after[name])
        if first is None or second is None:
            differences[name] = Estimate(None, None)
            continue
        interval = interval_of(draws[f"after {name}"] - draws[f"before {name}"], confidence)
        differences[name] = Estimate(second - first, interval)
    return differences
