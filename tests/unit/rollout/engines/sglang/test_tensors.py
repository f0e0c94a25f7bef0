"""Weights as messages of tensors: all of them, once, and nothing in them that a server would not unpickle."""

import base64
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kernels_eval.errors import InputError
from tasks.rollout.engines.sglang import tensors as sglang_tensors
from tasks.rollout.engines.sglang.tensors import buckets, messages, shares_gpu


class Strict(pickle.Unpickler):
    """As the server's: torch and the standard containers."""

    def find_class(self, module: str, name: str) -> Any:
        assert module.split(".")[0] in ("torch", "collections", "builtins"), f"{module}.{name} would be refused"
        return super().find_class(module, name)


@pytest.mark.parametrize("limit", [1, 10_000, 1 << 30])
def test_messages_hold_every_weight_once(
    small_policy_folder: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(sglang_tensors, "BY_VALUE_BYTES", limit)
    stored = load_file(small_policy_folder / "model.safetensors")
    found: dict[str, torch.Tensor] = {}
    sizes = []
    for message, kept in messages(small_policy_folder, "cpu"):
        named = Strict(io.BytesIO(base64.b64decode(message))).load()
        assert len(named) == len(kept)
        assert not found.keys() & dict(named).keys()
        found |= named
        sizes.append((len(named), sum(tensor.nbytes for _, tensor in named)))
    assert found.keys() == stored.keys()
    assert all(torch.equal(found[name], stored[name]) for name in stored)
    assert all(count == 1 or size <= limit for count, size in sizes)
    assert (len(sizes) == 1) == (limit == 1 << 30)


def test_types_stay(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    weights = {"a": torch.randn(3, 5, dtype=torch.bfloat16), "b": torch.randn(2, dtype=torch.float16)}
    save_file(weights, tmp_path / "model-00001-of-00001.safetensors")
    ((message, _),) = messages(tmp_path, "cpu")
    found = dict(Strict(io.BytesIO(base64.b64decode(message))).load())
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in found.items()} == {
        name: (tensor.dtype, tensor.shape) for name, tensor in weights.items()
    }


def test_a_folder_without_weights_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "optimizer.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"model\*\.safetensors"):
        list(buckets(tmp_path, 1))
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match="safetensors' format"):
        list(buckets(tmp_path, 1))


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"),
    [
        (None, None, True),
        ("1", None, True),
        ("1", "0", False),
        ("1", "0, 1", True),
        (None, "0", True),
        (None, "1", False),
        ("GPU-7f", "GPU-7f", True),
        ("GPU-7f", "0", False),  # cannot be told
        ("0", "", False),
    ],
)
def test_whether_a_server_has_this_process_s_gpu(
    monkeypatch: pytest.MonkeyPatch, ours: str | None, theirs: str | None, shared: bool
) -> None:
    assert not shares_gpu(theirs), "there is none here"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    if ours is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ours)
    assert shares_gpu(theirs) == shared
