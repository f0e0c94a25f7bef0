"""Request for a bundle: the target's Python, what its host has, the size of a part. Refuses what is not clear."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from kernels_eval.errors import InputError

MANIFEST = "MANIFEST.json"
INSTALLER = "install.py"
SELF_TEST = "selftest.py"
DOWNLOADS = "download"
"""Folder of whole wheels while a bundle is made."""
BUILT = "built"
"""Folder of wheels that were built here."""
LEAST_PART = 10_000_000
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_MINORS = range(11, 14)
_OLDEST_GLIBC = 5


@dataclass(frozen=True)
class Request:
    """A bundle that is wanted."""

    out: Path
    python: str
    """Major and minor version, e.g. 3.12."""
    host: tuple[Requirement, ...]
    """Packages that the host's Python has, some with a version."""
    part_bytes: int
    glibc: int = 28
    """Minor version of the oldest glibc 2 that the bundle has to run with."""
    sglang: bool = False
    """SGLang's packages, too."""

    @property
    def platforms(self) -> list[str]:
        """Return the platform tags of wheels that may be taken, the newest first."""
        numbered = [f"manylinux_2_{minor}_x86_64" for minor in range(self.glibc, _OLDEST_GLIBC - 1, -1)]
        return [*numbered, "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]

    @property
    def host_names(self) -> set[str]:
        """Return the names of the host's packages in their canonical form."""
        return {canonicalize_name(package.name) for package in self.host}


def parse_request(out: Path, python: str, host: str, part_size: str, glibc: str, sglang: bool = False) -> Request:
    """Return the request that the command's words state. Raises InputError for the first that is not understood."""
    return Request(
        usable_folder(out),
        parse_python(python),
        parse_host(host),
        parse_size(part_size),
        glibc=parse_glibc(glibc),
        sglang=sglang,
    )


def parse_python(text: str) -> str:
    """Return a Python version as major.minor."""
    match = re.fullmatch(r"3\.(\d+)", text.strip())
    if match is None or int(match[1]) not in _MINORS:
        raise InputError(f"--python: found {text!r}, expected one of 3.11, 3.12, 3.13")
    return match[0]


def parse_glibc(text: str) -> int:
    """Return the minor version of a glibc 2."""
    match = re.fullmatch(r"2\.(\d+)", text.strip())
    if match is None or int(match[1]) < 17:
        raise InputError(f"--glibc: found {text!r}, expected 2.17 or newer, e.g. 2.35")
    return int(match[1])


def parse_size(text: str) -> int:
    """Return a size in bytes: 60MB, 64MiB, 1.5GB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise InputError(f"--part-size: found {text!r}, expected a number and MB or GB, e.g. 60MB")
    size = int(float(match[1]) * _UNITS[match[2].upper()])
    if size < LEAST_PART:
        raise InputError(f"--part-size: found {text!r}, expected 10MB or more")
    return size


def parse_host(text: str) -> tuple[Requirement, ...]:
    """Return the packages of a host: names, each with an exact version or none."""
    found: list[Requirement] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        try:
            requirement = Requirement(word)
        except InvalidRequirement:
            raise InputError(f"--host-has: found {word!r}, expected a package, e.g. torch or torch==2.11.0") from None
        exact = [spec for spec in requirement.specifier if spec.operator == "==" and not spec.version.endswith("*")]
        if requirement.extras or requirement.marker or requirement.url or len(exact) != len(requirement.specifier):
            raise InputError(f"--host-has: found {word!r}, expected a package, e.g. torch or torch==2.11.0")
        found.append(requirement)
    return tuple(found)


def exact_version(package: Requirement) -> str | None:
    """Return the version that is stated for a host's package; None if none is."""
    return next((spec.version for spec in package.specifier), None)


def usable_folder(out: Path) -> Path:
    """Return the bundle's folder, made if it is not there: empty, or begun by an earlier call; and writable."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: found a file, expected a folder")
    above = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"--out {out}: expected a folder that can be written to")
    begun = any((out / name).exists() for name in (MANIFEST, DOWNLOADS, BUILT))
    if out.exists() and not begun and any(out.iterdir()):
        raise InputError(f"--out {out}: found other files, expected an empty folder or a bundle that was begun")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: {error.strerror}, expected a folder that can be written to") from None
    return out


def room_for(out: Path, needed: int) -> None:
    """Raise InputError if a folder's disk has not the free bytes that are needed."""
    free = shutil.disk_usage(out).free
    if free < needed:
        raise InputError(f"--out {out}: found {free / 1e6:,.0f} MB of free disk, expected {needed / 1e6:,.0f} MB")
