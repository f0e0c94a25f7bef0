"""A kernel in a whole model: put in the place of one class, judged with it, and said whether the model is slower."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from extras.generation.in_model import InModel, check_in_model, check_model, put_into
from flows.cli.main import run
from kernels_eval import Judge, JudgeConfig
from kernels_eval.errors import InputError
from kernels_eval.gpu.device.detection import gpu_name
from kernels_eval.problem import EXAMPLE_PROBLEM, Problem
from kernels_eval.verdict import Status, TimingSource, Verdict

MODEL = '''"""A model."""
from __future__ import annotations
import torch
import torch.nn as nn

WIDTH = 64

class Doubled(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0

class Model(nn.Module):
    def __init__(self, width):
        super(Model, self).__init__()
        self.first = nn.Linear(width, width)
        self.second = Doubled()

    def forward(self, x):
        return self.second(self.first(x))

def get_inputs():
    return [torch.randn(32, WIDTH)]

def get_init_inputs():
    return [WIDTH]

if __name__ == "__main__":
    print(Model(WIDTH)(*get_inputs()))
'''
KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def doubled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask, other=0.0)
    tl.store(out_ptr + places, tl.maximum(x, 0.0) * 2.0, mask=mask)

class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        doubled[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
WHOLE = Problem(problem_id="model", source=MODEL)
ALONE = Verdict(status=Status.CORRECT, compiled=True, correct=True, candidate_ms=0.5, reference_ms=1.0)


def test_the_kernels_class_takes_the_place_of_the_module() -> None:
    source = put_into(MODEL, "Doubled", KERNEL)
    assert source.startswith("from __future__ import annotations\n")
    assert "Doubled = KernelOfModule" in source
    assert all(part in source for part in ("super(ModelNew, self)", "super(KernelOfModule, self)"))
    assert not any(part in source for part in ("torch.relu", "get_inputs", "__main__"))
    compile(source, "model", "exec")
    assert source.count("class ModelNew(") == source.count("class KernelOfModule(") == 1


@pytest.mark.parametrize(
    ("model", "name", "kernel", "sentence"),
    [
        (MODEL, "Tripled", KERNEL, "expected a class Tripled at its top level, found Doubled"),
        (MODEL, "Model", KERNEL, "Model is the whole model"),
        (MODEL, "Doubled", KERNEL + "\nWIDTH = 3\n", "kernel and model both define WIDTH"),
        (MODEL, "Doubled", KERNEL.replace("import torch.nn as nn", "import other as nn"), "both define nn"),
    ],
)
def test_files_that_do_not_go_together(model: str, name: str, kernel: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        put_into(model, name, kernel)


def test_a_file_that_is_no_model() -> None:
    with pytest.raises(InputError, match="missing: Model, get_inputs, get_init_inputs"):
        check_model(Problem(problem_id="m", source="x = 1"), "X", "--in m.py")


@pytest.mark.parametrize("given", ["model.py", "model.py:", "model.py:a b", ":X"])
def test_a_bad_option_is_one_sentence(given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "module.py"
    module.write_text(EXAMPLE_PROBLEM)
    assert run(["generate", str(module), "--in", given, "--out", str(tmp_path / "out.py")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    ("after", "source", "helps", "words"),
    [
        (9.0, TimingSource.GPU, True, "the model 10 → 9 ms (1.11x): outputs equal"),
        (10.1, TimingSource.ROOFLINE, True, "(estimates): outputs equal"),
        (12.0, TimingSource.GPU, False, "outputs equal, but the model is slower"),
        (None, TimingSource.GPU, False, "the model not timed"),
    ],
)
def test_slower_is_said(after: float | None, source: TimingSource, helps: bool, words: str) -> None:
    estimated = source is not TimingSource.GPU
    found = InModel(
        status=Status.CORRECT, before_ms=10.0, after_ms=after, module_before_ms=1.0, module_after_ms=0.5,
        estimated=estimated,
    )  # fmt: skip
    assert found.helps is helps
    assert words in found.line
    assert "the module 1 → 0.5 ms (2.00x)" in found.line


def judged(kernel: str, judge: Judge) -> InModel:
    return asyncio.run(check_in_model(WHOLE, "Doubled", kernel, ALONE, judge))


@pytest.mark.long
def test_in_the_model_on_a_cpu() -> None:
    with Judge(JudgeConfig(workers=1)) as judge:
        found = judged(KERNEL, judge)
        assert (found.status, found.estimated) == (Status.CORRECT, True), found
        assert (found.after_ms or 1e9) < (found.before_ms or 0)
        wrong = judged(KERNEL.replace("* 2.0", "* 2.5"), judge)
        assert (wrong.status, wrong.helps) == (Status.INCORRECT, False)
        assert "in the model: incorrect" in wrong.line


@pytest.fixture(scope="module")
def gpu_judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=1, device="cuda")) as judge:
        yield judge


@pytest.mark.gpu
@pytest.mark.skipif(gpu_name() is None, reason="needs a GPU")
def test_in_the_model_on_a_gpu(gpu_judge: Judge) -> None:
    source = MODEL.replace("WIDTH = 64", "WIDTH = 2048").replace("(32,", "(4096,")
    whole = Problem(problem_id="model", source=source)
    found = asyncio.run(check_in_model(whole, "Doubled", KERNEL, ALONE, gpu_judge))
    assert (found.status, found.estimated, found.helps) == (Status.CORRECT, False, True), found
    slow = KERNEL.replace("BLOCK=1024", "BLOCK=16").replace("), 1024)", "), 16)")
    slower = asyncio.run(check_in_model(whole, "Doubled", slow, ALONE, gpu_judge))
    assert slower.status is Status.CORRECT
    assert (slower.after_ms or 0) > (found.after_ms or 0)
