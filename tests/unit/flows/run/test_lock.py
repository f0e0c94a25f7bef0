"""The lock of a run that is open elsewhere is seen before anything is started."""

import fcntl
from pathlib import Path

import pytest

from flows.run.lock import LOCK, check_not_open
from kernels_eval.errors import InputError


def test_a_run_that_is_open_is_refused_and_a_closed_one_is_not(tmp_path: Path) -> None:
    check_not_open(tmp_path)
    assert not list(tmp_path.iterdir()), "it left something"
    with (tmp_path / LOCK).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="this run is going on in another process"):
            check_not_open(tmp_path)
    check_not_open(tmp_path)
    check_not_open(tmp_path / "nowhere")
