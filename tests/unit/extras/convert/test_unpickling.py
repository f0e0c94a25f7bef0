"""Pickles that try to run code, and classes that are not installed."""

import contextlib
import enum
import os
import pickle
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from extras.convert.unpickling import Placeholder, load_file, load_index
from kernels_eval.errors import InputError


class Hostile:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


class Colour(enum.Enum):
    RED = 1


def attacks(target: Path) -> list[Any]:
    return [
        Hostile(os.system, f"touch {target}"),
        Hostile(eval, f"open({str(target)!r}, 'w')"),
        Hostile(Path.touch, target),
        Hostile(exec, f"open({str(target)!r}, 'w')"),
        Hostile(torch.load, str(target)),
    ]


@pytest.mark.parametrize("number", range(5))
def test_nothing_of_a_checkpoints_choice_is_called(tmp_path: Path, number: int) -> None:
    target = tmp_path / "target"
    attack = attacks(target)[number]
    torch.save({"model": {"a": torch.ones(2)}, "args": attack}, tmp_path / "file.pt")
    (tmp_path / "index").write_bytes(pickle.dumps(attack))
    for load in (lambda: load_file(tmp_path / "file.pt"), lambda: load_index(tmp_path / "index")):
        with contextlib.suppress(InputError):
            load()
        assert not target.exists()


def test_tensors_and_plain_values_are_read_and_other_classes_are_inert(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.arange(4, dtype=torch.bfloat16))
    stored = {"weight": weight, "args": Namespace(layers=4, dtype=torch.bfloat16, colour=Colour.RED), "set": {1, 2}}
    torch.save(stored, tmp_path / "file.pt")
    found = load_file(tmp_path / "file.pt")
    assert torch.equal(found["weight"], weight)
    assert found["args"].layers == 4
    assert found["args"].dtype is torch.bfloat16
    assert isinstance(found["args"].colour, Placeholder)
    assert found["set"] == {1, 2}


@pytest.mark.parametrize("content", [b"", b"\x80", b"not a pickle", pickle.dumps([1, 2])[:-3]])
def test_damage_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "damaged"
    file.write_bytes(content)
    with pytest.raises(InputError, match="damaged: cannot be read"):
        load_index(file)
    with pytest.raises(InputError, match="damaged: cannot be read"):
        load_file(file)
    with pytest.raises(InputError, match="no such file"):
        load_file(tmp_path / "nothing")
