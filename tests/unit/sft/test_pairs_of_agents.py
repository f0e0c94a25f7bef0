"""Pairs of agents: first kernels for the generator, better ones and stops for the optimizer, of one judged corpus."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kernels_eval import JudgeConfig, Problem, Status, Verdict
from tasks.agents.config import AgentConfig
from tasks.pipeline.references import SftDataRef, silent
from tasks.pipeline.store import read_metadata
from tasks.pipeline.tables import PAIRS_FILE
from tasks.problems.config import ProblemsConfig
from tasks.problems.modules.corpus import draw_optimizations
from tasks.problems.problem_set import build_problem_set
from tasks.rollout.agent_prompts import STOP
from tasks.rollout.config import EpisodeConfig
from tasks.sft.config import SftDataConfig
from tasks.sft.conversations import read_conversations
from tasks.sft.pairs import build_sft_data

AGENTS = {
    "generator": AgentConfig(turns="first", shown="problem"),
    "optimizer": AgentConfig(turns="later", shown="kernel", may_stop=True),
}
SUITE = ProblemsConfig(train=20, heldout=4)


def judge_all(items: Sequence[tuple[Problem, str]], config: JudgeConfig, progress: Any) -> list[Verdict]:
    """Call every kernel right: the fewer lines it has, the faster."""
    return [
        Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=1 + 40 / len(kernel.splitlines()))
        for _, kernel in items
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SftDataRef:
    folder = tmp_path_factory.mktemp("pairs")
    problems = build_problem_set(SUITE, folder / "problems")
    config = SftDataConfig(compositions=30, styles_per_composition=2, repair_fraction=0.5, stop_fraction=0.3)
    episode = EpisodeConfig(prompt="source", feedback="brief", agents=AGENTS)
    return build_sft_data(
        problems, config, SUITE, episode, JudgeConfig(), 0, folder / "data", silent, judge_all=judge_all
    )


def test_each_row_is_one_agents(data: SftDataRef) -> None:
    table = pl.read_parquet(data.path / PAIRS_FILE)
    by_kind = {kind: set(rows["role"]) for (kind,), rows in table.partition_by("kind", as_dict=True).items()}
    assert by_kind == {"direct": {"generator"}, "repair": {"optimizer"}}


def test_agents_read_their_own_conversations(data: SftDataRef) -> None:
    generators, optimizers = (read_conversations(data.path, (role,)) for role in AGENTS)
    assert len(generators) + len(optimizers) == len(read_conversations(data.path)) == data.pairs
    assert all(len(conversation) == 2 for conversation in [*generators, *optimizers])
    assert not any("```" in conversation[0].content for conversation in generators)
    shown = [conversation[0].content for conversation in optimizers]
    assert all(text.count("```") == 2 and "\ncorrect\nspeedup " in text for text in shown)


def test_the_optimizer_learns_to_stop_where_nothing_is_better(data: SftDataRef) -> None:
    table = pl.read_parquet(data.path / PAIRS_FILE).filter("used")
    answers = table["messages"].list.last().struct.field("content")
    stops = table.filter(answers == STOP)
    assert len(stops) > 0.2 * len(table.filter(pl.col("role") == "optimizer"))
    assert set(stops["role"]) == {"optimizer"}
    for row in stops.iter_rows(named=True):
        shown = float(row["messages"][0]["content"].rpartition("speedup ")[2])
        assert row["verdict"]["speedup"] <= shown + 0.05


def test_stops_change_nothing_of_a_corpus_without_them(tmp_path: Path) -> None:
    from tasks.sft.drafts import generate_drafts

    config = SftDataConfig(compositions=10, styles_per_composition=2, repair_fraction=0.5)
    with_stops = generate_drafts(config.model_copy(update={"stop_fraction": 0.3}), SUITE, 0)
    plain = generate_drafts(config, SUITE, 0)
    assert [draft for draft in with_stops if not draft.earlier] == [draft for draft in plain if not draft.earlier]


def test_the_optimizer_learns_from_slow_kernels_that_the_answer_clearly_beats(tmp_path: Path) -> None:
    """Of the slow kernels a third is 1.1 times as slow, a third 1.5 times, a third wrong; both are beyond the reward."""
    config = SftDataConfig(corpus="modules", pairs=4, optimizations=30)
    drawn = list(draw_optimizations(30, 0))
    slow = {(pair.problem_source, pair.earlier_source): place % 3 for place, pair in enumerate(drawn)}

    def judged(items: Sequence[tuple[Problem, str]], config: JudgeConfig, progress: Any) -> list[Verdict]:
        right = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=9.0, candidate_ms=1.0)
        verdicts = {None: right, 0: right.model_copy(update={"candidate_ms": 1.1})}
        verdicts |= {1: right.model_copy(update={"candidate_ms": 1.5}), 2: Verdict(status=Status.INCORRECT)}
        return [verdicts[slow.get((problem.source, kernel))] for problem, kernel in items]

    problems = build_problem_set(SUITE, tmp_path / "problems")
    episode = EpisodeConfig(prompt="source", feedback="brief", agents=AGENTS)
    data = build_sft_data(problems, config, SUITE, episode, JudgeConfig(), 0, tmp_path / "data", silent, judged)
    assert read_metadata(data.path)["optimizations"] == {"drawn": 30, "used": 10}
    table = pl.read_parquet(data.path / PAIRS_FILE)[4:]
    assert table["used"].to_list() == [place % 3 == 1 for place in range(30)]
    used = table.filter("used")
    assert set(used["role"]) == {"optimizer"}
    answers = used["messages"].list.last().struct.field("content")
    assert STOP not in answers, "of two kernels beyond the rewarded speeds the faster one is the answer"
