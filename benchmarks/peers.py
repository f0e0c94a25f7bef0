"""The peers that benchmarks measure us against: packages of the extra `benchmarks`, which nothing else of ours needs."""

import sys
from importlib.util import find_spec


def require_peers(*packages: str) -> None:
    """End the program with exit code 2 and a sentence that says what to install, unless all the packages are there.

    Called before anything that takes long: a peer is otherwise first imported when its turn comes, minutes into a measurement.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        print(
            f"{' and '.join(missing)}: not installed; this measurement needs the extra `benchmarks`: pip install -e '.[benchmarks]'",
            file=sys.stderr,
        )
        raise SystemExit(2)
