"""Signs that a policy collapses, from the figures of a run: KL, entropy, groups without a gradient, reward."""

from collections.abc import Callable, Sequence
from pathlib import Path

from kernels_eval.errors import InputError
from tasks.tracking.config import CollapseConfig
from tasks.tracking.figures import FigureLine, FigureStage, read_lines

_SMALLEST_FALL = 0.1
"""Of the mean reward: a policy that has learned nothing yet goes up and down by less."""


class CollapseError(InputError):
    """The newest policy shows signs of collapse, and `tracking.collapse.stop` is set."""

    heading = "collapsed"


def look_for_collapse(run_dir: Path, limits: CollapseConfig, say: Callable[[str], None]) -> None:
    """Say what looks like a collapse of a run's newest policy. Raises CollapseError if the run is to end then."""
    signs = signs_of_collapse(read_lines(run_dir), limits)
    for sign in signs:
        say(f"collapse? {sign}")
    if signs and limits.stop:
        raise CollapseError(f"{signs[0]}; the run ends here (tracking.collapse.stop), raise the limit to go on")


def signs_of_collapse(lines: Sequence[FigureLine], limits: CollapseConfig) -> list[str]:
    """Return a sentence for each limit that the newest update, or the batch before it, is beyond."""
    signs: list[str] = []
    kls, entropies = _series(lines, "update", "kl"), _series(lines, "update", "entropy")
    rewards = _series(lines, "rollout", "mean_reward")
    if limits.kl is not None and kls and kls[-1][1] > limits.kl:
        signs.append(f"{_found('KL to the reference', kls[-1])} nats a token, above tracking.collapse.kl {limits.kl:g}")
    if limits.entropy is not None and len(entropies) > 1 and entropies[-1][1] < limits.entropy * entropies[0][1]:
        signs.append(
            f"{_found('entropy', entropies[-1])} after {entropies[0][1]:.3g} in the first update, "
            f"less than tracking.collapse.entropy {limits.entropy:g} of it"
        )
    constant = _series(lines, "update", "constant_groups")
    if limits.constant_groups is not None and constant and constant[-1][1] > _most_constant(constant, limits):
        signs.append(
            f"{_found('share of groups without a gradient', constant[-1])} after {constant[0][1]:.3g} in the first "
            f"update, above tracking.collapse.constant_groups {limits.constant_groups:g}"
        )
    best = max((value for _, value in rewards), default=0.0)
    if limits.reward is not None and best > 0 and rewards[-1][1] < min(limits.reward * best, best - _SMALLEST_FALL):
        signs.append(
            f"{_found('mean reward', rewards[-1])} after {best:.3g} at best, "
            f"less than tracking.collapse.reward {limits.reward:g} of it"
        )
    return signs


def _most_constant(shares: Sequence[tuple[int, float]], limits: CollapseConfig) -> float:
    """Return the share of groups without a gradient that is no sign yet: easy problems begin with many."""
    first, limit = shares[0][1], limits.constant_groups or 0.0
    return limit if first <= limit else (first + 1) / 2


def _series(lines: Sequence[FigureLine], stage: FigureStage, name: str) -> list[tuple[int, float]]:
    """Return a figure by iteration, in order; without iterations that lack it."""
    found = {line.iteration: line.figures.get(name) for line in lines if line.stage == stage}
    return [(iteration, float(value)) for iteration, value in sorted(found.items()) if value is not None]


def _found(name: str, last: tuple[int, float]) -> str:
    return f"iteration {last[0]}: {name} {last[1]:.3g}"
