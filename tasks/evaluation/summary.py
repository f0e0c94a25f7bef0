"""`summary.json`: a run in figures, for people and for programs; and `ReportInputs`, the input of summary and report.

run_id, created_at, seed, timing_source        source of the times: `gpu`, `roofline`, or null
heldout                                        figures of sampled answers (`evaluation.temperature`)
heldout.n                                      problems that both policies were measured on
heldout.before, heldout.after[, heldout.control]   every figure of tasks.evaluation.per_problem, e.g. `correct`, with
                                               its interval beside it as `correct_ci: [low, high]`; and `turns`, the
                                               figures of each turn (tasks.evaluation.evaluate); with several
                                               agents `agents`, the figures of each (tasks.evaluation.agent_figures)
heldout.delta_<figure>, …_ci                   after − before, paired by problem
heldout.over_control                           the same deltas for after − control
heldout.rejection, heldout.over_rejection      likewise of the rejection-sampling control, if that was run
heldout.harder                                 the same on the harder held-out problems, or null
heldout_greedy                                 the same as `heldout` of one greedy answer a problem, or null
primary                                        the declared outcome (`evaluation.primary`): `outcome`, `figure`, and of
                                               the standard problems `before`, `after`, `delta`, `delta_ci`, and of the
                                               harder ones `harder_delta`, `harder_delta_ci`; all null if not measured
admission                                      whether the suite leaves room to learn (tasks.evaluation.admission): each
                                               condition with `name`, `found`, `expected`, `is_met` (null: unknown)
confidence                                     of all intervals
corpus                                         SFT pairs, and whether they were verified; null without SFT
repairs                                        first answers of the SFT policy to training problems, and the pairs
                                               that came of its failures; null without them
joint_epoch                                    what the policy before it did on training problems, and the pairs that
                                               came of it; null without one
given_policy                                   the model that RL started from without SFT, else null
judged                                         kernels judged by RL (`rl`) and by rejection sampling (`rejection`);
                                               empty without that control
sizes                                          problems, trajectories, turns, quarantined, files
digests                                        content digest of each stage's artifact, by label: of what the run is
                                               (weights, tokens, rewards, statuses), not of what it measured
iterations                                     figures of each iteration (`iteration_figures`)
stage_seconds, wall_seconds, orchestration_seconds, orchestration_fraction (of the wall time)
"""

import json
import time
from pathlib import Path
from typing import Any

from pydantic import Field

from kernels_eval.frozen import FrozenModel
from tasks.evaluation.admission import admission
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.evaluate import Part, paired, read_evaluation
from tasks.evaluation.stage_figures import evaluation_figures, rollout_figures, update_figures
from tasks.pipeline.references import (
    ArtifactRef,
    CheckpointRef,
    EvaluationRef,
    ProblemSetRef,
    SftDataRef,
    TrajectoryBatchRef,
)
from tasks.pipeline.store import read_metadata, write_atomically


class IterationEntry(FrozenModel):
    """One RL iteration."""

    iteration: int
    trajectories: TrajectoryBatchRef
    """The validated batch."""
    checkpoint: CheckpointRef
    """The policy that was updated on it."""
    quarantined: int = 0
    """Trajectories that validation took out."""


class HeldoutEvaluations(FrozenModel):
    """Held-out evaluations of a run with one way of decoding."""

    before: EvaluationRef
    """The policy that RL started from."""
    after: EvaluationRef
    """The last policy."""
    control: EvaluationRef | None = None
    """The same extra time spent on more SFT, if that was run."""
    rejection: EvaluationRef | None = None
    """As many judged kernels as RL had, spent on rejection sampling, if that was run."""
    between: dict[int, EvaluationRef] = Field(default_factory=dict[int, EvaluationRef])
    """Policies between the two that were evaluated, by weight version (`evaluation.interval`)."""


class ReportInputs(FrozenModel):
    """Input of the summary and the report: references to published artifacts, and what only the flow knows."""

    run_id: str
    configuration: dict[str, Any]
    """The resolved configuration, as JSON."""
    problems: ProblemSetRef
    sft_data: SftDataRef | None
    """None: no SFT, RL started from a given policy."""
    sft: CheckpointRef
    """Policy 0: the result of SFT, or the given one."""
    repair_pairs: SftDataRef | None = None
    """Repairs of the SFT policy's own failures. None: none were made."""
    joint_batch: TrajectoryBatchRef | None = None
    """Conversations for the joint epoch, of the policy before it. None: no joint epoch."""
    joint_pairs: SftDataRef | None = None
    """Their result."""
    iterations: tuple[IterationEntry, ...]
    sampled: HeldoutEvaluations
    greedy: HeldoutEvaluations | None = None
    evaluation_config: EvaluationConfig = EvaluationConfig()
    judged: dict[str, int] = Field(default_factory=dict[str, int])
    """Kernels that RL (`rl`) and its rejection-sampling control (`rejection`) had judged; empty without it."""
    digests: dict[str, str] = Field(default_factory=dict[str, str])
    """Content digest of each stage's artifact, by the stage's label."""
    stage_seconds: dict[str, float]
    """Wall seconds of the computation of each stage, in order; of the earlier run where it was cached."""
    overhead_seconds: float = 0.0
    """Wall seconds beside the stages' computation: Prefect, Ray, cache, start."""
    wall_seconds: float | None = None
    """Wall seconds of the flow."""
    data_docs: dict[str, str] = Field(default_factory=dict[str, str])
    """Title and path of each Data Docs page; paths relative to the run's folder, or absolute."""
    links: dict[str, str] = Field(default_factory=dict[str, str])
    """Further titles and addresses, e.g. the W&B run."""


def iteration_figures(entry: IterationEntry) -> dict[str, Any]:
    """Return the figures of one iteration's training batch and of the update on it.

    Trajectories in which the judge or the machine failed are left out. `statuses` are shares of last turns.
    `curriculum`: the limits of training (turns, level); `refill`: the further problems drawn
    (tasks.rollout.refill.RefillRecord); both None if not used.
    """
    of_rollout, of_update = rollout_figures(entry.trajectories), update_figures(entry.checkpoint)
    metadata = read_metadata(entry.trajectories.path)
    return {
        "iteration": entry.iteration,
        "trajectories": entry.trajectories.trajectories,
        "turns": entry.trajectories.turns,
        "quarantined": entry.quarantined,
        "curriculum": metadata.get("curriculum"),
        "refill": metadata.get("refill"),
        **{name: of_rollout[name] for name in _ROLLOUT_FIGURES},
        **{name: of_update.get(name) for name in ("loss", "kl", "entropy", "gradient_norm")},
    }


_ROLLOUT_FIGURES = ("mean_reward", "mean_return", "correct", "fast_1", "response_tokens", "statuses", "lag")
_JOINT_FIGURES = ("mean_reward", "mean_return", "correct", "fast_1")
_REPAIR_COUNTS = ("answers", "right", "wrong", "slow", "unanswered", "repairs", "replayed")
_CORPUS_COUNTS = ("pairs", "dropped_contaminated", "dropped_faults", "quarantined")


def write_summary(run_dir: Path, inputs: ReportInputs) -> dict[str, Any]:
    """Write `summary.json` into the run's folder and return its content."""
    summary = summarise(inputs)
    write_atomically(run_dir / "summary.json", json.dumps(summary, indent=1) + "\n")
    return summary


def summarise(inputs: ReportInputs) -> dict[str, Any]:
    """Return the content of `summary.json`."""
    after = read_evaluation(inputs.sampled.after)
    orchestration = inputs.overhead_seconds
    whole = inputs.wall_seconds or sum(inputs.stage_seconds.values()) + orchestration
    iterations = [iteration_figures(entry) for entry in inputs.iterations]
    config = inputs.evaluation_config
    sampled = _heldout(inputs.sampled, config)
    greedy = inputs.greedy and _heldout(inputs.greedy, config.greedily())
    return {
        "run_id": inputs.run_id,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seed": inputs.configuration.get("seed"),
        "timing_source": after["timing_source"],
        "confidence": config.confidence,
        "primary": _primary(config.primary, {"sampled": sampled, "greedy": greedy}),
        "admission": [criterion._asdict() for criterion in admission(sampled, iterations, greedy)],
        "heldout": sampled,
        "heldout_greedy": greedy,
        "corpus": None if inputs.sft_data is None else _corpus(inputs.sft_data),
        "repairs": None if inputs.repair_pairs is None else _repairs(inputs.repair_pairs),
        "joint_epoch": _joint_epoch(inputs.joint_batch, inputs.joint_pairs),
        "given_policy": None if inputs.sft_data is not None else read_metadata(inputs.sft.path).get("pretrained"),
        "judged": inputs.judged,
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
        "digests": inputs.digests,
        "stage_seconds": inputs.stage_seconds,
        "wall_seconds": inputs.wall_seconds,
        "orchestration_seconds": orchestration,
        "orchestration_fraction": orchestration / whole if whole > 0 else None,
    }


def _corpus(data: SftDataRef) -> dict[str, Any]:
    counts = read_metadata(data.path)
    named = {name: counts[name] for name in _CORPUS_COUNTS if name in counts}
    return {"verified": data.verified, **named, "used": data.pairs}


def _repairs(pairs: SftDataRef) -> dict[str, Any]:
    counts = read_metadata(pairs.path)
    return {name: counts[name] for name in _REPAIR_COUNTS}


def _joint_epoch(batch: TrajectoryBatchRef | None, pairs: SftDataRef | None) -> dict[str, Any] | None:
    if batch is None or pairs is None:
        return None
    figures, counts = rollout_figures(batch), read_metadata(pairs.path)
    return {
        "conversations": batch.trajectories,
        **{name: figures[name] for name in _JOINT_FIGURES},
        **{name: counts[name] for name in ("problems", "solved", "pairs", "roles")},
    }


def _heldout(measured: HeldoutEvaluations, config: EvaluationConfig) -> dict[str, Any]:
    """Return the figures of the standard held-out problems, and below `harder` of the harder ones."""
    harder = all(read_evaluation(reference).get("harder") for reference in (measured.before, measured.after))
    return {
        **_compared(measured, config, "standard"),
        "between": [
            {"policy": version, **evaluation_figures(reference)} for version, reference in measured.between.items()
        ],
        "harder": _compared(measured, config, "harder") if harder else None,
    }


def _primary(outcome: str, decodings: dict[str, dict[str, Any] | None]) -> dict[str, Any]:
    """Return the declared outcome: its value before and after RL, and its change on standard and harder problems."""
    decoding, _, figure = outcome.partition(" ")
    heldout = decodings[decoding] or {}
    harder = heldout.get("harder") or {}
    return {
        "outcome": outcome,
        "figure": figure,
        **{name: (heldout.get(name) or {}).get(figure) for name in ("before", "after")},
        "delta": heldout.get(f"delta_{figure}"),
        "delta_ci": heldout.get(f"delta_{figure}_ci"),
        "harder_delta": harder.get(f"delta_{figure}"),
        "harder_delta_ci": harder.get(f"delta_{figure}_ci"),
    }


def _compared(measured: HeldoutEvaluations, config: EvaluationConfig, part: Part) -> dict[str, Any]:
    deltas = paired(measured.before, measured.after, config, part)
    before, after = (_policy(reference, part) for reference in (measured.before, measured.after))
    compared: dict[str, Any] = {"n": deltas.pop("n"), "before": before, "after": after, **deltas}
    for name, reference in (("control", measured.control), ("rejection", measured.rejection)):
        if reference is not None:
            compared[name] = _policy(reference, part)
            compared[f"over_{name}"] = paired(reference, measured.after, config, part)
    return compared


def _policy(reference: EvaluationRef, part: Part) -> dict[str, Any]:
    evaluation = read_evaluation(reference)
    kept = ("policy_digest", "trajectories", "infrastructure_errors", "problems_left_out")
    named = {name: evaluation[name] for name in kept}
    if part == "harder":
        return {**named, **evaluation["harder"], "tiers": evaluation["tiers"]}
    agents = evaluation.get("agents") or {}
    return {**named, **evaluation["overall"], "turns": evaluation["turns"], **({"agents": agents} if agents else {})}


def _bytes(artifact: ArtifactRef) -> int:
    return sum(file.stat().st_size for file in artifact.path.rglob("*") if file.is_file())
