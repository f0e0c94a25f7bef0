"""Held-out results in the files of KernelBench's own scripts, so that its analysis and other people's read them.

    FOLDER/level<L>/eval_results.json        {"19": [entry, …]}; an entry has sample_id, compiled, correctness,
                                             metadata, runtime, runtime_stats
    FOLDER/level<L>/pass_at_k_results.json   averages, metadata, and pass@k of each problem
    FOLDER/timing/<source>/reference.json    {"level1": {"19_ReLU.py": {"mean": ms}}}: the baseline's times
    FOLDER/problems.json                     number and file name of each problem, by its id here

Problems are named by KernelBench's numbers; those of other sources are numbered from 1 within their level. A sample is
the last turn of a trajectory. Times are milliseconds, -1 if there is none; `metadata.timing_source` says whether
they were measured (`gpu`) or estimated (`roofline`), and so does the folder's name. A trajectory on which the machine
failed is left out: KernelBench's script, too, writes no entry for a sample that it could not evaluate.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernels_eval.errors import InputError
from kernels_eval.server.schemas import in_kernelbench_names
from tasks.evaluation.statistics import pass_at_k
from tasks.pipeline.store import write_atomically
from tasks.trajectories.schema import Trajectory

_NUMBERED = re.compile(r"level(\d+)_((\d+)_.+)")


class Place(NamedTuple):
    """A problem's place in KernelBench's files."""

    level: int
    number: int
    file: str


def export_kernelbench(trajectories: Sequence[Trajectory], destination: Path) -> int:
    """Write the files of one policy's held-out trajectories below `destination`; returns the number of samples.

    The k of pass@k are 1 and the fewest samples that a problem has.

    Raises InputError if there is no held-out trajectory, or they are of several policies.
    """
    heldout = [one for one in trajectories if one.split == "heldout"]
    policies = sorted({one.policy_digest for one in heldout})
    if len(policies) != 1:
        raise InputError(
            f"expected held-out trajectories of one policy, found {len(policies)} policies; "
            "name one evaluation's folder, e.g. runs/RUN/evaluations/policy-003"
        )
    places = places_of(heldout)
    judged = [one for one in heldout if not any(turn.verdict.is_fault for turn in one.turns)]
    results = eval_results(judged, places)
    fewest = min((len(entries) for problems in results.values() for entries in problems.values()), default=1)
    ks = sorted({1, fewest})
    for level, problems in results.items():
        _write(destination / f"level{level}" / "eval_results.json", problems)
        _write(destination / f"level{level}" / "pass_at_k_results.json", pass_at_k_results(problems, ks))
    for source, baseline in baseline_times(judged, places).items():
        _write(destination / "timing" / source / "reference.json", baseline)
    _write(destination / "problems.json", {name: place._asdict() for name, place in places.items()})
    return len(judged)


def places_of(trajectories: Sequence[Trajectory]) -> dict[str, Place]:
    """Return the place of each problem by its id, sorted by id."""
    places: dict[str, Place] = {}
    counted: dict[int, int] = defaultdict(int)
    for name, level in sorted({(one.problem_id, one.level) for one in trajectories}):
        found = _NUMBERED.fullmatch(name)
        counted[level] += 1
        numbered = Place(int(found[1]), int(found[3]), f"{found[2]}.py") if found else None
        places[name] = numbered or Place(level, counted[level], f"{counted[level]}_{name.replace('/', '_')}.py")
    if len({(place.level, place.number) for place in places.values()}) < len(places):
        raise InputError("expected problems of KernelBench alone, or none of them: two would have one number")
    return places


def eval_results(
    trajectories: Sequence[Trajectory], places: Mapping[str, Place]
) -> dict[int, dict[str, list[dict[str, Any]]]]:
    """Return level → problem's number → entries, one a trajectory, by sample."""
    results: dict[int, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for one in sorted(trajectories, key=lambda one: (places[one.problem_id], one.sample_index)):
        place = places[one.problem_id]
        entries = results[place.level][str(place.number)]
        verdict = in_kernelbench_names(one.turns[-1].verdict)
        entries.append(
            {
                "sample_id": len(entries),
                "compiled": verdict.compiled,
                "correctness": verdict.correctness,
                "metadata": {**verdict.metadata, "judge_version": verdict.judge_version, "turns": len(one.turns)},
                "runtime": verdict.runtime,
                "runtime_stats": {"mean": verdict.runtime} if verdict.runtime > 0 else {},
            }
        )
    return {level: dict(problems) for level, problems in sorted(results.items())}


def pass_at_k_results(problems: Mapping[str, Sequence[Mapping[str, Any]]], ks: Sequence[int]) -> dict[str, Any]:
    """Return pass@k (Chen et al. 2021) of each problem with at least k samples, and the mean over these problems."""
    samples = {name: len(entries) for name, entries in problems.items()}
    correct = {name: sum(entry["correctness"] for entry in entries) for name, entries in problems.items()}
    each: dict[str, dict[str, float]] = {
        name: {"total_samples": samples[name], "correct_samples": correct[name]} for name in problems
    }
    averages: dict[str, float] = {}
    metadata: dict[str, int] = {
        "total_problems": len(each),
        "problems_with_samples": len(each),
        "total_evaluated_samples": sum(samples.values()),
        "total_correct_samples": sum(correct.values()),
    }
    counts = np.array([list(samples.values()), list(correct.values())], dtype=np.int64).reshape(2, -1)
    for k in ks:
        values = pass_at_k(counts[0], counts[1], k)
        measured = {name: float(value) for name, value in zip(each, values, strict=True) if not np.isnan(value)}
        for name, value in measured.items():
            each[name][f"pass@{k}"] = value
        if measured:
            averages[f"avg_pass@{k}"] = sum(measured.values()) / len(measured)
        metadata[f"pass@{k}_count"] = len(measured)
    return {"averages": averages, "metadata": metadata, "problems": each}


def baseline_times(
    trajectories: Sequence[Trajectory], places: Mapping[str, Place]
) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Return `<timing source>_<hardware>` → level → file → mean: the median of the reference's times, in milliseconds.

    A reference is timed with each kernel anew; a problem without a correct kernel has no time.
    """
    times: dict[str, dict[Place, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in trajectories:
        for verdict in (turn.verdict for turn in one.turns):
            if verdict.reference_ms is not None:
                hardware = re.sub(r"\W+", "_", verdict.hardware) or "unknown"
                times[f"{verdict.timing_source}_{hardware}"][places[one.problem_id]].append(verdict.reference_ms)
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for source, of_places in times.items():
        levels = found.setdefault(source, {})
        for place in sorted(of_places):
            mean = float(np.median(of_places[place]))
            levels.setdefault(f"level{place.level}", {})[place.file] = {"mean": mean}
    return found


def _write(path: Path, content: Any) -> None:
    write_atomically(path, json.dumps(content, indent=4) + "\n")
