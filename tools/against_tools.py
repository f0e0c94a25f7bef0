"""Table of a policy or a team against existing tools, problem by problem: which it beats, which beat it.

    python tools/against_tools.py RUN[@VERSION] [--greedy] [--problems N] [--slack 0.02] [--out TABLE.json]

The policy's kernel for a problem is the fastest right one of its held-out evaluation: of all turns of all samples, or
with `--greedy` of the greedy conversation. VERSION is a policy's number, `control` or `rejection`; none: the last one.
Its rivals:

    eager         the problem as written
    compile       torch.compile of it
    max-autotune  torch.compile with mode max-autotune-no-cudagraphs
    autotuner     the fastest right one of as many kernels as were judged of the policy's answers (tools/autotuner.py)

The policy's kernel and the autotuner's are judged anew, by the run's judge; what a rival takes is measured next to the
kernel. Without a GPU times are estimates, and torch.compile has none. `times` is how many times as fast the policy's
kernel is. It loses a problem to a rival if that is below 1 - SLACK, or if no kernel of it is right. Every problem that
is lost to a rival is listed, the worst first.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean

from autotuner import kernels_to_measure
from judged_times import time_of
from kernelbench_table import evaluations_of

from flows.run.state import read_state
from flows.settings.configuration import RunConfig, load_configuration
from kernels_eval import Judge, Problem, Verdict
from tasks.problems.problem_set import read_problems
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.prompts import judge_for
from tasks.trajectories.reader import load_trajectories
from tasks.trajectories.schema import Trajectory

COMPILERS = ("compile", "max-autotune")
RIVALS = ("eager", *COMPILERS, "autotuner")


@dataclass(frozen=True)
class Found:
    """Outcome of an evaluation on one problem."""

    measured: int
    """Distinct kernels that were judged."""
    kernel: str | None
    """The fastest right one; None if none is right."""


@dataclass(frozen=True)
class Line:
    """One problem of the table."""

    problem_id: str
    level: int
    tier: str
    measured: int
    is_right: bool
    """The policy's kernel is right, also when judged anew."""
    ms: float | None
    timing_source: str | None
    times: dict[str, float | None]
    """The rival's time over that of the policy's kernel, by rival. None: not right, or the rival has no time."""
    rivals: tuple[str, ...]
    """Rivals that have a kernel or a time for the problem; those that could not be measured are left out.

    Empty if the machine failed on the policy's kernel.
    """

    def lost_to(self, slack: float) -> list[str]:
        """Return the rivals that are faster by more than the slack; all of them if no kernel is right."""
        return [name for name in self.rivals if (self.times[name] or 0.0) < 1 - slack]


def found_in(trajectories: Sequence[Trajectory]) -> dict[str, Found]:
    """Return by problem what an evaluation found; turns on which the machine failed do not count."""
    times: dict[str, dict[str, float]] = {}
    for trajectory in trajectories:
        kernels = times.setdefault(trajectory.problem_id, {})
        for turn in trajectory.turns:
            if turn.kernel_source is not None and not turn.verdict.is_fault:
                known = kernels.get(turn.kernel_source, math.inf)
                kernels[turn.kernel_source] = min(known, time_of(turn.verdict))
    found: dict[str, Found] = {}
    for problem_id, kernels in times.items():
        best = min(kernels, key=kernels.__getitem__, default=None)
        found[problem_id] = Found(len(kernels), None if best is None or kernels[best] == math.inf else best)
    return found


def autotuned(rows: Sequence[ProblemRow], counts: Mapping[str, int], judge: Judge, config: RunConfig) -> dict[str, str]:
    """Return by problem the fastest right kernel of so many that the autotuner draws; none if it has none."""
    items = kernels_to_measure(rows, counts, config)
    best: dict[str, tuple[float, str]] = {}
    for (problem, kernel), verdict in zip(items, judge.evaluate_many(items), strict=True):
        if (ms := time_of(verdict)) < best.get(problem.problem_id, (math.inf, ""))[0]:
            best[problem.problem_id] = ms, kernel
    return {problem_id: kernel for problem_id, (_, kernel) in best.items()}


def table(rows: Sequence[ProblemRow], found: Mapping[str, Found], config: RunConfig) -> list[Line]:
    """Return the line of each problem."""
    settings = judge_for(config.rollout.episode, config.judge)
    with Judge(settings) as judge:
        counts = {row.problem.problem_id: found[row.problem.problem_id].measured for row in rows}
        tuned, on_gpu = autotuned(rows, counts, judge, config), judge.config.device == "cuda"
    ours = [(row.problem, kernel) for row in rows if (kernel := found[row.problem.problem_id].kernel) is not None]
    theirs = [(row.problem, tuned[row.problem.problem_id]) for row in rows if row.problem.problem_id in tuned]
    beside: dict[str | None, dict[str, Verdict]] = {}
    tuned_verdicts: dict[str, Verdict] = {}
    for compiler in COMPILERS if on_gpu else (None,):
        is_first = not beside  # the autotuner's kernels are judged once, beside the policy's
        with Judge(settings.model_copy(update={"baseline": "eager", "second_baseline": compiler})) as judge:
            verdicts = judge.evaluate_many([*ours, *theirs] if is_first else ours)
        beside[compiler] = _by_problem(ours, verdicts[: len(ours)])
        if is_first:
            tuned_verdicts = _by_problem(theirs, verdicts[len(ours) :])
    return [_line(row, found[row.problem.problem_id], beside, tuned_verdicts) for row in rows]


def _by_problem(items: Sequence[tuple[Problem, str]], verdicts: Sequence[Verdict]) -> dict[str, Verdict]:
    return {problem.problem_id: verdict for (problem, _), verdict in zip(items, verdicts, strict=True)}


def _line(
    row: ProblemRow, found: Found, beside: Mapping[str | None, Mapping[str, Verdict]], tuned: Mapping[str, Verdict]
) -> Line:
    """Return the line of a problem. `beside`: verdicts on the policy's kernel by the second baseline."""
    name = row.problem.problem_id
    verdicts = {compiler: each[name] for compiler, each in beside.items() if name in each}
    first = next(iter(verdicts.values()), None)
    ms = math.inf if first is None else time_of(first)
    is_right, tuned_ms = ms < math.inf, time_of(tuned[name]) if name in tuned else math.inf
    times: dict[str, float | None] = dict.fromkeys(RIVALS)
    if is_right and first is not None:
        times["eager"] = None if first.reference_ms is None else first.reference_ms / ms
        for compiler, verdict in verdicts.items():
            if compiler and verdict.correct and verdict.second_reference_ms and verdict.candidate_ms:
                times[compiler] = verdict.second_reference_ms / verdict.candidate_ms
        if tuned_ms < math.inf:
            times["autotuner"] = tuned_ms / ms
    can = ["eager", *(compiler for compiler in beside if compiler), *(["autotuner"] if tuned_ms < math.inf else [])]
    if first is not None and first.is_fault:  # the machine failed, which says nothing of the kernel
        can = []
    return Line(
        problem_id=name,
        level=row.problem.level,
        tier=row.tier.value,
        measured=found.measured,
        is_right=is_right,
        ms=ms if is_right else None,
        timing_source=first.timing_source.value if first is not None and first.timing_source is not None else None,
        times=times,
        rivals=tuple(rival for rival in can if not is_right or times[rival] is not None),
    )


def summary(lines: Sequence[Line], slack: float) -> dict[str, dict[str, float | int | None]]:
    """Return by rival the problems that are won, even and lost, and the geometric mean of `times` of right kernels."""
    result: dict[str, dict[str, float | int | None]] = {}
    for rival in RIVALS:
        met = [line for line in lines if rival in line.rivals]
        times = [ratio for line in met if (ratio := line.times[rival]) is not None]
        lost, won = sum(rival in line.lost_to(slack) for line in met), sum(ratio > 1 + slack for ratio in times)
        result[rival] = {
            "problems": len(met),
            "won": won,
            "even": len(met) - won - lost,
            "lost": lost,
            "wrong": sum(not line.is_right for line in met),
            "times": geometric_mean(times) if times else None,
        }
    return result


def printed(lines: Sequence[Line], slack: float) -> Iterator[str]:
    """Yield the summary and the lost problems as lines of text."""
    yield f"{'rival':<14} problems   won  even  lost  (not right)  times as fast"
    for rival, row in summary(lines, slack).items():
        times = "–" if row["times"] is None else f"{row['times']:.2f}"
        yield (
            f"{rival:<14} {row['problems']:>8} {row['won']:>5} {row['even']:>5} {row['lost']:>5}"
            f" {row['wrong']:>12} {times:>14}"
        )
    sources = {line.timing_source for line in lines if line.timing_source}
    if sources - {"gpu"}:
        yield "times are estimates; torch.compile is measured on a GPU alone"
    lost = sorted((line for line in lines if line.lost_to(slack)), key=lambda line: _worst(line, slack))
    yield f"lost to a rival: {len(lost)} of {len(lines)} problems"
    for line in lost:
        ratios = ", ".join(f"{rival} {line.times[rival] or 0:.2f}" for rival in line.lost_to(slack))
        yield f"  {line.problem_id} (level {line.level}): {ratios if line.is_right else 'no right kernel'}"


def _worst(line: Line, slack: float) -> float:
    return min(line.times[rival] or 0.0 for rival in line.lost_to(slack))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN[@VERSION]", help="folder of a run with held-out evaluations")
    parser.add_argument("--greedy", action="store_true", help="the greedy answers instead of the sampled ones")
    parser.add_argument("--problems", type=int, help="the first so many held-out problems alone")
    parser.add_argument("--slack", type=float, default=0.02, help="share by which equal times may differ")
    parser.add_argument("--out", type=Path, help="JSON file of all problems")
    arguments = parser.parse_args()
    folder, _, version = arguments.run.partition("@")
    run, kind = Path(folder), "greedy" if arguments.greedy else "sampled"
    problems, config = read_state(run).problems, load_configuration(run / "config.yaml")
    evaluations = evaluations_of(run, version)
    if problems is None or kind not in evaluations:
        parser.error(f"{arguments.run}: expected a {kind} held-out evaluation, found none")
    found = found_in(list(load_trajectories(evaluations[kind])))
    rows = [row for row in read_problems(problems, Split.HELDOUT) if row.problem.problem_id in found]
    lines = table(rows[: arguments.problems], found, config)
    for line in printed(lines, arguments.slack):
        print(line)
    if arguments.out is not None:
        content = {"slack": arguments.slack, "rivals": summary(lines, arguments.slack)}
        content |= {"problems": [asdict(line) | {"lost_to": line.lost_to(arguments.slack)} for line in lines]}
        arguments.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
