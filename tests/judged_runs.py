"""Runs whose conversations and verdicts a test makes up."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.run.state import RunState, write_state
from flows.settings.configuration import check_configuration, save_configuration
from kernels_eval.verdict import Status, TimingSource, Verdict
from tasks.pipeline.references import ProblemSetRef
from tasks.problems.problem_set import read_problems
from tasks.rollout.prompts import answer_text
from tasks.sft.pair_rows import pair_row, publish_pairs
from tasks.trajectories.schema import Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

AGENTS = {"generator": {"turns": "first", "shown": "problem"}, "optimizer": {"turns": "later", "shown": "kernel"}}
WRONG = Verdict(status=Status.INCORRECT, compiled=True)
FAULT = Verdict(status=Status.INFRASTRUCTURE_ERROR, error_message="the machine failed")


def right(ms: float, source: TimingSource | None = TimingSource.GPU, hardware: str = "one") -> Verdict:
    return Verdict(
        status=Status.CORRECT, compiled=True, correct=True, speedup=4 / ms, candidate_ms=ms, reference_ms=4,
        timing_source=source, hardware=hardware,
    )  # fmt: skip


def conversation(problem_id: str, sample: int, *turns: tuple[str, Verdict]) -> Trajectory:
    made = tuple(
        Turn(
            turn_index=place, role="optimizer" if place else "generator", prompt_token_ids=(1,), response_token_ids=(2,),
            response_logprobs=(0.0,), prompt_extends_previous=not place, finish_reason="stop",
            response_text=answer_text(kernel), kernel_source=kernel, verdict=verdict,
            reward=None if verdict.is_fault else 0.0, generation_s=0.0, evaluation_s=0.0,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for place, (kernel, verdict) in enumerate(turns)
    )  # fmt: skip
    return Trajectory(
        run_id="run", iteration=0, policy_digest="p", problem_id=problem_id, problem_digest="d", split="train", level=1,
        group_id=problem_id, trajectory_id=f"{problem_id}-{sample}", sample_index=sample, turns=made,
        termination=Termination.INFRASTRUCTURE_ERROR if turns[-1][1].is_fault else Termination.TURN_LIMIT,
    )  # fmt: skip


def a_run(
    problems: ProblemSetRef, tmp_path: Path, known: Verdict, conversations: list[Trajectory], **settings: Any
) -> Path:
    """A run with one iteration, whose SFT's pairs have a kernel for the first problem, with this verdict."""
    given = {"runs_dir": str(tmp_path), "rollout": {"episode": {"agents": AGENTS}}, **settings}
    config = check_configuration(given, "test")
    first = read_problems(problems, "train")[0].problem
    pair = pair_row(first, [], "known", known, config.rollout.episode, "triton", keeps=False)
    pairs = publish_pairs([{**pair, "pair_id": "0"}], {}, True, tmp_path / "pairs")
    batch = write_trajectories(conversations, 0.4, tmp_path / "batch")
    folder = tmp_path / config.run_id
    folder.mkdir()
    write_state(folder, RunState(problems=problems, sft_data=pairs, batches={0: batch}))
    save_configuration(config, folder / "config.yaml")
    return folder
