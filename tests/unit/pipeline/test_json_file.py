"""Files that are not JSON objects are refused with their name and the setting that names them; torn lines are left out."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from tasks.pipeline.json_file import json_lines, read_json_object


def test_an_object_is_returned(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"größe": [1]}', encoding="utf-8")
    assert read_json_object(tmp_path / "a.json") == {"größe": [1]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1]", "expected an object, found list"),
        (b"{", "expected JSON"),
        (b"\xff\xfe", "expected JSON"),
        (None, "cannot be read: No such file"),
    ],
)
def test_anything_else_is_refused_by_name(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "a.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=rf"^update\.deepspeed: {file}: {message}"):
        read_json_object(file, "update.deepspeed")


VALUES = st.one_of(st.integers(), st.text(), st.none(), st.lists(st.integers(), max_size=2))
OBJECTS = st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3), max_size=4)


@given(OBJECTS, OBJECTS, st.integers(min_value=0))
def test_all_lines_but_a_torn_one_are_read(
    tmp_path_factory: pytest.TempPathFactory, before: list[Any], after: list[Any], cut: int
) -> None:
    """A process was killed while it wrote a line; the next one begins a new line, as every writer of ours does."""
    torn = json.dumps({"torn": "ü"}, ensure_ascii=False).encode()
    lines = [*(json.dumps(each).encode() for each in before), torn[: cut % len(torn)]]
    lines += [json.dumps(each, ensure_ascii=False).encode() for each in after]
    file = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    assert list(json_lines(file)) == before + after


def test_what_is_no_object_is_left_out_and_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_bytes(b'[1]\n"a"\nnull\n{"a": 1}\n\xff\n')
    assert list(json_lines(tmp_path / "lines.jsonl")) == [{"a": 1}]
    assert list(json_lines(tmp_path / "none.jsonl")) == []
