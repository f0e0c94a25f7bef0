"""Tiny wheels and bundles."""

import json
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from extras.airgap import parts
from extras.airgap.bundle import FORMAT

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    body: str = "",
    points: str = "",
    size: int = 0,
    requires: Sequence[str] = (),
) -> Path:
    """Write a wheel with one module, a script and `size` bytes that do not compress."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": body or f"version = {version!r}\n",
        f"{name}-{version}.data/scripts/{name}-run": "#!python\nprint('script runs')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "Provides-Extra: train\n" * bool(requires)
        + "".join(f"Requires-Dist: {line}\n" for line in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if points:
        files[f"{info}/entry_points.txt"] = points
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in files)
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        if size:
            archive.writestr(f"{name}_data/bytes.bin", bytes(k * 7 % 251 for k in range(size)))
    return path


def bundle(folder: Path, wheels: list[Path], limit: int, host: dict[str, str] | None = None) -> Path:
    """Make a bundle of wheels, which are moved."""
    source = wheels[0].parent
    packed = parts.pack({path.name: path.stat().st_size for path in wheels}, limit)
    folder.mkdir(exist_ok=True)
    manifest = {
        "format": FORMAT,
        "python": PYTHON,
        "glibc": "2.17",
        "host": host or {},
        "packages": dict(path.name.split("-")[:2] for path in wheels if path.suffix == ".whl"),
        "files": parts.write_parts(source, folder, packed),
    }
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))
    return folder
