"""Limit of a Prefect server's start: a real server is given less time than it needs."""

from pathlib import Path

import psutil
import pytest

from flows.services import prefect_server as module
from flows.services.prefect_server import start_server
from kernels_eval.errors import InfrastructureError


def test_a_slow_start_is_told_once_and_one_that_takes_too_long_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLOW_S", 0.0)
    servers_of_other_tests = set(_servers())
    notes: list[str] = []
    with pytest.raises(InfrastructureError, match=r"within 0\.5 s \(prefect\.start_timeout_s\).*server\.log") as caught:
        start_server(tmp_path, start_s=0.5, note=notes.append)
    assert "\n" not in str(caught.value)
    assert len(notes) == 1
    assert "at most 0.5 s (prefect.start_timeout_s)" in notes[0]
    assert set(_servers()) <= servers_of_other_tests


def _servers() -> list[psutil.Process]:
    alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "prefect" in " ".join(child.cmdline())]
