"""Weight files written in a stream: read by the safetensors library as they were planned."""

import hashlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file

from extras.convert.huggingface import SafetensorsFolder
from kernels_eval.errors import InputError
from tasks.models.safetensors_stream import INDEX_FILE, Planned, SafetensorsFile, SafetensorsStream
from tasks.pipeline.digests import hand_over

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
SHAPES = st.lists(st.integers(1, 5), max_size=3).map(tuple)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TYPES), SHAPES), min_size=1, max_size=8), st.integers(1, 200))
def test_files_hold_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[torch.dtype, tuple[int, ...]]], shard_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("stream")
    values = {f"t{n}": torch.randn(shape).to(dtype) for n, (dtype, shape) in enumerate(drawn)}
    planned = [Planned(name, value.dtype, tuple(value.shape)) for name, value in values.items()]
    stream = SafetensorsStream(folder, planned, shard_bytes)
    for name, value in values.items():
        stream.write(name, value)
    stream.close()
    files = sorted(folder.glob("*.safetensors"))
    known = {name: digest for name, (_, _, digest) in hand_over(folder).items()}
    assert known == {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:32] for file in files}
    found = {name: value for file in files for name, value in load_file(file).items()}
    assert found.keys() == values.keys()
    assert all(torch.equal(found[name], value) for name, value in values.items())
    assert (folder / INDEX_FILE).exists() == (len(files) > 1)
    for file in files:
        sizes = [value.nbytes for value in load_file(file).values()]
        assert sum(sizes) <= shard_bytes or len(sizes) == 1
    store = SafetensorsFolder(folder)
    assert {name: tensor.shape for name, tensor in store.tensors().items()} == {p.name: p.shape for p in planned}
    assert all(torch.equal(store.get(name), value) for name, value in values.items())


def test_only_what_was_planned_in_its_order(tmp_path: Path) -> None:
    planned = [Planned("a", torch.float32, (2,)), Planned("b", torch.float32, (3,))]
    stream = SafetensorsStream(tmp_path, planned)
    with pytest.raises(InputError, match="b: found"):
        stream.write("b", torch.zeros(3))
    stream = SafetensorsStream(tmp_path, planned)
    stream.write("a", torch.zeros(2))
    with pytest.raises(InputError, match="b: planned, but never written"):
        stream.close()
    with pytest.raises(InputError, match=r"x: found torch\.int8"):
        SafetensorsStream(tmp_path, [Planned("x", torch.int8, (1,))])


def test_one_file_has_its_metadata_and_is_complete_or_refused(tmp_path: Path) -> None:
    values = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(3.0)}
    planned = [Planned(name, value.dtype, tuple(value.shape)) for name, value in values.items()]
    file = tmp_path / "optimizer" / "state.safetensors"
    with SafetensorsFile(file, planned, {"steps": "12"}) as stream:
        for name, value in values.items():
            stream.write(name, value)
    with safe_open(file, framework="pt") as stored:
        assert stored.metadata()["steps"] == "12"
    assert all(torch.equal(value, values[name]) for name, value in load_file(file).items())
    with pytest.raises(InputError, match="b: planned, but never written"), SafetensorsFile(file, planned, {}) as stream:
        stream.write("a", values["a"])
    with pytest.raises(InputError, match="expected"), SafetensorsFile(file, planned, {}) as stream:
        stream.write("b", values["b"])
