"""Interpreter process: launches with `launch_pdl`, which begin before the launches ahead of them have ended.

Such a kernel may touch what those write only after `gdc_wait`. Launches of a call run one after the other here.
"""

from dataclasses import dataclass

from triton.language.extra import cuda


@dataclass
class Dependence:
    """State of the current launch: it has waited for those ahead of it, or not."""

    has_waited: bool = False


DEPENDENCE = Dependence()


def install() -> None:
    """Patch Triton's language in this process, once."""
    setattr(cuda, "gdc_wait", _wait)  # noqa: B010 (it has no such attribute to a type checker)
    setattr(cuda, "gdc_launch_dependents", lambda **_: None)  # noqa: B010


def _wait(**_: object) -> None:
    DEPENDENCE.has_waited = True
