"""Pairs of the joint epoch: conversations of the policy, or of its agents together, with a better answer to each turn.

On every problem the best correct kernel that any of its conversations found is the answer to learn: to the problem
itself, and wherever a conversation stood with a kernel that it beats by more than `SLACK`. An agent that may stop
learns to where nothing better was found. So an agent that mends and speeds up kernels learns from those that it is
really given, not from the mistakes of a generated corpus alone.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernels_eval import Problem
from kernels_eval.rewards import reward_of
from tasks.agents.config import SLACK, author_of, with_solver
from tasks.pipeline.references import ProblemSetRef, SftDataRef, TrajectoryBatchRef
from tasks.problems.problem_set import read_problems
from tasks.problems.row import Split
from tasks.rollout.agent_prompts import best_turn
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import HistoryTurn
from tasks.sft.pair_rows import pair_row, publish_pairs
from tasks.trajectories.reader import load_trajectories
from tasks.trajectories.schema import Trajectory


def build_joint_pairs(
    batch: TrajectoryBatchRef, problems: ProblemSetRef, episode: EpisodeConfig, backend: str, destination: Path
) -> SftDataRef:
    """Publish the pairs of a batch of conversations on training problems; each pair once.

    None of a problem on which no conversation found a correct kernel. `metadata.roles`: number of pairs by role.
    """
    known = {row.problem.problem_id: row.problem for row in read_problems(problems, Split.TRAIN)}
    of_problem: dict[str, list[Trajectory]] = {}
    for trajectory in load_trajectories(batch.path):
        of_problem.setdefault(trajectory.problem_id, []).append(trajectory)
    rows: dict[str, dict[str, Any]] = {}
    solved = 0
    for problem_id, trajectories in of_problem.items():
        conversations = [history_of(trajectory, episode) for trajectory in trajectories]
        right = [turn for turns in conversations for turn in turns if turn.verdict.correct]
        if right:
            solved += 1
            for row in _rows(known[problem_id], conversations, best_turn(right), episode, backend):
                rows.setdefault(repr(row["messages"]), row)
    numbered = [{**row, "pair_id": f"{number:06d}"} for number, row in enumerate(rows.values())]
    metadata = {
        "pairs": len(numbered),
        "used": len(numbered),
        "roles": Counter(row["role"] for row in numbered),
        "problems": len(of_problem),
        "solved": solved,
    }
    return publish_pairs(numbered, metadata, verified=True, destination=destination)


def history_of(trajectory: Trajectory, episode: EpisodeConfig) -> list[HistoryTurn]:
    """Return the judged turns of a conversation, up to the first that the machine failed on."""
    turns: list[HistoryTurn] = []
    for turn in trajectory.turns:
        if turn.verdict.is_fault:
            break
        turns.append(
            HistoryTurn(
                response_text=turn.response_text,
                kernel_source=turn.kernel_source,
                verdict=turn.verdict,
                reward=reward_of(episode.reward, turn.verdict),
            )
        )
    return turns


def _rows(
    problem: Problem,
    conversations: Sequence[list[HistoryTurn]],
    best: HistoryTurn,
    episode: EpisodeConfig,
    backend: str,
) -> Iterator[dict[str, Any]]:
    assert best.kernel_source is not None, "a correct verdict is on a kernel"
    for turns in conversations:
        for place in range(len(turns)):
            history = turns[:place]
            agent = with_solver(episode.agents)[author_of(episode.agents, place)]
            is_better = not history or best.reward - best_turn(history).reward > SLACK
            if agent.trained and (is_better or agent.may_stop):
                answer = best if is_better else best_turn(history)
                assert answer.kernel_source is not None
                yield pair_row(
                    problem, history, answer.kernel_source, answer.verdict, episode, backend, keeps=not is_better
                )
