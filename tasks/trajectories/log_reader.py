"""Reads the JSON logs of trajectories (tasks.trajectories.json_logs; also those of other programs that keep to their shape)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError


def has_logs(folder: Path) -> bool:
    """True where a folder holds JSON logs of trajectories."""
    return folder.is_dir() and any(folder.glob("trajectory_*.json"))


def read_logs(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the trajectory files of a folder, in the order of their names, and what is wrong with those that cannot be read.

    A file that a killed process left half written is no reason to give up on the others. Raises InputError where none can.
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
    """Raise KeyError, TypeError or ValueError where a record has not the documented shape."""
    if not list(turn_rows(record, 0)):
        raise ValueError("no turns")
    if not isinstance(record.get("messages", []), list):
        raise TypeError("messages: expected a list")
    return record
