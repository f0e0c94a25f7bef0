"""`kernelmill data generate`: a file that the loader of pairs reads."""

from typer.testing import CliRunner

from flows.cli.main import app
from kernels_eval.errors import InputError
from tasks.problems.modules.corpus import draw_pairs
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


def test_a_name_that_is_no_operator_is_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "pairs.jsonl"
    result = CliRunner().invoke(app, ["data", "generate", str(path), "--pairs", "5", "--unseen", "sofmax"])
    assert isinstance(result.exception, InputError)
    assert "no operator is called sofmax" in str(result.exception)
    assert not path.exists()
