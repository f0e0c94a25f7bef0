"""Figures of a tester on kernels of other problems than it was trained on: how often it is right, how well it knows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from extras.tester.examples import Example

_BINS = 10
_FEWEST = 10
"""Kernels with a label, and without it, from which on its figures are given."""


def figures_of(guessed: Sequence[float], true: Sequence[bool]) -> dict[str, float]:
    """Return figures of guessed probabilities against what is true.

    kernels, share (of true ones), accuracy (at 0.5), auroc (chance that a true one is ranked above a false one),
    brier (mean squared error), calibration_error (Naeini et al. 2015: mean distance of guess and share over ten bins
    of equal width, weighted by kernels).
    """
    probabilities, truths = np.asarray(guessed, float), np.asarray(true, bool)
    return {
        "kernels": len(truths),
        "share": float(truths.mean()),
        "accuracy": float(((probabilities >= 0.5) == truths).mean()),
        "auroc": auroc(probabilities, truths),
        "brier": float(((probabilities - truths) ** 2).mean()),
        "calibration_error": calibration_error(probabilities, truths),
    }


def can_be_measured(true: Sequence[bool]) -> bool:
    """True if there are enough kernels of both kinds."""
    return min(sum(true), len(true) - sum(true)) >= _FEWEST


def auroc(probabilities: Any, truths: Any) -> float:
    """Return the chance that a true one has the higher probability, ties counting half (Mann and Whitney 1947)."""
    order = np.argsort(probabilities, kind="stable")
    _, first, counts = np.unique(probabilities[order], return_index=True, return_counts=True)
    ranks = np.empty(len(probabilities))
    ranks[order] = np.repeat(first + (counts + 1) / 2, counts)
    positives = int(truths.sum())
    negatives = len(truths) - positives
    return float((ranks[truths].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def calibration_error(probabilities: Any, truths: Any) -> float:
    """Return the mean distance of guess and share over bins of equal width, weighted by kernels."""
    bins = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    return sum(
        float((bins == place).mean() * abs(probabilities[bins == place].mean() - truths[bins == place].mean()))
        for place in np.unique(bins)
    )


def chosen(examples: Sequence[Example], guessed: Sequence[float], draws: int) -> dict[str, float]:
    """Return the share of correct kernels if the most promising of `draws` is judged, and that of other choices.

    groups, tester, random, best (an oracle's choice). A problem's distinct kernels are taken `draws` at a time, in
    their order; fewer are left out.
    """
    of_problem: dict[str, list[tuple[float, bool]]] = {}
    for example, guess in zip(examples, guessed, strict=True):
        of_problem.setdefault(example.problem_id, []).append((guess, example.correct))
    groups = [
        found[first : first + draws]
        for found in of_problem.values()
        for first in range(0, len(found) - draws + 1, draws)
    ]
    if not groups:
        return {"groups": 0}
    return {
        "groups": len(groups),
        "tester": float(np.mean([max(group, key=lambda kernel: kernel[0])[1] for group in groups])),
        "random": float(np.mean([np.mean([correct for _, correct in group]) for group in groups])),
        "best": float(np.mean([any(correct for _, correct in group) for group in groups])),
    }
