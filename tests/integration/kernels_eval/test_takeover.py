"""A candidate leaves a module in the judge's folders and ends the judge's processes: nothing of it is ever imported."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import kernel_sources as sources
import pytest

from kernels_eval import Judge, JudgeConfig, Problem, Status
from kernels_eval.sandbox import landlock

ROOT = Path(__file__).parents[3]
ZEROS = sources.ROW_KERNEL.replace("x * 2.0", "x * 0.0")
ATTACK = """
import glob, os, signal, tempfile
_place = os.getcwd()
while True:
    try:
        open(os.path.join(_place, "torch.py"), "w").write("open({marker!r}, 'a').write('taken over')")
    except OSError:
        pass
    if _place == {top!r}:
        break
    _place = os.path.dirname(_place)
try:
    _processes = [int(name) for name in os.listdir("/proc") if name.isdigit()]
except OSError:
    _processes = [os.getppid()]
for _process in set(_processes) - {{os.getpid()}}:
    try:
        if _process == os.getppid() or b"simulated_device" in open(f"/proc/{{_process}}/cmdline", "rb").read():
            os.kill(_process, signal.SIGKILL)
    except OSError:
        pass
"""


@pytest.mark.skipif(landlock.version() < 6, reason="needs Landlock with scopes")
@pytest.mark.long
def test_on_the_path_for_gpus(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for parent in (tmp_path, *tmp_path.parents):
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o711)  # pytest's folders are root's alone
    problem = sources.ROW_PROBLEM.replace("4096, 300", "128, 300")
    config = {"timeout_s": 60.0, "compile_timeout_s": 2.0, "timing_rounds": 2, "timing_s": 1.0}
    attacker = sources.ROW_KERNEL + ATTACK.format(marker=str(marker), top=str(tmp_path))
    kernels = (ZEROS, attacker, ZEROS + "\n# again\n", sources.ROW_KERNEL)
    lines = "\n".join(json.dumps({"problem": problem, "kernel": kernel, "config": config}) for kernel in kernels)
    work = tmp_path / "work"
    work.mkdir()
    ran = subprocess.run(
        [sys.executable, "-P", str(ROOT / "tests/doubles/simulated_device.py")],
        input=lines,
        capture_output=True,
        text=True,
        timeout=250,
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(work), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    statuses = [json.loads(line)["status"] for line in ran.stdout.splitlines()]
    assert statuses == ["incorrect", "correct", "incorrect", "correct"], ran.stderr[-3000:]
    assert not marker.exists()
    assert not list(work.rglob("torch.py"))


@pytest.mark.long
def test_what_lies_in_the_scratch_folder_is_never_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a candidate could write there: the file is put there for it, and every process is started anew."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    marker = tmp_path / "marker"
    problem = Problem(problem_id="rows", source=sources.ROW_PROBLEM)
    with Judge(JudgeConfig(workers=1, cache_mb=0, device="cpu")) as judge:
        assert judge.evaluate(problem, sources.ROW_KERNEL).status is Status.CORRECT
        (scratch,) = tmp_path.glob("kernels-eval-*")
        for folder in (scratch, *(path for path in scratch.iterdir() if path.is_dir())):
            for name in ("torch", "triton", "numpy", "json"):
                (folder / f"{name}.py").write_text(
                    f"open({str(marker)!r}, 'a').write('imported')\nraise SystemExit(1)\n"
                )
        zygotes = _zygotes()
        assert zygotes
        for process in zygotes:
            os.kill(process, signal.SIGKILL)
        assert judge.evaluate(problem, ZEROS).status is Status.INCORRECT
        assert judge.evaluate(problem, sources.ROW_KERNEL + "# again\n").status is Status.CORRECT
        assert set(_zygotes()).isdisjoint(zygotes)
    assert not marker.exists()


def _zygotes() -> list[int]:
    """Return the running zygotes that this process started."""
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            status, command = (place / "stat").read_text(), (place / "cmdline").read_bytes()
        except OSError:
            continue
        if int(status.rpartition(")")[2].split()[1]) == os.getpid() and b"kernels_eval.pool.zygote" in command:
            found.append(int(place.name))
    return found
