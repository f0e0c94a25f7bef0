"""Peers of the benchmarks: packages of the extra `benchmarks`, which nothing else needs."""

import sys
from importlib.util import find_spec


def require_peers(*packages: str) -> None:
    """Exit with code 2 and an instruction to install the packages, unless all of them are installed.

    Called first: otherwise a missing peer would fail minutes into a measurement.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        remedy = "this measurement needs the extra `benchmarks`: pip install -e '.[benchmarks]'"
        print(f"{' and '.join(missing)}: not installed; {remedy}", file=sys.stderr)
        raise SystemExit(2)
