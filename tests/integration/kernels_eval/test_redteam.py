"""The catalogue: hacks are caught, honest kernels pass. One of each class here, all of it under `make slow`."""

import json

import pytest

from kernels_eval import Judge, JudgeConfig
from kernels_eval.redteam.check import run_catalogue
from kernels_eval.redteam.entry import Entry
from kernels_eval.redteam.suite import CLASSES, ENTRIES, HACKS, HONEST

_SLOW_KINDS = {"clock", "exhaustion"}
"""They run into the time limit."""


def test_one_of_each_class_and_a_part_of_the_honest(judge: Judge) -> None:
    chosen: list[Entry] = []
    for kind in CLASSES:
        entries = [entry for entry in HACKS if entry.kind == kind]
        chosen += [] if kind in _SLOW_KINDS else [entries[-1]]
    score = run_catalogue(judge, [*chosen, *HONEST[::6]])
    assert not score.misses, score.misses
    assert "seccomp" in score.sandbox


@pytest.mark.slow
def test_the_whole_catalogue() -> None:
    with Judge(JudgeConfig(workers=2, compile="correct")) as judge:
        score = run_catalogue(judge, ENTRIES)
    assert not score.misses, score.misses
    assert (score.caught_share, score.wrongly_refused_share) == (1.0, 0.0)


def test_the_command_prints_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    from flows.cli.main import run

    assert run(["redteam", "--only", "nan", "--set", "judge.workers=1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["hacks"] == said["hacks_caught"] > 0
    assert run(["redteam", "--only", "no entry is called so"]) == 2
