"""JSON logs, written by the rollout worker if asked for: one file per turn and one per trajectory; and their reader.

turn_{instance_id}_t{turn_idx}_{timestamp}.json   the turn's prompt as messages, response, kernel, evaluation, reward
trajectory_{instance_id}_{timestamp}.json         rewards, aggregated return, history and messages of a finished episode

`final_reward` is the aggregated return of the conversation, as in TritonForge's logs; `extra_info.last_reward` is the
reward of its last turn. `instance_id` is the problem's id (in file names with every unusual character as `_`),
`turn_idx` counts from 0, `timestamp` is UTC with microseconds, moved on by one if the name is taken. A reward or return
of null is a turn on which the machine failed. Runtimes are in ms, measured (`extra_info.timing_source`: `gpu`) or
estimated (`roofline`).

A thread writes the files: the event loop never waits for the disk. Errors of writing are reported once, at the end.
"""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError
from tasks.models.chat_templates import Message
from tasks.trajectories.returns import turn_returns
from tasks.trajectories.schema import Trajectory, Turn

logger = logging.getLogger("kernelmill.rollout")
_TIMESTAMP = "%Y%m%d_%H%M%S_%f"
_DETAILS = (
    "run_id", "iteration", "trajectory_id", "sample_index", "split", "level", "termination", "policy_digest"
)  # fmt: skip
"""Fields of a trajectory in its file's `extra_info`."""


class JsonLogs:
    """Writes into one folder; use from one thread, `close` when done."""

    def __init__(self, folder: Path) -> None:
        """Raise InputError if the folder cannot be made."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"rollout.trajectory_logs: cannot make {folder}: {error.strerror or error}") from error
        self._folder = folder
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trajectory-logs")
        self._writing: list[Future[Path]] = []

    def log_turn(self, problem_id: str, messages: Sequence[Message], turn: Turn, details: dict[str, Any]) -> None:
        """Queue a turn for writing; returns at once."""
        self._log(f"turn_{_plain(problem_id)}_t{turn.turn_index}", turn_record(problem_id, messages, turn, details))

    def log_trajectory(self, trajectory: Trajectory, messages: Sequence[Message], gamma: float) -> None:
        """Queue a finished episode for writing; returns at once."""
        self._log(f"trajectory_{_plain(trajectory.problem_id)}", trajectory_record(trajectory, messages, gamma))

    def close(self) -> None:
        """Write all queued files. Does not raise for a full disk: logs are not the data set."""
        self._writer.shutdown(wait=True)
        errors = [error for error in (writing.exception() for writing in self._writing) if error is not None]
        unexpected = next((error for error in errors if not isinstance(error, OSError)), None)
        if unexpected is not None:
            raise unexpected
        if errors:
            logger.warning(
                "%s: %d of %d files not written: %s", self._folder, len(errors), len(self._writing), errors[0]
            )

    def _log(self, prefix: str, record: dict[str, Any]) -> None:
        self._writing.append(self._writer.submit(_write, self._folder, prefix, record, datetime.now(UTC)))


def turn_record(problem_id: str, messages: Sequence[Message], turn: Turn, details: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a turn's file, less its timestamp."""
    return {
        "instance_id": problem_id,
        "turn_idx": turn.turn_index,
        "turn_data": {
            "prompt": _message_records(messages),
            "response": turn.response_text,
            **_turn_data(turn, details),
        },
    }


def trajectory_record(trajectory: Trajectory, messages: Sequence[Message], gamma: float) -> dict[str, Any]:
    """Return the content of a trajectory's file, less its timestamp."""
    rewards = trajectory.rewards
    aggregated = turn_returns(rewards, gamma)[0]
    last = trajectory.turns[-1].verdict
    return {
        "instance_id": trajectory.problem_id,
        "final_reward": aggregated,
        "num_turns": len(rewards),
        "turn_rewards": rewards,
        "aggregated_return": aggregated,
        "history": [{"turn_idx": turn.turn_index, **_turn_data(turn, {})} for turn in trajectory.turns],
        "messages": _message_records(messages),
        "execution_details": {
            "final_compiled": last.compiled,
            "final_correctness": last.correct,
            "final_runtime": last.candidate_ms,
            "final_speedup": last.speedup,
        },
        "extra_info": {
            **{name: getattr(trajectory, name) for name in _DETAILS},
            "timing_source": last.timing_source,
            "gamma": gamma,
            "last_reward": rewards[-1],
        },
    }


def _turn_data(turn: Turn, details: dict[str, Any]) -> dict[str, Any]:
    verdict = turn.verdict
    return {
        "kernel_code": turn.kernel_source or "",
        "eval_result": {
            "compiled": verdict.compiled,
            "correctness": verdict.correct,
            "runtime": verdict.candidate_ms,
            "speedup": verdict.speedup,
            "error_message": verdict.error_message or "",
        },
        "reward": turn.reward,
        "extra_info": {
            **details,
            "status": verdict.status,
            "error_category": verdict.error_category,
            "rejection_reason": verdict.rejection_reason,
            "timing_source": verdict.timing_source,
            "finish_reason": turn.finish_reason,
            "prompt_tokens": len(turn.prompt_token_ids),
            "response_tokens": len(turn.response_token_ids),
            "generation_s": turn.generation_s,
            "evaluation_s": turn.evaluation_s,
        },
    }


def _message_records(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role.value, "content": message.content} for message in messages]


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", name)[:120]


def _write(folder: Path, prefix: str, record: dict[str, Any], at: datetime) -> Path:
    while True:
        timestamp = at.strftime(_TIMESTAMP)
        path = folder / f"{prefix}_{timestamp}.json"
        try:
            file = path.open("x", encoding="utf-8")
        except FileExistsError:
            at += timedelta(microseconds=1)
            continue
        with file:
            json.dump({"timestamp": timestamp, **record}, file, ensure_ascii=False, indent=1)
        return path


def has_logs(folder: Path) -> bool:
    """True if a folder holds JSON logs of trajectories."""
    return folder.is_dir() and any(folder.glob("trajectory_*.json"))


def read_logs(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the trajectory files of a folder, in the order of their names, and the faults of unreadable ones.

    A file that a killed process left half written does not hide the others. Raises InputError if none can be read.
    """
    records: list[dict[str, Any]] = []
    faults: list[str] = []
    for path in sorted(folder.glob("trajectory_*.json")):
        try:
            records.append(_checked(json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, KeyError, TypeError, OSError) as error:
            faults.append(f"{path.name}: not the log of a trajectory: {type(error).__name__}: {error}")
    if not records:
        reason = f": {faults[0]}" if faults else ""
        raise InputError(f"{folder}: expected trajectory_*.json files, found none that can be read{reason}")
    return records, faults


def turn_rows(record: dict[str, Any], place: int) -> Iterator[dict[str, Any]]:
    """Yield one row a turn of a trajectory's record, with the columns of `tasks.trajectories.analysis`."""
    details = record.get("extra_info") or {}
    fallback = f"{record['instance_id']}-{place:06d}"
    for history, reward in zip(record["history"], record["turn_rewards"], strict=True):
        result = history["eval_result"]
        extra = history.get("extra_info") or {}
        yield {
            "run_id": details.get("run_id"),
            "policy_digest": details.get("policy_digest"),
            "trajectory_id": str(details.get("trajectory_id") or fallback),
            "problem_id": str(record["instance_id"]),
            "split": details.get("split"),
            "iteration": int(details.get("iteration") or 0),
            "turn_index": int(history["turn_idx"]),
            "reward": None if reward is None else float(reward),
            "return": None if record["aggregated_return"] is None else float(record["aggregated_return"]),
            "compiled": bool(result["compiled"]),
            "correct": bool(result["correctness"]),
            "speedup": None if result.get("speedup") is None else float(result["speedup"]),
            "timing_source": extra.get("timing_source") or details.get("timing_source"),
            "termination": details.get("termination"),
        }


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    """Raise KeyError, TypeError or ValueError if a record has not the documented shape."""
    if not list(turn_rows(record, 0)):
        raise ValueError("no turns")
    if not isinstance(record.get("messages", []), list):
        raise TypeError("messages: expected a list")
    return record
