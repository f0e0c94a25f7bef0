"""Runs modules of CUDA C++ on the CPU: their sources compiled by g++ with `emulation.hpp`, and loaded as one library."""

import contextlib
import ctypes
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.utils.cpp_extension

HERE = Path(__file__).parent
BESIDE = 64
_LAUNCH = re.compile(r"(\w+)<<<(.+?)>>>\((.*)\);")
_EXTERN = re.compile(r"extern __shared__ (\w+) (\w+)\[\];")
_FLAGS = ["-std=c++17", "-O0", "-w", "-shared", "-fPIC", "-fno-stack-protector", "-U_FORTIFY_SOURCE"]


class Argument(ctypes.Structure):
    """A tensor as the library takes it."""

    _fields_ = (("data", ctypes.c_void_p), ("rank", ctypes.c_int64), ("sizes", ctypes.c_int64 * 2))


class EmulatedExtension:
    """Result of `load_inline`: `forward` runs the source's host function, which launches the kernels."""

    def __init__(self, source: str, declaration: str) -> None:
        self.source = source
        self.tensors = declaration.partition("(")[2].count("torch::Tensor")
        self.number = -1
        self.library: Any = None
        self.backwards = False

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Run it; raises RuntimeError for what a GPU would not do, or for a write beside a tensor."""
        assert len(tensors) == self.tensors
        buffers = [torch.full((tensor.numel() + 2 * BESIDE,), float("nan")) for tensor in tensors]
        given = (Argument * len(tensors))()
        for place, (tensor, buffer) in enumerate(zip(tensors, buffers, strict=True)):
            buffer[BESIDE : BESIDE + tensor.numel()] = tensor.detach().flatten()
            given[place].data = buffer.data_ptr() + 4 * BESIDE
            given[place].rank = tensor.dim()
            for axis, size in enumerate(tensor.shape):
                given[place].sizes[axis] = size
        before = [buffer.clone() for buffer in buffers]
        library = self.library
        library.begin(int(self.backwards))
        getattr(library, f"run_{self.number}")(given)
        library.fault.restype = ctypes.c_char_p
        if fault := library.fault().decode():
            raise RuntimeError(fault)
        if not all(torch.equal(a.nan_to_num(0.5), b.nan_to_num(0.5)) for a, b in zip(before, buffers, strict=True)):
            raise RuntimeError("a kernel wrote into an input")
        out = torch.empty([library.result_size(axis) for axis in range(library.result_rank())])
        library.result_copy(ctypes.c_void_p(out.data_ptr()))
        return out


@contextlib.contextmanager
def recorded() -> Iterator[list[EmulatedExtension]]:
    """Make `load_inline` record what it is to build."""
    made: list[EmulatedExtension] = []

    def load_inline(name: str, cpp_sources: str, cuda_sources: str, functions: Sequence[str]) -> EmulatedExtension:
        assert list(functions) == ["forward"]
        made.append(EmulatedExtension(cuda_sources, cpp_sources))
        return made[-1]

    kept = torch.utils.cpp_extension.load_inline
    torch.utils.cpp_extension.load_inline = load_inline  # type: ignore[assignment]
    try:
        yield made
    finally:
        torch.utils.cpp_extension.load_inline = kept


def loaded(source: str) -> tuple[dict[str, Any], EmulatedExtension]:
    """Execute a module; returns its names, and the extension that it asks for, which `build` makes work."""
    names: dict[str, Any] = {}
    with recorded() as made:
        exec(source, names)
    (extension,) = made
    return names, extension


def build(extensions: Sequence[EmulatedExtension], folder: Path) -> None:
    """Compile all extensions into one library."""
    parts = ['#include "emulation.hpp"']
    for number, extension in enumerate(extensions):
        arguments = ", ".join(f"emulation::tensor_of(given[{place}])" for place in range(extension.tensors))
        parts += [
            f"namespace case_{number} {{",
            _for_a_cpu(extension.source),
            "}",
            f'extern "C" void run_{number}(const emulation::Argument* given) {{',
            f"    emulation::finish(case_{number}::forward({arguments}));",
            "}",
        ]
    parts.append(
        'extern "C" {\n'
        "void begin(int backwards) { emulation_begin(backwards); }\n"
        "const char* fault() { return emulation::fault.c_str(); }\n"
        "int result_rank() { return emulation::result.sizes.size(); }\n"
        "int result_size(int axis) { return emulation::result.sizes[axis]; }\n"
        "void result_copy(float* to) { memcpy(to, emulation::result.data, emulation::result.numel() * sizeof(float)); }\n"
        "}"
    )
    source, library = folder / "cases.cpp", folder / "cases.so"
    source.write_text("\n".join(parts))
    subprocess.run(["g++", *_FLAGS, f"-I{HERE}", str(source), "-o", str(library)], check=True, text=True)
    found = ctypes.CDLL(str(library))
    for number, extension in enumerate(extensions):
        extension.number, extension.library = number, found


def _for_a_cpu(source: str) -> str:
    """Write launches as calls, and take memory for shared arrays whose size the launch says."""
    source = _EXTERN.sub(r"\1* \2 = (\1*)emulation::dynamic_shared();", source)
    return _LAUNCH.sub(r"emulation::launch(\2, [&] { \1(\3); });", source)
