"""Packages that a run needs, as our own metadata declare them, compared with those of a machine."""

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version

OURS = "kernelmill"


def declared_packages(extra: str = "") -> list[str]:
    """Return the requirements of our package, with those of an extra, but for itself.

    Raises PackageNotFoundError if it is not installed.
    """
    from packaging.requirements import Requirement

    found = [Requirement(line) for line in requires(OURS) or []]
    needed = (item for item in found if item.marker is None or item.marker.evaluate({"extra": extra}))
    return [f"{item.name}{item.specifier}" for item in needed if item.name != OURS]


def wrong_packages(needed: Iterable[str]) -> list[str]:
    """Return, for each requirement that this machine does not meet, what is wrong."""
    from packaging.requirements import Requirement

    wrong: list[str] = []
    for requirement in map(Requirement, needed):
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            wrong.append(f"{requirement.name} {installed}, expected {requirement.specifier}")
    return wrong
