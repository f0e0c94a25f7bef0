"""Wheels of a bundle: kernelmill's own, those that have to be built, and those that the package index has."""

import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from packaging.utils import parse_wheel_filename

from extras.airgap import pip
from extras.airgap.install import sha256_of
from extras.airgap.request import BUILT, DOWNLOADS, Request
from extras.airgap.resolution import WITHOUT_OPS, Resolved
from kernels_eval.errors import InputError

Say = Callable[[str], None]
_CHUNK = 12
"""Wheels that one call of pip downloads. They stay if a later call fails."""
_MINORS = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "flows", "extras", "tasks", "kernels_eval")


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


def build(package: Resolved, into: Path, python: str) -> Resolved:
    """Build the wheel of a package from its source distribution. Raises InputError if it would run here only."""
    before = set(into.glob("*.whl"))
    # DeepSpeed's setup asks the installed torch; others get the build tools that they name.
    isolation = ["--no-build-isolation"] if package.name == "deepspeed" else []
    pinned = f"{package.name}=={package.version}"
    pip.call_pip("wheel", ["--quiet", "--no-deps", *isolation, "--wheel-dir", str(into), pinned], WITHOUT_OPS)
    (wheel,) = set(into.glob("*.whl")) - before
    if not any(tag.platform == "any" for tag in parse_wheel_filename(wheel.name)[3]):
        wheel.unlink()
        raise InputError(
            f"{pinned} has no wheel for Python {python}, and what is built here has machine code for this "
            "machine: add it to --host-has, and install it there"
        )
    return replace(package, url=wheel.absolute().as_uri(), sha256=sha256_of(wheel))


def fetch(request: Request, packages: list[Resolved], scratch: Path, say: Say) -> None:
    """Download or copy the wheels that are not there yet."""
    folder = request.out / DOWNLOADS
    left: list[Resolved] = []
    for package in packages:
        path, local = folder / package.file, request.out / BUILT / package.file
        if local.is_file():
            shutil.copyfile(local, path)
        elif not (path.is_file() and sha256_of(path) == package.sha256):
            path.unlink(missing_ok=True)
            left.append(package)
    total, done = len(packages), len(packages) - len(left)
    say(f"download: {done} of {total} wheels are there")
    for start in range(0, len(left), _CHUNK):
        chunk = left[start : start + _CHUNK]
        pip.download(request, [_pin(package) for package in chunk], folder, scratch)
        done += len(chunk)
        say(f"download: {done} of {total} wheels")
    for package in packages:
        if not (folder / package.file).is_file():
            raise InputError(f"pip download failed: {package.file} was not written")


def _pin(package: Resolved) -> str:
    return f"{package.name} @ {package.url}" + (f" --hash=sha256:{package.sha256}" if package.sha256 else "")


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
