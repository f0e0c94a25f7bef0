"""Oracle table of agents, of the kernels that an optimizer was given: the share that could have been made faster.

    python tools/agents_oracle.py RUN [--role optimizer] [--gain 1.1] [--judge] [--out TABLE.json]

A row for each iteration's conversations and each policy's held-out ones. Counted are distinct right kernels that the
role was given, and of them the shares for which a kernel at least 1.1 times as fast is known:

    corpus      the best kernel that the corpus has for the same problem, see below; `in corpus`: those where it has one
    run         the best kernel that any conversation of the run found on the problem
    best of n   the role's best answer to this very kernel; n is the mean number of its answers
    one answer  the same of a single answer, on average

Where `corpus` is low, the corpus knows nothing better; where `run` is high and `best of n` is low, the optimizer did
not learn it. Three lines below each row have the role's answers to parts of the kernels:

    beaten      right kernels that the corpus or an answer to another kernel beats by as much: a speed-up is to be had
    fastest     the other right kernels: nothing faster is known but what answers to them may be
    wrong       wrong kernels: here the shares count right answers, of any speed

Times are compared where one source (GPU or estimate) on one hardware made both; kernels timed otherwise are left out
and counted. Generated corpora are drawn apart from the problems, so that SFT's pairs hardly ever have the problem of a
conversation. `--judge` therefore judges, with the run's judge on its device, what the corpus would write for it: the
problem set's own kernel, a generated problem in each of `sft.data.styles`, and SFT's pairs of the same text anew.
"""

import argparse
import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

import polars as pl

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
from tasks.rollout.agent_prompts import best_turn
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import judge_for
from tasks.sft.joint_pairs import history_of
from tasks.trajectories.reader import load_trajectories
from tasks.trajectories.schema import Termination, Trajectory, verdict_from_row

Clock = tuple[str, str]
"""Source of a time, and the hardware that it is of. Times of different ones are not compared."""


@dataclass(frozen=True)
class Timed:
    """The time of a right kernel for a problem."""

    problem_id: str
    clock: Clock
    ms: float
    answers: str | None = None
    """Source of the kernel that it is an answer to, if any."""


@dataclass(frozen=True)
class Given:
    """A kernel that the role was given, with its answers; a wrong one takes for ever."""

    problem_id: str
    kernel: str
    clock: Clock
    ms: float
    """Infinite if the kernel is wrong."""
    answers: tuple[float, ...]
    """Times in ms; of answers to a wrong kernel 0 for a right one."""


@dataclass(frozen=True)
class Part:
    """Answers to some of the given kernels."""

    given: int
    best_of_n: float
    one_answer: float
    n: float


@dataclass(frozen=True)
class Row:
    """A line of the table; shares are of the right kernels that were given, None if there are none."""

    given: int
    in_corpus: int
    """Given kernels for whose problem the corpus has a right kernel that was timed in the same way."""
    corpus: float | None
    run: float | None
    best_of_n: float | None
    one_answer: float | None
    n: float | None
    left_out: int
    """Right kernels of the corpus and the run on these problems that were timed in another way than the given ones."""
    beaten: Part | None
    fastest: Part | None
    wrong: Part | None


def time_of(verdict: Verdict) -> float:
    """Return the kernel's time in ms; infinity unless it is right and was timed."""
    return verdict.candidate_ms if verdict.correct and verdict.candidate_ms else math.inf


def clock_of(verdict: Verdict) -> Clock:
    """Return what made the verdict's time."""
    return (verdict.timing_source.value if verdict.timing_source else "", verdict.hardware)


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
            composition, columns = parse_composition(row.composition), int(row.problem.problem_id.rpartition("x")[2])
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
        judged: list[tuple[Problem, Verdict]] = []
        # Conversations of training and held-out ones may have been judged on other devices.
        for settings in dict.fromkeys((config.judge, config.rollout.judge.applied_to(config.judge))):
            with Judge(judge_for(config.rollout.episode, settings)) as judging:
                verdicts = judging.evaluate_many(list(items.values()))
            judged += [(problem, verdict) for (problem, _), verdict in zip(items.values(), verdicts, strict=True)]
    else:
        judged = [(problem, verdict) for problem, _, verdict in pairs if verdict is not None]
    timed = [Timed(problem.problem_id, clock_of(verdict), time_of(verdict)) for problem, verdict in judged]
    return [kernel for kernel in timed if kernel.ms < math.inf]


def oracle(given: Sequence[Given], corpus: Sequence[Timed], run: Sequence[Timed], gain: float) -> Row | None:
    """Return the line of these kernels; None if there are none."""
    right, wrong = ([one for one in given if (one.ms < math.inf) is is_right] for is_right in (True, False))
    if not given:
        return None
    known = _by_place(corpus), _by_place(run)

    def least(one: Given, kernels: dict[tuple[str, Clock], list[Timed]], *, elsewhere: bool = False) -> float:
        found = kernels.get((one.problem_id, one.clock), [])
        return min((each.ms for each in found if not elsewhere or each.answers != one.kernel), default=math.inf)

    def share(is_counted: Callable[[Given], float]) -> float | None:
        return fmean(map(is_counted, right)) if right else None

    def is_beaten(one: Given) -> bool:
        return any(one.ms >= gain * least(one, kernels, elsewhere=True) for kernels in known)

    answers = _part(right, gain)
    places, problems = {(one.problem_id, one.clock) for one in right}, {one.problem_id for one in right}
    other = [each for each in (*corpus, *run) if (each.problem_id, each.clock) not in places]
    return Row(
        given=len(right),
        in_corpus=sum(least(one, known[0]) < math.inf for one in right),
        corpus=share(lambda one: one.ms >= gain * least(one, known[0])),
        run=share(lambda one: one.ms >= gain * least(one, known[1])),
        best_of_n=answers and answers.best_of_n,
        one_answer=answers and answers.one_answer,
        n=answers and answers.n,
        left_out=sum(each.problem_id in problems for each in other),
        beaten=_part([one for one in right if is_beaten(one)], gain),
        fastest=_part([one for one in right if not is_beaten(one)], gain),
        wrong=_part(wrong, gain),
    )


def _by_place(kernels: Iterable[Timed]) -> dict[tuple[str, Clock], list[Timed]]:
    found = defaultdict[tuple[str, Clock], list[Timed]](list)
    for each in kernels:
        found[each.problem_id, each.clock].append(each)
    return found


def _part(given: Sequence[Given], gain: float) -> Part | None:
    """Return how often answers beat these kernels by the gain, or a wrong kernel by being right."""
    if not given:
        return None
    beats = [[ms < math.inf and one.ms >= gain * ms for ms in one.answers] for one in given]
    return Part(len(given), fmean(map(any, beats)), fmean(map(fmean, beats)), fmean(map(len, beats)))


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
    corpus = corpus_kernels(state, rows, config, judge=judge)
    episode = config.rollout.episode
    found = list(run_kernels((trajectory for part in parts.values() for trajectory in part), episode))
    lines = {name: oracle(given_kernels(part, role, episode), corpus, found, gain) for name, part in parts.items()}
    return {name: line for name, line in lines.items() if line is not None}


def printed(lines: dict[str, Row], gain: float, *, judge: bool) -> Iterator[str]:
    """Yield the table as lines of text."""

    def shown(value: float | None, digits: int = 2) -> str:
        return "–" if value is None else f"{value:.{digits}f}"

    yield f"{'conversations':<16} given  in corpus  corpus    run  best of n      n  one answer"
    for name, line in lines.items():
        yield (
            f"{name:<16} {line.given:>5}  {line.in_corpus:>9}  {shown(line.corpus):>6} {shown(line.run):>6}"
            f"  {shown(line.best_of_n):>9} {shown(line.n, 1):>6}  {shown(line.one_answer):>10}"
        )
        for title, part in (("beaten", line.beaten), ("fastest", line.fastest), ("wrong", line.wrong)):
            if part is not None:
                yield (
                    f"  {title:<14} {part.given:>5}{'':>26}"
                    f"  {shown(part.best_of_n):>9} {shown(part.n, 1):>6}  {shown(part.one_answer):>10}"
                )
    if judge:
        yield "corpus: what it writes for the very problem in each of its styles, and its pairs of the same text"
    else:
        yield "corpus: SFT's pairs of the same text alone; a generated corpus is drawn apart and has none (--judge)"
    yield f"beaten: something else is known to be {gain:g} times as fast; wrong: mended instead of sped up"
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
    parser.add_argument("--out", type=Path, help="JSON file of the table")
    arguments = parser.parse_args()
    lines = table(arguments.run, arguments.role, arguments.gain, judge=arguments.judge)
    for line in printed(lines, arguments.gain, judge=arguments.judge):
        print(line)
    if arguments.out is not None:
        rows = {name: asdict(line) for name, line in lines.items()}
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
