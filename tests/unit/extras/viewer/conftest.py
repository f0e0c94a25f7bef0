"""A folder of two runs with real tables; some text in it is hostile."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models

from kernels_eval.rewards import reward_of
from kernels_eval.verdict import Issue, IssueKind, KernelTime, Profile, Resources, Status, TimingSource, Verdict
from tasks.tracking.figures import append_line, new_line
from tasks.trajectories.schema import Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

HOSTILE = '"\'><script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">{{ 7*7 }}\u202eevil'
FLOW_RUN = "0f8fad5b-d9cb-469f-a165-70867728950e"
PIECES = ["<|im_start|>", "<|im_end|>", "user", "assistant", "\n", "write", "faster"]


def verdict_of(speedup: float | None, message: str | None = None) -> Verdict:
    if speedup is None:
        return Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values", error_message=message)
    return Verdict(
        status=Status.CORRECT,
        compiled=True,
        correct=True,
        speedup=speedup,
        candidate_ms=1 / speedup,
        reference_ms=1.0,
        timing_source=TimingSource.ROOFLINE,
        resources=(Resources(kernel=HOSTILE, architecture="cuda:90", registers=32, shared_bytes=0, spills=0),),
        profile=Profile(
            kernels=(KernelTime(name=HOSTILE, launches=1.0, microseconds=12.5, is_own=True),),
            launches=1.0, own_share=1.0, gigabytes_per_s=900.0, teraflops_per_s=0.0, roofline_share=0.3,
        ),
        issues=(
            Issue(kind=IssueKind.TINY_BLOCKS, kernel="k", line=3, value=1.0, limit=4.0, message=HOSTILE, remedy="grow"),
        ),
    )  # fmt: skip


def turn_of(index: int, kernel: str | None, verdict: Verdict, role: str = "solver") -> Turn:
    return Turn(
        turn_index=index,
        role=role,
        prompt_token_ids=(0, 2, 4, 5, 1, 0, 3, 4) if index == 0 else (0, 2, 4, 5, 1, 0, 3, 4, 5, 1, 0, 2, 4, 6, 1, 0, 3, 4),
        response_token_ids=(5, 1),
        response_logprobs=(-0.5, -0.25),
        prompt_extends_previous=True,
        finish_reason="stop",
        response_text=f"here it is\n{kernel}" if kernel else f"no kernel {HOSTILE}",
        kernel_source=kernel,
        verdict=verdict,
        reward=None if verdict.is_fault else reward_of("kernelbench", verdict),
        generation_s=0.5,
        evaluation_s=0.1,
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
    )  # fmt: skip


def trajectory_of(run: str, policy: int, problem: str, sample: int, turns: list[Turn]) -> Trajectory:
    return Trajectory(
        run_id=run,
        iteration=policy,
        policy_digest=f"digest{policy}",
        problem_id=problem,
        problem_digest="digest",
        split="heldout",
        level=1,
        group_id=problem,
        trajectory_id=f"{problem}-{sample:03d}",
        sample_index=sample,
        turns=tuple(turns),
        termination=Termination.TURN_LIMIT,
    )


def batch_of(run: str, policy: int, speedup: float) -> list[Trajectory]:
    """Three problems: one solved in the second turn, one never, one with a fault of the machine."""
    first, second = f"import torch\n# slow {HOSTILE}\nx = 1\n", "import torch\n# fast\nx = 2\n"
    fault = Verdict(status=Status.INFRASTRUCTURE_ERROR, error_message="lost")
    return [
        trajectory_of(
            run, policy, "relu", 0,
            [turn_of(0, first, verdict_of(None, HOSTILE), "generator"), turn_of(1, second, verdict_of(speedup), "optimizer")],
        ),
        trajectory_of(run, policy, "relu", 1, [turn_of(0, second, verdict_of(speedup / 2))]),
        trajectory_of(run, policy, "softmax", 0, [turn_of(0, None, verdict_of(None))]),
        trajectory_of(run, policy, HOSTILE, 0, [turn_of(0, "y = 1\n", fault)]),
    ]  # fmt: skip


def make_run(folder: Path, name: str, speedups: tuple[float, ...], places: tuple[str, ...] = ()) -> Path:
    run = folder / name
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("iterations: 2\n")
    (run / "log.txt").write_text(f"INFO prefect.flow_runs: Prefect flow run {FLOW_RUN}\n")
    for policy, speedup in enumerate(speedups):
        stored = folder / "store" / f"{name}-{policy}"
        write_trajectories(batch_of(name, policy, speedup), 0.4, stored)
        for place in (f"evaluations/policy-{policy:03d}", *places):
            link = run / place.format(policy=policy)
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(stored)
        append_line(
            run, new_line(policy, "evaluation", f"e{policy}", {"correct": 0.25 * policy, "mean_return": speedup})
        )
        append_line(run, new_line(policy, "rollout", f"r{policy}", {"mean_reward": 0.1 * speedup}))
        append_line(run, new_line(policy, "update", f"u{policy}", {"kl": 0.01}))
    checkpoint = run / "checkpoints" / "policy-000"
    checkpoint.mkdir(parents=True)
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="write"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    return run


@pytest.fixture(scope="session")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewer") / "runs"
    make_run(
        folder,
        "first-11111111",
        (1.5, 2.0),
        ("evaluations/policy-{policy:03d}-greedy", "trajectories/iteration={policy}"),
    )
    second = make_run(folder, "second-22222222", (1.2, 3.0))
    (folder / "latest").symlink_to(second)
    (second / "evaluations" / "policy-009").symlink_to(folder / "store" / "removed")
    return folder


@pytest.fixture(scope="session")
def hostile() -> str:
    return HOSTILE


@pytest.fixture(scope="session")
def flow_run() -> str:
    return FLOW_RUN
