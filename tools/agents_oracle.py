"""Oracle table of agents, of the kernels that an optimizer was given: the share that could have been made faster.

    python tools/agents_oracle.py RUN [--role optimizer] [--gain 1.1] [--judge [--answers 16]] [--out TABLE.json]

A row for each iteration's conversations and each policy's held-out ones. Counted are distinct right kernels that the
role was given, and of them the shares for which a kernel at least 1.1 times as fast is known:

    corpus      the best kernel that the corpus has for the same problem, see below; `in corpus`: those where it has one
    autotuner   the fastest of 16 kernels for the same problem that tools/autotuner.py draws (`--measured`); with
                `--answers` it has as many as there are answers
    run         the best kernel that any conversation of the run found on the problem
    best of n   the role's best answer to this very kernel; n is the mean number of its answers
    one answer  the same of a single answer, on average

Where `corpus` is low, the corpus knows nothing better; where `run` is high and `best of n` is low, the optimizer did
not learn it. Lines below a row have the role's answers to parts of the kernels:

    beaten      right kernels that the corpus, the autotuner or an answer to another kernel beats by as much
    fastest     the other right kernels: nothing faster is known but what answers to them may be
    wrong       wrong kernels: here the shares count right answers, of any speed
    asked anew  `--answers`: kernels that the corpus or the autotuner beats by as much, of the last row with any, 32
                at most. The newest policy answers each so many times, and a judge times kernels and answers once more

Times are compared where one source (GPU or estimate) on one hardware made both; kernels timed otherwise are left out
and counted. Generated corpora are drawn apart from the problems, so that SFT's pairs hardly ever have the problem of a
conversation. `--judge` therefore judges, with the run's judge on its device, what the corpus would write for it: the
problem set's own kernel, a generated problem in each of `sft.data.styles`, and SFT's pairs of the same text anew; and
what the autotuner draws.
"""

import argparse
import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import polars as pl
from agents_asked import ask, writer_of
from agents_shares import Given, Row, Timed, anew, beaten_kernels, oracle
from autotuner import kernels_to_measure
from judged_times import Clock, clock_of, time_of

from flows.run.state import RunState, read_state
from flows.settings.configuration import RunConfig, load_configuration
from kernels_eval import Judge, Problem, Verdict
from tasks.agents.config import with_solver
from tasks.pipeline.tables import PAIRS_FILE, read_table
from tasks.problems.modules.corpus import stream_answered
from tasks.problems.problem_set import read_problems
from tasks.problems.row import ProblemRow
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.languages import Wanted, language_of
from tasks.problems.synthetic.suite import columns_of
from tasks.rollout.agent_prompts import best_turn
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import judge_for
from tasks.sft.joint_pairs import history_of
from tasks.trajectories.reader import load_trajectories
from tasks.trajectories.schema import Termination, Trajectory, verdict_from_row


def given_kernels(trajectories: Iterable[Trajectory], role: str, episode: EpisodeConfig) -> list[Given]:
    """Return the distinct kernels that the role was given; turns after a fault of the machine do not count.

    Left out are right kernels without a time, and right answers that were timed in another way than what they answer.
    """
    kernels: dict[tuple[str, str, Clock, bool], float] = {}
    answers = defaultdict[tuple[str, str, Clock, bool], list[float]](list)
    for trajectory in trajectories:
        judged = history_of(trajectory, episode)
        for place in range(1, len(judged)):
            best, answer = best_turn(judged[:place]), judged[place].verdict
            is_right, ms = best.verdict.correct, time_of(best.verdict)
            if trajectory.turns[place].role != role or not best.kernel_source or (is_right and ms == math.inf):
                continue
            if not is_right:
                key = (trajectory.problem_id, best.kernel_source, ("", ""), False)
                answers[key].append(0.0 if answer.correct else math.inf)
            else:
                clock = clock_of(best.verdict)
                key = (trajectory.problem_id, best.kernel_source, clock, True)
                if answer.correct and clock_of(answer) != clock:
                    continue
                answers[key].append(time_of(answer))
            kernels.setdefault(key, ms)
    return [Given(*key[:3], ms, tuple(answers[key])) for key, ms in kernels.items()]


def run_kernels(trajectories: Iterable[Trajectory], episode: EpisodeConfig) -> Iterator[Timed]:
    """Yield the right kernels of conversations that were timed. A stop writes none: it has the kept one's verdict."""
    for trajectory in trajectories:
        judged = history_of(trajectory, episode)
        written = judged[:-1] if trajectory.termination is Termination.AGENT_STOPPED else judged
        for place, turn in enumerate(written):
            if (ms := time_of(turn.verdict)) < math.inf:
                answered = best_turn(judged[:place]).kernel_source if place else None
                yield Timed(trajectory.problem_id, clock_of(turn.verdict), ms, answered)


def kernels_to_judge(rows: Sequence[ProblemRow], config: RunConfig) -> Iterator[tuple[Problem, str]]:
    """Yield what the corpus would write for these problems: their own kernels, and generated ones in all its styles."""
    data = config.sft.data
    writes = config.problems.source == "generated" and not config.sft.is_left_out and data.path is None
    for row in rows:
        if row.reference_kernel is not None:
            yield row.problem, row.reference_kernel
        if writes and row.composition == row.problem.name:
            language, generator = language_of(config.judge.backend, data.styles), random.Random(row.problem.problem_id)
            composition, columns = parse_composition(row.composition), columns_of(row.problem)
            for style in language.styles(composition):
                yield row.problem, language.write(Wanted(composition, style, (), columns, data.tuning, generator))
    if config.problems.source == "modules":
        yield from _heldout_kernels([row.problem for row in rows if row.reference_kernel is None], config)


def _heldout_kernels(problems: Sequence[Problem], config: RunConfig) -> Iterator[tuple[Problem, str]]:
    """Yield drawn held-out problems with their kernels, which the problem set does not have: draw them again."""
    wanted = {problem.problem_id: problem for problem in problems if problem.problem_id.startswith("heldout-")}
    if not wanted:
        return
    draws = max(int(name.removeprefix("heldout-")) for name in wanted) + 1
    settings = config.problems
    drawn = stream_answered(settings.seed + 1, frozenset(), settings.levels, "heldout", settings.long_chains)
    for problem, kernel in islice(drawn, draws):
        if problem.problem_id in wanted and problem.source == wanted[problem.problem_id].source:
            yield wanted[problem.problem_id], kernel


def corpus_kernels(state: RunState, rows: Sequence[ProblemRow], config: RunConfig, *, judge: bool) -> list[Timed]:
    """Return the right kernels of the corpus for these problems: of SFT's pairs, and with `judge` all, judged anew."""
    of_source = {row.problem.source: row.problem for row in rows}
    pairs: list[tuple[Problem, str, Verdict | None]] = []
    if state.sft_data is not None:
        columns = ["problem_source", "kernel_source", "verdict"]
        table = read_table(state.sft_data.path / PAIRS_FILE, columns)
        for pair in table.filter(pl.col("problem_source").is_in(list(of_source))).iter_rows(named=True):
            verdict = None if pair["verdict"] is None else verdict_from_row(pair["verdict"])
            pairs.append((of_source[pair["problem_source"]], pair["kernel_source"], verdict))
    if judge:
        of_pairs = [(problem, kernel) for problem, kernel, verdict in pairs if verdict is None or verdict.correct]
        items = {(problem.problem_id, kernel): (problem, kernel) for problem, kernel in of_pairs}
        items |= {(problem.problem_id, kernel): (problem, kernel) for problem, kernel in kernels_to_judge(rows, config)}
        return judged_now(list(items.values()), config)
    return _timed((problem, verdict) for problem, _, verdict in pairs if verdict is not None)


def autotuned_kernels(rows: Sequence[ProblemRow], config: RunConfig, measured: int) -> list[Timed]:
    """Return the right ones of so many kernels that the autotuner draws for each problem."""
    counts = {row.problem.problem_id: measured for row in rows}
    return judged_now(kernels_to_measure(rows, counts, config), config)


def judged_now(items: Sequence[tuple[Problem, str]], config: RunConfig) -> list[Timed]:
    """Judge kernels; return the right ones. Training conversations and held-out ones may have devices of their own."""
    judged: list[tuple[Problem, Verdict]] = []
    for settings in dict.fromkeys((config.judge, config.rollout.judge.applied_to(config.judge))):
        with Judge(judge_for(config.rollout.episode, settings)) as judging:
            judged += zip((problem for problem, _ in items), judging.evaluate_many(list(items)), strict=True)
    return _timed(judged)


def _timed(judged: Iterable[tuple[Problem, Verdict]]) -> list[Timed]:
    timed = (Timed(problem.problem_id, clock_of(verdict), time_of(verdict)) for problem, verdict in judged)
    return [kernel for kernel in timed if kernel.ms < math.inf]


def table(
    run: Path, role: str, gain: float, *, judge: bool, measured: int = 0, answers: int = 0, most: int = 32
) -> dict[str, Row]:
    """Return the lines of a run by name. Raises SystemExit if it has no such role, or no conversations yet.

    `measured`: kernels that the autotuner draws for each problem. `answers`: to each kernel that is asked about anew,
    of at most `most` kernels.
    """
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
    rows = {row.problem.problem_id: row for row in read_problems(state.problems) if row.problem.problem_id in met}
    corpus = corpus_kernels(state, list(rows.values()), config, judge=judge)
    autotuned = autotuned_kernels(list(rows.values()), config, measured) if measured else None
    episode = config.rollout.episode
    found = list(run_kernels((trajectory for part in parts.values() for trajectory in part), episode))
    given = {name: given_kernels(part, role, episode) for name, part in parts.items()}
    lines = {name: oracle(one, corpus, found, gain, autotuned) for name, one in given.items()}
    made = {name: line for name, line in lines.items() if line is not None}
    for name in reversed(made) if answers else ():
        if chosen := beaten_kernels(given[name], [*corpus, *(autotuned or ())], gain, most):
            assert state.newest_policy is not None, "a run with conversations has a policy"
            kernels = [(rows[one.problem_id].problem, one.kernel) for one in chosen]
            asked = ask(kernels, writer_of(state.newest_policy, config), config, role, answers)
            made[name] = replace(made[name], anew=anew(asked, len(kernels), autotuned or (), gain))
            break
    return made


def printed(lines: dict[str, Row], gain: float, *, judge: bool) -> Iterator[str]:
    """Yield the table as lines of text."""

    def shown(value: float | None, digits: int = 2) -> str:
        return "–" if value is None else f"{value:.{digits}f}"

    yield f"{'conversations':<16} given  in corpus  corpus  autotuner    run  best of n      n  one answer"
    for name, line in lines.items():
        yield (
            f"{name:<16} {line.given:>5}  {line.in_corpus:>9}  {shown(line.corpus):>6}  {shown(line.autotuner):>9}"
            f" {shown(line.run):>6}  {shown(line.best_of_n):>9} {shown(line.n, 1):>6}  {shown(line.one_answer):>10}"
        )
        parts = {"beaten": line.beaten, "fastest": line.fastest, "wrong": line.wrong, "asked anew": line.anew}
        for title, part in parts.items():
            if part is not None:
                yield (
                    f"  {title:<14} {part.given:>5}{'':>37}"
                    f"  {shown(part.best_of_n):>9} {shown(part.n, 1):>6}  {shown(part.one_answer):>10}"
                )
    if judge:
        yield "corpus: what it writes for the very problem in each of its styles, and its pairs of the same text"
    else:
        yield "corpus: SFT's pairs of the same text alone; a generated corpus is drawn apart and has none (--judge)"
    yield f"beaten: something else is known to be {gain:g} times as fast; wrong: mended instead of sped up"
    for part in (line.anew for line in lines.values() if line.anew is not None):
        yield (
            f"asked anew: the best of {part.n:.0f} answers is {shown(part.best_times)} times as fast as the kernel, "
            f"the autotuner's {shown(part.autotuner_times)}; {part.left_out} kernels could not be asked about"
        )
    left_out = max((line.left_out for line in lines.values()), default=0)
    if left_out:
        yield f"left out: up to {left_out} kernels a line that another source or hardware than the given ones' timed"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run with agents")
    parser.add_argument("--role", default="optimizer")
    parser.add_argument("--gain", type=float, default=1.1)
    parser.add_argument("--judge", action="store_true", help="judge what the corpus writes for the same problems")
    parser.add_argument(
        "--answers", type=int, default=0, metavar="N", help="ask the newest policy for N answers to each beaten kernel"
    )
    parser.add_argument("--kernels", type=int, default=32, help="beaten kernels that are asked about at most")
    parser.add_argument(
        "--measured", type=int, default=16, help="kernels that the autotuner has for each problem (with --answers: N)"
    )
    parser.add_argument("--out", type=Path, help="JSON file of the table")
    arguments = parser.parse_args()
    if arguments.answers and not arguments.judge:
        parser.error("--answers: expected --judge as well, which says which kernels are beaten")
    measured = arguments.answers or arguments.measured
    lines = table(
        arguments.run,
        arguments.role,
        arguments.gain,
        judge=arguments.judge,
        measured=measured if arguments.judge else 0,
        answers=arguments.answers,
        most=arguments.kernels,
    )
    for line in printed(lines, arguments.gain, judge=arguments.judge):
        print(line)
    if arguments.out is not None:
        rows = {name: asdict(line) for name, line in lines.items()}
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
