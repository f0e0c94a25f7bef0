"""Modules for a composition: CUDA C++ that `load_inline` builds, and `ModelNew`, which calls it."""

import random
from collections.abc import Collection

from tasks.problems.synthetic.composition import Composition
from tasks.problems.synthetic.cuda.kernels import Kernel, write_kernel
from tasks.problems.synthetic.cuda.program import Kind, Program, kind_of, parts, program
from tasks.problems.synthetic.cuda.styles import CudaStyle
from tasks.problems.synthetic.sources import forward_arguments, init_lines

THREADS = 256
"""Threads of a block, unless they are drawn."""
CHOICES = (64, 128, 256, 512)
"""Threads of a block that are drawn from."""
_HEADER = ["import torch", "import torch.nn as nn", "from torch.utils.cpp_extension import load_inline", ""]
_COMBINED = {"sum": "{a} += {b}", "max": "{a} = fmaxf({a}, {b})"}


def draw_threads(generator: random.Random) -> int:
    """Draw the number of threads of a block."""
    return generator.choice(CHOICES)


def cuda_source(composition: Composition, style: CudaStyle, wrong: Collection[str] = (), threads: int = THREADS) -> str:
    """Return a module that defines `ModelNew`; operators named in `wrong` are written with their mistake."""
    stepwise = style is CudaStyle.STEPWISE
    chosen = [Composition(names=(name,)) for name in composition.names] if stepwise else parts(composition)
    host, helpers, kernels = list[str](), set[str](), list[str]()
    for number, part in enumerate(chosen, start=1):
        name = f"step{number}_kernel" if len(chosen) > 1 else "fused_kernel"
        found = program(part, wrong)
        kernel = write_kernel(found, _style_of_step(part) if stepwise else style, threads)
        helpers |= set(kernel.helpers)
        kernels += [*_kernel(name, found, kernel), ""]
        host += _launch(name, found, kernel)
        if number < len(chosen):
            host.append("x = out;")
    signature = ", ".join(f"torch::Tensor {name}" for name in ["x", *composition.operands])
    code = [
        *(line for name in sorted(helpers) for line in [*_helper(name, threads), ""]),
        *kernels,
        f"torch::Tensor forward({signature}) {{",
        *(f"    {line}" for line in [*_sizes(composition), *_declared(host), "return out;"]),
        "}",
    ]
    return "\n".join([*_HEADER, *_python(composition, code, signature)]) + "\n"


def _style_of_step(part: Composition) -> CudaStyle:
    return CudaStyle.SHARED if kind_of(part) is Kind.ROW else CudaStyle.COALESCED


def _kernel(name: str, found: Program, kernel: Kernel) -> list[str]:
    pointers = [f"const float* {operand}_ptr" for operand in ("x", *found.operands)]
    kept = ["float* values_ptr"] if kernel.values else []
    sizes = ["int M", "int N", *(["int K"] if found.kind is Kind.PRODUCT else [])]
    return [
        f"__global__ void {name}({', '.join([*pointers, *kept, 'float* out_ptr', *sizes])}) {{",
        *(line if line.startswith("#") else f"    {line}" for line in kernel.body),
        "}",
    ]


def _launch(name: str, found: Program, kernel: Kernel) -> list[str]:
    lines = [f"out = torch::empty({{{found.output_shape}}}, x.options());"]
    tensors = ["x", *found.operands, "out"]
    if kernel.values:
        lines.append("values = torch::empty({M, N}, x.options());")
        tensors.insert(-1, "values")
    sizes = ["M", "N", *(["K"] if found.kind is Kind.PRODUCT else [])]
    arguments = [*(f"{tensor}.data_ptr<float>()" for tensor in tensors), *sizes]
    shared = f", {kernel.shared}" if kernel.shared else ""
    return [*lines, f"{name}<<<{kernel.grid}, {kernel.block}{shared}>>>({', '.join(arguments)});"]


def _declared(host: list[str]) -> list[str]:
    """Return the statements with `auto` before the first assignment of each tensor."""
    seen, lines = {"x"}, list[str]()
    for line in host:
        name, _, rest = line.partition(" = ")
        is_new = bool(rest) and name in {"out", "values"} and name not in seen
        seen.add(name)
        lines.append(f"auto {line}" if is_new else line)
    return lines


def _sizes(composition: Composition) -> list[str]:
    if composition.head is None:
        return ["int M = x.size(0), N = x.size(1);"]
    axis = 0 if composition.head.name == "linear" else 1
    return [f"int M = x.size(0), K = x.size(1), N = weight.size({axis});"]


def _python(composition: Composition, code: list[str], signature: str) -> list[str]:
    arguments = forward_arguments(composition)
    given = ["x", *(name if name in arguments else f"self.{name}" for name in composition.operands)]
    return [
        'source = """',
        *code,
        '"""',
        f'declaration = "torch::Tensor forward({signature});"',
        'extension = load_inline("generated", declaration, source, ["forward"])',
        "",
        "class ModelNew(nn.Module):",
        *init_lines(composition),
        f"    def forward({', '.join(['self', *arguments])}):",
        f"        return extension.forward({', '.join(given)})",
    ]


def _helper(name: str, threads: int) -> list[str]:
    """Return a function that combines what the threads of a block or the lanes of a warp found; all get the result."""
    place, _, kind = name.partition("_")
    if place == "warp":
        combined = _COMBINED[kind].format(a="value", b="__shfl_xor_sync(0xffffffff, value, step)")
        body = [f"for (int step = 16; step > 0; step /= 2) {combined};", "return value;"]
        return [f"__device__ float {name}(float value) {{", *(f"    {line}" for line in body), "}"]
    combined = _COMBINED[kind].format(a="partial[threadIdx.x]", b="partial[threadIdx.x + step]")
    body = [
        f"__shared__ float partial[{threads}];",
        "partial[threadIdx.x] = value;",
        "__syncthreads();",
        "for (int step = blockDim.x / 2; step > 0; step /= 2) {",
        f"    if (threadIdx.x < step) {combined};",
        "    __syncthreads();",
        "}",
        "value = partial[0];",
        "__syncthreads();",
        "return value;",
    ]
    return [f"__device__ float {name}(float value) {{", *(f"    {line}" for line in body), "}"]
