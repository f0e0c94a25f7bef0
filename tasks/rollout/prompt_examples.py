"""Examples in prompts of style `instruct`: a kernel that adds two tensors, for each back end; and its language."""

from kernels_eval.config import AUTO

EXAMPLES = {
    "triton": """```python
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out
```""",
    "cuda": '''```python
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
__global__ void add_kernel(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
torch::Tensor add(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    add_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
module = load_inline("add", cpp_sources="torch::Tensor add(torch::Tensor x, torch::Tensor y);",
                     cuda_sources=cuda_source, functions=["add"])


class ModelNew(nn.Module):
    def forward(self, x, y):
        return module.add(x.contiguous(), y.contiguous())
```''',
    "tilelang": """```python
import torch
import torch.nn as nn
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def add(n, block=1024):
    @T.prim_func
    def add_kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32"), out: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=256) as b:
            for i in T.Parallel(block):
                out[b * block + i] = x[b * block + i] + y[b * block + i]

    return add_kernel


class ModelNew(nn.Module):
    def forward(self, x, y):
        return add(x.numel())(x.contiguous().view(-1), y.contiguous().view(-1)).view(x.shape)
```""",
    "cute": """```python
import torch
import torch.nn as nn
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def add_kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 256 + thread
    if i < cute.size(x):
        out[i] = x[i] + y[i]


@cute.jit
def add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    add_kernel(x, y, out).launch(grid=[cute.ceil_div(cute.size(x), 256), 1, 1], block=[256, 1, 1])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = {}

    def forward(self, x, y):
        out = torch.empty_like(x)
        tensors = [from_dlpack(tensor.contiguous().view(-1)) for tensor in (x, y, out)]
        if x.shape not in self.compiled:
            self.compiled[x.shape] = cute.compile(add, *tensors)
        self.compiled[x.shape](*tensors)
        return out
```""",
}
EXAMPLES["hip"] = (  # HIP compiles CUDA's example as it stands, with a header of its own
    EXAMPLES["cuda"]
    .replace('cuda_source = """', 'source = """\n#include <hip/hip_runtime.h>')
    .replace("cuda_sources=cuda_source", "cuda_sources=source")
)
EXAMPLES[AUTO] = f"""{EXAMPLES["triton"]}
or
{EXAMPLES["cuda"]}"""
LANGUAGES = {
    "triton": "Triton",
    "cuda": "CUDA C++",
    "tilelang": "TileLang",
    "cute": "CuTe DSL",
    "hip": "HIP C++",
    AUTO: "Triton or CUDA C++",
}
"""Languages as people call them, by back end; each has an example."""
