"""Resolution by uv: the packages of a bundle for the target's Python and platform, each with its wheel and hash.

uv reads its own configuration of package indexes (`uv.toml`, `UV_DEFAULT_INDEX`), and downloads no package to resolve.
"""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from extras.airgap.request import Request, exact_version
from kernels_eval.errors import InputError

EXTRA = "train"
WITHOUT_OPS = {"DS_BUILD_OPS": "0", "BUILD_OPS": "0"}
"""DeepSpeed compiles its operators where they are first used, with the compiler of that machine."""
_UNBOUND = {"torch", "triton"}
"""Host's packages whose requirements (CUDA libraries) concern nothing else. Their builds may be on no index."""
_GLIBCS = (17, 28, *range(31, 41))
"""Minor versions of glibc 2 that uv knows as platforms."""
_NO_NETWORK = re.compile(r"Failed to fetch|error sending request|network was disabled")


@dataclass(frozen=True)
class Resolved:
    """One package of a bundle."""

    name: str
    version: str
    url: str | None
    """Address of its wheel; None if it has only a source distribution."""
    sha256: str | None

    @property
    def file(self) -> str:
        """Return the file name of the wheel."""
        return unquote(urlsplit(self.url or "").path).rpartition("/")[2]


def resolve(request: Request, own: Path, scratch: Path) -> list[Resolved]:
    """Return the packages of kernelmill with its training extra that the target's host does not have.

    The first resolution knows what the host's packages require: Transformers accepts few versions of tokenizers. The
    second leaves the host's packages out, and what only they require, at the versions of the first.
    """
    check_host(request.host, own_requirements(own))
    wanted = _write(scratch / "wanted.in", [f"kernelmill[{EXTRA}] @ {own.absolute().as_uri()}"])
    pins = _write(scratch / "host.txt", host_pins(request.host))
    versions = scratch / "versions.txt"
    bounds = ("--constraints", pins, "--excludes", _write(scratch / "unbound.txt", _UNBOUND & request.host_names))
    _compile(request, wanted, *bounds, "--no-emit-package", "kernelmill", "--output-file", versions)
    lock = scratch / "pylock.toml"
    rest = ("--constraints", versions, "--excludes", _write(scratch / "left-out.txt", request.host_names))
    _compile(request, wanted, *rest, "--output-file", lock)
    return read_lock(lock, request)


def own_requirements(wheel: Path) -> list[Requirement]:
    """Return what a wheel requires with the training extra."""
    with zipfile.ZipFile(wheel) as opened:
        name = next(name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        text = opened.read(name).decode("utf-8")
    lines = [Requirement(line) for line in HeaderParser().parsestr(text).get_all("Requires-Dist", [])]
    return [line for line in lines if line.marker is None or line.marker.evaluate({"extra": EXTRA})]


def check_host(host: Iterable[Requirement], own: Iterable[Requirement]) -> None:
    """Raise InputError for a package of the host in a version that kernelmill does not accept."""
    for package in host:
        version = exact_version(package)
        for line in own:
            same = canonicalize_name(line.name) == canonicalize_name(package.name)
            if same and version is not None and not line.specifier.contains(version, prereleases=True):
                raise InputError(f"--host-has: found {package}, expected {line.name}{line.specifier}")


def host_pins(host: Iterable[Requirement]) -> list[str]:
    """Return the host's packages that bound others, each in the stated version, else in the one installed here."""
    pins: list[str] = []
    for package in host:
        if canonicalize_name(package.name) not in _UNBOUND:
            version = exact_version(package) or _installed_version(package.name)
            pins.append(f"{package.name}=={version}" if version else package.name)
    return pins


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def read_lock(lock: Path, request: Request) -> list[Resolved]:
    """Return the packages of a `pylock.toml`, each with its best wheel for the target."""
    order = {tag: place for place, tag in enumerate(target_tags(request))}
    found: list[Resolved] = []
    for package in tomllib.loads(lock.read_text(encoding="utf-8"))["packages"]:
        wheels: list[dict[str, Any]] = package.get("wheels") or [package.get("archive", {})]
        offers = [Resolved(package["name"], package["version"], *_source(wheel, lock)) for wheel in wheels]
        found.append(min(offers, key=lambda offer: _place(offer, order)))
    return found


def _source(wheel: dict[str, Any], lock: Path) -> tuple[str | None, str | None]:
    address = (lock.parent / wheel["path"]).resolve().as_uri() if "path" in wheel else wheel.get("url")
    return address, wheel.get("hashes", {}).get("sha256")


def _place(offer: Resolved, order: dict[Tag, int]) -> int:
    tags = parse_wheel_filename(offer.file)[3] if offer.url else ()
    return min((order.get(tag, len(order)) for tag in tags), default=len(order))


def target_tags(request: Request) -> Iterable[Tag]:
    """Yield the tags of wheels for the target, the most specific first."""
    python = (3, int(request.python.partition(".")[2]))
    yield from cpython_tags(python, platforms=request.platforms)
    yield from compatible_tags(python, platforms=request.platforms)


def _compile(request: Request, *arguments: object) -> None:
    """Run `uv pip compile` for the target. Raises InputError with the reason that it gives."""
    glibc = max(minor for minor in _GLIBCS if minor <= request.glibc)
    target = ["--python-version", request.python, "--python-platform", f"x86_64-manylinux_2_{glibc}"]
    # DeepSpeed's setup asks the installed torch; others get the build tools that they name.
    build = ["--python", sys.executable, "--no-build-isolation-package", "deepspeed"]
    run = [_uv(), "pip", "compile", "--quiet", "--no-header", "--no-annotate", *target, *build, *map(str, arguments)]
    environment = {**os.environ, **WITHOUT_OPS, "UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"}
    # Where this is called from, a project's `pyproject.toml` may configure uv for something else.
    folder = Path(str(arguments[0])).parent
    done = subprocess.run(run, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    if done.returncode:
        raise failure_of(done.stderr)


def _uv() -> str:
    try:
        from uv import find_uv_bin
    except ImportError:
        raise InputError("uv is not installed, which resolves a bundle: pip install 'kernelmill[airgap]'") from None
    return find_uv_bin()


def failure_of(output: str) -> InputError:
    """Return what uv failed for, from all that it said."""
    if _NO_NETWORK.search(output):
        return InputError("uv does not reach its package index: the bundle is made on a machine with a network")
    reason = list[str]()
    for line in (each.strip() for each in output.splitlines()):
        if line.startswith(("cause:", "error:")):
            reason = [line.partition(":")[2].strip()]
        elif line.startswith("hint:"):
            break
        elif line:
            reason.append(line)  # uv folds what is longer than the terminal
    return InputError(f"uv found no set of packages: {' '.join(reason) or 'it said nothing'}")


def _write(path: Path, lines: Sequence[str] | set[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
    return path
