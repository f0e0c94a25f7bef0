"""Files that are not JSON objects are refused with their name and the setting that names them."""

from pathlib import Path

import pytest

from kernels_eval.errors import InputError
from tasks.pipeline.json_file import read_json_object


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
