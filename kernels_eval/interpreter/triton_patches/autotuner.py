"""Replaces the measuring of Triton's autotuner: another part of the program decides which configurations run.

Hooks, pruning and the attributes that host code reads stay as in `triton.runtime.autotuner`. A class of the candidate
that overrides `run` measures with `_bench`, which finds all configurations equally fast: it takes its first one.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from triton.runtime.autotuner import Autotuner as _Autotuner

_autotuner: Any = _Autotuner
_BENCHMARK_TIMES_MS = [1.0, 1.0, 1.0]


class Choice(NamedTuple):
    """Configurations of one launch."""

    final: Any
    """Configuration whose launch counts."""
    tried: Sequence[Any]
    """Configurations that run on the same arguments before it, as autotuning does in its first call."""


Choose = Callable[[Any, Sequence[Any]], Choice]
"""Choice from the configurations of an autotuner that its pruning leaves."""
Watch = Callable[[Any, Sequence[Any], Any, bool], AbstractContextManager[None]]
"""Context of a launch, by the autotuner, the configurations that its pruning leaves, the one that is launched, and
True if it is only tried."""


def replace_autotuner(choose: Choose, watch: Watch) -> None:
    """Make every autotuned launch of this process use the configurations that `choose` returns."""

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        kept = tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs
        choice = choose(tuner, kept)
        for config in choice.tried:
            with watch(tuner, kept, config, True):
                _try(tuner, config, args, kwargs)
        tuner.best_config = config = choice.final
        given = {**tuner.nargs, **kwargs, **config.all_kwargs()}
        if choice.tried:
            tuner.pre_hook(given, reset_only=True)
        if config.pre_hook is not None:
            config.pre_hook(given)
        with watch(tuner, kept, config, False):
            result = tuner.fn.run(*args, **kwargs, **config.all_kwargs())
        tuner.nargs = None
        return result

    _autotuner.run = run
    _autotuner._bench = lambda self, *args, **kwargs: _BENCHMARK_TIMES_MS


def _try(tuner: Any, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Launch a configuration between the autotuner's hooks, as its `_bench` does."""
    given = {**tuner.nargs, **kwargs, **config.all_kwargs()}
    if config.pre_hook is not None:
        config.pre_hook(given)
    tuner.pre_hook(given)
    tuner.fn.run(*args, **kwargs, **config.all_kwargs())
    tuner.post_hook(given, exception=None)
