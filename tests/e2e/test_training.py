"""The real loop at its smallest: killed during SFT, continued by the same command, then nothing left to do.

Asks of the whole what no part can show: that a driver killed with -9 leaves no process behind and loses no finished
stage, that the run then ends with everything that a run promises, that a second start computes nothing, that no token is written
anywhere, and that nothing listens to the network.
"""

import ipaddress
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import psutil
import pytest

from tasks.tracking.steps import read_steps

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

CONFIG = Path("deployments/configs/test.yaml").resolve()
SMALLER = [
    "sft.steps=60", "sft.save_interval=10", "sft.warmup_steps=5", "sft.data.compositions=24", "problems.train=24",
    "problems.heldout=4", "problems.harder=0", "rollout.problems_per_iteration=4", "rollout.samples_per_problem=4",
    # So little training makes no kernel right: only their lengths tell answers apart.
    "rollout.episode.reward=kernelbench - 0.2*length",
]  # fmt: skip
"""Nothing asked here needs more."""
MARK = "KERNELMILL_TEST_RUN"
TOKENS = {
    "WANDB_API_KEY": secrets.token_hex(20),
    "HF_TOKEN": "hf_" + secrets.token_hex(17),
    "KERNELMILL_JUDGE_TOKEN": secrets.token_hex(20),
    "KERNELMILL_WEBHOOK_TOKEN": secrets.token_hex(20),
}
"""Secrets that a person may have in the environment, and nobody may find in a file."""


class Command:
    """`kernelmill train` on the test configuration, as a user starts it, in a folder of runs of its own."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir
        self.mark = uuid.uuid4().hex
        self.began = time.time()
        self.heard: set[tuple[str, str]] = set()
        """Address at which the killed run listened."""
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"},
            MARK: self.mark,
            **TOKENS,
            "PREFECT_HOME": str(runs_dir / "prefect-home"),
            "COLUMNS": "200",
        }
        self.arguments = [
            sys.executable,
            "-m",
            "flows.cli.main",
            "train",
            "-c",
            str(CONFIG),
            "-s",
            f"runs_dir={runs_dir}",
            *(word for setting in SMALLER for word in ("-s", setting)),
        ]

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as out:
            return subprocess.Popen(self.arguments, env=self.environment, stdout=out, stderr=subprocess.STDOUT)

    def run(self, command: str = "train", *more: str) -> str:
        return self.done([command if part == "train" else part for part in self.arguments] + list(more))

    def done(self, arguments: list[str]) -> str:
        """Run this command line; return what it said."""
        done = subprocess.run(arguments, env=self.environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def listening(self) -> set[tuple[str, str]]:
        """Every address that a process of the command listens on, with what that process is called."""
        found: set[tuple[str, str]] = set()
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    connections = process.net_connections("inet")
                    found |= {(entry.laddr.ip, process.name()) for entry in connections if entry.status == "LISTEN"}
            except psutil.Error:
                continue
        return found

    def processes(self) -> list[str]:
        """Every living process that the command started, directly or not."""
        found: list[str] = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    command = Command(tmp_path_factory.mktemp("e2e") / "runs")
    command.runs_dir.mkdir()
    yield command
    assert gone(command, 180) == []


@pytest.fixture(scope="module")
def killed(command: Command) -> str:
    """Start the run, kill its driver in the middle of SFT, and return what it had printed."""
    log = command.runs_dir.parent / "first.txt"
    driver = command.start(log)
    try:
        wait_for(lambda: any(command.runs_dir.glob("work/sft/*/*/manifest.json")), 600, driver, log)
        command.heard = command.listening()
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    return log.read_text()


@pytest.fixture(scope="module")
def continued(command: Command, killed: str) -> str:
    """Run the same command to its end and return what it printed."""
    assert gone(command, 180) == [], "processes outlive the killed driver"
    return command.run()


@pytest.fixture(scope="module")
def run_dir(command: Command, continued: str) -> Path:
    return command.runs_dir / "latest"


def test_the_kill_came_during_sft(killed: str):
    assert "✓ SFT data" in killed
    assert "✓ SFT:" not in killed


def test_nothing_listens_to_the_network(command: Command, killed: str):
    assert command.heard, "Prefect's server and Ray at least"
    outside = {
        (address, name)
        for address, name in command.heard
        if not ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback
    }
    assert outside == set()


def test_finished_stages_are_not_repeated_after_the_kill(continued: str):
    assert stages(continued, "cached") == [
        "problem set",
        "check of the problem set",
        "SFT data",
        "check of the SFT data",
    ]
    done = stages(continued, "computed")
    assert done[0] == "SFT"
    assert {
        "rollout 0",
        "update 0",
        "rollout 1",
        "update 1",
        "evaluation of policy 0",
        "evaluation of policy 2",
        "control: more SFT",
        "evaluation of the control",
    } <= set(done)


def test_the_run_leaves_what_it_promises(run_dir: Path):
    summary = json.loads((run_dir / "summary.json").read_text())
    for side in ("before", "after"):
        assert {"compiled", "correct", "fast_1", "fast_2", "mean_return", "correct_ci"} <= set(summary["heldout"][side])
    assert {"n", "delta_correct", "delta_correct_ci", "delta_mean_return_ci", "delta_fast_2_ci"} <= set(
        summary["heldout"]
    )
    assert {"sft", "rollout", "update", "control"} <= set(summary["stage_seconds"])
    assert summary["heldout"]["control"]["policy_digest"] not in {
        summary["heldout"][side]["policy_digest"] for side in ("before", "after")
    }
    assert [figures["policy"] for figures in summary["heldout"]["between"]] == [1], "evaluation.interval"
    assert summary["wall_seconds"] > 0
    assert summary["orchestration_seconds"] > 0
    report = (run_dir / "report.html").read_text()
    assert report.count("<html") == 1
    assert 'src="http' not in report
    assert (run_dir / "config.yaml").exists()
    assert (run_dir / "log.txt").read_text().count("Finished in state") > 10
    assert [path.name for path in sorted((run_dir / "checkpoints").iterdir())] == [
        "control",
        "policy-000",
        "policy-001",
        "policy-002",
    ]


def test_every_optimizer_step_is_recorded_once_though_sft_was_killed(run_dir: Path):
    """As it came, and to W&B: the driver that was killed and its successor have logged each row once."""
    steps, policies = read_steps(run_dir), [run_dir / "checkpoints" / f"policy-{number:03d}" for number in range(3)]
    tables = [pl.read_parquet(policy / "metrics.parquet") for policy in policies]
    assert [line.step for line in steps["sft"]] == tables[0]["step"].to_list()
    assert [line.step for line in steps["update"]] == [*tables[1]["step"], *tables[2]["step"]]
    assert [line.figures["loss"] for line in steps["update"]] == [*tables[1]["loss"], *tables[2]["loss"]]
    assert {"sft", "update", "control"} == set(steps)
    noted = [json.loads(line) for line in (run_dir / "wandb" / "sent.jsonl").read_text().splitlines()]
    rows = [entry["rows"] for entry in noted]
    assert rows == sorted(rows)
    logged = [entry["step"] for entry in noted if entry.get("training", "").startswith("sft ")]
    assert logged == sorted(set(logged))
    assert logged[-1] == steps["sft"][-1].step


def test_the_trajectories_are_a_data_set(run_dir: Path, command: Command):
    turns = pl.read_parquet(run_dir / "trajectories" / "iteration=1" / "turns.parquet")
    assert turns.height > 0
    whole = pl.scan_parquet(
        command.runs_dir / "trajectories" / "**" / "turns.parquet", hive_partitioning=False
    ).collect()
    assert set(whole["iteration"]) == {0, 1}
    assert set(whole["split"]) == {"train"}


def test_the_checkpoint_is_a_hugging_face_model(run_dir: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = run_dir / "checkpoints" / "policy-002"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.model_type == "qwen3"
    assert len(tokenizer) == model.config.vocab_size


def test_a_second_start_computes_nothing(command: Command, continued: str, run_dir: Path):
    before = {path: path.stat().st_mtime_ns for path in (run_dir / "summary.json", run_dir / "report.html")}
    output = command.run()
    assert stages(output, "computed") == []
    assert set(stages(output, "cached")) == set(stages(continued, "computed") + stages(continued, "cached"))
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_replay_without_a_configuration_is_the_update_of_the_run(command: Command, run_dir: Path):
    own = (run_dir / "checkpoints" / "policy-001").resolve()
    batch = run_dir / "trajectories" / "iteration=0"
    words = [*command.arguments[:3], "update", "--replay", str(batch), "--compare", str(own)]
    output = command.done(words)
    assert stages(output, "computed") == []
    assert f"replayed: {own}" in output
    assert re.search(r"^ gradient_norm +([0-9.e-]+) +\1 +0 *$", output, flags=re.MULTILINE)
    assert [link.resolve() for link in (run_dir / "replays").iterdir()] == [own]


def test_no_token_is_written(command: Command, continued: str, killed: str):
    """After everything above: not by a stage, not in a log of Prefect, Ray or W&B, not in the report."""
    written = [path for path in command.runs_dir.parent.rglob("*") if path.is_file() and not path.is_symlink()]
    logs = [path for path in Path("/tmp/ray").glob("session_2*/logs/**/*") if path.is_file()]
    written += [path for path in logs if path.stat().st_mtime >= command.began]
    assert any("wandb" in path.parts for path in written)
    for name, token in TOKENS.items():
        assert token not in killed + continued, name
        assert [path for path in written if token.encode() in path.read_bytes()] == [], name
    own = command.runs_dir / "prefect" / "auth"
    auth = own.read_text(encoding="utf-8").strip()
    assert auth not in killed + continued
    assert [path for path in written if auth.encode() in path.read_bytes()] == [own]


def stages(output: str, kind: str) -> list[str]:
    """Return the stages that were cached, or computed, in order."""
    pattern = r"^● (.+): cached" if kind == "cached" else r"^✓ (.+): [0-9.]+ s"
    return re.findall(pattern, output, flags=re.MULTILINE)


def gone(command: Command, timeout_s: float) -> list[str]:
    """Wait until no process of the command is left; return those that stay."""
    deadline = time.monotonic() + timeout_s
    while (left := command.processes()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def wait_for(condition, timeout_s: float, driver: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert driver.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
