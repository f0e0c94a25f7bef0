"""Runs the tests that failed once more, one at a time, and exits with 0 if all of them pass.

    python .ci/again.py

Tests start servers, clusters and engines on two busy cores, and thousands of them have to pass at once. A test that
fails beside others and passes alone is named, since it is still a fault (of the test or of the code) to be mended.
Failures in more than `AT_MOST` files are not run again: a fixture's failure fails all tests of its file.
"""

import json
import subprocess
import sys
from pathlib import Path

AT_MOST = 3
_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    """Run the failed tests again and return the exit code."""
    failed = sorted(json.loads(_FAILED.read_text(encoding="utf-8"))) if _FAILED.exists() else []
    if not failed or len({name.partition("::")[0] for name in failed}) > AT_MOST:
        return 1
    print(f"failed, and run once more without others beside them: {', '.join(failed)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "-m", "not slow", "-rfE", *failed], check=False).returncode
    if code == 0:
        print(f"PASSED ONLY ALONE, to be mended: {', '.join(failed)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
