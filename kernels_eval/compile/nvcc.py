"""nvcc, in the one-shot process that builds: device code for named targets, or a whole PyTorch extension; and its log.

Sources are put together as `torch.utils.cpp_extension.load_inline` does. Compiling needs no GPU and no CUDA build of
PyTorch: headers that a CPU build lacks are replaced by the declarations that candidates use
(kernels_eval/compile/cuda_headers). Most sources need none of them (`kernels_eval.compile.slim`).
"""

import contextlib
import os
import re
import sysconfig
from collections.abc import Generator
from pathlib import Path
from typing import Any

from kernels_eval.compile.extension import (
    IMPLICIT,
    LANGUAGE,
    LOGGED,
    Extension,
    compile_error,
    nvcc_path,
    run,
    safe_flags,
)
from kernels_eval.compile.slim_builds import build_slim_library, compile_slim_device_code
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.candidate_source import CandidateError

HEADERS = Path(__file__).parent / "cuda_headers"
_UNUSED = ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS")
"""Parts of CUDA's headers that `load_inline` leaves out: an operator of PyTorch's types would be ambiguous."""
_ENTRY = re.compile(r"Compiling entry function '([^']+)' for 'sm_(\d+)a?'")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def compile_device_code(extension: Extension, folder: Path, target: str) -> str:
    """Compile for a target such as `cuda:90`; returns the assembler's log. Raises CandidateError if that fails.

    With the small headers where they suffice, else with PyTorch's: only what these do not compile is an error.
    """
    backend, _, architecture = target.partition(":")
    if backend != "cuda":
        return ""
    output = ["-cubin", f"-arch=sm_{architecture}", "-o", str(folder / f"sm_{architecture}.cubin")]
    log = compile_slim_device_code(extension, folder, output)
    if log is not None:
        return log
    source = folder / "cuda.cu"
    source.write_text(extension.cuda_text)
    flags = [*LOGGED, *_torch_flags(), *safe_flags(extension.cuda_flags)]  # a later one counts
    ran = run([nvcc_path(), *flags, str(source), *output], folder)
    if ran.returncode:
        raise compile_error(ran.stderr or ran.stdout, source.name, len(IMPLICIT))
    return ran.stderr + ran.stdout


def build_library(extension: Extension, folder: Path, targets: list[str]) -> tuple[Path, str]:
    """Build the extension; returns the library and the log. Raises CandidateError if it does not compile.

    Without PyTorch's headers where that is possible, in seconds; else as `load_inline` does, which takes a minute.
    """
    slim = build_slim_library(extension, folder, targets)
    if slim is not None:
        return slim
    torch_extensions: Any = _original_extensions()
    architectures = [target.partition(":")[2] for target in targets if target.startswith("cuda:")]
    os.environ["TORCH_CUDA_ARCH_LIST"] = ";".join(f"{name[:-1]}.{name[-1]}" for name in architectures)
    log_path = folder / "build.log"
    try:
        with _output_to(log_path):
            torch_extensions(
                name=extension.name,
                cpp_sources=list(extension.cpp_sources),
                cuda_sources=list(extension.cuda_sources) or None,
                functions=list(extension.functions) or None,
                extra_cflags=list(extension.cpp_flags),
                extra_cuda_cflags=[*extension.cuda_flags, "-Xptxas", "-v", "-w"],
                extra_ldflags=list(extension.link_flags),
                build_directory=str(folder),
                verbose=True,
                **extension.options,
            )
    except Exception as error:
        log = log_path.read_text(errors="replace") if log_path.exists() else ""
        if "error" in log or "error" in str(error):
            raise compile_error(f"{log}\n{error}", "cuda.cu", len(IMPLICIT)) from error
        raise CandidateError(
            "compile_error", ErrorCategory.NVCC_COMPILE, f"{type(error).__name__}: {str(error)[-300:]}"
        ) from error
    library = next(iter(folder.glob(f"{extension.name}*.so")), None)
    if library is None:
        raise CandidateError("compile_error", ErrorCategory.NVCC_COMPILE, "the build left no library")
    return library, log_path.read_text(errors="replace")


_load_inline: list[Any] = []


def remember_load_inline() -> None:
    """Keep PyTorch's own `load_inline`, before candidates' modules are given another one."""
    import torch.utils.cpp_extension as extensions

    if not _load_inline:
        _load_inline.append(extensions.load_inline)


def _original_extensions() -> Any:
    if not _load_inline:
        remember_load_inline()
    return _load_inline[0]


@contextlib.contextmanager
def _output_to(path: Path) -> Generator[None]:
    """Send this process's standard output and error, and its children's, to a file."""
    kept = (os.dup(1), os.dup(2))
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            for descriptor, original in enumerate(kept, start=1):
                os.dup2(original, descriptor)
                os.close(original)


def parse_resources(log: str) -> list[dict[str, Any]]:
    """Read kernels, architectures, registers, shared bytes and spilled bytes from the output of `ptxas -v`."""
    found: list[dict[str, Any]] = []
    current: dict[str, Any] | None = None
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            current = {"kernel": plain_name(entry.group(1)), "architecture": f"cuda:{entry.group(2)}"}
        elif current is not None and (spilled := _SPILLS.search(line)):
            current["spills"] = int(spilled.group(1))
        elif current is not None and (used := _USED.search(line)):
            shared = _SHARED.search(line)
            current |= {"registers": int(used.group(1)), "shared_bytes": int(shared.group(1)) if shared else 0}
            if current not in found:
                found.append(current)
            current = None
    return found


def plain_name(mangled: str) -> str:
    """Return the function's own name out of an Itanium-mangled one (`_Z11relu_kernelPKfPfl`)."""
    position = 2 if mangled.startswith("_Z") else -1
    if position < 0:
        return mangled[:200]
    if mangled[position : position + 1] == "N":
        position += 1
    name = mangled
    while match := re.match(r"(\d+)", mangled[position:]):
        start = position + len(match.group(1))
        position = start + int(match.group(1))
        name = mangled[start:position]
    return name[:200]


def _torch_flags() -> list[str]:
    import torch

    root = Path(torch.__file__).parent / "include"
    folders = [root, root / "torch/csrc/api/include", Path(sysconfig.get_paths()["include"])]
    if torch.version.cuda is None:
        folders.insert(0, HEADERS)
    flags = [f"-I{folder}" for folder in folders]
    flags += [f"-D__CUDA_NO_{name}__" for name in _UNUSED]
    return [*flags, *LANGUAGE, "-D_GLIBCXX_USE_CXX11_ABI=1", "-DTORCH_EXTENSION_NAME=extension"]
