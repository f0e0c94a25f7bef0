"""A whole run with plausible, made-up figures: real problems, real table writers, invented verdicts."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernels_eval.verdict import Status, TimingSource, Verdict
from tasks.agents.config import SOLVER
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.evaluate import evaluate_policy
from tasks.evaluation.summary import HeldoutEvaluations, IterationEntry, ReportInputs
from tasks.pipeline.references import CheckpointRef, EvaluationRef, ProblemSetRef, SftDataRef, TrajectoryBatchRef
from tasks.pipeline.store import publish, published_digest
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import SCHEMA
from tasks.problems.row import ProblemRow, Split
from tasks.problems.synthetic.suite import generate_problems
from tasks.trajectories.schema import Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

GAMMA = 0.4
_BROKEN = {
    Status.INCORRECT: (
        "wrong_values",
        "output 0 differs at [17, 3]: expected 0.7311, got 0.5000 (1024 of 3,145,728 values)",
    ),
    Status.COMPILE_ERROR: ("triton_compile", "at 9:8: x = tl.sigmoid(y)\n        ^\nNameError: y is not defined"),
    Status.RUNTIME_ERROR: ("exception", "ValueError: arange's arguments must be powers of 2, got 384"),
    Status.TIMEOUT: (None, None),
    Status.REJECTED: (None, None),
    Status.INFRASTRUCTURE_ERROR: (None, "the judge's worker was killed twice"),
}


def reward_by_hand(verdict: Verdict) -> float | None:
    """The kernelbench reward, written down a second time."""
    if verdict.status is Status.INFRASTRUCTURE_ERROR:
        return None
    if verdict.correct:
        return 0.3 + min(max((verdict.speedup or 0.0) - 1.0, 0.0), 2.0)
    return 0.1 if verdict.compiled else 0.0


def invent_verdict(generator: np.random.Generator, skill: float, speed: float, fault: float = 0.0) -> Verdict:
    """A verdict of a policy with this much skill (chance to be correct) and speed (median speedup)."""
    if generator.random() < fault:
        return Verdict(status=Status.INFRASTRUCTURE_ERROR, error_message="the judge's worker was killed twice")
    if generator.random() < skill:
        speedup = float(np.exp(generator.normal(np.log(speed), 0.55)))
        return Verdict(
            status=Status.CORRECT,
            compiled=True,
            correct=True,
            speedup=speedup,
            candidate_ms=0.02 / speedup,
            reference_ms=0.02,
            timing_source=TimingSource.ROOFLINE,
            hardware="h100 (roofline)",
        )
    statuses = [Status.INCORRECT, Status.COMPILE_ERROR, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.REJECTED]
    status = statuses[int(generator.choice(5, p=[0.42, 0.28, 0.2, 0.02, 0.08]))]
    category, message = _BROKEN[status]
    return Verdict(
        status=status,
        compiled=status in (Status.INCORRECT, Status.TIMEOUT),
        error_category=category,
        error_message=message,
        rejection_reason="torch_compute" if status is Status.REJECTED else None,
    )


def invent_trajectory(
    row: ProblemRow, group: int, sample: int, generator: np.random.Generator, **skill: float
) -> Trajectory:
    """An episode of up to three turns, each a little better than the last."""
    turns: list[Turn] = []
    termination = Termination.TURN_LIMIT
    for index in range(3):
        verdict = invent_verdict(
            generator,
            min(0.98, skill["skill"] + 0.08 * index),
            skill["speed"] * (1 + 0.15 * index),
            skill.get("fault", 0.0),
        )
        reward = reward_by_hand(verdict)
        length = int(generator.integers(20, 60))
        kernel = (row.reference_kernel or "pass\n").replace("fused_kernel", f"kernel_{index}") + f"# {sample}\n"
        turns.append(
            Turn(
                turn_index=index,
                role=SOLVER,
                prompt_token_ids=tuple(range(10 + 20 * index)),
                response_token_ids=tuple(int(token) for token in generator.integers(0, 2000, length)),
                response_logprobs=tuple(float(value) for value in -generator.exponential(0.3, length)),
                prompt_extends_previous=True,
                finish_reason="stop",
                response_text=f"```python\n{kernel}```",
                kernel_source=kernel,
                verdict=verdict,
                reward=reward,
                generation_s=0.4,
                evaluation_s=0.1,
                created_at=datetime(2026, 1, 1, tzinfo=UTC),
            )
        )
        if verdict.status is Status.INFRASTRUCTURE_ERROR:
            termination = Termination.INFRASTRUCTURE_ERROR
            break
        if verdict.correct and (reward or 0) >= 1.3:
            termination = Termination.SUCCESS
            break
    return Trajectory(
        run_id="local-1a2b3c4d",
        iteration=int(skill.get("iteration", 0)),
        policy_digest=f"policy-{skill.get('iteration', 0)}",
        problem_id=row.problem.problem_id,
        problem_digest=row.problem.digest,
        split=row.split.value,
        level=row.problem.level,
        group_id=f"{group:05d}",
        trajectory_id=f"{group:05d}-{sample:02d}",
        sample_index=sample,
        turns=tuple(turns),
        termination=termination,
    )


BatchMaker = Callable[..., TrajectoryBatchRef]


def make_batch(
    rows: list[ProblemRow], samples: int, destination: Path, seed: int, **skill: float
) -> TrajectoryBatchRef:
    """Publish an invented batch; problems differ in difficulty."""
    generator = np.random.default_rng(seed)
    hardness = np.random.default_rng(7).normal(0, 0.15, len(rows))
    trajectories = [
        invent_trajectory(
            row,
            group,
            sample,
            generator,
            **{**skill, "skill": float(np.clip(skill["skill"] + hardness[group], 0.02, 0.95))},
        )
        for group, row in enumerate(rows)
        for sample in range(samples)
    ]
    return write_trajectories(trajectories, GAMMA, destination)


def publish_problems(rows: list[ProblemRow], destination: Path) -> ProblemSetRef:
    """Publish `problems.parquet`."""
    table = pl.DataFrame(
        [
            {
                "problem_id": row.problem.problem_id,
                "problem_digest": row.problem.digest,
                "split": row.split.value,
                "level": row.problem.level,
                "family": row.problem.family,
                "name": row.problem.name,
                "composition": row.composition,
                "source": row.problem.source,
                "reference_kernel": row.reference_kernel,
                "tier": row.tier.value,
            }
            for row in rows
        ]
    )
    with publish(destination) as folder:
        pq.write_table(pa.Table.from_pylist(table.to_dicts(), schema=SCHEMA), folder / "problems.parquet")
    heldout = sum(row.split is Split.HELDOUT for row in rows)
    return ProblemSetRef(
        uri=str(destination), digest=published_digest(destination), train=len(rows) - heldout, heldout=heldout
    )


def publish_checkpoint(destination: Path, metrics: pl.DataFrame, version: int) -> CheckpointRef:
    """Publish a checkpoint that holds only its metrics."""
    with publish(destination) as folder:
        metrics.write_parquet(folder / "metrics.parquet")
        (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    return CheckpointRef(uri=str(destination), digest=published_digest(destination), weight_version=version)


@pytest.fixture(scope="session")
def problem_rows() -> list[ProblemRow]:
    """Generated problems, train and held-out; the last six of these are harder ones."""
    return generate_problems(ProblemsConfig(train=40, heldout=48, harder=6))


@pytest.fixture(scope="session")
def fake_run(problem_rows: list[ProblemRow], tmp_path_factory: pytest.TempPathFactory) -> ReportInputs:
    """Everything that a report is made of."""
    return make_run(problem_rows, tmp_path_factory.mktemp("run"))


def make_run(problem_rows: list[ProblemRow], folder: Path, iterations: int = 8) -> ReportInputs:
    """Publish a whole invented run below `folder`."""
    generator = np.random.default_rng(3)
    heldout = [row for row in problem_rows if row.split is Split.HELDOUT]
    train = [row for row in problem_rows if row.split is Split.TRAIN]
    problems = publish_problems(problem_rows, folder / "problems")
    steps = np.arange(1, 401)
    sft = publish_checkpoint(
        folder / "sft",
        pl.DataFrame(
            {
                "step": steps,
                "loss": 0.12 + 5 * np.exp(-steps / 45) + generator.normal(0, 0.02, 400).clip(-0.05, 0.1),
                "learning_rate": 5e-3 * np.cos(steps / 400 * 1.5),
            }
        ),
        0,
    )
    entries: list[IterationEntry] = []
    for iteration in range(iterations):
        progress = iteration / max(1, iterations - 1)
        batch = make_batch(
            train[:16], 8, folder / f"batch{iteration}", iteration, skill=0.38 + 0.3 * progress, speed=0.9 + 0.6 * progress, iteration=iteration, fault=0.002
        )  # fmt: skip
        update = np.arange(8) + 8 * iteration
        metrics = pl.DataFrame(
            {
                "step": update,
                "loss": generator.normal(0, 0.01, 8),
                "kl": 0.0008 * update + generator.exponential(0.002, 8),
                "entropy": 0.42 - 0.003 * update + generator.normal(0, 0.008, 8),
                "gradient_norm": generator.exponential(0.4, 8) + 0.3,
                "clip_fraction": generator.exponential(0.01, 8),
            }
        )
        checkpoint = publish_checkpoint(folder / f"policy{iteration}", metrics, iteration + 1)
        entries.append(
            IterationEntry(iteration=iteration, trajectories=batch, checkpoint=checkpoint, quarantined=iteration % 3)
        )
    config = EvaluationConfig()
    evaluations: dict[str, EvaluationRef] = {}
    greedy: dict[str, EvaluationRef] = {}
    for seed, (name, skill, speed) in enumerate([("before", 0.35, 0.9), ("after", 0.66, 1.5), ("control", 0.4, 0.95)]):
        batch = make_batch(
            heldout, 4, folder / f"heldout-{name}", 100 + seed, skill=skill, speed=speed, iteration=seed, fault=0.003
        )
        evaluations[name] = evaluate_policy(batch, problems, config, folder / f"evaluation-{name}")
        one = make_batch(heldout, 1, folder / f"greedy-{name}", 200 + seed, skill=0.6, speed=1.2, iteration=seed)
        greedy[name] = evaluate_policy(one, problems, config.greedily(), folder / f"greedy-evaluation-{name}")
    with publish(folder / "pairs", {"pairs": 1600, "used": 1490, "verified": True}) as pairs:
        (pairs / "pairs.parquet").write_bytes(b"")
    return ReportInputs(
        run_id="local-1a2b3c4d",
        configuration={
            "name": "local",
            "seed": 0,
            "iterations": iterations,
            "model": {"layers": 2, "hidden": 128, "vocabulary": 2048},
            "rollout": {"problems_per_iteration": 64, "samples_per_problem": 8, "episode": {"gamma": 0.4, "max_turns": 3, "feedback": "full"}},
            "update": {"learning_rate": 1e-3, "kl_coefficient": 0.01, "advantage": "turn_rloo"},
            "judge": {"targets": ["cuda:90"], "roofline_hardware": "h100"},
        },
        problems=problems,
        sft_data=SftDataRef(uri=str(folder / "pairs"), digest=published_digest(folder / "pairs"), pairs=1490, verified=True),
        sft=sft,
        iterations=tuple(entries),
        sampled=HeldoutEvaluations(**evaluations),
        greedy=HeldoutEvaluations(**greedy),
        evaluation_config=config,
        stage_seconds={"problem set": 3.1, "SFT data": 61.0, "SFT": 92.4, "held-out rollouts": 41.0, "rollouts": 260.2, "validation": 19.0, "updates": 171.0, "evaluation": 3.0},
        overhead_seconds=17.3,
        wall_seconds=668.0,
        data_docs={"Problems": "data_docs/problems/index.html", "Iteration 0": "data_docs/iteration=0/index.html"},
    )  # fmt: skip


@pytest.fixture(scope="session", name="make_batch")
def make_batch_fixture() -> BatchMaker:
    """`make_batch(rows, samples, destination, seed, skill=…, speed=…, fault=…)`."""
    return make_batch
