"""Tracing process: the configurations of autotuned kernels, as the judge asks for them.

Nothing is measured here. For each call the judge names the configuration of each autotuner, and, for a call that is to
be as the first one on a GPU, configurations to try before it on the same tensors. Autotuners are numbered in the order
of their first launch, configurations by their place in the list of the decorator.
"""

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from kernels_eval.interpreter.triton_patches.autotuner import Choice, replace_autotuner

_MOST_NAMED = 200
"""Characters of a configuration's name."""


class Autotuning:
    """Autotuners of one candidate."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []
        """Autotuners, so that none is freed and its identity given to another."""
        self._chosen: Mapping[str, int] = {}
        self._tried: Mapping[str, int] = {}
        self.current: dict[str, Any] | None = None
        """Description of the configuration that is being launched, or None."""

    def install(self) -> None:
        """Decide on every autotuned launch of this process from now on."""
        replace_autotuner(self._choose, self._watch)

    def begin(self, chosen: Mapping[str, int], tried: Mapping[str, int]) -> None:
        """Begin another forward call. Both map an autotuner's number to the place of a configuration."""
        self._chosen, self._tried = chosen, tried

    def _choose(self, tuner: Any, kept: Sequence[Any]) -> Choice:
        number = str(self._number(tuner))
        places = _places(tuner, kept)
        final = places.get(self._chosen.get(number, -1), kept[0])
        tried = places.get(self._tried.get(number, -1))
        return Choice(final, [tried] if tried is not None else [])

    @contextlib.contextmanager
    def _watch(self, tuner: Any, kept: Sequence[Any], config: Any, is_trial: bool) -> Generator[None]:
        places = _places(tuner, kept)
        if len(tuner.configs) > 1:
            self.current = {
                "tuner": self._number(tuner),
                "used": next(place for place, each in places.items() if each is config),
                "kept": list(places),
                "name": str(config)[:_MOST_NAMED],
                "is_trial": is_trial,
            }
        try:
            yield
        finally:
            self.current = None

    def _number(self, tuner: Any) -> int:
        if id(tuner) not in self._numbers:
            self._kept.append(tuner)
            self._numbers[id(tuner)] = len(self._numbers)
        return self._numbers[id(tuner)]


def _places(tuner: Any, kept: Sequence[Any]) -> dict[int, Any]:
    """Return configurations by their places in the autotuner's list; those that its pruning made itself follow."""
    known = {id(config): place for place, config in enumerate(tuner.configs)}
    return {known.get(id(config), len(known) + index): config for index, config in enumerate(kept)}
