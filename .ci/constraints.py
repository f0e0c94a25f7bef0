"""Write deployments/constraints.txt: the exact versions of everything that pyproject.toml's dependencies resolve to.

Run by `make constraints` with the interpreter of the environment that the tests have passed in. Walks the dependency
closure of the declared dependencies and of EXTRAS through the installed packages' metadata, so that what else
is installed does not get in. Lines below MARKER are kept as they are: they name what this machine cannot see.
"""

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "deployments" / "constraints.txt"
EXTRAS = ("judge", "train", "docs", "airgap", "dev")
MARKER = "# --- kept by hand below this line ---"
HEADER = """\
# What kernelmill is tested with: pyproject.toml declares ranges, this file pins one working set (Python 3.11 to 3.13).
# Made by `make constraints` (.ci/constraints.py): the dependency closure of pyproject.toml with its extras `train` and
# `dev`, as installed where the tests passed. Used as `pip install -c deployments/constraints.txt -e '.[train,dev]'`.
# Pins without a local version (torch==2.13.0) accept CPU builds (2.13.0+cpu) and CUDA builds alike.
"""


def closure(requirements: list[Requirement]) -> dict[str, tuple[str, str]]:
    """Return canonical name -> (name, version) of everything that the requirements need on this interpreter."""
    found: dict[str, tuple[str, str]] = {}
    visited: set[tuple[str, str]] = set()
    waiting = [(requirement, extra) for requirement in requirements for extra in ("", *requirement.extras)]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(requirement.name)
        if (name, extra) in visited:
            continue
        visited.add((name, extra))
        try:
            installed = distribution(requirement.name)
        except PackageNotFoundError:
            sys.exit(f"{requirement.name} is needed and not installed here: run `make setup` first")
        found[name] = (installed.metadata["Name"], re.sub(r"\+.*", "", installed.version))
        for line in installed.requires or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                needed.marker = None
                waiting += [(needed, inner) for inner in ("", *needed.extras)]
    return found


def main() -> None:
    """Write the file anew, keeping what stands below MARKER."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    declared = [Requirement(line) for line in [*project["dependencies"], *extras]]
    declared = [one for one in declared if one.name != project["name"]]  # `train` names `judge`, which is there itself
    by_hand = TARGET.read_text(encoding="utf-8").partition(MARKER)[2] if TARGET.exists() else "\n"
    kept = {canonicalize_name(Requirement(line).name) for line in by_hand.splitlines() if line and line[0] != "#"}
    pins = [f"{name}=={version}" for key, (name, version) in sorted(closure(declared).items()) if key not in kept]
    TARGET.write_text("\n".join([HEADER + pins[0], *pins[1:], MARKER]) + by_hand, encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {len(pins)} pins, {len(kept)} kept by hand")


if __name__ == "__main__":
    main()
