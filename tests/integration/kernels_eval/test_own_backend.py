"""A back end of the user's own folder: the judge's processes load it, and no other one on the way."""

import importlib
import sys
from pathlib import Path

import pytest

from kernels_eval import Judge, JudgeConfig, Problem, Status
from kernels_eval.backends import backend_named
from kernels_eval.errors import InputError

pytestmark = pytest.mark.long

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1.0


def get_inputs():
    return [torch.rand(4096)]


def get_init_inputs():
    return []
"""
KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1.0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The current folder, with a back end that nothing else makes importable."""
    (tmp_path / "own_backends.py").write_text(
        "from kernels_eval.backends.triton import TritonBackend\nclass Own(TritonBackend):\n    pass\nOWN = Own()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    importlib.invalidate_caches()
    backend_named.cache_clear()
    yield
    sys.modules.pop("own_backends", None)
    backend_named.cache_clear()


def test_a_kernel_is_judged_by_it() -> None:
    with Judge(JudgeConfig(backend="own_backends:OWN", device="cpu", workers=1, compile="never")) as judge:
        verdict = judge.evaluate(Problem(problem_id="add", source=PROBLEM), KERNEL)
    assert verdict.status is Status.CORRECT, verdict.error_message


def test_it_is_named_in_the_judges_configuration_and_not_with_a_kernel() -> None:
    with (
        Judge(JudgeConfig(device="cpu", workers=1)) as judge,
        pytest.raises(InputError, match="own_backends:OWN, expected it in the judge's own configuration"),
    ):
        judge.evaluate(PROBLEM, KERNEL, backend="own_backends:OWN")


def test_a_path_that_leads_nowhere_is_refused_before_a_process_starts() -> None:
    with pytest.raises(InputError, match=r"own_backends:OTHER: expected an instance of .*it defines Own"):
        Judge(JudgeConfig(backend="own_backends:OTHER", device="cpu"))
