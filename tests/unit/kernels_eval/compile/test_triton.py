"""Triton's compiler without a GPU: figures of machine code as NVIDIA's own tool reads them, targets, messages."""

import re
import subprocess
from pathlib import Path

import pytest
import triton
from triton.compiler import ASTSource

from kernels_eval.compile.triton import compiler_message, cubin_resources, gpu_target
from kernels_eval.interpreter.kernel_loading import KernelLibrary
from kernels_eval.interpreter.triton_patches.names import compiled_function
from kernels_eval.trace.schema import KernelSource, ModuleName

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
SUM = """def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.sum(x, 0))
"""
SPILLS = """def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x_ptr + i)
    b = tl.load(x_ptr + BLOCK + i)
    c = tl.load(x_ptr + 2 * BLOCK + i)
    scale = tl.sum(a * b * c, 0)
    tl.store(out_ptr + i, a * scale + b / scale + c)
"""


def compiled(source: str, block: int, warps: int) -> bytes:
    kernel = KernelSource(
        number=0, name="kernel", source=source, line=1, globals={"tl": ModuleName(name="triton.language")}
    )
    library = KernelLibrary(lambda function, *_: compiled_function(function, False), for_interpreter=False)
    library.load([kernel])
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "BLOCK": "constexpr"}
    described = ASTSource(fn=library[0], signature=signature, constexprs={"BLOCK": block})
    made = triton.compile(described, target=gpu_target("cuda:90"), options={"num_warps": warps})
    return made.asm["cubin"]


@pytest.mark.parametrize(("source", "block", "warps"), [(SUM, 256, 4), (SUM, 4096, 1), (SPILLS, 4096, 1)])
def test_figures_of_a_cubin_are_those_of_cuobjdump(source: str, block: int, warps: int, tmp_path: Path) -> None:
    cubin = compiled(source, block, warps)
    (tmp_path / "kernel.cubin").write_bytes(cubin)
    said = subprocess.run(
        [CUOBJDUMP, "--dump-resource-usage", tmp_path / "kernel.cubin"], capture_output=True, text=True, check=True
    ).stdout
    registers, stack = (int(re.findall(rf"{name}:(\d+)", said)[-1]) for name in ("REG", "STACK"))
    assert cubin_resources(cubin) == {"registers": registers, "spills": stack}
    assert (stack > 0) == (source is SPILLS)


def test_targets_are_those_of_their_vendors() -> None:
    nvidia, amd = gpu_target("cuda:90"), gpu_target("hip:gfx942")
    assert (nvidia.backend, nvidia.arch, nvidia.warp_size) == ("cuda", 90, 32)
    assert (amd.backend, amd.arch, amd.warp_size) == ("hip", "gfx942", 64)


def test_a_message_names_the_kernels_own_line() -> None:
    text = "at 3:11:\n    x = tl.load(p)\n    y = x + missing\n               ^\nNameError('missing is not\ndefined')"
    found = compiler_message(ValueError(text))
    assert found == "ValueError: NameError('missing is not defined') (line 3 of the kernel: y = x + missing)"
    assert "division by zero" in compiler_message(ZeroDivisionError("division by zero"))
    text = "PTXAS error\n`ptxas` stderr:\nptxas /tmp/a.ptx, line 62; error   : Modifier '.a' is wrong\nptxas fatal : aborted"
    assert compiler_message(RuntimeError(text)) == "ptxas: Modifier '.a' is wrong"
