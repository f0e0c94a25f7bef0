"""`kernelmill data generate`: a file that the loader of pairs reads."""

from typer.testing import CliRunner

from flows.cli.main import app
from kernels_eval.errors import InputError
from tasks.problems.modules.corpus import draw_optimizations, draw_pairs
from tasks.problems.pairs import load_pairs


def test_a_written_file_is_read_back_with_its_repairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    result = CliRunner().invoke(app, ["data", "generate", str(path), "--pairs", "60", "--seed", "2", "--unseen", "abs"])
    assert result.exit_code == 0, result.output
    assert "60 pairs" in result.output
    drawn = {
        (pair.problem_source, pair.kernel_source, pair.earlier_source) for pair in draw_pairs(60, 2, frozenset({"abs"}))
    }
    read = {(pair.problem_source, pair.kernel_source, pair.earlier_source) for pair in load_pairs(path)}
    assert read == drawn
    assert any(earlier for *_, earlier in read)


def test_an_optimizers_pairs_are_written_behind_the_others(tmp_path):
    path = tmp_path / "pairs.jsonl"
    numbers = ["--pairs", "5", "--optimizations", "20"]
    result = CliRunner().invoke(app, ["data", "generate", str(path), *numbers, "--seed", "2", "--unseen", "abs"])
    assert result.exit_code == 0, result.output
    assert "25 pairs" in result.output
    read = [(pair.problem_source, pair.kernel_source, pair.earlier_source) for pair in load_pairs(path)]
    unseen = frozenset({"abs"})
    drawn = [*draw_pairs(5, 2, unseen), *draw_optimizations(20, 2, unseen)]
    assert read == [(pair.problem_source, pair.kernel_source, pair.earlier_source) for pair in drawn]
    assert all(earlier is not None for *_, earlier in read[5:])


def test_a_file_of_no_pairs_is_refused(tmp_path):
    result = CliRunner().invoke(app, ["data", "generate", str(tmp_path / "pairs.jsonl"), "--pairs", "0"])
    assert isinstance(result.exception, InputError)
    assert "found 0 of both" in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_no_operator_is_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "pairs.jsonl"
    result = CliRunner().invoke(app, ["data", "generate", str(path), "--pairs", "5", "--unseen", "sofmax"])
    assert isinstance(result.exception, InputError)
    assert "no operator is called sofmax" in str(result.exception)
    assert not path.exists()
