"""Wheels of a bundle: kernelmill's own, those that have to be built, and those that the package index has."""

import re
import shutil
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from extras.airgap import graph, host, pip
from extras.airgap.graph import Resolved
from extras.airgap.install import sha256_of
from extras.airgap.request import BUILT, DOWNLOADS, Request
from kernels_eval.errors import InputError

Say = Callable[[str], None]
EXTRA = "train"
_CHUNK = 12
"""Wheels that one call of pip downloads. They stay if a later call fails."""
_MOST_ROUNDS = 8
_WITHOUT_OPS = {"DS_BUILD_OPS": "0", "BUILD_OPS": "0"}
"""DeepSpeed compiles its operators where they are first used, with the compiler of that machine."""
_MINORS = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "flows", "extras", "tasks", "kernels_eval")


@dataclass(frozen=True)
class Resolution:
    """Packages that a bundle holds, all known but none downloaded."""

    packages: list[Resolved]
    built: list[str]
    """Requirements that had no wheel."""


def build_own(source: Path, into: Path, scratch: Path) -> Path:
    """Build kernelmill's wheel from a copy of its sources: building leaves folders beside them."""
    copy = scratch / "source"
    copy.mkdir()
    for name in _SOURCES:
        path = source / name
        if path.is_dir():
            shutil.copytree(path, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(path, copy / name)
    for old in into.glob("kernelmill-*.whl"):
        old.unlink()
    pip.call_pip("wheel", ["--quiet", "--no-deps", "--wheel-dir", str(into), str(copy)])
    return next(into.glob("kernelmill-*.whl"))


def own_requirements(wheel: Path) -> list[Requirement]:
    """Return what a wheel requires, with all its extras."""
    with zipfile.ZipFile(wheel) as opened:
        name = next(name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        text = opened.read(name).decode("utf-8")
    return [Requirement(line) for line in HeaderParser().parsestr(text).get_all("Requires-Dist", [])]


def resolve(request: Request, own: Path, scratch: Path, say: Say) -> Resolution:
    """Return the packages of kernelmill with its training extra that the target's host does not have.

    Builds what has no wheel and asks again, and asks again with what pip left out for the Python that runs it.
    """
    stands = scratch / "host"
    stands.mkdir()
    wheels, constraints = host.write_stand_ins(request.host, own_requirements(own), stands)
    lines = scratch / "constraints.txt"
    lines.write_text("\n".join(constraints) + "\n", encoding="utf-8")
    built_folder = request.out / BUILT
    built: list[str] = []
    wanted = [f"kernelmill[{EXTRA}] @ {own.absolute().as_uri()}", *wheels]
    for _ in range(_MOST_ROUNDS):
        try:
            report = pip.resolve(request, [*wanted, "--constraint", str(lines)], [built_folder], scratch)
        except pip.NoWheelError as missing:
            if missing.requirement in built:
                raise
            say(f"building {missing.requirement}, which has no wheel")
            build(missing.requirement, built_folder, request.python)
            built.append(missing.requirement)
            continue
        walk = graph.walk(graph.read_report(report), "kernelmill", {EXTRA}, request.host_names, request.python)
        if not walk.missing:
            return Resolution(list(walk.reached.values()), built)
        wanted += walk.missing
    raise InputError(f"pip found no set of packages for Python {request.python} in {_MOST_ROUNDS} attempts")


def build(requirement: str, into: Path, python: str) -> None:
    """Build the wheel of a package from its source distribution. Raises InputError if it would run here only."""
    before = set(into.glob("*.whl"))
    # DeepSpeed's setup asks the installed torch; others get the build tools that they name.
    isolation = ["--no-build-isolation"] if canonicalize_name(Requirement(requirement).name) == "deepspeed" else []
    pip.call_pip("wheel", ["--quiet", "--no-deps", *isolation, "--wheel-dir", str(into), requirement], _WITHOUT_OPS)
    for wheel in set(into.glob("*.whl")) - before:
        tags = parse_wheel_filename(wheel.name)[3]
        if not any(tag.platform == "any" for tag in tags):
            wheel.unlink()
            raise InputError(
                f"{requirement} has no wheel for Python {python}, and what is built here has machine code for this "
                "machine: add it to --host-has, and install it there"
            )


def fetch(request: Request, resolution: Resolution, scratch: Path, say: Say) -> list[str]:
    """Download what is not there yet, and return the file names of all wheels of the bundle."""
    folder = request.out / DOWNLOADS
    names = {package.name: file_name(package) for package in resolution.packages}
    left: list[Resolved] = []
    for package in resolution.packages:
        path = folder / names[package.name]
        if path.is_file() and package.sha256 is not None and sha256_of(path) == package.sha256:
            continue
        path.unlink(missing_ok=True)
        local = request.out / BUILT / path.name
        if local.is_file():
            shutil.copyfile(local, path)
        else:
            left.append(package)
    total, done = len(resolution.packages), len(resolution.packages) - len(left)
    say(f"download: {done} of {total} wheels are there")
    for start in range(0, len(left), _CHUNK):
        chunk = left[start : start + _CHUNK]
        pip.download(request, [_pin(package) for package in chunk], folder, [request.out / BUILT], scratch)
        done += len(chunk)
        say(f"download: {done} of {total} wheels")
    for package in resolution.packages:
        if not (folder / names[package.name]).is_file():
            raise InputError(f"pip download failed: {names[package.name]} was not written")
    return sorted(names.values())


def file_name(package: Resolved) -> str:
    """Return the file name of a package's wheel."""
    return unquote(urlsplit(package.url).path).rpartition("/")[2]


def _pin(package: Resolved) -> str:
    return f"{package.name}=={package.version}" + (f" --hash=sha256:{package.sha256}" if package.sha256 else "")


def needed_glibc(names: Iterable[str]) -> str:
    """Return the oldest glibc that all wheels run with."""
    needed = min(_MINORS.values())
    for name in names:
        minors = [_minor(tag.platform) for tag in parse_wheel_filename(name)[3] if tag.platform.startswith("manylinux")]
        needed = max(needed, min(minors, default=needed))
    return f"2.{needed}"


def _minor(platform: str) -> int:
    """Return the minor version of glibc that a platform tag stands for."""
    match = re.match(r"manylinux_2_(\d+)_", platform)
    return int(match[1]) if match else _MINORS[platform.partition("_")[0]]
