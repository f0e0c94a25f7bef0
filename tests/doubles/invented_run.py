"""A folder of runs with one finished run in it, invented: real files and references, made-up verdicts."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors.numpy import save_file

from flows.run.state import RunState, write_state
from flows.settings.configuration import check_configuration, save_configuration
from kernels_eval.verdict import Status, TimingSource, Verdict
from tasks.agents.config import SOLVER
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.evaluate import evaluate_policy
from tasks.pipeline.references import CheckpointRef, EvaluationRef, ProblemSetRef, SftDataRef, TrajectoryBatchRef
from tasks.pipeline.store import publish, published_digest
from tasks.trajectories.schema import Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

PROBLEMS = tuple(f"p{number}" for number in range(6))
HARDER = "p5"
SETTINGS: dict[str, Any] = {
    "name": "demo",
    "iterations": 2,
    "rollout": {
        "episode": {"prompt": "source", "feedback": "brief", "max_turns": 2},
        "sampling": {"max_new_tokens": 12},
    },
    "judge": {"compile": "never", "timeout_s": 5},
    "evaluation": {"samples_per_problem": 2, "bootstrap_resamples": 100},
}


def make_run(runs_dir: Path, weights: Path | None = None, **changes: Any) -> Path:
    """Write a run of two iterations, whose policy 1 was not evaluated; `weights`: a Hugging Face folder to be every
    policy; `changes`: groups of settings that replace those above, and `source` and `hardware` of the times.
    """
    source, hardware = changes.pop("source", TimingSource.ROOFLINE), changes.pop("hardware", "triton-interpreter/h100")
    config = check_configuration({**SETTINGS, "runs_dir": str(runs_dir), **changes}, "test")
    folder, store = runs_dir / config.run_id, runs_dir / "store"
    folder.mkdir(parents=True)
    problems = _problems(store / "problems" / "a")
    policies = {version: _policy(store / "update" / str(version), weights, version) for version in range(3)}
    evaluations: dict[bool, dict[int, EvaluationRef]] = {False: {}, True: {}}
    for version in (0, 2):
        for is_greedy, found in evaluations.items():
            settings = config.evaluation.greedily() if is_greedy else config.evaluation
            place = store / "evaluation" / f"{version}{is_greedy}"
            found[version] = _evaluation(place, problems, settings, policies[version], source, hardware)
    with publish(store / "sft_data" / "a") as partial:
        (partial / "pairs.parquet").write_bytes(b"")
    data = SftDataRef(uri=str(store / "sft_data" / "a"), digest="s", pairs=1490, verified=True)
    batches = {
        version: TrajectoryBatchRef(
            uri=str(store / f"b{version}"), digest="b", run_id=config.run_id, iteration=version, trajectories=600, turns=1000
        )
        for version in range(2)
    }  # fmt: skip
    state = RunState(
        problems=problems,
        sft_data=data,
        policies=policies,
        batches=batches,
        evaluations=evaluations[False],
        greedy_evaluations=evaluations[True],
    )
    write_state(folder, state)
    save_configuration(config, folder / "config.yaml")
    return folder


def _policy(place: Path, weights: Path | None, version: int) -> CheckpointRef:
    with publish(place, {"iteration": version}) as folder:
        if weights is None:
            config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16"}
            (folder / "config.json").write_text(json.dumps(config))
            save_file(
                {"a": np.full((30, 20), version, np.float16), "b": np.zeros(7, np.float32)},
                folder / "model.safetensors",
            )
            (folder / "tokenizer.json").write_text("{}")
            (folder / "chat_template.jinja").write_text("{{ messages }}")
        else:
            for file in weights.iterdir():
                (folder / file.name).write_bytes(file.read_bytes())
        for name in ("metrics.parquet", "optimizer/state.safetensors", "adapter/base.json", "critic/optimizer/x"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("of training")
    return CheckpointRef(uri=str(place), digest=published_digest(place), weight_version=version)


def _problems(place: Path) -> ProblemSetRef:
    rows = [
        {
            "problem_id": name, "problem_digest": "d", "split": "heldout", "level": 1, "family": "f", "name": name,
            "composition": "relu", "source": "", "reference_kernel": None, "tier": "longer" if name == HARDER else "standard",
        }
        for name in PROBLEMS
    ]  # fmt: skip
    with publish(place) as folder:
        pl.DataFrame(rows).write_parquet(folder / "problems.parquet")
    return ProblemSetRef(uri=str(place), digest=published_digest(place), train=480, heldout=len(PROBLEMS))


def _evaluation(
    place: Path,
    problems: ProblemSetRef,
    config: EvaluationConfig,
    policy: CheckpointRef,
    source: TimingSource | None,
    hardware: str,
) -> EvaluationRef:
    """Policy 0 solves every third problem at 0.8 times the speed, policy 2 all but one of three at twice the speed."""
    trajectories: list[Trajectory] = []
    for number, name in enumerate(PROBLEMS):
        is_correct = (number % 3 == 0) == (policy.weight_version == 0)
        speed = (0.8 if policy.weight_version == 0 else 2.5) if source is not None else None
        verdict = Verdict(status=Status.INCORRECT, compiled=True, hardware="")
        if is_correct:
            verdict = Verdict(
                status=Status.CORRECT,
                compiled=True,
                correct=True,
                speedup=speed,
                timing_source=source,
                hardware=hardware,
            )
        for sample in range(config.samples_per_problem):
            trajectories.append(_trajectory(name, sample, policy, verdict))
    batch = write_trajectories(trajectories, 0.4, place.with_name(f"{place.name}-rollout"))
    return evaluate_policy(batch, problems, config, place)


def _trajectory(name: str, sample: int, policy: CheckpointRef, verdict: Verdict) -> Trajectory:
    turn = Turn(
        turn_index=0, role=SOLVER, prompt_token_ids=(1,), response_token_ids=(2,), response_logprobs=(0.0,),
        prompt_extends_previous=True, finish_reason="stop", response_text="", kernel_source=None, verdict=verdict,
        reward=0.0, generation_s=0.0, evaluation_s=0.0, created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    return Trajectory(
        run_id="demo", iteration=policy.weight_version, policy_digest=policy.digest, problem_id=name, problem_digest="d",
        split="heldout", level=1, group_id=name, trajectory_id=f"{name}-{sample}", sample_index=sample, turns=(turn,),
        termination=Termination.TURN_LIMIT,
    )  # fmt: skip
