"""A zygote that is about to end, though the system still counts it as running, costs no kernel an attempt."""

import os
import signal
from pathlib import Path

import pytest

from kernels_eval.errors import InfrastructureError
from kernels_eval.gpu.device import detection
from kernels_eval.pool.zygote import Zygote, Zygotes

NAME = "CUDA_DEVICE_MAX_CONNECTIONS"


@pytest.mark.long
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

    def count(self: Zygote, role: str, scratch: Path, *variables: object) -> None:
        started.append(role)
        original(self, role, scratch, *variables)

    monkeypatch.setattr(Zygote, "__init__", count)
    with pytest.raises(InfrastructureError, match="zygote"):
        zygotes.fork("interpret")
    assert started == ["interpret"]
    zygotes.close()


@pytest.mark.parametrize(
    ("role", "callers", "connections"),
    [("device", {}, "1"), ("device", {NAME: "8"}, "8"), ("interpret", {NAME: "8"}, None)],
)
def test_contexts_have_one_queue_unless_the_caller_wants_more(
    role: str, callers: dict[str, str], connections: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    for name, value in {**callers, "WANDB_API_KEY": "a secret"}.items():
        monkeypatch.setenv(name, value)
    found = environment_of(role, tmp_path, monkeypatch)
    assert found.get(NAME) == connections
    assert "WANDB_API_KEY" not in found


@pytest.mark.parametrize(
    ("role", "callers", "visible"),
    [("device", "0", "GPU-1"), ("device", "MIG-1", "MIG-1"), ("device", None, "GPU-1"), ("build", "0", "")],
)
def test_processes_on_a_gpu_see_that_one_alone(
    role: str, callers: str | None, visible: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detection, "_gpu", lambda: detection._Gpu("NVIDIA H100", 70 << 30, "GPU-1", 90))
    monkeypatch.setattr(detection, "file_of", {"GPU-1": "/dev/nvidia3"}.get)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if callers is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", callers)
    assert environment_of(role, tmp_path, monkeypatch)["CUDA_VISIBLE_DEVICES"] == visible
    monkeypatch.setattr(detection, "file_of", lambda _: None)
    given = callers if role == "device" else ""
    assert environment_of(role, tmp_path, monkeypatch).get("CUDA_VISIBLE_DEVICES") == given


def environment_of(role: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment in which a zygote is started."""
    monkeypatch.setattr("kernels_eval.pool.zygote._PROGRAM", ("sh", "-c", 'env > "$TMPDIR/environment"'))
    zygotes = Zygotes(folder)
    with pytest.raises(InfrastructureError, match="zygote"):
        zygotes.fork(role)
    zygotes.close()
    return dict(line.split("=", 1) for line in (folder / "environment").read_text().splitlines())
