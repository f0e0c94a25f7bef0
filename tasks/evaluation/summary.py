"""`summary.json`: a run in figures, for people and for programs.

run_id, created_at, seed, timing_source        where times come from: `gpu`, `roofline`, or null
heldout.n                                      problems that both policies were measured on
heldout.before, heldout.after[, heldout.control]   every figure of tasks.evaluation.per_problem, e.g. `correct`, with
                                               its interval beside it as `correct_ci: [low, high]`
heldout.delta_<figure>, …_ci                   after − before, paired by problem
heldout.over_control                           the same deltas for after − control
corpus                                         SFT pairs, and whether they were verified
sizes                                          problems, trajectories, turns, quarantined, files
iterations                                     figures of each iteration (tasks.evaluation.curves)
stage_seconds, wall_seconds, orchestration_seconds, orchestration_fraction (of the wall time)
"""

import json
import time
from pathlib import Path
from typing import Any

from tasks.evaluation.compare import paired
from tasks.evaluation.curves import iteration_figures
from tasks.evaluation.evaluate import read_evaluation
from tasks.evaluation.inputs import ReportInputs
from tasks.pipeline.references import ArtifactRef
from tasks.pipeline.store import read_manifest, write_atomically

SUMMARY_FILE = "summary.json"
_CORPUS_COUNTS = ("pairs", "dropped_contaminated", "dropped_faults", "quarantined")


def write_summary(run_dir: Path, inputs: ReportInputs) -> dict[str, Any]:
    """Write `summary.json` into the run's folder and return its content."""
    summary = summarise(inputs)
    write_atomically(run_dir / SUMMARY_FILE, json.dumps(summary, indent=1) + "\n")
    return summary


def summarise(inputs: ReportInputs) -> dict[str, Any]:
    """Return the content of `summary.json`."""
    after = read_evaluation(inputs.after)
    stages = sum(inputs.stage_seconds.values())
    orchestration = inputs.overhead_seconds
    if orchestration is None and inputs.wall_seconds is not None:
        orchestration = max(0.0, inputs.wall_seconds - stages)
    whole = inputs.wall_seconds or (stages + (orchestration or 0.0))
    iterations = [iteration_figures(entry) for entry in inputs.iterations]
    return {
        "run_id": inputs.run_id,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seed": inputs.configuration.get("seed"),
        "timing_source": after["timing_source"],
        "heldout": _heldout(inputs, after),
        "corpus": {
            "verified": inputs.sft_data.verified,
            **_metadata(inputs.sft_data),
            "used": inputs.sft_data.pairs,
        },
        "sizes": {
            "train_problems": inputs.problems.train,
            "heldout_problems": inputs.problems.heldout,
            "iterations": len(iterations),
            "trajectories": sum(figures["trajectories"] for figures in iterations),
            "turns": sum(figures["turns"] for figures in iterations),
            "quarantined": sum(figures["quarantined"] for figures in iterations),
            "trajectory_bytes": sum(_bytes(entry.trajectories) for entry in inputs.iterations),
            "checkpoint_bytes": _bytes(inputs.iterations[-1].checkpoint if inputs.iterations else inputs.sft),
        },
        "iterations": iterations,
        "stage_seconds": inputs.stage_seconds,
        "wall_seconds": inputs.wall_seconds,
        "orchestration_seconds": orchestration,
        "orchestration_fraction": orchestration / whole if orchestration is not None and whole > 0 else None,
    }


def _heldout(inputs: ReportInputs, after: dict[str, Any]) -> dict[str, Any]:
    before = read_evaluation(inputs.before)
    deltas = paired(inputs.before, inputs.after, inputs.evaluation_config)
    heldout: dict[str, Any] = {"n": deltas.pop("n"), "before": _policy(before), "after": _policy(after), **deltas}
    if inputs.control is not None:
        heldout["control"] = _policy(read_evaluation(inputs.control))
        heldout["over_control"] = paired(inputs.control, inputs.after, inputs.evaluation_config)
    return heldout


def _policy(evaluation: dict[str, Any]) -> dict[str, Any]:
    kept = ("policy_digest", "trajectories", "infrastructure_errors", "problems_left_out")
    return {**evaluation["overall"], **{name: evaluation[name] for name in kept}}


def _metadata(artifact: ArtifactRef) -> dict[str, Any]:
    metadata = (read_manifest(artifact.path) or {}).get("metadata", {})
    return {name: metadata[name] for name in _CORPUS_COUNTS if name in metadata}


def _bytes(artifact: ArtifactRef) -> int:
    return sum(file.stat().st_size for file in artifact.path.rglob("*") if file.is_file())
