"""Names that a public function takes: a wrong one is refused, never taken for another."""

from collections.abc import Collection

from kernels_eval.errors import InputError


def check_choice(argument: str, found: str, known: Collection[str]) -> None:
    """Raise InputError where `found` is none of the names."""
    if found not in known:
        raise InputError(f"{argument}: found {found!r}, expected one of {', '.join(known)}")
