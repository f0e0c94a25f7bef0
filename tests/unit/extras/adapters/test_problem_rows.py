"""Problems as rows: the split is ours, and every row leads back to its problem."""

from pathlib import Path

from extras.adapters.problem_rows import problem_of_row, problem_rows
from kernels_eval.problem import EXAMPLE_PROBLEM
from tasks.problems.config import ProblemsConfig
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig


def test_rows_of_the_generated_suite():
    config = ProblemsConfig(train=6, heldout=3)
    rows = {split: problem_rows(config, EpisodeConfig(prompt="source"), split) for split in Split}
    assert [len(rows[split]) for split in (Split.TRAIN, Split.HELDOUT)] == [6, 3]
    sources = {split: {row["problem_source"] for row in rows[split]} for split in Split}
    assert not sources[Split.TRAIN] & sources[Split.HELDOUT]
    row = rows[Split.TRAIN][0]
    assert row["prompt"] == [{"role": "user", "content": row["problem_source"].strip("\n") + "\n"}]
    problem = problem_of_row(row)
    assert (problem.source, problem.problem_id, problem.level) == (
        row["problem_source"],
        row["problem_id"],
        row["level"],
    )


def test_rows_of_a_file(tmp_path: Path):
    import json

    path = tmp_path / "problems.jsonl"
    path.write_text(json.dumps({"problem_id": "one", "source": EXAMPLE_PROBLEM, "split": "train", "level": 2}) + "\n")
    config = ProblemsConfig(source="jsonl", path=str(path), flag_trivial=False)
    (row,) = problem_rows(config)
    assert (row["problem_id"], row["level"]) == ("one", 2)
    assert "ModelNew" in row["prompt"][0]["content"]
    assert problem_of_row({"problem_source": "x"}).problem_id == "problem"
