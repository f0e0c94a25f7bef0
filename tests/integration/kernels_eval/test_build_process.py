"""The confined process that builds CUDA C++ for a GPU: with the small headers, reading nothing of the judge's."""

import shutil
from collections.abc import Iterator

import pytest

from kernels_eval.compile.one_shot import Builder, CompileCache
from kernels_eval.pool.scratch import Scratch
from kernels_eval.pool.zygote import Zygotes
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits

pytestmark = [pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc"), pytest.mark.timeout(300)]

SOURCE = '''
import torch
from torch.utils.cpp_extension import load_inline

code = """
__global__ void twice_kernel(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.0f * x[i];
}
torch::Tensor twice(torch::Tensor x) {
    auto out = torch::empty_like(x);
    twice_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""
module = load_inline("twice_module", "torch::Tensor twice(torch::Tensor x);", code, ["twice"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.twice(x)
'''
LIMITS = Limits(wall_s=240, memory_mb=8000, cpu_s=30)
"""A build with PyTorch's headers takes a minute of CPU time, on a busy machine too."""


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    scratch = Scratch()
    zygotes = Zygotes(scratch.path)
    made = Builder(lambda: ForkServer(zygotes.fork("build")[1]), CompileCache(), scratch.path / "builds")
    yield made
    made.close()
    zygotes.close()
    scratch.close()


def test_a_library_is_built_without_pytorch_s_headers(builder: Builder) -> None:
    built = builder.build("cuda", SOURCE, [], ("cuda:90",), True, LIMITS)
    assert (built.category, built.message) == (None, None)
    (library,) = built.libraries.values()
    assert library["name"] == "twice_module"
    assert [used.kernel for used in built.resources] == ["twice_kernel"]


def test_a_source_that_does_not_compile_is_refused_without_them(builder: Builder) -> None:
    built = builder.build("cuda", SOURCE.replace("2.0f * x[i]", "2.0f * z[i]"), [], ("cuda:90",), True, LIMITS)
    assert built.category == "nvcc_compile"
    assert built.message == 'cuda.cu line 4: identifier "z" is undefined'
