"""Kinds of inputs that one problem takes: tried once, on the judge's own reference.

Those of another kind than the problem's own may overflow, or be out of the range of an index.
"""

from typing import Any, Protocol

import torch

from kernels_eval.correctness.outputs import Expected, ReferenceFailedError, unbounded
from kernels_eval.correctness.tolerance import least_size, size_of
from kernels_eval.reference.inputs import SecretSeed

KINDS = ("plain", "other", "sparse", "quiet", "parts")
"""Of inputs: as the problem draws them, of another distribution, with few large elements, with one large one of
several, in parts."""
_TRIALS = {"plain": 2, "other": 3, "sparse": 1, "quiet": 4, "parts": 4}
_OF_OTHER_SIZE = ("sparse", "quiet")
"""Kinds with results of a size of their own: of a product of two sparse inputs it is a thousandth of the usual."""


class Drawing(Protocol):
    """Reference that draws inputs of each kind."""

    has_fractions: bool
    only_constants: bool

    def draw_as(self, kind: str, trial: int, seed: SecretSeed) -> list[Any] | None:
        """Draw inputs of a kind; None where the problem has none of it."""
        ...

    def guarded_results(self, inputs: list[Any]) -> list[torch.Tensor]:
        """Return the outputs."""
        ...


class InputKinds:
    """Finds out which kinds a reference takes, and how large its results are for them."""

    def __init__(self, reference: Drawing) -> None:
        self._reference = reference
        self._taken: dict[str, bool] = {}
        """By kind that was tried."""
        self._most_unbounded = 0
        """Elements without a finite value that the problem's own inputs have in the outputs, at most."""
        self._sizes: dict[str, list[float]] = {}
        """Largest mean magnitudes of the outputs, by kind."""

    def takes(self, kind: str, seed: SecretSeed) -> bool:
        """Return whether inputs of a kind bring no more elements without a finite value in the outputs than own ones.

        Tries it once; `is_beyond` may find out later. If it fails, parts are tried without fractions, and another
        distribution for constants alone. Raises ReferenceFailedError if the reference fails on its own inputs.
        """
        if "plain" not in self._taken:
            self._taken["plain"] = True
            self._most_unbounded = self._tried("plain", seed) or 0
        if kind not in self._taken:
            self._taken[kind] = self._takes(kind, seed)
            if not self._taken[kind] and kind == "parts" and self._reference.has_fractions:
                self._reference.has_fractions = False
                self._taken[kind] = self._takes(kind, seed)
            if not self._taken[kind] and kind == "other" and not self._reference.only_constants:
                self._reference.only_constants = True
                self._taken[kind] = self._takes(kind, seed)
        return self._taken[kind]

    def is_beyond(self, expected: Expected, kind: str) -> bool:
        """Return whether a call's inputs of a kind are more than the problem takes: no more of it are drawn then."""
        is_beyond = sum(map(unbounded, expected.native)) > self._most_unbounded
        if is_beyond:
            self._taken[kind] = False
        return is_beyond

    def least_sizes(self, kind: str) -> list[float]:
        """Return the sizes to which outputs for a kind are held at least: where terms cancel, no digits are left."""
        known = self._sizes.get(kind) if kind in _OF_OTHER_SIZE else None
        return [least_size(size) for size in known or self._sizes.get("plain", [])]

    def _takes(self, kind: str, seed: SecretSeed) -> bool:
        try:
            found = self._tried(kind, seed)
        except ReferenceFailedError:  # it looks at them, or an index is out of range
            return False
        return found is not None and found <= self._most_unbounded

    def _tried(self, kind: str, seed: SecretSeed) -> int | None:
        """Run the reference and note the sizes of its outputs; returns how many elements have no finite value.

        None where the problem has no such inputs.
        """
        most = 0
        for trial in range(_TRIALS[kind]):
            inputs = self._reference.draw_as(kind, -1 - trial, seed)
            if inputs is None:
                return None
            outputs = self._reference.guarded_results(inputs)
            most = max(most, sum(map(unbounded, outputs)))
            sizes = list(map(size_of, outputs))
            self._sizes[kind] = list(map(max, sizes, self._sizes.get(kind, sizes)))
            del inputs, outputs  # the next ones need their memory
        return most
