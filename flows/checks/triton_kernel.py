"""A Triton kernel, interpreted or compiled: `python -m flows.checks.triton_kernel interpret | compile TARGET`.

A process of its own: a broken installation may crash it, and Triton reads TRITON_INTERPRET when it is imported.
"""

import sys
from typing import Any

import torch
import triton
import triton.language as tl
from triton.compiler import ASTSource

from kernels_eval.compile.triton import gpu_target


@triton.jit
def double(source, destination, count, BLOCK: tl.constexpr):  # noqa: N803 (Triton's custom)  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
    """Write twice the source."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(destination + place, 2 * tl.load(source + place, mask=inside), mask=inside)


def interpret() -> str:
    """Run the kernel in Triton's interpreter on CPU tensors."""
    source = torch.arange(100, dtype=torch.float32)
    destination = torch.full_like(source, -1)
    kernel: Any = double
    kernel[(4,)](source, destination, 100, BLOCK=32)
    if not torch.equal(destination, 2 * source):
        raise RuntimeError("the interpreter computed wrong values")
    return f"Triton {triton.__version__} interprets"


def compile_for(target: str) -> str:
    """Compile the kernel to machine code."""
    signature = {"source": "*fp32", "destination": "*fp32", "count": "i32", "BLOCK": "constexpr"}
    kind: Any = ASTSource
    compiled = triton.compile(kind(fn=double, signature=signature, constexprs={"BLOCK": 32}), target=gpu_target(target))
    binary = compiled.asm["cubin" if target.startswith("cuda") else "hsaco"]
    return f"{target}: {len(binary):,} bytes of machine code"


if __name__ == "__main__":
    print(interpret() if sys.argv[1] == "interpret" else compile_for(sys.argv[2]))
