"""A CUDA C++ source asks for extensions with `load_inline`; other ways to build are named."""

import pytest
import torch
from torch.utils import cpp_extension

from kernels_eval.backends.cuda import recorded_extensions
from kernels_eval.sandbox.candidate_source import CandidateError

BUILD = "load_inline(name='e', cpp_sources='', cuda_sources='', functions=['f'])"
MODEL = "class ModelNew(torch.nn.Module):\n    def {}(self, *x):\n        super().__init__()\n        self.e = {}\n"
IMPORTS = "import torch\nfrom torch.utils.cpp_extension import load, load_inline\n"


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    for holder, name in ((cpp_extension, "load"), (cpp_extension, "load_inline"), (torch.cuda, "_compile_kernel")):
        monkeypatch.setattr(holder, name, getattr(holder, name))


@pytest.mark.parametrize("source", [f"e = {BUILD}\n{MODEL.format('__init__', 'e')}", MODEL.format("__init__", BUILD)])
def test_extensions_are_recorded_at_the_top_level_and_in_the_constructor(source: str) -> None:
    assert [each.name for each in recorded_extensions({"source": IMPORTS + source, "arguments": []})] == ["e"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (MODEL.format("forward", BUILD), "call it there, not in forward"),
        ("e = load(name='e', sources=['a.cu'])\n", "sources are given with load_inline"),
        ("k = torch.cuda._compile_kernel('', 'k')\n", "sources are given with load_inline"),
    ],
)
def test_other_ways_to_build_are_named(source: str, said: str) -> None:
    with pytest.raises(CandidateError, match=said):
        recorded_extensions({"source": IMPORTS + source, "arguments": []})
