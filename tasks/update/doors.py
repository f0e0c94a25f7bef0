"""Doors of the update's settings: advantage, loss, estimator of the KL divergence, correction.

Nothing that is named is imported until it is asked for.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from kernels_eval.doors import Door, files_of, takes
from kernels_eval.errors import InputError
from tasks.trajectories.groups import Compares

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Estimator:
    """An advantage estimator and what it declares."""

    function: Callable[..., Any]
    compares: Compares
    critic: bool = False
    """True if it needs the values of a critic, which the update then trains."""

    def __call__(self, *arguments: Any) -> Any:
        """Return the function's result; its advantages have the shape of the mask, else InputError is raised."""
        found = self.function(*arguments)
        mask: Tensor = arguments[1 if self.compares == "nothing" else 2]
        advantages = found[0] if self.critic else found
        shape = tuple(getattr(advantages, "shape", ()))
        if shape != tuple(mask.shape):
            raise InputError(
                f"update.advantage: {self.function.__module__}:{self.function.__name__} returned "
                f"{f'the shape {shape}' if shape else type(advantages).__name__}, expected that of its mask, "
                f"{tuple(mask.shape)}"
            )
        return found


def estimator(*, compares: Compares, critic: bool = False) -> Callable[[Callable[..., Any]], Estimator]:
    """Declare what an estimator compares, and whether it needs a critic."""
    if compares not in get_args(Compares):
        raise InputError(f"estimator: found compares={compares!r}, expected one of {', '.join(get_args(Compares))}")
    if critic and compares != "nothing":
        raise InputError(f"estimator: with a critic found compares={compares!r}, expected 'nothing'")

    arguments = ("rewards", "mask", "settings") if compares == "nothing" else ("scores", "groups", "mask")
    if critic:
        arguments = ("rewards", "mask", "settings", "values")

    def declare(function: Callable[..., Any]) -> Estimator:
        if not takes(function, arguments):
            found = ", ".join(inspect.signature(function).parameters)
            raise InputError(
                f"{function.__name__}: with compares={compares!r} expected the arguments ({', '.join(arguments)}), "
                f"found ({found})"
            )
        return Estimator(function, compares, critic)

    return declare


ADVANTAGE = Door(
    "advantage",
    files_of("tasks.update.estimators", "advantages"),
    "a function declared with tasks.update.doors.estimator",
    lambda found: isinstance(found, Estimator),
)
"""Estimators by the name of their file."""
POLICY_LOSS = Door(
    "loss",
    {name: f"tasks.update.policy_losses:{name}" for name in ("ppo_clip", "gspo", "cispo", "dppo")},
    "a function (log_probs, old_log_probs, advantages, mask, settings) -> loss per token",
)
KL_ESTIMATOR = Door(
    "kl",
    {name: f"tasks.update.kl:{name}" for name in ("k1", "k2", "k3", "low_var_kl", "k3_k2")},
    "a function (log_probs, reference_log_probs) -> divergence per token",
)
CORRECTION = Door(
    "correction",
    {
        "token_tis": "tasks.update.corrections:token_tis",
        "sequence_tis": "tasks.update.corrections:sequence_tis",
        "icepop": "tasks.update.corrections:icepop",
        "none": "tasks.update.corrections:uncorrected",
    },
    "a function (log_probs, sampler_log_probs, mask, settings) -> weight per token",
)


def names_that_compare(what: Compares) -> list[str]:
    """Return the names of our estimators that compare `what`."""
    return [name for name in ADVANTAGE.ours if ADVANTAGE.load(name).compares == what]
