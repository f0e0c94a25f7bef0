"""Stand-ins for the host's packages: wheels with metadata alone, so that resolving downloads none of them."""

import re
import zipfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from extras.airgap.request import exact_version

_BY_THEMSELVES = {"torch", "triton"}
"""Packages whose own requirements (CUDA libraries) concern nothing else in a bundle."""


def write_stand_ins(host: tuple[Requirement, ...], own: list[Requirement], into: Path) -> tuple[list[str], list[str]]:
    """Return the wheels that stand in for host's packages, and the requirements of those that the index has to resolve.

    `own`: what kernelmill requires. A package has the version that is stated, else the one that is installed here, else
    the least that kernelmill accepts. Its requirements bound what the bundle holds (Transformers accepts few versions
    of tokenizers), so they are read where it is installed here in that version, else from the index.
    """
    wheels: list[str] = []
    constraints: list[str] = []
    for package in host:
        name = canonicalize_name(package.name)
        here = _installed(name)
        stated = exact_version(package)
        version = stated or (_public(here.version) if here is not None else _least(name, own))
        if name in _BY_THEMSELVES:
            wheels.append(str(write_wheel(into, name, version, _bare(name, version))))
        elif here is not None and version == _public(here.version):
            wheels.append(str(write_wheel(into, name, version, _same_metadata(here, version))))
        else:
            constraints.append(str(package))
    return wheels, constraints


def write_wheel(into: Path, name: str, version: str, text: str) -> Path:
    """Write a wheel without modules."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = into / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", text)
        wheel.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: kernelmill\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return path


def _installed(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _public(version: str) -> str:
    """Return a version without its local part: 2.11.0+cu130 is 2.11.0."""
    return version.partition("+")[0]


def _least(name: str, own: list[Requirement]) -> str:
    bounds = [spec.version for line in own if canonicalize_name(line.name) == name for spec in line.specifier]
    return bounds[0] if bounds else "0"


def _bare(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def _same_metadata(package: metadata.Distribution, version: str) -> str:
    """Return the head of an installed package's metadata."""
    text = package.read_text("METADATA") or _bare(package.metadata["Name"], version)
    head = re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]
    return re.sub(r"^Version: .*$", f"Version: {version}", head, flags=re.MULTILINE) + "\n"
