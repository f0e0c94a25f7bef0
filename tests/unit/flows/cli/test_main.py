"""The command line: bad input is one line on stderr and exit code 2, before anything is started."""

import errno
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.cli import main
from flows.cli.main import run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(f"name: demo\nruns_dir: {tmp_path / 'runs'}\n")
    return path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must be refused; return its one line."""
    assert run(list(arguments)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert "Traceback" not in lines[0]
    return lines[0]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_help_needs_no_heavy_import():
    code = (
        "import sys; from flows.cli.main import run; run(['train', '--help']);"
        "heavy = [m for m in ('torch', 'ray', 'prefect', 'transformers', 'polars') if m in sys.modules];"
        "print(heavy, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "--set" in done.stdout


def test_a_replay_needs_trajectories(capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path):
    command = ("update", "-c", str(config))
    assert "belong to --replay" in refused(capsys, *command, "--checkpoint", str(tmp_path))
    assert f"{tmp_path / 'nowhere'}: expected a trajectory data set" in refused(
        capsys, *command, "--replay", str(tmp_path / "nowhere")
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["rollout.episode.max_turns=-1"], "rollout.episode.max_turns: found -1"),
        (["updat.ranks=1"], "did you mean update?"),
        (["problems.source=jsonl"], "problems.path: expected a file or folder"),
        (["problems.source=jsonl", "problems.path=/nowhere.jsonl"], "/nowhere.jsonl"),
        (["sft.data.path=/nowhere.parquet"], "/nowhere.parquet"),
        (["evaluation.pass_at=[9]"], "evaluation.pass_at: found 9"),
        (["model.heads=3"], "model.key_value_heads"),
        (["model.pretrained=/nowhere"], "model.pretrained: no such folder: /nowhere"),
        (
            ["update.context_parallel=2"],
            "update.ranks: found 1, expected a multiple of update.context_parallel = 2",
        ),
        (
            ["update.context_parallel=3", "update.ranks=3", "model.heads=4"],
            "update.context_parallel: found 3, expected a divisor of the model's 4 attention heads",
        ),
        (["update.deepspeed=/nowhere.json"], "update.deepspeed: no such file"),
        (["update.advantage=gae", "update.critic.pretrained=/nowhere"], "update.critic.pretrained: no such file"),
        (
            ["rollout.judge_actors.count=2", "rollout.judge_actors.cpus=1.5", "ray.cpus=2"],
            "rollout.judge_actors.cpus: 2 actors reserve 3 CPUs, found 2",
        ),
        (["update.overlong=penalise"], "update.overlong_limit: found None, expected a number of response tokens"),
        (["rollout.episode.task=kernelbnch"], "rollout.episode.task: found 'kernelbnch', expected one of kernelbench"),
        (
            ["rollout.episode.agents={a: {turns: first}, b: {turns: later, trained: false}}"],
            "rollout.episode.agents.b: not trained, so that it needs weights to have: set its pretrained",
        ),
        (
            ["rollout.episode.agents={a: {turns: first, may_stop: true}, b: {turns: later}}"],
            "rollout.episode.agents.a.may_stop: there is nothing to keep on a first turn",
        ),
        (
            ["rollout.episode.reward=kevn"],
            "rollout.episode.reward: found 'kevn', expected one of correct, four_part, kernelbench, kevin",
        ),
        (
            ["judge.device=cuda", "judge.workers=4", "judge.device_memory_gb=9"],
            "judge.device_memory_gb: found 9, expected at least 10.0 for judge.workers = 4",
        ),
        (
            ["judge.backend=helion"],
            "judge.backend: found 'helion', expected one of auto, cuda, cute, hip, tilelang, triton",
        ),
        (["runs_dir=/proc/nowhere"], "runs_dir"),
    ],
)
def test_bad_settings(config: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], words: str):
    arguments = [part for override in overrides for part in ("--set", override)]
    assert words in refused(capsys, "train", "--config", str(config), *arguments)


def test_missing_configuration_file(capsys: pytest.CaptureFixture[str]):
    assert "no such configuration file" in refused(capsys, "train", "--config", "/nowhere.yaml")


def test_unreachable_ray_address_is_told_within_seconds(config: Path, capsys: pytest.CaptureFixture[str]):
    began = time.monotonic()
    line = refused(capsys, "train", "--config", str(config), "--set", f"ray.address=127.0.0.1:{free_port()}")
    assert "ray.address" in line
    assert "expected a Ray cluster that answers there" in line
    assert time.monotonic() - began < 60


def test_problem_without_get_inputs(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "1_broken.py").write_text("class Model: pass\ndef get_init_inputs(): return []\n")
    line = refused(
        capsys,
        "train",
        "--config",
        str(config),
        "-s",
        "problems.source=kernelbench",
        "-s",
        f"problems.path={level.parent}",
    )
    assert "1_broken.py" in line
    assert "get_inputs" in line


def test_corrupt_parquet(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    broken = tmp_path / "problems.parquet"
    broken.write_bytes(b"PAR1 but no more")
    line = refused(
        capsys, "train", "--config", str(config), "-s", "problems.source=parquet", "-s", f"problems.path={broken}"
    )
    assert str(broken) in line


def test_state_of_another_shape(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from flows.settings.configuration import load_configuration

    folder = tmp_path / "runs" / load_configuration(config).run_id
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"policies": 3}')
    assert "state.json" in refused(capsys, "train", "--config", str(config))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["judge", "score"], "expected PROBLEM.py and KERNEL.py"),
        (["judge", "score", "/nowhere.py", "/nowhere.py"], "/nowhere.py: cannot be read"),
        (["judge", "score", "--batch", "/nowhere.jsonl"], "--out"),
    ],
)
def test_score_refuses(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str):
    assert words in refused(capsys, *arguments)


def test_score_batch_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    batch = tmp_path / "in.jsonl"
    source = "class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"
    batch.write_text(json.dumps({"problem_source": source, "kernel_source": "x"}) + '\n{"problem_source": 1}\n')
    assert f"{batch}:2" in refused(
        capsys, "judge", "score", "--batch", str(batch), "--out", str(tmp_path / "out.jsonl")
    )


def test_a_server_on_a_taken_port_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "prefect").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "Address already in use" in refused(
            capsys, "serve", "prefect", "--runs-dir", str(tmp_path), "--port", port
        )
        assert "Address already in use" in refused(capsys, "serve", "judge", "--port", port)
    assert "--port: cannot listen on 127.0.0.1:70000" in refused(
        capsys, "serve", "prefect", "--runs-dir", str(tmp_path), "--port", "70000"
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "Cannot allocate memory (`ulimit -v`"),
        (ImportError("lib.so: failed to map segment from shared object"), "Cannot allocate memory (`ulimit -v`"),
        (RuntimeError("can't start new thread"), "for another process or thread (`ulimit -u`"),
        (BlockingIOError(errno.EAGAIN, "unavailable"), "for another process or thread (`ulimit -u`"),
        (OSError(errno.EMFILE, "too many", "state.json"), "state.json: Too many open files (`ulimit -n`"),
        (OSError(errno.EROFS, "read-only", "state.json"), "state.json: Read-only file system"),
    ],
)
def test_a_limit_of_the_machine_is_one_line(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(main, "app", fail)
    assert run([]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert words in said


def test_a_current_folder_that_was_removed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(main, "app", lambda **_: Path.cwd())
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run([]) == 2
    assert capsys.readouterr().err == "error: the current folder was removed; change into one that exists\n"
    monkeypatch.chdir(tmp_path)
