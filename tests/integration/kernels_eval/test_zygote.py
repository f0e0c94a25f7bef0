"""A zygote that is about to end, though the system still counts it as running, costs no kernel an attempt."""

import os
import signal
from pathlib import Path

import pytest

from kernels_eval.errors import InfrastructureError
from kernels_eval.pool.zygote import Zygote, Zygotes


def test_a_zygote_that_hangs_up_is_replaced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zygotes = Zygotes(tmp_path)
    try:
        zygotes.fork("interpret")[1].close()
        first = zygotes._known["interpret"]
        ended = first._process
        os.kill(ended.pid, signal.SIGKILL)
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        poll, answers = ended.poll, iter([None])  # to the first question only, as it is until it has been torn down
        monkeypatch.setattr(ended, "poll", lambda: next(answers) if answers.__length_hint__() else poll())
        process, channel = zygotes.fork("interpret")
        channel.close()
        assert zygotes._known["interpret"] is not first
        assert process != ended.pid
    finally:
        zygotes.close()


def test_a_zygote_that_cannot_start_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zygotes = Zygotes(tmp_path)
    started: list[str] = []
    monkeypatch.setattr("kernels_eval.pool.zygote._PROGRAM", ("false",))
    original = Zygote.__init__

    def count(self: Zygote, role: str, scratch: Path) -> None:
        started.append(role)
        original(self, role, scratch)

    monkeypatch.setattr(Zygote, "__init__", count)
    with pytest.raises(InfrastructureError, match="zygote"):
        zygotes.fork("interpret")
    assert started == ["interpret"]
    zygotes.close()
