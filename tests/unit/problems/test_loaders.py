"""Every format gives the same problems, and every flaw is named with its file and row."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem
from tasks.problems.config import LOADER, ProblemsConfig
from tasks.problems.loaders import load_entries, source_of
from tasks.problems.problem_set import build_problem_set

SOURCES = {
    "jsonl": "jsonl",
    "parquet": "parquet",
    "saved": "huggingface",
    "saved_dict": "huggingface",
    "snapshot": "huggingface",
}


def config(source, path, **changes):
    return ProblemsConfig(source=source, path=str(path), **changes)


def load_problems(config: ProblemsConfig) -> list[Problem]:
    return [entry.problem for entry in load_entries(config)]


def checkout(folder: Path, rows) -> Path:
    for row in rows:
        level = folder / "KernelBench" / f"level{row['level']}"
        level.mkdir(parents=True, exist_ok=True)
        (level / "__init__.py").touch()
        (level / f"{row['name']}.py").write_text(row["code"])
    return folder


@pytest.mark.parametrize("kind", SOURCES)
def test_every_format_gives_the_problems_of_a_checkout(kind, write, rows, tmp_path):
    expected = load_problems(config("kernelbench", checkout(tmp_path / "checkout", rows)))
    assert [problem.problem_id for problem in expected[:2]] == ["level1_1_relu", "level1_2_tanh"]
    assert load_problems(config(SOURCES[kind], write(kind, rows))) == expected


def test_checkout_is_read_from_any_of_its_folders_in_numeric_order(rows, tmp_path):
    rows[-1]["level"] = 2
    top = checkout(tmp_path, rows)
    problems = load_problems(config("kernelbench", top))
    assert [problem.name for problem in problems] == [row["name"] for row in rows]
    assert problems[-1].level == 2
    assert load_problems(config("kernelbench", top / "KernelBench")) == problems
    assert load_problems(config("kernelbench", top / "KernelBench" / "level1")) == problems[:-1]


def test_levels_filter(rows, write):
    rows[3]["level"] = 3
    path = write("jsonl", rows)
    assert [problem.level for problem in load_problems(config("jsonl", path, levels=(3,)))] == [3]
    with pytest.raises(InputError, match=r"problems\.levels: none of \[2\] .* has levels \[1, 3\]"):
        load_problems(config("jsonl", path, levels=(2,)))


def test_own_columns_come_back(write, problem_source):
    row = {
        "problem_id": "fused-7",
        "source": problem_source(),
        "level": 2,
        "family": "chain",
        "name": "relu",
        "split": "heldout",
        "composition": "relu>relu",
        "reference_kernel": "class ModelNew: ...",
        "unknown": 1,
    }
    (entry,) = load_entries(config("parquet", write("parquet", [row])))
    assert entry.problem == Problem(problem_id="fused-7", source=problem_source(), level=2, family="chain", name="relu")
    assert (entry.split, entry.composition, entry.reference_kernel) == ("heldout", "relu>relu", "class ModelNew: ...")


def test_ids_without_a_column_do_not_depend_on_the_row(write, problem_source):
    rows = [{"code": problem_source(name)} for name in ("relu", "tanh")]
    ids = {problem.source: problem.problem_id for problem in load_problems(config("jsonl", write("jsonl", rows)))}
    again = load_problems(config("jsonl", write("jsonl", rows[::-1])))
    assert ids == {problem.source: problem.problem_id for problem in again}
    assert len(set(ids.values())) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"code": "class Model: ..."},
            "line 2: expected a KernelBench problem .* missing: get_inputs, get_init_inputs",
        ),
        ({"code": "def"}, "line 2: not Python"),
        ({"code": 7}, "line 2: column `code`: expected text, found 7"),
        ({"code": None}, "line 2: expected the problem's source in a column .*; found code, level, name, problem_id"),
        ({"level": 0}, "line 2: column `level`: expected a whole number from 1, found 0"),
        ({"level": "one"}, "line 2: column `level`.* found 'one'"),
        ({"level": True}, "line 2: column `level`"),
        ({"problem_id": "../up"}, "line 2: problem_id: .* found '../up'"),
        ({"problem_id": ""}, "line 2: problem_id"),
        ({"split": "other"}, "line 2: column `split`: expected `train` or `heldout`, found 'other'"),
        ({"problem_id": 1, "name": "1_relu"}, "line 2: problem_id level1_1_relu names another problem in .* line 1"),
    ],
)
def test_a_bad_row_is_named_and_left_out_or_stops_the_run(change, message, write, rows, caplog):
    rows[1] |= change
    path = write("jsonl", rows)
    with pytest.raises(InputError, match=rf"{message}.* \(1 of 14 rows are bad; problems\.bad_rows allows 0%\)"):
        load_problems(config("jsonl", path, bad_rows=0))
    found = load_entries(config("jsonl", path))
    assert [entry.problem.name for entry in found] == [row["name"] for row in rows if row is not rows[1]]
    assert re.search(f"left out: .*{message}", caplog.text)
    assert "1 of 14 rows are left out" in caplog.text


@pytest.mark.parametrize("kind", [*SOURCES, "array", "own"])
def test_every_format_counts_rows_from_1(kind, write, rows, tmp_path, monkeypatch):
    rows[1]["code"] = "x"
    source = SOURCES.get(kind, "jsonl")
    path = tmp_path / "array.json" if kind == "array" else write("jsonl" if kind == "own" else kind, rows)
    if kind == "array":
        path.write_text(json.dumps(rows))
    if kind == "own":
        monkeypatch.chdir(tmp_path)
        (tmp_path / "my_table_of_rows.py").write_text(
            "import json\ndef read(path):\n    return map(json.loads, path.read_text().splitlines())\n"
        )
        source = "my_table_of_rows:read"
    with pytest.raises(InputError, match=r" (line|row) 2: .* \(1 of 14 rows are bad"):
        load_problems(config(source, path, bad_rows=0))


def test_a_reader_of_ones_own_that_raises_is_named_with_the_place(write, rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_torn_reader.py").write_text("def read(path):\n    yield {'source': 'x'}\n    yield {}['level']\n")
    path = write("jsonl", rows)
    with pytest.raises(
        InputError, match=r"my_torn_reader:read raised KeyError after row 1: 'level' .*reader.py, line 3"
    ):
        load_problems(config("my_torn_reader:read", path))


def test_more_bad_rows_than_the_limit_stop_the_run(write, rows):
    for row in rows[:8]:
        row["code"] = "x"
    with pytest.raises(InputError, match=r"line 1: .* \(8 of 14 rows are bad; problems\.bad_rows allows 50%\)"):
        load_entries(config("jsonl", write("jsonl", rows)))
    for row in rows:
        row["code"] = "x"
    with pytest.raises(InputError, match=r"line 1: .* \(14 of 14 rows are bad; no good one is left\)"):
        load_entries(config("jsonl", write("jsonl", rows), bad_rows=1))


def test_the_set_counts_what_was_left_out(write, rows, tmp_path):
    rows[1]["code"] = "x"
    build_problem_set(config("jsonl", write("jsonl", rows), train=8, heldout=8, flag_trivial=False), tmp_path / "set")
    counts = json.loads((tmp_path / "set" / "manifest.json").read_text())["metadata"]
    assert (counts["loaded"], counts["left_out"]) == (13, 1)


def test_a_bad_file_of_a_checkout_is_named(rows, tmp_path):
    rows[2]["code"] = "class Model: ..."
    with pytest.raises(InputError, match=r"3_sigmoid\.py: expected a KernelBench problem"):
        load_problems(config("kernelbench", checkout(tmp_path, rows), bad_rows=0))
    (tmp_path / "KernelBench/level1/3_sigmoid.py").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"3_sigmoid\.py: not readable as UTF-8"):
        load_problems(config("kernelbench", tmp_path, bad_rows=0))
    assert len(load_problems(config("kernelbench", tmp_path))) == len(rows) - 1


@pytest.mark.parametrize("line", ["{", "[1]", "3", '"text"', '{"a": 1} {"b": 2}'])
def test_a_line_that_is_no_object_is_named(line, write, rows):
    path = write("jsonl", rows)
    path.write_text(path.read_text() + "\n" + line + "\n")
    with pytest.raises(InputError, match=f"line {len(rows) + 2}: expected"):
        load_problems(config("jsonl", path, bad_rows=0))
    assert len(load_problems(config("jsonl", path))) == len(rows)


def test_byte_order_mark_and_empty_lines_are_no_flaw(write, rows):
    path = write("jsonl", rows)
    expected = load_problems(config("jsonl", path))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n\r\n"))
    assert load_problems(config("jsonl", path)) == expected


@pytest.mark.parametrize("source", LOADER.ours)
def test_missing_and_empty_sources(source, tmp_path):
    with pytest.raises(InputError, match=r"problems\.path: .*gone: no such file or folder"):
        load_problems(config(source, tmp_path / "gone"))
    with pytest.raises(InputError, match="needs a file or folder"):
        load_problems(ProblemsConfig(source=source))
    empty = tmp_path / "empty"
    if source in {"kernelbench", "huggingface"}:
        empty.mkdir()
    else:
        empty.touch()
    with pytest.raises(InputError, match=r"empty: (expected|not a readable)"):
        load_problems(config(source, empty))


@pytest.mark.parametrize("kind", SOURCES)
def test_file_of_another_kind_is_an_input_error(kind, write, rows, tmp_path):
    """A folder where a file is expected, a file where a folder is expected."""
    path = tmp_path / "other"
    if SOURCES[kind] == "huggingface":
        path.write_text("x")
    else:
        path.mkdir()
    with pytest.raises(InputError, match="other"):
        load_problems(config(SOURCES[kind], path))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), kind=st.sampled_from(["parquet", "saved"]))
def test_damaged_binary_files_give_an_input_error_or_valid_problems(data, kind, write, rows, tmp_path):
    """Bytes cut off or overwritten: never another exception than InputError."""
    path = tmp_path / ("problems.parquet" if kind == "parquet" else "saved")
    if not path.exists():
        write(kind, rows)
    file = path if kind == "parquet" else path / "data-00000-of-00001.arrow"
    whole = file.read_bytes()
    try:
        if data.draw(st.booleans(), label="cut"):
            damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
        else:
            # Only the metadata at both ends: a changed letter inside a source is another valid source.
            offset = data.draw(st.one_of(st.integers(0, 200), st.integers(len(whole) - 200, len(whole) - 8)))
            damaged = whole[:offset] + data.draw(st.binary(min_size=1, max_size=8)) + whole[offset + 8 :]
        file.write_bytes(damaged)
        try:
            problems = load_problems(config(SOURCES[kind], path))
        except InputError:
            return
        assert all(problem.source for problem in problems)
    finally:
        file.write_bytes(whole)


def test_saved_dataset_flaws_are_named(write, rows):
    path = write("saved", rows)
    state = json.loads((path / "state.json").read_text())
    for change, message in (
        ({"_indices_data_files": [{"filename": "x"}]}, "flatten_indices"),
        ({"_data_files": None}, "_data_files"),
        ({"_data_files": [{}]}, "expected a `filename`"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, "gone.arrow: not a readable Arrow"),
    ):
        (path / "state.json").write_text(json.dumps(state | change))
        with pytest.raises(InputError, match=message):
            load_problems(config("huggingface", path))
    (path / "state.json").write_text("{")
    with pytest.raises(InputError, match="expected JSON"):
        load_problems(config("huggingface", path))


def test_the_documented_line_is_a_problem(tmp_path):
    text = (Path(__file__).parents[3] / "docs" / "problems.md").read_text(encoding="utf-8")
    path = tmp_path / "my_problems.jsonl"
    path.write_text(text.split("```json\n")[1].split("```")[0])
    (problem,) = load_problems(config("jsonl", path))
    assert problem.problem_id == "scaled_relu"


@pytest.mark.parametrize("kind", SOURCES)
def test_the_format_is_seen_at_its_path(kind, write, rows):
    assert source_of(Path(write(kind, rows))) == SOURCES[kind]


def test_the_format_of_a_checkout_and_of_tasks_is_seen(rows, tmp_path):
    top = checkout(tmp_path / "checkout", rows)
    assert {source_of(path) for path in (top, top / "KernelBench", top / "KernelBench" / "level1")} == {"kernelbench"}
    task = tmp_path / "robust" / "tasks" / "layernorm"
    task.mkdir(parents=True)
    (task / "func_forward.py").touch()
    assert {source_of(path) for path in (task, task.parent, task.parent.parent)} == {"robust_kbench"}


def test_what_has_no_format_is_named(tmp_path):
    (tmp_path / "a.csv").touch()
    for path, message in (("nothing", "no such file"), ("a.csv", "json or .parquet"), (".", "KernelBench checkout")):
        with pytest.raises(InputError, match=message):
            source_of(tmp_path / path)
