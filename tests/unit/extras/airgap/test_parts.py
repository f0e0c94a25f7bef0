"""Parts hold every byte once, in no more than their size."""

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from extras.airgap import parts

SIZES = st.dictionaries(st.text("abcxyz", min_size=1, max_size=6).map(lambda name: name + ".whl"), st.integers(0, 500))


@given(SIZES, st.integers(1, 120))
def test_parts_hold_every_byte_once_in_no_more_than_their_size(sizes: dict[str, int], limit: int):
    packed = parts.pack(sizes, limit)
    assert all(len(part) > 0 and sum(piece.size for piece in part) <= limit for part in packed)
    for name, size in sizes.items():
        pieces = sorted((p for part in packed for p in part if p.file == name), key=lambda piece: piece.start)
        assert [piece.start for piece in pieces] == [sum(p.size for p in pieces[:k]) for k in range(len(pieces))]
        assert sum(piece.size for piece in pieces) == size
        assert len({piece.name for piece in pieces}) == len(pieces)
    # First fit leaves at most one part half empty.
    assert len(packed) <= max(1, math.ceil(2 * sum(sizes.values()) / limit)) + sum(size == 0 for size in sizes.values())


@given(st.binary(min_size=1, max_size=600), st.integers(1, 100))
def test_pieces_joined_are_the_file(tmp_path_factory, content: bytes, limit: int):
    folder: Path = tmp_path_factory.mktemp("parts")
    out, back = folder / "out", folder / "back"
    out.mkdir()
    back.mkdir()
    (folder / "big.whl").write_bytes(content)
    entries = parts.write_parts(folder, out, parts.pack({"big.whl": len(content)}, limit))
    assert [entry["name"] for entry in entries] == ["big.whl"]
    assert not (folder / "big.whl").exists()
    assert all(sum(file.stat().st_size for file in part.iterdir()) <= limit for part in out.iterdir())
    parts.gather(out, back)
    assert (back / "big.whl").read_bytes() == content
    assert not list(out.iterdir())
