"""Dependency graph of a resolution. It names the packages of a bundle for the target's Python, not for the one here.

pip evaluates the markers of requirements (`python_version < "3.12"`) for the Python that runs it, whatever version is
asked for. So the graph is walked again with the target's markers: what is not reached is dropped, what is missing is
named, to be resolved too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@dataclass(frozen=True)
class Resolved:
    """One package of a resolution."""

    name: str
    version: str
    url: str
    sha256: str | None
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Walk:
    """Result of a walk through the graph."""

    reached: dict[str, Resolved]
    """Packages that the bundle holds, by canonical name."""
    missing: list[str]
    """Requirements that the resolution has no package for."""


@dataclass
class _Walker:
    packages: dict[str, Resolved]
    host: set[str]
    markers: dict[str, str]
    extras: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    missing: dict[str, None] = field(default_factory=dict[str, None])

    def visit(self, name: str, extras: Iterable[str]) -> None:
        """Visit a package, and all that it requires with its extras."""
        seen = self.extras.get(name)
        wanted = set(extras) | (seen or set())
        if seen is not None and wanted == seen:
            return
        self.extras[name] = wanted
        for line in self.packages[name].requires:
            self._follow(Requirement(line), wanted)

    def _follow(self, requirement: Requirement, extras: set[str]) -> None:
        name = canonicalize_name(requirement.name)
        if not applies(requirement, extras, self.markers) or name in self.host:
            return
        if name in self.packages:
            self.visit(name, {canonicalize_name(extra) for extra in requirement.extras})
        else:
            requirement.marker = None
            self.missing[str(requirement)] = None


def read_report(report: dict[str, Any]) -> dict[str, Resolved]:
    """Return the packages of pip's installation report, by canonical name."""
    packages: dict[str, Resolved] = {}
    for item in report["install"]:
        metadata, download = item["metadata"], item["download_info"]
        hashes = download.get("archive_info", {}).get("hashes", {})
        name = canonicalize_name(metadata["name"])
        packages[name] = Resolved(
            metadata["name"],
            metadata["version"],
            download["url"],
            hashes.get("sha256"),
            tuple(metadata.get("requires_dist", ())),
        )
    return packages


def walk(packages: dict[str, Resolved], root: str, extras: Iterable[str], host: set[str], python: str) -> Walk:
    """Return what a root package requires on the target, without the host's packages and what only they require."""
    walker = _Walker(packages, host, target_markers(python))
    walker.visit(canonicalize_name(root), extras)
    return Walk({name: packages[name] for name in sorted(walker.extras)}, list(walker.missing))


def applies(requirement: Requirement, extras: set[str], markers: dict[str, str]) -> bool:
    """Return whether a requirement holds on the target, with any of the extras that are wanted."""
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({**markers, "extra": extra}) for extra in (extras or {""}))


def target_markers(python: str) -> dict[str, str]:
    """Return the markers of CPython on Linux x86-64."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "platform_release": "",
        "platform_version": "",
        "os_name": "posix",
        "sys_platform": "linux",
    }
