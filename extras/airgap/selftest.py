"""Self-test of an installed bundle: `python3 selftest.py --venv FOLDER`, beside MANIFEST.json.

Prints a line for each package and command, ✓ or ✗. Exit code 1 if one fails. Needs the standard library; with the
package `packaging`, which the bundle has, the requirements between the bundle's and the host's packages are compared.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TIMEOUT_S = 600
_CONFIG = "deployments/configs/test.yaml"
_NO_MODULES = ("tests", "test", "docs", "examples", "benchmarks")
"""Folders that some wheels hold beside their package."""


def main(arguments: list[str] | None = None) -> int:
    """Run every check, and return the exit code."""
    parser = argparse.ArgumentParser(description="Check an installed bundle of kernelmill.")
    parser.add_argument("--bundle", type=Path, default=Path(__file__).resolve().parent, help="folder of MANIFEST.json")
    parser.add_argument("--venv", type=Path, help="environment to check (default: that of this Python)")
    options = parser.parse_args(arguments)
    if options.venv is not None and options.venv.resolve() != Path(sys.prefix).resolve():
        python = str(options.venv.absolute() / "bin" / "python")
        try:
            os.execv(python, [python, __file__, "--bundle", str(options.bundle)])
        except OSError:
            print(f"error: --venv {options.venv}: found no bin/python, expected what install.py made", file=sys.stderr)
            return 2
    manifest = json.loads((options.bundle / "MANIFEST.json").read_text(encoding="utf-8"))
    # What a library prints as it is imported is not a line of this test.
    report = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    failed = total = 0
    for label, problem in checks(manifest):
        total += 1
        failed += problem is not None
        print(f"✗ {label}: {problem}" if problem is not None else f"✓ {label}", file=report, flush=True)
    print(f"{failed} of {total} checks failed" if failed else f"all {total} checks passed", file=report, flush=True)
    return 1 if failed else 0


def checks(manifest: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield each check's label, and what is wrong with it or None."""
    for name, version in manifest["host"].items():
        yield f"{name} of the host{' ' + version if version else ''}", check_package(name, version)
    for name, version in manifest["packages"].items():
        yield f"{name} {version}", check_package(name, version)
    for name in [*manifest["host"], *manifest["packages"]]:
        problem = check_requirements(name, manifest)
        if problem is not None:
            yield f"requirements of {name}", problem
    if manifest.get("sglang"):
        yield "SGLang's packages", check_folder(Path(sys.prefix) / "sglang", manifest["sglang"])
    share = Path(sys.prefix) / "share" / "kernelmill"
    command = str(Path(sys.prefix) / "bin" / "kernelmill")
    yield "kernelmill --version", check_command([command, "--version"], share)
    if (share / _CONFIG).is_file():
        yield f"kernelmill verify {_CONFIG}", check_command([command, "verify", _CONFIG], share)


def check_package(name: str, expected: str) -> str | None:
    """Return what is wrong with a package: another version, or a module that cannot be imported."""
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
    # A host's build may have a local version: 2.11.0+cu130 is 2.11.0.
    if expected and expected not in (found, found.partition("+")[0]):
        return f"found {found}, expected {expected}"
    for module in modules_of(importlib.metadata.distribution(name)):
        try:
            importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001  # a library may end the process, too
            return f"import {module}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def check_folder(folder: Path, expected: dict[str, str]) -> str | None:
    """Return a package that a folder lacks or has in another version. Imports none: SGLang needs a GPU for it."""
    found = {canonical(item.name): item.version for item in importlib.metadata.distributions(path=[str(folder)])}
    for name, version in expected.items():
        if found.get(canonical(name)) != version:
            return f"{folder}: found {name} {found.get(canonical(name), 'nowhere')}, expected {version}"
    return None


def modules_of(package: importlib.metadata.Distribution) -> list[str]:
    """Return the modules at the top of a package, without private ones."""
    found: dict[str, None] = {}
    for file in package.files or ():
        parts = file.parts
        if len(parts) == 1 and (match := re.fullmatch(r"(\w+)(?:\.cpython-[\w-]+|\.abi3)?\.(?:py|so)", parts[0])):
            found[match[1]] = None
        elif len(parts) == 2 and parts[1] == "__init__.py" and parts[0].isidentifier():
            found[parts[0]] = None
    return [name for name in found if not name.startswith("_") and name not in _NO_MODULES]


def check_requirements(name: str, manifest: dict[str, Any]) -> str | None:
    """Return a package that is there in a version that another one does not accept; None if there is none."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return None
    ours = {canonical(package) for package in [*manifest["packages"], *manifest["host"]]}
    try:
        lines = importlib.metadata.requires(name) or ()
    except importlib.metadata.PackageNotFoundError:
        return None  # said already
    for line in lines:
        requirement = Requirement(line)
        if canonical(requirement.name) not in ours or (
            requirement.marker and not requirement.marker.evaluate({"extra": ""})
        ):
            continue
        try:
            found = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            return f"found {requirement.name} {found}, expected {requirement.specifier}"
    return None


def canonical(name: str) -> str:
    """Return a package's name in its canonical form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def check_command(command: list[str], folder: Path) -> str | None:
    """Return the last line of a command that fails; None if it does not."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "160"}
    where = folder if folder.is_dir() else None
    try:
        done = subprocess.run(
            command, cwd=where, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    wrong = [line for line in lines if line.startswith("✗")]
    return f"exit code {done.returncode}: {'; '.join(wrong or lines[-1:])}"


if __name__ == "__main__":
    sys.exit(main())
