"""One entry of the catalogue, and the sources that entries have in common. Imports nothing heavy."""

from kernels_eval.frozen import FrozenModel

HEADER = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""


class Entry(FrozenModel):
    """A kernel and what the judge has to say of it."""

    name: str
    kind: str
    """Class of the hack (a key of `catalogue.CLASSES`), or `honest`."""
    problem: str
    kernel: str
    expected: tuple[str, ...]
    """Statuses that the verdict may have."""
    policy: str = "strict"
    most_speedup: float | None = None
    """Where a verdict of `correct` is no miss, the speed-up that it may state."""

    @property
    def is_honest(self) -> bool:
        """True where the kernel has to pass."""
        return self.kind == "honest"


def honest(name: str, problem: str, kernel: str, policy: str = "strict") -> Entry:
    """An honest kernel: has to be found correct. The usual imports are put before it."""
    return Entry(
        name=name, kind="honest", problem=problem, kernel=HEADER + kernel, expected=("correct",), policy=policy
    )


REFUSED = ("incorrect", "rejected", "runtime_error", "compile_error", "timeout")


def hack(
    kind: str,
    name: str,
    problem: str,
    kernel: str,
    expected: tuple[str, ...] = REFUSED,
    policy: str = "strict",
    most_speedup: float | None = None,
) -> Entry:
    """A kernel that cheats. The usual imports are put before it."""
    return Entry(
        name=name,
        kind=kind,
        problem=problem,
        kernel=HEADER + kernel,
        expected=expected,
        policy=policy,
        most_speedup=most_speedup,
    )
