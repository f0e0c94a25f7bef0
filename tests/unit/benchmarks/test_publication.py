"""The benchmark of publication runs, and its digests are hashlib's."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.long
def test_publication_prints_every_way_and_equal_digests(tmp_path: Path):
    command = ["benchmarks/publication.py", "--gigabytes", "0.07", "--files", "2", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, *command, "--work", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for way in ("write", "SHA-256", "written, then read", "published", "2 files, one by one", "2 files, published"):
        assert f"| {way} | " in done.stdout
    assert done.stdout.endswith("digests: equal to hashlib's over the finished files\n")
    assert list(tmp_path.iterdir()) == []
