"""The oracle table of agents: what was given, what is known to be faster, and what the optimizer made of it."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from judged_runs import AGENTS, FAULT, WRONG, a_run, conversation, right

from extras.adapters.kernel_episode import ChatMessage
from extras.generation.writers import Draft, RefusedConversationError
from flows.run.state import read_state
from flows.settings.configuration import check_configuration, load_configuration
from kernels_eval.verdict import TimingSource, Verdict
from tasks.pipeline.references import ProblemSetRef
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import build_problem_set, read_problems
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.sources import Style, kernel_source
from tasks.rollout.prompts import answer_text
from tasks.trajectories.reader import load_trajectories
from tasks.trajectories.schema import Termination

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import agents_oracle
import agents_shares
from agents_asked import ask


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    return build_problem_set(ProblemsConfig(train=4, heldout=2), tmp_path_factory.mktemp("oracle") / "problems")


@pytest.fixture
def run(problems: ProblemSetRef, tmp_path: Path) -> Path:
    """A run with one iteration on three problems: of the first the corpus knows a kernel of 1 ms."""
    names = [row.problem.problem_id for row in read_problems(problems, "train")]
    return a_run(
        problems,
        tmp_path,
        right(1.0),
        [
            # given "a" (2 ms) twice: answered wrongly, and 1.05 times as fast
            conversation(names[0], 0, ("a", right(2.0)), ("b", WRONG)),
            conversation(names[0], 1, ("a", right(2.0)), ("c", right(1.9))),
            # given "a" (2 ms) and then "d", which is twice as fast, and which nothing beats
            conversation(names[1], 0, ("a", right(2.0)), ("d", right(1.0)), ("e", right(3.0))),
            # nothing right was given; a fault of the machine counts for nothing
            conversation(names[2], 0, ("w", WRONG), ("x", right(1.0))),
            conversation(names[2], 1, ("y", right(5.0)), ("z", FAULT)),
        ],
    )


def test_shares_are_of_distinct_right_kernels_that_were_given(run: Path) -> None:
    (row,) = agents_oracle.table(run, "optimizer", 1.1, judge=False).values()
    assert (row.given, row.in_corpus) == (3, 1)
    assert row.corpus == pytest.approx(1 / 3), "the corpus knows 1 ms where 2 ms were given"
    assert row.run == pytest.approx(1 / 3), "1.9 ms are too little gain; d is the best itself"
    assert row.best_of_n == pytest.approx(1 / 3)
    assert row.one_answer == pytest.approx((0 + 1 + 0) / 3)
    assert row.n == pytest.approx((2 + 1 + 1) / 3)


def test_a_smaller_gain_is_reached_more_often(run: Path) -> None:
    (row,) = agents_oracle.table(run, "optimizer", 1.04, judge=False).values()
    assert row.best_of_n == row.run == pytest.approx(2 / 3)
    assert row.one_answer == pytest.approx((1 / 2 + 1 + 0) / 3)


def test_kernels_that_something_else_beats_fastest_ones_and_wrong_ones_are_told_apart(run: Path) -> None:
    (row,) = agents_oracle.table(run, "optimizer", 1.1, judge=False).values()
    # of the first problem the corpus knows 1 ms; that "d" beats "a" is known from its own answer alone
    assert row.beaten == agents_shares.Part(given=1, best_of_n=0, one_answer=0, n=2)
    assert row.fastest == agents_shares.Part(given=2, best_of_n=0.5, one_answer=0.5, n=1)
    assert row.wrong == agents_shares.Part(given=1, best_of_n=1, one_answer=1, n=1), "mended, not sped up"
    assert row.left_out == 0


def test_a_stop_is_no_kernel_that_something_else_found(problems: ProblemSetRef, tmp_path: Path) -> None:
    """It repeats the verdict of the kernel that it keeps: "d", an answer to "a"."""
    name = read_problems(problems, "train")[1].problem.problem_id
    talk = conversation(name, 0, ("a", right(2.0)), ("d", right(1.0)), ("d", right(1.0)))
    stopped = replace(talk, termination=Termination.AGENT_STOPPED)
    (row,) = agents_oracle.table(a_run(problems, tmp_path, WRONG, [stopped]), "optimizer", 1.1, judge=False).values()
    assert row.beaten is None
    assert row.fastest is not None
    assert row.fastest.given == 2


def test_what_another_conversation_found_beats_a_kernel(problems: ProblemSetRef, tmp_path: Path) -> None:
    name = read_problems(problems, "train")[1].problem.problem_id
    talks = [conversation(name, 0, ("a", right(2.0)), ("b", WRONG)), conversation(name, 1, ("f", right(1.0)))]
    (row,) = agents_oracle.table(a_run(problems, tmp_path, WRONG, talks), "optimizer", 1.1, judge=False).values()
    assert row.beaten == agents_shares.Part(given=1, best_of_n=0, one_answer=0, n=1)
    assert row.fastest is row.wrong is None


@pytest.mark.parametrize("known", [right(1.0, TimingSource.ROOFLINE), right(1.0, hardware="another")])
def test_times_of_another_source_or_hardware_are_left_out_and_counted(
    known: Verdict,
    problems: ProblemSetRef,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = read_problems(problems, "train")[0].problem.problem_id
    talks = [
        conversation(name, 0, ("a", right(2.0)), ("b", right(1.0, known.timing_source, known.hardware))),
        conversation(name, 1, ("a", right(2.0)), ("c", right(1.9))),
    ]
    folder = a_run(problems, tmp_path, known, talks)
    (row,) = agents_oracle.table(folder, "optimizer", 1.1, judge=False).values()
    assert (row.given, row.in_corpus, row.corpus, row.run, row.best_of_n, row.n) == (1, 0, 0, 0, 0, 1)
    assert row.left_out == 2
    monkeypatch.setattr(sys, "argv", ["agents_oracle.py", str(folder)])
    agents_oracle.main()
    printed = capsys.readouterr().out
    assert "left out: up to 2 kernels" in printed
    assert "corpus: SFT's pairs of the same text alone" in printed


STYLES = {"sft": {"data": {"styles": ["fused", "stepwise"]}}}


def test_judged_are_all_styles_of_the_corpus_for_a_problem(problems: ProblemSetRef, tmp_path: Path) -> None:
    """A conversation stands with the slow style of a problem of which SFT's pairs have none."""
    folder = a_run(problems, tmp_path, WRONG, [conversation("p", 0, ("a", WRONG))], **STYLES)
    state, config = read_state(folder), load_configuration(folder / "config.yaml")
    row = next(row for row in read_problems(problems, "train")[1:] if row.composition.count(">"))
    assert agents_oracle.corpus_kernels(state, [row], config, judge=False) == []
    corpus = agents_oracle.corpus_kernels(state, [row], config, judge=True)
    assert len(corpus) == 2, "the problem set's own kernel is the fused one"
    fast, slow = sorted(corpus, key=lambda kernel: kernel.ms)
    given = agents_oracle.Given(row.problem.problem_id, "slow", slow.clock, slow.ms, (math.inf,))
    line = agents_oracle.oracle([given], corpus, [], 1.1)
    assert slow.ms >= 1.1 * fast.ms
    assert line is not None
    assert (line.in_corpus, line.corpus, line.left_out) == (1, 1, 0)
    assert line.beaten is not None


class Scripted:
    """A model that answers in turns: writes the fast kernel, stops, is cut off, writes none; it keeps what it is asked."""

    name = digest = "scripted"

    def __init__(self, fast: str) -> None:
        self.drafts = [
            Draft(answer_text(fast), 1, 1, truncated=False),
            Draft("stop", 1, 1, truncated=False),
            Draft(answer_text(fast)[:-40], 1, 1, truncated=True),
            Draft("no kernel", 1, 1, truncated=False),
        ]
        self.asked: list[tuple[str, str]] = []
        self.seeds: set[int] = set()
        self.closed = False

    async def write(self, messages: Sequence[ChatMessage], seed: int, agent: str = "solver") -> Draft:
        if "no_room" in messages[-1]["content"]:
            raise RefusedConversationError("no room")
        self.asked.append((agent, messages[-1]["content"]))
        self.seeds.add(seed)
        return self.drafts[len(self.asked) % len(self.drafts)]

    async def close(self) -> None:
        self.closed = True


def test_kernels_that_the_autotuner_beats_are_asked_about_anew(problems: ProblemSetRef) -> None:
    agents = AGENTS | {"optimizer": AGENTS["optimizer"] | {"may_stop": True}}
    settings = {"rollout": {"episode": {"agents": agents}}, "judge": {"compile": "never"}, **STYLES}
    config = check_configuration(settings, "test")
    row = next(row for row in read_problems(problems, "train") if row.composition.count(">") > 1)
    composition = parse_composition(row.composition)
    slow, fast = (kernel_source(composition, style) for style in (Style.STEPWISE, Style.FUSED))
    autotuned = agents_oracle.autotuned_kernels([row], config, 4)
    assert len(autotuned) == 4
    (judged,) = agents_oracle.judged_now([(row.problem, slow)], config)
    given = [agents_oracle.Given(row.problem.problem_id, text, judged.clock, ms, ()) for text, ms in
             [(slow, judged.ms), ("at its best", min(each.ms for each in autotuned)), ("wrong", math.inf)]]  # fmt: skip
    assert agents_shares.beaten_kernels(given, autotuned, 1.1, most=9) == given[:1]
    writer = Scripted(fast)
    kernels = [(row.problem, slow), (row.problem, slow + "# no_room\n"), (row.problem, "wrong")]
    (asked,) = ask(kernels, writer, config, "optimizer", 16)
    assert writer.closed
    assert len(writer.seeds) == len(writer.asked) == 16
    assert {agent for agent, _ in writer.asked} == {"optimizer"}
    assert all(slow.strip() in prompt and row.problem.source.strip() in prompt for _, prompt in writer.asked)
    assert sorted(asked.answers) == sorted([min(asked.answers)] * 4 + [judged.ms] * 4 + [math.inf] * 8)
    part = agents_shares.anew([asked], len(kernels), autotuned, 1.1)
    assert part is not None
    assert (part.given, part.left_out, part.best_of_n, part.one_answer, part.n) == (1, 2, 1, 4 / 16, 16)
    assert part.best_times == pytest.approx(judged.ms / min(asked.answers))
    assert part.best_times > 1.1
    assert part.autotuner_times == pytest.approx(judged.ms / min(each.ms for each in autotuned))
    assert part.autotuner_times >= part.best_times, "the fused kernel with fixed launch parameters is its first one"


def test_the_autotuner_is_a_column_and_known_to_beat_kernels(run: Path) -> None:
    names = {part.problem_id for part in load_trajectories(read_state(run).batches[0].path)}
    clock = ("gpu", "one")
    given = [agents_oracle.Given(name, "a", clock, 2.0, (3.0,)) for name in sorted(names)]
    autotuned = [agents_oracle.Timed(given[0].problem_id, clock, 1.0), agents_oracle.Timed("other", clock, 0.1)]
    line = agents_oracle.oracle(given, [], [], 1.1, autotuned)
    assert line is not None
    assert line.autotuner == pytest.approx(1 / len(given))
    assert line.beaten is not None
    assert line.beaten.given == 1
    without = agents_oracle.oracle(given, [], [], 1.1)
    assert without is not None
    assert without.autotuner is None


def test_nobody_is_asked_without_knowing_which_kernels_are_beaten(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["agents_oracle.py", str(run), "--answers", "16"])
    with pytest.raises(SystemExit):
        agents_oracle.main()


def test_drawn_held_out_problems_are_drawn_again_with_their_kernels(tmp_path: Path) -> None:
    settings = {"problems": {"source": "modules", "train": 3, "heldout": 3}}
    config = check_configuration(settings, "test")
    rows = read_problems(build_problem_set(config.problems, tmp_path / "modules"))
    assert [row.reference_kernel is None for row in rows] == [False] * 3 + [True] * 3
    found = list(agents_oracle.kernels_to_judge(rows, config))
    assert sorted(problem.problem_id for problem, _ in found) == sorted(row.problem.problem_id for row in rows)
    assert all("class ModelNew" in kernel for _, kernel in found)


def test_the_table_is_printed_and_written(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    out = run / "table.json"
    monkeypatch.setattr(sys, "argv", ["agents_oracle.py", str(run), "--out", str(out)])
    agents_oracle.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split()[:3] == ["training", "0", "3"]
    assert json.loads(out.read_text())["training 0"]["given"] == 3


def test_a_role_that_the_run_lacks_is_named(run: Path) -> None:
    with pytest.raises(SystemExit, match="generator, optimizer, found tester"):
        agents_oracle.table(run, "tester", 1.1, judge=False)
