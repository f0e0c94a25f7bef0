"""Sources are read as text, up to a size: a device such as /dev/zero never ends."""

from pathlib import Path

import pytest

from kernels_eval.errors import InputError
from kernels_eval.jsonl import read_source


def test_a_device_without_end_is_refused() -> None:
    with pytest.raises(InputError, match="/dev/zero: expected a text of at most 1 MiB, found more"):
        read_source(Path("/dev/zero"), most_mib=1)


def test_line_ends_and_a_byte_order_mark_are_no_part_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 2\rc = 3\n")
    assert read_source(tmp_path / "a.py") == "a = 1\nb = 2\nc = 3\n"


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes("ü".encode("utf-16"))
    with pytest.raises(InputError, match=r"a\.py: cannot be read"):
        read_source(tmp_path / "a.py")
