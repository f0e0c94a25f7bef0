"""Extensions built without PyTorch's headers: real nvcc, the module loaded and called on the CPU, where it may be."""

import ctypes
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.cpp_extension

from kernels_eval.compile import slim_builds
from kernels_eval.compile.extension import Extension
from kernels_eval.compile.nvcc import build_library, compile_device_code, parse_resources
from kernels_eval.compile.slim_builds import build_slim_library, prepare_slim_builds
from kernels_eval.sandbox.candidate_source import CandidateError

pytestmark = [pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc"), pytest.mark.timeout(600)]

DECLARED = """
torch::Tensor add(torch::Tensor x, torch::Tensor y);
torch::Tensor first(const torch::Tensor& x, int64_t n, double factor, bool same);
torch::Tensor like(torch::Tensor x);
void fill(at::Tensor out);
torch::Tensor half_of(torch::Tensor x);
torch::Tensor dense(torch::Tensor x);
torch::Tensor flags(torch::Tensor x);
"""
SOURCE = """
#include <torch/extension.h>
__global__ void add_kernel(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
torch::Tensor add(torch::Tensor x, torch::Tensor y) {
    TORCH_CHECK(x.sizes() == y.sizes(), "sizes of ", x.numel(), " and ", y.numel());
    TORCH_CHECK(x.is_contiguous() && x.device().is_cuda() == x.is_cuda());
    auto out = torch::zeros({x.size(-1), x.size(0)}, x.options());
    int n = x.numel();
    const float* from = x.const_data_ptr<float>();
    float *with = y.data_ptr<float>(), *to = out.mutable_data_ptr<float>();
    if (x.is_cuda()) add_kernel<<<(n + 255) / 256, 256>>>(from, with, to, n);
    else for (int i = 0; i < n; i++) to[i] += from[i] + with[i];
    return out;
}
torch::Tensor first(const torch::Tensor& x, int64_t n, double factor, bool same) {
    if (same && n == x.dim() && factor == 2.5 && x.stride(0) == x.strides()[0]) return x;
    return torch::zeros_like(torch::empty(x.sizes(), x.options()));
}
torch::Tensor like(torch::Tensor x) { return torch::empty_like(x); }
template <typename T>
__global__ void half_kernel(const T* x, T* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] / 2;
}
torch::Tensor half_of(torch::Tensor x) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "half_of", ([&] {
        if (x.device().type() == torch::kCUDA)
            half_kernel<scalar_t><<<(n + 255) / 256, 256>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
        else for (int i = 0; i < n; i++) out.data_ptr<scalar_t>()[i] = x.data_ptr<scalar_t>()[i] / 2;
    }));
    return out;
}
torch::Tensor dense(torch::Tensor x) {
    TORCH_CHECK(x.dtype() == torch::kFloat32 || x.dtype() == at::kDouble, "expected floats");
    TORCH_CHECK(x.device() == x.contiguous().device() && x.device().index() == x.contiguous().device().index());
    return x.contiguous();
}
torch::Tensor flags(torch::Tensor x) {
    auto out = torch::zeros({7}, x.options().dtype(torch::kInt64));
    auto* to = out.data_ptr<int64_t>();
    to[0] = x.scalar_type() == torch::kFloat32;
    to[1] = x.scalar_type() == torch::kFloat64;
    to[2] = x.scalar_type() == torch::kHalf;
    to[3] = x.scalar_type() == torch::kBFloat16;
    to[4] = x.scalar_type() == torch::kInt;
    to[5] = x.scalar_type() == torch::kBool;
    to[6] = x.is_cpu() && !x.is_cuda() && x.device().type() != torch::kCUDA && x.scalar_type() != torch::kLong;
    return out;
}
void fill(at::Tensor out) { for (int i = 0; i < out.numel(); i++) out.data_ptr<int64_t>()[i] = 7; }
"""


def extension(source: str = SOURCE) -> Extension:
    return Extension.of("slim_parts", DECLARED, source, ["add", "first", "like", "fill", "half_of", "dense", "flags"])


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    prepare_slim_builds()


@pytest.fixture(scope="module", params=["with few headers", "with the C++ library's"])
def module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if torch.version.cuda is None:  # a CPU build of PyTorch has not loaded it
        folder = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64"
        ctypes.CDLL(str(folder / "libcudart.so"), ctypes.RTLD_GLOBAL)
    source = SOURCE if request.param == "with few headers" else SOURCE.replace("int n = x", "std::string s; int n = x")
    built = build_slim_library(extension(source), tmp_path_factory.mktemp("slim"), ["cuda:80", "cuda:90"])
    assert built is not None
    library, log = built
    assert {used["architecture"] for used in parse_resources(log)} == {"cuda:80", "cuda:90"}
    spec = importlib.util.spec_from_file_location("slim_parts", library)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_tensors_and_numbers_go_in_and_tensors_come_out(module: Any) -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    out = module.add(x, y)
    assert out.shape == (4, 3)
    assert torch.equal(out.flatten(), (x + y).flatten())
    assert module.first(x, 2, 2.5, True) is x
    assert torch.equal(module.first(x, 2, 2.4, True), torch.zeros(3, 4))
    numbers = torch.zeros(5, dtype=torch.int64)
    assert module.fill(numbers) is None
    assert numbers.tolist() == [7] * 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_type_is_chosen_by_the_tensor_s_own(module: Any, dtype: torch.dtype) -> None:
    x = torch.randn(5, dtype=dtype)
    assert torch.equal(module.half_of(x), x / 2)
    with pytest.raises(RuntimeError, match='"half_of" not implemented for'):
        module.half_of(x.half())


def test_a_dense_copy_is_made_where_there_is_none(module: Any) -> None:
    x = torch.randn(3, 4)
    assert module.dense(x) is x
    turned = module.dense(x.t())
    assert turned.is_contiguous()
    assert torch.equal(turned, x.t())
    with pytest.raises(RuntimeError, match="expected floats"):
        module.dense(x.int())


@pytest.mark.parametrize(
    ("dtype", "place"),
    [
        (torch.float32, 0), (torch.float64, 1), (torch.float16, 2), (torch.bfloat16, 3), (torch.int32, 4),
        (torch.bool, 5),
    ],
)  # fmt: skip
def test_types_have_their_numbers(module: Any, dtype: torch.dtype, place: int) -> None:
    assert module.flags(torch.zeros(2, dtype=dtype)).tolist() == [int(at == place) for at in range(6)] + [1]


@pytest.mark.parametrize(
    "given",
    [
        torch.randn(3, 4),
        torch.randn(3, 4).t(),
        torch.randn(2, 3, 4, 5).permute(0, 2, 3, 1),
        torch.randn(6, 8)[::2, ::2],
        torch.zeros(0, 3),
        torch.tensor(1.0),
    ],
    ids=["contiguous", "transposed", "channels last", "with holes", "empty", "one number"],
)
def test_empty_like_has_pytorch_s_strides(module: Any, given: torch.Tensor) -> None:
    found, expected = module.like(given), torch.empty_like(given)
    assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)


def test_what_is_wrong_is_an_exception_as_with_pybind(module: Any) -> None:
    x = torch.randn(3, 4)
    with pytest.raises(TypeError, match="expected 2 arguments, found 1"):
        module.add(x)
    with pytest.raises(TypeError):
        module.add(None, x)
    with pytest.raises(TypeError):
        module.first(x, 1.5, 2.5, True)
    with pytest.raises(RuntimeError, match="sizes of 12 and 2"):
        module.add(x, torch.randn(2))
    with pytest.raises(RuntimeError, match="another type"):
        module.add(x, x.double())
    with pytest.raises(IndexError):
        module.add(torch.tensor(1.0), torch.tensor(2.0))


def test_no_tensor_is_kept(module: Any) -> None:
    x = torch.randn(3, 4)
    before = sys.getrefcount(x)
    for _ in range(100):
        module.first(x, 2, 2.5, True)
        module.add(x, x)
    assert sys.getrefcount(x) == before
    assert x._use_count() == torch.randn(1)._use_count()


@pytest.mark.slow
def test_all_that_the_small_headers_declare_is_pytorch_s_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slim_builds, "slim_signatures", lambda _: None)
    assert parse_resources(compile_device_code(extension(), tmp_path, "cuda:90"))


@pytest.mark.slow
def test_what_they_lack_is_compiled_with_pytorch_s_headers(tmp_path: Path) -> None:
    source = extension(SOURCE.replace("torch::empty_like(x)", "torch::empty_like(x.view({-1}))"))
    assert build_slim_library(source, tmp_path, ["cuda:90"]) is None
    assert parse_resources(compile_device_code(source, tmp_path, "cuda:90"))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("x[i] + y[i]", "x[i] + undefined", r'cuda\.cu line 5: identifier "undefined" is undefined'),
        ("x[i] + y[i];", "x[i] + y[i]", r"cuda\.cu line 6: expected a"),
        ("if (i < n)", "__shared__ float much[100000]; much[i] = n; if (much[0] < n)", "too much shared"),
    ],
)
def test_errors_that_pytorch_s_headers_would_not_mend_are_final(
    before: str, after: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("PyTorch's headers were read")

    monkeypatch.setattr(torch.utils.cpp_extension, "load_inline", fail)
    monkeypatch.setattr("kernels_eval.compile.nvcc._load_inline", [])
    wrong = extension(SOURCE.replace(before, after))
    with pytest.raises(CandidateError, match=message):
        build_library(wrong, tmp_path, ["cuda:90"])
    with pytest.raises(CandidateError, match=message):
        compile_device_code(wrong, tmp_path, "cuda:90")
