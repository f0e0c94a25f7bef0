"""CUDA C++ without a GPU: real nvcc, real PyTorch headers, a verdict that says that nothing ran."""

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels_eval import Judge, JudgeConfig, Status
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "gpu"))
import gpu_sources as gpu

pytestmark = [
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


OF_PYTORCH = """
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
template <typename T>
__global__ void larger(const T* x, T* out) { out[0] = x[0] > T(0) ? x[0] : T(0); }
template __global__ void larger<at::Half>(const at::Half* x, at::Half* out);
"""


@pytest.fixture(scope="module")
def building_judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=1, device="cpu", compile_timeout_s=60.0, targets=("cuda:80", "cuda:90"))) as judge:
        yield judge


def test_compiled_and_not_run(building_judge: Judge) -> None:
    started = time.monotonic()
    verdict = building_judge.evaluate(gpu.CUDA_PROBLEM, gpu.cuda_kernel(), backend="cuda")
    built_s = time.monotonic() - started
    assert (verdict.status, verdict.error_category) == (Status.RUNTIME_ERROR, "not_run_without_gpu"), verdict
    assert verdict.compiled
    assert not verdict.correct
    assert [used.architecture for used in verdict.resources] == ["cuda:80", "cuda:90"]
    assert {used.kernel for used in verdict.resources} == {"fused_kernel"}
    assert all(used.registers for used in verdict.resources)
    started = time.monotonic()
    again = building_judge.submit(gpu.CUDA_PROBLEM, gpu.cuda_kernel(), "cuda", {"trials": 3}).result()
    assert again.resources == verdict.resources
    assert time.monotonic() - started < built_s / 2  # alone: 5 ms; building takes 8 s and more


def test_each_kernel_is_judged_in_its_own_language() -> None:
    with Judge(JudgeConfig(workers=1, device="cpu", backend="auto")) as judge:
        imports = "import torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\n"
        model = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x\n"
        nothing = judge.evaluate(EXAMPLE_PROBLEM, imports + model)
        assert (nothing.status, nothing.error_category) == (Status.COMPILE_ERROR, "no_extension")
        assert judge.evaluate(EXAMPLE_PROBLEM, EXAMPLE_KERNEL).status is Status.CORRECT


def test_headers_that_a_cpu_build_lacks(building_judge: Judge) -> None:
    source = gpu.cuda_kernel(
        host="const at::cuda::OptionalCUDAGuard guard(device_of(x)), other(x.device()); C10_CUDA_KERNEL_LAUNCH_CHECK();"
    ).replace('source = """', f'source = """{OF_PYTORCH}')
    verdict = building_judge.evaluate(gpu.CUDA_PROBLEM, source, backend="cuda")
    assert verdict.error_category == "not_run_without_gpu", verdict


def test_the_compilers_words_with_the_candidates_line(building_judge: Judge) -> None:
    verdict = building_judge.evaluate(gpu.CUDA_PROBLEM, gpu.cuda_kernel("fmaxf(x[i], undefined)"), backend="cuda")
    assert (verdict.status, verdict.error_category) == (Status.COMPILE_ERROR, "nvcc_compile")
    assert not verdict.compiled
    assert verdict.error_message == 'cuda.cu line 4: identifier "undefined" is undefined'


@pytest.mark.parametrize(
    ("source", "category"),
    [
        ("import torch\n", "missing_model"),
        ("class ModelNew:\n    pass\n", "no_extension"),
        ("def f(:\n", "syntax_error"),
    ],
)
def test_sources_that_build_nothing(building_judge: Judge, source: str, category: str) -> None:
    verdict = building_judge.evaluate(gpu.CUDA_PROBLEM, source, backend="cuda")
    assert (verdict.status, verdict.error_category) == (Status.COMPILE_ERROR, category)
