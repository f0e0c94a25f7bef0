"""Packages that a test looks into: downloaded without what they need, unpacked and never installed."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path


def fetch(requirement: str, folder: Path, *, source: bool = False) -> str | None:
    """Download a package and unpack it into the folder; return its version, or None if no index has it.

    `source`: the source distribution, for what wheels do not carry.
    """
    name = requirement.partition("==")[0]
    options = ["--no-binary", name] if source else []
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options, "--dest", str(folder)]
    try:
        done = subprocess.run([*command, requirement], capture_output=True, text=True, check=False, timeout=240)
    except subprocess.TimeoutExpired:
        return None
    stem = name.replace("-", "_")
    found = next((path for end in ("whl", "tar.gz") for path in folder.glob(f"{stem}-*.{end}")), None)
    if done.returncode != 0 or found is None:
        return None
    if found.suffix == ".whl":
        with zipfile.ZipFile(found) as wheel:
            wheel.extractall(folder)
    else:
        with tarfile.open(found) as archive:
            archive.extractall(folder, filter="data")
    return found.name.removesuffix(".tar.gz").split("-")[1]
