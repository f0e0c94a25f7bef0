"""Module problems in a problem set, with held-out problems of their own or from files."""

import sys

import pytest

from flows.settings.configuration import check_configuration, overridden
from kernels_eval.errors import InputError
from tasks.pipeline.store import read_manifest
from tasks.problems.config import ProblemsConfig
from tasks.problems.modules.corpus import draw_problems
from tasks.problems.problem_set import build_problem_set, read_problems
from tasks.problems.row import Split

SMALL = {"train": 30, "heldout": 10}


def sides(config, folder):
    reference = build_problem_set(config, folder)
    return [read_problems(reference, side) for side in Split], read_manifest(folder)["metadata"]


def test_both_sides_are_drawn_and_share_no_fingerprint(tmp_path):
    config = ProblemsConfig(source="modules", unseen=("relu", "sum", "softmax", "cumsum"), **SMALL)
    (train, heldout), _ = sides(config, tmp_path / "set")
    assert (len(train), len(heldout)) == (30, 10)
    assert not {row.composition for row in train} & {row.composition for row in heldout}


def test_all_of_a_file_is_held_out_and_none_of_it_is_trained_on(write, tmp_path):
    known = draw_problems(30, seed=0)
    given = [{"problem_id": f"h{n}", "code": problem.source, "split": "train"} for n, problem in enumerate(known[:12])]
    path = str(write("jsonl", given))
    files = {"heldout_source": "jsonl", "heldout_path": path, "flag_trivial": False}
    (train, heldout), counts = sides(ProblemsConfig(source="modules", train=30, heldout=1, **files), tmp_path / "set")
    assert [row.problem.problem_id for row in heldout] == [f"h{n}" for n in range(12)]
    assert {row.problem.digest for row in train} == {problem.digest for problem in known[12:]}
    assert counts["dropped_contaminated"] == 12


@pytest.mark.parametrize("source", ["generated", "jsonl"])
def test_other_training_problems_than_the_held_out_file_has(source, write, rows, tmp_path):
    known = draw_problems(3, seed=5)
    heldout_path = tmp_path / "heldout"
    heldout_path.mkdir()
    level = heldout_path / "level1"
    level.mkdir()
    for number, problem in enumerate(known):
        (level / f"{number}_Drawn.py").write_text(problem.source)
    files = {"heldout_source": "kernelbench", "heldout_path": str(heldout_path), "flag_trivial": False}
    path = str(write("jsonl", rows)) if source == "jsonl" else None
    (train, heldout), _ = sides(ProblemsConfig(source=source, path=path, train=5, **files), tmp_path / "set")
    assert len(train) == min(5, len(rows)) if source == "jsonl" else 5
    assert [row.problem.problem_id for row in heldout] == [f"level1_{n}_Drawn" for n in range(3)]


def test_a_function_of_the_users_reads_the_held_out_problems(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "heldout_reader.py").write_text(
        "def read(path):\n    return [{'name': file.stem, 'source': file.read_text()} for file in path.glob('*.txt')]\n"
    )
    (tmp_path / "drawn.txt").write_text(draw_problems(1, seed=5)[0].source)
    files = {"heldout_source": "heldout_reader:read", "heldout_path": str(tmp_path), "flag_trivial": False}
    (train, heldout), _ = sides(ProblemsConfig(source="modules", train=5, **files), tmp_path / "set")
    assert len(train) == 5
    assert [row.problem.name for row in heldout] == ["drawn"]


@pytest.mark.parametrize("source", ["generated", "modules"])
def test_held_out_problems_come_from_files(source):
    expected = f"found {source!r}, expected one of huggingface, jsonl, kernelbench, parquet, robust_kbench, or package"
    with pytest.raises(InputError, match=rf"problems\.heldout_source: {expected}"):
        overridden(check_configuration({}, "nothing"), [f"problems.heldout_source={source}"])


def test_one_of_the_two_settings_alone_is_refused():
    with pytest.raises(InputError, match=r"problems\.heldout_path: expected one beside problems\.heldout_source"):
        ProblemsConfig(heldout_source="jsonl").of_heldout_files()
    with pytest.raises(InputError, match=r"problems\.heldout_source: expected one beside problems\.heldout_path"):
        ProblemsConfig(heldout_path="x.jsonl").of_heldout_files()
