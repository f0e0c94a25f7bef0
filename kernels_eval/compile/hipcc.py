"""hipcc, in the one-shot process that builds: device code of a PyTorch extension for named targets, and its remarks.

Sources are put together as `load_inline` does under a ROCm build of PyTorch: CUDA's names are replaced by HIP's
(hipify), kernels may lie in `cpp_sources` too. Compiling needs no GPU and no ROCm build of PyTorch.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from kernels_eval.compile.extension import Extension
from kernels_eval.compile.nvcc import plain_name
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.candidate_source import CandidateError

HEADERS = Path(__file__).parent / "hip_headers"
_UNITS = {
    "main.cpp": "#include <torch/extension.h>\n",
    "cuda.cu": "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n",
}
"""Files of an extension and what `load_inline` puts before their sources."""
_HAS_KERNELS = re.compile(r"\b__global__\b")
_ERROR = re.compile(r"^([\w.]+):(\d+):\d+: (?:fatal )?error: (.*)", re.MULTILINE)
_REMARK = re.compile(r"remark:\s+(Function Name|VGPRs|VGPRs Spill|LDS Size \[bytes/block\]): (\S+)")
_FIELDS = {"VGPRs": "registers", "VGPRs Spill": "spills", "LDS Size [bytes/block]": "shared_bytes"}
_ALLOWED_FLAGS = ("-O", "-D", "-U", "-std=", "-ffast-math", "-munsafe-fp-atomics", "-fgpu-flush-denormals-to-zero")
_MAX_MESSAGE = 500


def hipcc() -> str | None:
    """Return the compiler's path; None if it is not on this machine."""
    home = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm"
    return shutil.which("hipcc") or shutil.which("hipcc", path=f"{home}/bin")


def compile_device_code(extension: Extension, folder: Path, target: str) -> list[dict[str, Any]]:
    """Compile for a target such as `hip:gfx942`; returns fields of Resources. Raises CandidateError if that fails."""
    program = hipcc()
    if program is None:
        raise CandidateError("compile_error", ErrorCategory.NO_HIPCC, "hipcc is not installed on this machine")
    architecture = target.partition(":")[2]
    resources: list[dict[str, Any]] = []
    for name, file in _hipified(extension, folder).items():
        command = [program, "--cuda-device-only", "-S", "-x", "hip", f"--offload-arch={architecture}", "-w",
                   "-Rpass-analysis=kernel-resource-usage", *_torch_flags(), *_safe_flags(extension), file.name,
                   "-o", f"{name}.{architecture}.s"]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if ran.returncode:
            raise _compile_error(ran.stderr or ran.stdout, file, _UNITS[name].count("\n"))
        resources += [{**used, "architecture": target} for used in parse_remarks(ran.stderr)]
    return resources


def parse_remarks(log: str) -> list[dict[str, Any]]:
    """Read kernels, vector registers, spilled ones and shared bytes from the remarks of `kernel-resource-usage`."""
    found: list[dict[str, Any]] = []
    for name, value in _REMARK.findall(log):
        if name == "Function Name":
            found.append({"kernel": plain_name(value)})
        elif found:
            found[-1][_FIELDS[name]] = int(value)
    return found


def _hipified(extension: Extension, folder: Path) -> dict[str, Path]:
    """Write the files that have kernels and translate their names; returns the results by the names written."""
    from torch.utils.hipify import hipify_python

    texts = {"main.cpp": extension.cpp_sources, "cuda.cu": extension.cuda_sources}
    kept = {name: "\n".join(texts[name]) for name in texts if _HAS_KERNELS.search("\n".join(texts[name]))}
    if not kept:
        raise CandidateError(
            "compile_error", ErrorCategory.NO_KERNEL, f"the extension {extension.name} defines no __global__ kernel"
        )
    for name, text in kept.items():
        (folder / name).write_text(f"{_UNITS[name]}{text}\n")
    with (
        open(os.devnull, "w") as nowhere,  # noqa: PTH123
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        translated = hipify_python.hipify(
            project_directory=str(folder),
            output_directory=str(folder),
            includes=[f"{folder}/*"],
            extra_files=[str(folder / name) for name in kept],
            is_pytorch_extension=True,
            hipify_extra_files_only=True,
        )
    results = {Path(path).name: result.hipified_path for path, result in translated.items()}
    return {name: Path(results.get(name) or folder / name) for name in kept}


def _torch_flags() -> list[str]:
    import torch

    root = Path(torch.__file__).parent / "include"
    folders = [root, root / "torch/csrc/api/include", Path(sysconfig.get_paths()["include"])]
    flags = [f"-I{folder}" for folder in folders]
    if torch.version.hip is not None:
        flags += ["-D__HIP_PLATFORM_AMD__=1", "-DUSE_ROCM=1"]
    return [*flags, "-idirafter", str(HEADERS), "-std=c++17", "-DTORCH_EXTENSION_NAME=extension"]


def _safe_flags(extension: Extension) -> list[str]:
    """Return flags that choose optimisation or define names, without those that read or write files or run programs."""
    return [flag for flag in (*extension.cpp_flags, *extension.cuda_flags) if flag.startswith(_ALLOWED_FLAGS)]


def _compile_error(text: str, file: Path, implicit_lines: int) -> CandidateError:
    """Return the first errors, with lines counted from the start of the candidate's source."""
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    before = implicit_lines + ("generated by hipify" in first)
    found = [
        f"{name} line {int(line) - before if name == file.name else line}: {said}"
        for name, line, said in _ERROR.findall(text)
    ]
    return CandidateError(
        "compile_error", ErrorCategory.HIPCC_COMPILE, "; ".join(found or text.strip().splitlines()[-3:])[:_MAX_MESSAGE]
    )
