"""Oracle table of agents, of the kernels that an optimizer was given: the share that could have been made faster.

    python tools/agents_oracle.py RUN [--role optimizer] [--gain 1.1] [--judge] [--out TABLE.json]

A row for each iteration's conversations and each policy's held-out ones. Counted are distinct right kernels that the
role was given, and of them the shares for which a kernel at least 1.1 times as fast is known:

    corpus      the best kernel of the SFT pairs, or the problem set's own one, for the same problem
    run         the best kernel that any conversation of the run found on the problem
    best of n   the role's best answer to this very kernel; n is the mean number of its answers
    one answer  the same of a single answer, on average

Where `corpus` is low, the corpus knows nothing better; where `run` is high and `best of n` is low, the optimizer did
not learn it. The problem set's own kernels have no verdict: `--judge` judges them with the run's judge, on its device.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import polars as pl

from flows.run.state import RunState, read_state
from flows.settings.configuration import RunConfig, load_configuration
from kernels_eval import Judge, Verdict
from tasks.agents.config import with_solver
from tasks.pipeline.tables import PAIRS_FILE, read_table
from tasks.problems.problem_set import read_problems
from tasks.problems.row import ProblemRow
from tasks.rollout.agent_prompts import best_turn
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import judge_for
from tasks.sft.joint_pairs import history_of
from tasks.trajectories.reader import load_trajectories
from tasks.trajectories.schema import Trajectory, verdict_from_row

Times = Mapping[str, float]
"""Least time of a right kernel, in ms, by problem id."""


@dataclass(frozen=True)
class Given:
    """A right kernel that the role was given, with the times of its answers in ms; a wrong answer takes for ever."""

    problem_id: str
    kernel: str
    ms: float
    answers: tuple[float, ...]


@dataclass(frozen=True)
class Row:
    """A line of the table; shares are of the given kernels."""

    given: int
    in_corpus: int
    """Given kernels for whose problem the corpus has a right kernel."""
    corpus: float
    run: float
    best_of_n: float
    one_answer: float
    n: float


def time_of(verdict: Verdict) -> float:
    """Return the kernel's time in ms; infinity unless it is right and was timed."""
    return verdict.candidate_ms if verdict.correct and verdict.candidate_ms else math.inf


def given_kernels(trajectories: Iterable[Trajectory], role: str, episode: EpisodeConfig) -> list[Given]:
    """Return the distinct right kernels that the role was given; turns after a fault of the machine do not count."""
    times: dict[tuple[str, str], float] = {}
    answers = defaultdict[tuple[str, str], list[float]](list)
    for trajectory in trajectories:
        judged = history_of(trajectory, episode)
        for place in range(1, len(judged)):
            best = best_turn(judged[:place])
            if trajectory.turns[place].role == role and best.kernel_source and time_of(best.verdict) < math.inf:
                key = (trajectory.problem_id, best.kernel_source)
                times.setdefault(key, time_of(best.verdict))
                answers[key].append(time_of(judged[place].verdict))
    return [Given(*key, ms, tuple(answers[key])) for key, ms in times.items()]


def best_times(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """Return the least time on each problem that any turn reached."""
    found: dict[str, float] = {}
    for trajectory in trajectories:
        least = min(time_of(turn.verdict) for turn in trajectory.turns)
        found[trajectory.problem_id] = min(least, found.get(trajectory.problem_id, math.inf))
    return found


def corpus_times(state: RunState, rows: Sequence[ProblemRow], config: RunConfig, *, judge: bool) -> dict[str, float]:
    """Return the least time on each problem among the SFT pairs and, if they are judged, the problem set's kernels."""
    found: dict[str, float] = {}
    names = {row.problem.source: row.problem.problem_id for row in rows}
    if state.sft_data is not None:
        pairs = read_table(state.sft_data.path / PAIRS_FILE, ["problem_source", "verdict"])
        for pair in pairs.filter(pl.col("problem_source").is_in(list(names))).iter_rows(named=True):
            name = names[pair["problem_source"]]
            found[name] = min(time_of(verdict_from_row(pair["verdict"])), found.get(name, math.inf))
    known = [(row.problem, row.reference_kernel) for row in rows if row.reference_kernel is not None]
    if judge and known:
        with Judge(judge_for(config.rollout.episode, config.judge)) as judging:
            verdicts = judging.evaluate_many(known)
        for (problem, _), verdict in zip(known, verdicts, strict=True):
            name = problem.problem_id
            found[name] = min(time_of(verdict), found.get(name, math.inf))
    return {name: ms for name, ms in found.items() if ms < math.inf}


def oracle(given: Sequence[Given], corpus: Times, run: Times, gain: float) -> Row | None:
    """Return the line of these kernels; None if there are none."""
    if not given:
        return None

    def is_beaten(one: Given, ms: float) -> bool:
        return one.ms >= gain * ms

    return Row(
        given=len(given),
        in_corpus=sum(one.problem_id in corpus for one in given),
        corpus=fmean(is_beaten(one, corpus.get(one.problem_id, math.inf)) for one in given),
        run=fmean(is_beaten(one, run.get(one.problem_id, math.inf)) for one in given),
        best_of_n=fmean(is_beaten(one, min(one.answers)) for one in given),
        one_answer=fmean(fmean(is_beaten(one, ms) for ms in one.answers) for one in given),
        n=fmean(len(one.answers) for one in given),
    )


def table(run: Path, role: str, gain: float, *, judge: bool) -> dict[str, Row]:
    """Return the lines of a run by name. Raises SystemExit if it has no such role, or no conversations yet."""
    state, config = read_state(run), load_configuration(run / "config.yaml")
    roles = with_solver(config.rollout.episode.agents)
    if role not in roles:
        raise SystemExit(f"--role: {run} has {', '.join(sorted(roles))}, found {role}")
    if state.problems is None:
        raise SystemExit(f"{run}: expected the folder of a run with a problem set, found none")
    parts = {f"training {version}": list(load_trajectories(batch.path)) for version, batch in state.batches.items()}
    heldout = state.evaluations.items()
    parts |= {f"held-out {version}": list(load_trajectories(found.path)) for version, found in heldout}
    met = {trajectory.problem_id for part in parts.values() for trajectory in part}
    rows = [row for row in read_problems(state.problems) if row.problem.problem_id in met]
    corpus = corpus_times(state, rows, config, judge=judge)
    best = best_times(trajectory for part in parts.values() for trajectory in part)
    episode = config.rollout.episode
    lines = {name: oracle(given_kernels(part, role, episode), corpus, best, gain) for name, part in parts.items()}
    return {name: line for name, line in lines.items() if line is not None}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run with agents")
    parser.add_argument("--role", default="optimizer")
    parser.add_argument("--gain", type=float, default=1.1)
    parser.add_argument("--judge", action="store_true", help="judge the problem set's own kernels too")
    parser.add_argument("--out", type=Path, help="JSON file of the table")
    arguments = parser.parse_args()
    lines = table(arguments.run, arguments.role, arguments.gain, judge=arguments.judge)
    print(f"{'conversations':<16} given  in corpus  corpus    run  best of n      n  one answer")
    for name, line in lines.items():
        print(
            f"{name:<16} {line.given:>5}  {line.in_corpus:>9}  {line.corpus:>6.2f} {line.run:>6.2f}"
            f"  {line.best_of_n:>9.2f} {line.n:>6.1f}  {line.one_answer:>10.2f}"
        )
    if arguments.out is not None:
        rows = {name: asdict(line) for name, line in lines.items()}
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
