"""The files' names and shapes, as they are documented; none is lost, replaced or waited for."""

import json
import logging
import re
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.errors import InputError
from kernels_eval.verdict import Status, TimingSource, Verdict
from tasks.agents.config import SOLVER
from tasks.models.chat_templates import Message, Role
from tasks.trajectories import json_logs
from tasks.trajectories.json_logs import JsonLogs
from tasks.trajectories.schema import Termination, Trajectory, Turn

WRONG = Verdict(status=Status.INCORRECT, compiled=True, candidate_ms=None, error_message="expected 1, found 2 → é")
RIGHT = Verdict(
    status=Status.CORRECT,
    compiled=True,
    correct=True,
    candidate_ms=1.567,
    speedup=2.5,
    timing_source=TimingSource.ROOFLINE,
)
ASKED = [Message(role=Role.USER, content="class Model: ...")]
STAMP = r"\d{8}_\d{6}_\d{6}"


def turn(index: int, verdict: Verdict, reward: float | None) -> Turn:
    return Turn(
        index, SOLVER, (1, 2), (3,), (-0.1,), True, "stop", "an answer", "kernel\n", verdict, reward, 0.1, 0.2,
        datetime.now(UTC),
    )  # fmt: skip


def trajectory(problem: str = "kernelbench_1", sample: int = 0) -> Trajectory:
    turns = (turn(0, WRONG, 0.1), turn(1, RIGHT, 1.8))
    return Trajectory("run", 3, "d", problem, "d", "train", 2, "g", f"g-{sample}", sample, turns, Termination.SUCCESS)


def test_shapes(tmp_path: Path) -> None:
    logs = JsonLogs(tmp_path)
    logs.log_turn("kernelbench_1", ASKED, turn(0, WRONG, 0.1), {"trajectory_id": "g-0"})
    answered = [*ASKED, Message(role=Role.ASSISTANT, content="an answer")]
    logs.log_trajectory(trajectory(), answered, gamma=0.4)
    logs.close()
    (turn_file,) = tmp_path.glob("turn_*.json")
    (trajectory_file,) = tmp_path.glob("trajectory_*.json")
    assert re.fullmatch(rf"turn_kernelbench_1_t0_{STAMP}\.json", turn_file.name)
    assert re.fullmatch(rf"trajectory_kernelbench_1_{STAMP}\.json", trajectory_file.name)
    found = json.loads(turn_file.read_text(encoding="utf-8"))
    assert turn_file.stem.endswith(found["timestamp"])
    assert list(found) == ["timestamp", "instance_id", "turn_idx", "turn_data"]
    assert list(found["turn_data"]) == ["prompt", "response", "kernel_code", "eval_result", "reward", "extra_info"]
    assert found["turn_data"]["prompt"] == [{"role": "user", "content": "class Model: ..."}]
    assert found["turn_data"]["eval_result"] == {
        "compiled": True,
        "correctness": False,
        "runtime": None,
        "speedup": None,
        "error_message": "expected 1, found 2 → é",
    }
    assert found["turn_data"]["extra_info"]["trajectory_id"] == "g-0"
    found = json.loads(trajectory_file.read_text(encoding="utf-8"))
    assert list(found) == [
        "timestamp", "instance_id", "final_reward", "num_turns", "turn_rewards", "aggregated_return", "history",
        "messages", "execution_details", "extra_info",
    ]  # fmt: skip
    assert (found["num_turns"], found["turn_rewards"]) == (2, [0.1, 1.8])
    assert found["final_reward"] == found["aggregated_return"] == pytest.approx(0.1 + 0.4 * 1.8)
    assert found["extra_info"]["last_reward"] == 1.8
    assert found["execution_details"] == {
        "final_compiled": True,
        "final_correctness": True,
        "final_runtime": 1.567,
        "final_speedup": 2.5,
    }
    assert [each["turn_idx"] for each in found["history"]] == [0, 1]
    assert found["messages"][-1] == {"role": "assistant", "content": "an answer"}
    assert found["extra_info"]["timing_source"] == "roofline"


def test_a_fault_is_null(tmp_path: Path) -> None:
    logs = JsonLogs(tmp_path)
    logs.log_turn("p", ASKED, turn(0, Verdict(status=Status.INFRASTRUCTURE_ERROR), None), {})
    logs.close()
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text())["turn_data"]["reward"] is None


def test_many_at_once_are_all_there(tmp_path: Path) -> None:
    """Several logs in one folder, the same instance: no file is lost or replaced."""
    folders = [JsonLogs(tmp_path) for _ in range(4)]

    def write(logs: JsonLogs, number: int) -> None:
        for sample in range(100):
            logs.log_trajectory(trajectory(sample=100 * number + sample), ASKED, 0.4)
        logs.close()

    threads = [threading.Thread(target=write, args=(logs, number)) for number, logs in enumerate(folders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = Counter(json.loads(file.read_text())["extra_info"]["trajectory_id"] for file in tmp_path.iterdir())
    assert len(ids) == 400
    assert set(ids.values()) == {1}


def test_a_name_that_is_taken_moves_on(tmp_path: Path) -> None:
    at = datetime(2025, 8, 7, 8, 48, 1, 999_999, tzinfo=UTC)
    paths = [json_logs._write(tmp_path, "turn_p_t0", {"n": n}, at) for n in range(3)]  # pyright: ignore[reportPrivateUsage]
    assert [path.name for path in paths] == [
        f"turn_p_t0_{(at + timedelta(microseconds=n)).strftime('%Y%m%d_%H%M%S_%f')}.json" for n in range(3)
    ]
    assert [json.loads(path.read_text())["n"] for path in paths] == [0, 1, 2]


def test_ids_that_are_no_file_names(tmp_path: Path) -> None:
    logs = JsonLogs(tmp_path)
    logs.log_trajectory(trajectory(problem="../level 1/softmax"), ASKED, 0.4)
    logs.close()
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("trajectory_.._level_1_softmax_")
    assert json.loads(file.read_text())["instance_id"] == "../level 1/softmax"


def test_logging_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = json_logs._write  # pyright: ignore[reportPrivateUsage]
    all_logged, waited = threading.Event(), list[bool]()

    def slow(*arguments: Any) -> Path:
        waited.append(all_logged.wait(20))
        return write(*arguments)

    monkeypatch.setattr(json_logs, "_write", slow)
    logs = JsonLogs(tmp_path)
    for sample in range(50):
        logs.log_trajectory(trajectory(sample=sample), ASKED, 0.4)
    all_logged.set()
    logs.close()
    assert waited == [True] * 50
    assert len(list(tmp_path.iterdir())) == 50


def test_what_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "logs"
    logs = JsonLogs(folder)
    folder.rmdir()
    for sample in range(3):
        logs.log_trajectory(trajectory(sample=sample), ASKED, 0.4)
    with caplog.at_level(logging.WARNING):
        logs.close()
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == ["3 of 3 files not written"]


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"rollout\.trajectory_logs"):
        JsonLogs(tmp_path / "file" / "logs")
